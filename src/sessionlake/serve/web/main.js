// The page asks for what is new every second, and says where it can't.
const EVERY_MS = 1000, AGAIN_MS = 3000;

function tiles() {
  const { status } = state, { counts } = status, last = state.batches[state.batches.length - 1];
  const shown = [["Batch", exact(status.batch_id)], ["Events in", exact(counts.input)],
    ...outcomes(status.outcomes, [counts]).map((of, i) => [outcome(of), exact(counts[of]), counts[of] ? of : "", i ? "+" : "=", of === "dead" && status.ranges ? openLetters : null]),
    ["Watermark, UTC", time(status.watermark)], ["Lag, last batch", duration(last ? lag(last) : null)]];
  const make = ([label, , , sign, open]) => made("div", { class: "card tile" },
    made("dt", {}, ...(sign ? [made("span", { class: "sign", "aria-hidden": "true" }, sign)] : []), label),
    made("dd", {}, ...(open ? [made("button", { class: "key", type: "button", title: "Show them", onclick: open })] : [])));
  renew(at("tiles"), shown, ([label]) => label, make, (tile, [, value, name]) => {
    say(tile.querySelector("button") || tile.lastChild, value);
    tile.lastChild.className = [name, value.length > 11 ? "long" : ""].join(" ");
  });
}

function openLetters() {
  at("dead-card").open = true;
  at("dead-card").scrollIntoView({ behavior: "smooth" });
  at("dead-card").querySelector("summary").focus({ preventScroll: true });
}

const pageRows = () => Math.min(25, state.status.max_rows);

// The reasons of dead letters, and the rows of one of them or of all.
const reasons = { picked: null, dead: null, due: 0 };
const letters = paged("letters", () => ({ path: "/v1/dead_letters", list: "dead_letters", parameters: { limit: pageRows(), ...(reasons.picked == null ? {} : { reason: reasons.picked }) } }),
  rows => columnsOf(rows, ["commit_id"], ["event_time"]).map(([name, of, number]) => [name, (row, place) => {
    const text = short(of(row), 500);
    place.classList.toggle("long", text.length > 100);
    return text;
  }, number]), "Dead letters, those of the newest batch first", row => row.batch_id);

async function showReasons() {
  const { dead } = state.status.counts, began = Date.now();
  let answer;
  reasons.due = Infinity;
  try { answer = await ask("/v1/dead_letter_reasons", {}); } catch (error) {
    if (error.status === 401 || !error.status) throw error;
    say(at("reasons-said"), error.message);
    return;
  } finally { reasons.due = Date.now() + 10 * (Date.now() - began); }
  const rows = answer.reasons, events = rows.filter(row => row.kind === "event").reduce((sum, row) => sum + row.rows, 0);
  const less = answer.complete && events < dead ? ` Of ${exact(dead)} dead events the table still has ${exact(events)}.` : "";
  say(at("reasons-said"), (rows.length ? `${answer.complete ? plural(rows.length, "reasons") : `The ${exact(rows.length)} commonest reasons`}; a click shows the rows of one.` : "There are no dead letters.") + less);
  at("reasons").hidden = !rows.length;
  const reason = (row, place) => {
    const button = place.firstChild || place.appendChild(made("button", { class: "key", type: "button", onclick: () => { reasons.picked = button.of === reasons.picked ? null : button.of; letters.restart().catch(look); showReasons().catch(look); } }));
    button.of = row.reason;
    button.setAttribute("aria-pressed", row.reason === reasons.picked);
    say(button, row.reason || "(none)");
  };
  if (rows.length) fill(at("reasons").querySelector("table"), [["reason", reason], ["rows", row => exact(row.rows), true], ["of", row => row.kind], ["last batch", row => exact(row.last_batch), true]],
    rows, row => row.kind + " " + row.reason, (line, row) => { line.className = row.reason === reasons.picked ? "picked" : ""; });
}

function followLetters() {
  const { dead } = state.status.counts;
  if (!at("dead-card").open || reasons.dead === dead || Date.now() < reasons.due) return;
  reasons.dead = dead;
  showReasons().catch(look);
  letters.follow();
}

// All rows, of whatever key.
const everything = paged("all", () => ({ path: "/v1/" + state.status.list, list: state.status.list, parameters: { limit: pageRows(), key_from: "", ...(at("all-cold").checked ? { cold: "true" } : {}) } }), rows => {
  // A column that only repeats a part of the key is left out.
  const { columns, key_columns: names } = state.status, hidden = names.filter((name, i) => rows.every(row => row[name] === partsOf(row[columns.key])[i]));
  return [[names.length > 1 ? names.join(", ") : "key", keyCell], ...columnsOf(rows, [columns.key, columns.id, ...hidden], timesOf(state.status))];
}, "All rows", identity);

async function longest() {
  if (!state.status.keeps_open || !state.status.ranges) return;
  const answer = await ask("/v1/open", { limit: 10 });
  const { list, columns } = state.status, rows = answer[list], length = row => row[columns.end] - row[columns.start], most = Math.max(1, ...rows.map(length));
  at("open-card").hidden = false;
  at("open-none").hidden = rows.length > 0;
  at("open").hidden = !rows.length;
  const bar = (row, place) => {
    if (!place.firstChild) place.append(made("svg", { viewBox: "0 0 200 10", width: 200, height: 10, "aria-hidden": "true" }, made("rect", { class: "lane", width: 200, height: 10, rx: 3 }), made("rect", { class: "dot", height: 10, rx: 3 })));
    place.firstChild.lastChild.setAttribute("width", Math.max(2, 200 * length(row) / most));
  };
  fill(at("open").querySelector("table"), [["key", keyCell], ["since, UTC", row => time(row[columns.start])], ["length", row => duration(length(row))], ["beside the longest", bar], ["events", row => exact(row.event_count), true]],
    rows, row => row[columns.key] + " " + row[columns.start]);
}

