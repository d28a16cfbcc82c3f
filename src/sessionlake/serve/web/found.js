// A key that is looked up: its rows, on a line of time and as a table. The key is in the address, behind the #, which no server is sent.
const looked = { key: null, cold: false, answer: null, picked: null };

function takeAddress() {
  const given = takeToken();
  Object.assign(looked, { key: given.get("key"), cold: given.get("cold") === "true", answer: null, picked: null });
  at("key").value = looked.key ?? "";
  at("cold").checked = looked.cold;
  at("found").hidden = true;
}

function address(key, cold) {
  return "#" + new URLSearchParams({ key, ...(cold ? { cold: "true" } : {}) });
}

async function lookUp() {
  const { key, cold } = looked;
  if (key == null) return;
  let answer;
  try { answer = await ask(`/v1/${state.status.list}`, { key, ...(cold ? { cold: "true" } : {}) }); } catch (error) {
    if (error.status === 401 || !error.status) throw error;
    if (looked.key === key) told(error.message, "");
    return;
  }
  if (looked.key !== key || looked.cold !== cold) return;
  looked.answer = answer;
  showFound();
}

function told(count, asOf) {
  at("found").hidden = false;
  say(at("found-count"), count);
  say(at("found-as-of"), asOf);
  at("found-scroll").hidden = at("time-line-place").hidden = !asOf || !looked.answer[state.status.list].length;
  if (at("found-scroll").hidden) at("found").querySelector(".hint")?.setAttribute("hidden", "");
}

const identity = row => [row[state.status.columns.id], row[state.status.columns.start], row[state.status.columns.end]].join(" ");

function showFound() {
  const { answer } = looked, { status } = state, rows = answer[status.list], { columns } = status;
  const total = rows.reduce((sum, row) => sum + Number(row.event_count || 0), 0);
  const older = answer.complete_from != null && status.keeps_open;
  const more = answer.cursor ? ` These are the first ${exact(rows.length)}, there are more.` : older ? ` What ended before ${time(answer.complete_from)} is shown with “also old sessions”.` : "";
  const asOf = `As of batch ${exact(answer.batch_id)}, from the ${answer.served_by === "store" ? "stores" : "tables"}.${more}`;
  told(rows.length ? plural(rows.length, status.list) + (total ? `, ${plural(total, "events")}` : "") : `No ${status.list} of this key.`, asOf);
  if (!rows.length) return;
  if (columns.start !== columns.end && !status.numbered) at("time-line-place").replaceChildren(...timeLine(rows));
  say(at("found-caption"), `${status.list[0].toUpperCase()}${status.list.slice(1)} of ${looked.key || "the empty key"}`);
  const times = status.numbered ? [] : [columns.start, columns.end, "open_until", "event_time", "join_time"];
  const names = Object.keys(rows[0]).filter(name => ![columns.key, columns.id].includes(name));
  const numeric = name => !times.includes(name) && rows.some(row => typeof row[name] === "number" || typeof row[name] === "bigint");
  fill(at("found-scroll").querySelector("table"), names.map(name => [name.replaceAll("_", " ") + (times.includes(name) ? ", UTC" : ""), row => times.includes(name) ? time(row[name]) : cell(row[name]), numeric(name)]),
    rows, identity, (line, row) => { line.className = identity(row) === looked.picked ? "picked" : ""; });
}

function timeLine(rows) {
  const { columns, watermark } = state.status, width = Math.max(at("found").clientWidth, 280), height = 96, pad = 8;
  const first = Math.min(...rows.map(row => row[columns.start])), last = Math.max(...rows.map(row => row[columns.end]));
  const room = Math.max((last - first) * 0.02, 1), low = first - room, high = last + room, marked = watermark != null && watermark > low && watermark < high;
  const x = us => pad + (us - low) / (high - low) * (width - 2 * pad);
  const counted = rows.some(row => row.event_count), most = Math.max(1, ...rows.map(row => Number(row.event_count || 1)));
  const svg = made("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${plural(rows.length, state.status.list)} from ${time(first)} to ${time(last)}; the table below has them`, id: "time-line" });
  svg.append(made("rect", { class: "lane", x: pad, y: 60, width: width - 2 * pad, height: 2, rx: 1 }));
  for (const row of rows) {
    const tall = 12 + 38 * Math.log1p(Number(row.event_count || 1)) / Math.log1p(most), begin = x(row[columns.start]), name = identity(row);
    const bar = made("rect", { class: "span" + (name === looked.picked ? " picked" : ""), x: begin, y: 61 - tall, width: Math.max(3, x(row[columns.end]) - begin), height: tall, rx: 2, onclick: () => { looked.picked = name; showFound(); } });
    bar.append(made("title", {}, `${time(row[columns.start])} to ${time(row[columns.end])}, ${duration(row[columns.end] - row[columns.start])}` + (row.event_count ? `, ${plural(row.event_count, "events")}` : "")));
    svg.append(bar);
  }
  if (marked) svg.append(made("line", { class: "mark", x1: x(watermark), x2: x(watermark), y1: 4, y2: 66 }));
  const text = us => high - low > 172800e6 ? time(us).slice(0, 10) : high - low > 7200e6 ? time(us).slice(5, 16) : clock(us);
  // A label takes some 80 pixels.
  const steps = Math.max(1, Math.min(4, Math.floor(width / 110) - 1));
  for (let n = 0; n <= steps; n++) {
    const us = low + (high - low) * n / steps;
    svg.append(made("text", { x: x(us), y: 84, "text-anchor": n === 0 ? "start" : n === steps ? "end" : "middle" }, text(us)));
  }
  const sample = shape => { const drawing = made("svg", { viewBox: "0 0 18 10", "aria-hidden": "true" }); drawing.append(shape); return drawing; };
  const legend = made("p", { class: "legend soft" }, sample(made("rect", { class: "dot", x: 6, width: 6, height: 10, rx: 2 })), `${state.status.list.replace(/s$/, "")}${counted ? ", the higher, the more events" : ""}`);
  if (marked) legend.append(sample(made("line", { class: "mark", x1: 9, x2: 9, y1: 0, y2: 10 })), "watermark");
  return [svg, legend];
}
