// Questions to this server, with the token of this tab, again and again; and what the head of a page says of it.
// A page has its periods EVERY_MS and AGAIN_MS, `followed`, which asks and shows, and `late`, which is told of an error.
const PATIENCE_MS = 15000, asked = { answered: null, timer: null, looking: false };
// The page may lie below the server's own: a pipeline's of a project is at /p/NAME/.
const BASE = location.pathname.replace(/\/$/, "");
let token = sessionStorage.getItem("token");

function keep(text) {
  token = text;
  sessionStorage.setItem("token", text);
}

// The token behind the # of an address, which no server is sent, is taken away: nobody is to copy it with the address.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("token")) return given;
  keep(given.get("token"));
  given.delete("token");
  history.replaceState(null, "", location.pathname + location.search + (given.size ? "#" + given : ""));
  return given;
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

async function look() {
  clearTimeout(asked.timer);
  if (asked.looking) return;
  asked.looking = true;
  let again = EVERY_MS;
  try {
    if (!document.hidden) await followed();
  } catch (error) {
    again = error.status === 401 ? null : AGAIN_MS;
    if (error.status === 401) noToken(); else late(error);
  } finally { asked.looking = false; }
  if (again) asked.timer = setTimeout(look, again);
}

// Not asked again by itself: each attempt counts.
function noToken() {
  at("token").hidden = false;
  at("board").hidden = true;
  live("off", "no token");
  problem(token ? "That is no token of this server." : null);
}

// A link can't send a token: what is behind it is asked for here, and opened.
async function openAsked(event) {
  if (!token) return;
  event.preventDefault();
  const path = "/" + event.currentTarget.getAttribute("href"), type = path.endsWith(".json") ? "application/json" : "text/plain";
  location.assign(URL.createObjectURL(new Blob([await raw(path)], { type })));
}

at("token-form").addEventListener("submit", event => {
  event.preventDefault();
  keep(at("token-text").value.trim());
  at("token-text").value = "";
  look();
});
for (const link of document.querySelectorAll("a.asked")) link.addEventListener("click", event => openAsked(event).catch(look));
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
