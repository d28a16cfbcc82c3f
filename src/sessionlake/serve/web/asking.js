// Questions to this server, with the token of this tab; and what the head of a page says of it.
const PATIENCE_MS = 15000, asked = { answered: null };
// The page may lie below the server's own: a pipeline's of a project is at /p/NAME/.
const BASE = location.pathname.replace(/\/$/, "");
let token = sessionStorage.getItem("token");

function keep(text) {
  token = text;
  sessionStorage.setItem("token", text);
}

async function raw(path) {
  let answer, text;
  try {
    answer = await fetch(BASE + path, { headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    text = await answer.text();
  } catch { throw Object.assign(new Error("unreachable"), { unreachable: true }); }
  asked.answered = Date.now() * 1000;
  if (answer.ok) return text;
  let line = `The server answered with status ${answer.status}.`;
  try { line = parsed(text).error || line; } catch { /* a proxy's own page */ }
  throw Object.assign(new Error(line), { status: answer.status });
}
const ask = async (path, parameters) => parsed(await raw(path + "?" + new URLSearchParams({ times: "us", ...parameters })));

function live(name, text) { at("live").className = name; say(at("live"), text); }
function problem(text) { at("problem").hidden = !text; say(at("problem"), text || ""); }
