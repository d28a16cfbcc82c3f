// The page asks for what is new every second, and says where it can't.
const KEPT = 300, EVERY_MS = 1000, AGAIN_MS = 3000;
const state = { batches: [], status: null, drawn: false, open: true };

function tiles() {
  const { status } = state, { counts } = status, last = state.batches[state.batches.length - 1];
  const shown = [["Batch", exact(status.batch_id)], ["Events in", exact(counts.input)], ["Accepted", exact(counts.accepted)],
    ["Late", exact(counts.late), counts.late ? "late" : ""], ["Dead", exact(counts.dead), counts.dead ? "dead" : ""],
    ["Watermark, UTC", time(status.watermark)], ["Lag, last batch", duration(last ? lag(last) : null)]];
  renew(at("tiles"), shown, ([label]) => label, ([label]) => made("div", { class: "card tile" }, made("dt", {}, label), made("dd")), (tile, [, value, name]) => {
    say(tile.lastChild, value);
    tile.lastChild.className = [name, value.length > 11 ? "long" : ""].join(" ");
  });
}

async function longest() {
  if (!state.open || !state.status.keeps_open) return;
  let answer;
  try { answer = await ask("/v1/open", { limit: 10 }); } catch (error) {
    if (error.status !== 403) throw error;
    // Keys that nobody named are not told here (serve.ranges).
    state.open = false;
    at("open-card").hidden = true;
    return;
  }
  const { list, columns } = state.status, rows = answer[list], length = row => row[columns.end] - row[columns.start], most = Math.max(1, ...rows.map(length));
  at("open-card").hidden = false;
  at("open-none").hidden = rows.length > 0;
  at("open").hidden = !rows.length;
  const key = (row, place) => {
    const button = place.firstChild || place.appendChild(made("button", { class: "key", type: "button", onclick: () => go(button.dataset.of, at("cold").checked) }));
    button.dataset.of = row[columns.key];
    say(button, row[columns.key] || "(empty)");
  };
  const bar = (row, place) => {
    if (!place.firstChild) place.append(made("svg", { viewBox: "0 0 200 10", width: 200, height: 10, "aria-hidden": "true" }, made("rect", { class: "lane", width: 200, height: 10, rx: 3 }), made("rect", { class: "dot", height: 10, rx: 3 })));
    place.firstChild.lastChild.setAttribute("width", Math.max(2, 200 * length(row) / most));
  };
  fill(at("open").querySelector("table"), [["key", key], ["since, UTC", row => time(row[columns.start])], ["length", row => duration(length(row))], ["beside the longest", bar], ["events", row => exact(row.event_count), true]],
    rows, row => row[columns.key] + " " + row[columns.start]);
}

async function draw() {
  tiles();
  charts(state.batches, state.status.quiet_after_us);
  await longest();
  await lookUp();
  state.drawn = true;
}

async function followed() {
  const last = state.batches.length ? state.batches[state.batches.length - 1].batch_id : -1;
  const answer = await ask("/v1/batches", { after: last });
  // Another pipeline's server, or a warehouse that was built anew.
  const anew = answer.batch_id < last;
  state.batches = anew ? [] : state.batches.concat(answer.batches).slice(-KEPT);
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
  say(at("about"), `${status.list} · ${status.shards.all - missing} of ${status.shards.all} shards here` + (missing ? ", the rest from the tables" : ""));
  say(at("look-up-title"), `Look up a key's ${status.list}`);
  at("cold-label").hidden = !status.keeps_open;
  if (status.stale) live("idle", `no batch for ${duration(status.age_us)}: the stream has stopped, or has no events`);
  else live("on", `batch ${exact(status.batch_id)}, committed ${duration(status.age_us)} ago`);
}

function go(key, cold) {
  const to = address(key, cold);
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

at("look-up").addEventListener("submit", event => { event.preventDefault(); go(at("key").value, at("cold").checked); });
at("values").addEventListener("toggle", () => { if (state.status) charts(state.batches, state.status.quiet_after_us); });
at("paths").addEventListener("toggle", () => { if (at("paths").open) paths().catch(look); });
addEventListener("hashchange", () => { takeAddress(); look(); if (state.status) lookUp().catch(look); });
addEventListener("resize", () => { state.drawn = false; });
takeAddress();
look();
