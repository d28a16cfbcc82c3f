// What the page knows: the last batches, oldest first, up to so many as the server keeps.
const KEPT = 2000, state = { batches: [], status: null, drawn: false, oldest: null };
// What the last batches did: three curves, and the same as a table.

// The end of an axis: the least round number that is not below.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find(step => step * power >= value);
}
const rate = row => row.input / Math.max((row.committed_at - row.started_at) / 1e6, 1e-3);
const lag = row => row.watermark == null ? null : row.committed_at - row.watermark;

// Places in `rows` at which a curve begins anew, because nothing was done for long.
function breaks(rows, quiet) {
  return rows.map((row, i) => i).filter(i => i && rows[i].started_at - rows[i - 1].committed_at > quiet);
}

// The part of the width at which each batch is. All pauses together take a third of it at most: they would leave no room for the batches.
function parts(rows, quiet) {
  const spent = rows.map((row, i) => i ? Math.max(0, row.committed_at - rows[i - 1].committed_at) : 0), starts = breaks(rows, quiet);
  const sum = list => list.reduce((all, us) => all + us, 0), paused = sum(starts.map(i => spent[i])), busy = sum(spent) - paused;
  if (busy > 0 && paused > busy / 2) for (const i of starts) spent[i] *= busy / 2 / paused;
  let all = 0;
  const reached = spent.map(us => all += us);
  return reached.map(us => rows.length === 1 ? 0.5 : us / Math.max(1, all));
}

// What may be chosen: a number of batches, or the microseconds up to the last one.
const RANGES = [["the last 300 batches", 300, null], ["the last 5 minutes", KEPT, 300e6], ["the last 30 minutes", KEPT, 1800e6], ["the last 2 hours", KEPT, 7200e6], ["the last 12 hours", KEPT, 43200e6], ["all batches that the server keeps", KEPT, null]];
at("range").append(...RANGES.map(([name], value) => made("option", { value }, name)));
const range = () => RANGES[at("range").value];

function inRange(rows) {
  const [, most, us] = range(), end = rows.length && rows[rows.length - 1].committed_at;
  return rows.slice(-most).filter(row => us == null || row.committed_at >= end - us);
}

function chart(id, rows, series, format, quiet) {
  if (!rows.length) return;
  const width = Math.max(at(id).clientWidth, 240), height = 150, left = 44, bottom = 22, top = 8;
  const values = series.map(of => rows.map(of.value)), flat = values.flat().filter(value => value != null);
  const largest = Math.max(0, ...flat), most = format === rough ? round(Math.max(largest, 1)) : largest || 1;
  const first = rows[0].committed_at, last = rows[rows.length - 1].committed_at, along = parts(rows, quiet), when = us => last - first > 72000e6 ? time(us).slice(5, 16) : clock(us);
  const x = i => left + along[i] * (width - left - 6);
  const y = value => height - bottom - (value / most) * (height - bottom - top);
  const now = series.map((of, n) => `${of.name} ${format(values[n][rows.length - 1])}`).join(", ");
  const label = `${rows.length === 1 ? "One batch" : exact(rows.length) + " batches"} from ${when(first)} to ${when(last)}; the last one: ${now}; the most: ${format(largest)}. The table below has the values.`;
  const svg = made("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const part of [0, 0.5, 1]) {
    svg.append(made("line", { class: "grid", x1: left, x2: width, y1: y(most * part), y2: y(most * part) }));
    svg.append(made("text", { x: left - 6, y: y(most * part) + 4, "text-anchor": "end" }, part || format === rough ? format(most * part) : "0"));
  }
  svg.append(made("text", { x: left, y: height - 4 }, when(first)), made("text", { x: width, y: height - 4, "text-anchor": "end" }, when(last)));
  const starts = breaks(rows, quiet);
  for (const i of starts) gap(svg, x(i - 1), x(i), top, height - bottom, rows[i].started_at - rows[i - 1].committed_at);
  series.forEach((of, n) => curve(svg, of.class || "", values[n].map((value, i) => value == null ? null : [x(i), y(Math.max(value, 0))]), starts, series.length === 1 ? y(0) : null));
  follow(at(id), svg, rows, x, i => series.map((of, n) => (series.length > 1 ? of.name + " " : "") + format(values[n][i])).join(", "), width, [top, height - bottom]);
}

function gap(svg, from, to, top, bottom, us) {
  const box = made("rect", { class: "gap", x: from, y: top, width: Math.max(to - from, 1), height: bottom - top });
  box.append(made("title", {}, `no batches for ${duration(us)}`));
  svg.append(box);
  if (to - from > 70) svg.append(made("text", { x: (from + to) / 2, y: top + 12, "text-anchor": "middle" }, "no batches"));
}

function curve(svg, name, points, starts, ground) {
  const pieces = [0, ...starts].map((from, n) => points.slice(from, starts[n] ?? points.length).filter(Boolean)).filter(piece => piece.length);
  for (const piece of pieces) {
    const line = piece.map((point, i) => (i ? "L" : "M") + point[0].toFixed(1) + " " + point[1].toFixed(1)).join("");
    if (ground != null && piece.length > 1) svg.append(made("path", { class: "area", d: `${line}L${piece[piece.length - 1][0]} ${ground}L${piece[0][0]} ${ground}Z` }));
    svg.append(made("path", { class: "curve " + name, d: line }));
    if (points.length < 40 || piece.length === 1) for (const point of piece) svg.append(made("circle", { class: "dot " + name, cx: point[0], cy: point[1], r: 2.4 }));
  }
}

// Tell of the batch under the mouse.
function follow(place, svg, rows, x, told, width, [top, bottom]) {
  const cross = made("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" }), tip = made("div", { class: "tip" });
  svg.append(cross);
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect(), under = (event.clientX - box.left) / box.width * width;
    let near = 0;
    for (let i = 1; i < rows.length; i++) if (Math.abs(x(i) - under) < Math.abs(x(near) - under)) near = i;
    for (const [name, value] of [["x1", x(near)], ["x2", x(near)], ["visibility", "visible"]]) cross.setAttribute(name, value);
    tip.textContent = `batch ${exact(rows[near].batch_id)}, ${clock(rows[near].committed_at)}: ${told(near)}`;
  });
  svg.addEventListener("mouseleave", () => { cross.setAttribute("visibility", "hidden"); tip.textContent = ""; });
  place.replaceChildren(svg, tip);
}

function charts(all, quiet) {
  const rows = inRange(all);
  chart("throughput", rows, [{ name: "events a second", value: rate }], rough, quiet);
  chart("lag", rows, [{ name: "lag", value: lag }], duration, quiet);
  chart("refused", rows, [{ name: "late", class: "late", value: row => row.late }, { name: "dead", class: "dead", value: row => row.dead }], rough, quiet);
  if (!at("values").open) return;
  fill(at("batches"), [
    ["batch", row => exact(row.batch_id), true], ["committed, UTC", row => time(row.committed_at)], ["took", row => duration(row.committed_at - row.started_at), true],
    ["events in", row => exact(row.input), true], ["a second", row => rough(rate(row)), true], ["lag", row => duration(lag(row)), true],
    ["late", row => exact(row.late), true], ["dead", row => exact(row.dead), true]], all.slice(-50).reverse(), row => row.batch_id);
}
