// The page of a project asks for the state of all pipelines every two seconds.
const EVERY_MS = 2000, AGAIN_MS = 4000;
const state = { drawn: "" };
const TONES = { running: "good", idle: "late", starting: "late", behind: "late", failing: "dead", unreadable: "dead" };
// Whether nobody need look at a pipeline: it runs, or has ended as asked, and its counts add up.
const broken = one => TONES[one.state] === "dead" || one.reconciles === false;
const fine = one => !broken(one) && (["running", "idle"].includes(one.state) || (one.state === "stopped" && one.ended === true));

function spark(place, history) {
  const most = Math.max(1e-9, ...history.map(([, rate]) => rate)), width = 120, height = 22;
  const x = i => history.length < 2 ? width / 2 : 1 + i / (history.length - 1) * (width - 2), y = rate => height - 2 - rate / most * (height - 4);
  const drawing = made("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": history.length ? `events a second in ${plural(history.length, "batches")}: the last one ${rough(history[history.length - 1][1])}, the most ${rough(most)}` : "no batches" });
  drawing.append(made("path", { class: "curve", d: history.map(([, rate], i) => (i ? "L" : "M") + x(i).toFixed(1) + " " + y(rate).toFixed(1)).join("") }));
  place.replaceChildren(drawing);
}

function rows(found) {
  const link = (row, place) => {
    if (!place.firstChild) place.append(made("a", { href: `/p/${row.name}/` }, row.name));
  };
  const told = (row, place) => {
    if (!place.firstChild) place.append(made("span"), made("p", { class: "soft advice" }));
    say(place.firstChild, row.state);
    place.firstChild.className = TONES[row.state] || "soft";
    say(place.lastChild, row.advice || "");
    place.lastChild.hidden = !row.advice;
  };
  const rate = (row, place) => {
    const shape = JSON.stringify(row.history);
    if (place.dataset.of !== shape) { place.dataset.of = shape; spark(place, row.history); }
  };
  const count = what => row => row.counts ? exact(row.counts[what]) : "–";
  const job = row => row.jobs?.length ? row.jobs[0].job + (row.jobs[0].finished ? "" : ", not finished") : "–";
  fill(at("states").querySelector("table"), [["pipeline", link], ["state", told], ["events a second", rate], ["last minute", row => row.events_per_second == null ? "–" : rough(row.events_per_second), true],
    ["lag", row => duration(row.lag_us), true], ["events", count("input"), true], ...outcomes(found.outcomes, found.pipelines.map(row => row.counts)).map(of => [outcome(of).toLowerCase(), count(of), true]),
    ["store", row => row.store_bytes == null ? "–" : (row.store_bytes / 1e6).toFixed(1) + " MB", true], ["last job", job], ["quality", row => row.quality == null ? "–" : row.quality ? "green" : "RED"]],
    found.pipelines, row => row.name);
}

// The places are the server's, which has them for `sessionlake graph` too.
function graph(found) {
  const { width, height, wide, tall, places } = found.picture;
  const told = found.edges.map(edge => `${edge.to} reads ${edge.reads} of ${edge.from}`).join(", ") || "no pipeline reads another one";
  const drawing = made("svg", { class: "fixed", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told });
  for (const edge of found.edges) {
    const [x, y] = places[edge.from], [u, v] = places[edge.to], half = (x + wide + u) / 2, from = y + tall / 2, to = v + tall / 2;
    const rate = found.pipelines.find(one => one.name === edge.to).events_per_second;
    drawing.append(made("path", { class: "curve", d: `M${x + wide} ${from}C${half} ${from} ${half} ${to} ${u} ${to}` }));
    // The rate is at the edge's end, on the side from which the edge does not come.
    const label = made("text", { x: u - 6, y: to > from ? to + 14 : to - 6, "text-anchor": "end" }, rate == null ? "" : `${rough(rate)}/s`);
    label.append(made("title", {}, edge.reads));
    drawing.append(label);
  }
  for (const one of found.pipelines) {
    const [x, y] = places[one.name];
    drawing.append(made("rect", { class: "node " + (TONES[one.state] || "soft"), x, y, width: wide, height: tall, rx: 8 }),
      made("text", { class: "named", x: x + 12, y: y + 20 }, one.name.length > 18 ? one.name.slice(0, 17) + "…" : one.name), made("text", { x: x + 12, y: y + 37 }, `${one.operator}, ${one.state}`));
  }
  at("graph").replaceChildren(drawing);
}

async function followed() {
  const found = parsed(await raw("/v1/project"));
  at("token").hidden = true;
  at("board").hidden = false;
  say(at("name"), found.directory.split("/").filter(Boolean).pop() || found.directory);
  document.title = at("name").textContent + " · sessionlake";
  say(at("about"), plural(found.pipelines.length, "pipelines"));
  const open = found.pipelines.filter(one => !fine(one)), wrong = open.filter(broken).length, most = found.pipelines.length;
  // All that are not fine are named by their states: "1 stopped, 2 starting".
  const states = [...new Set(open.map(one => one.state))].map(state => `${exact(open.filter(one => one.state === state).length)} ${state}`).join(", ");
  live(wrong ? "off" : open.length ? "idle" : "on", wrong ? `${exact(wrong)} to look at` : open.length ? `${states}, of ${plural(most, "pipelines")}` : `as of ${clock(found.at)}`);
  rows(found);
  const shape = JSON.stringify(found.pipelines.map(one => [one.name, one.state, one.events_per_second]));
  if (shape !== state.drawn) { state.drawn = shape; graph(found); }
  problem(null);
}

function late(error) {
  live("off", "no answer");
  problem(error.unreachable ? `The server can't be reached. It is tried again every ${AGAIN_MS / 1000} seconds.` : error.message);
}

takeToken();
look();