async function draw() {
  tiles();
  charts(state.batches, state.status.quiet_after_us);
  followLetters();
  if (at("all-card").open) everything.follow();
  await longest();
  await lookUp();
  state.drawn = true;
}

// An answer has so many batches: those before are asked for until the range is full, or the server keeps no more.
async function older() {
  const [, most, us] = range();
  for (;;) {
    const { batches } = state, first = batches[0];
    if (!first || first.batch_id === state.oldest || batches.length >= most || (us != null && first.committed_at < batches[batches.length - 1].committed_at - us)) return;
    const before = (await ask("/v1/batches", { before: first.batch_id })).batches;
    state.batches = before.concat(batches).slice(-KEPT);
    if (before.length) state.drawn = false; else state.oldest = first.batch_id;
  }
}

async function followed() {
  const last = state.batches.length ? state.batches[state.batches.length - 1].batch_id : -1;
  const answer = await ask("/v1/batches", { after: last });
  // Another pipeline's server, or a warehouse that was built anew.
  const anew = answer.batch_id < last;
  state.batches = anew ? [] : state.batches.concat(answer.batches).slice(-KEPT);
  if (anew) state.oldest = null;
  await older();
  state.status = await ask("/v1/status", {});
  at("token").hidden = true;
  at("board").hidden = false;
  head();
  if (answer.batches.length || anew || !state.drawn) { state.drawn = false; await draw(); }
  problem(state.status.failure);
}

function late(error) {
  state.drawn = false;
  if (!error.unreachable) { live("off", "no answer"); problem(`${error.message} (tried again every ${AGAIN_MS / 1000} seconds)`); return; }
  const since = asked.answered ? ` since ${time(asked.answered)} UTC` : "";
  live("off", "server can't be reached");
  problem(`The server can't be reached${since}. It is tried again every ${AGAIN_MS / 1000} seconds.` + (state.status ? " What is shown is as of its last answer." : ""));
}

function head() {
  const { status } = state, missing = Object.keys(status.shards.missing).length;
  document.title = status.pipeline + " · sessionlake";
  say(at("name"), status.pipeline);
  const { all, from } = status.shards;
  const place = from === "tables" ? "read from the tables" :
    from === "next batch" ? `${exact(missing)} of ${exact(all)} stores follow with the next batch; until then their rows come from the tables` :
    `${exact(all - missing)} of ${exact(all)} shards here` + (missing ? ", the rest from the tables" : "");
  say(at("about"), `${named(status.list)} · ${place}`);
  say(at("look-up-title"), `Look up a key's ${named(status.list)}`);
  say(at("all-title"), `All ${named(status.list)}`);
  at("cold-label").hidden = at("all-cold-label").hidden = !status.keeps_open;
  at("dead-card").hidden = at("all-card").hidden = !status.ranges;
  keyFields();
  if (status.stale) live("idle", `no batch for ${duration(status.age_us)}: the stream has stopped, or has no events`);
  else live("on", `batch ${exact(status.batch_id)}, committed ${duration(status.age_us)} ago`);
}

function go(asked, cold) {
  const to = address(asked, cold);
  if (location.hash === to) { lookUp().catch(look); return; }
  location.hash = to;  // the listener looks it up
}

// The paths, as the server describes them.
async function paths() {
  const described = parsed(await raw("/openapi.json"));
  const rows = Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, of]) => [method.toUpperCase() + " " + path, of]));
  const named = of => (of.parameters || []).map(one => one.name + (one.required ? " (required)" : "")).join(", ") || (of.requestBody ? "a JSON object" : "");
  fill(at("paths-scroll").querySelector("table"), [["path", ([path]) => path], ["parameters", ([, of]) => named(of)], ["answers", ([, of]) => of.description || ""]], rows, ([path]) => path);
}

at("look-up").addEventListener("submit", event => { event.preventDefault(); go(fromFields(), at("cold").checked); });
at("values").addEventListener("toggle", () => { if (state.status) charts(state.batches, state.status.quiet_after_us); });
at("paths").addEventListener("toggle", () => { if (at("paths").open) paths().catch(look); });
addEventListener("hashchange", () => { takeAddress(); look(); if (state.status) lookUp().catch(look); });
at("range").addEventListener("change", () => { state.drawn = false; look(); });
at("dead-card").addEventListener("toggle", () => { reasons.dead = null; if (state.status) followLetters(); });
at("all-card").addEventListener("toggle", () => { if (at("all-card").open) everything.restart().catch(look); });
at("all-cold").addEventListener("change", () => everything.restart().catch(look));
// A pipeline of a project has its page below the project's.
const above = BASE.match(/^(.*)\/p\/[^/]+$/);
if (above) at("name").before(made("a", { id: "back", href: above[1] + "/" }, "← all pipelines"));
addEventListener("resize", () => { state.drawn = false; });
takeAddress();
look();
