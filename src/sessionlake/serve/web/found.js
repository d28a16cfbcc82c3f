// A key that is looked up: its rows, on a line of time and as a table. The key is in the address, behind the #, which no server is sent.
const looked = { asked: null, cold: false, answer: null, picked: null };

// What is asked for is `key`, or a column of the key each as `key.<column>`.
function takeAddress() {
  const given = takeToken(), asked = [...given].filter(([name]) => name === "key" || name.startsWith("key."));
  Object.assign(looked, { asked: asked.length ? Object.fromEntries(asked) : null, cold: given.get("cold") === "true", answer: null, picked: null });
  at("cold").checked = looked.cold;
  at("found").hidden = true;
  showAsked();
}

const address = (asked, cold) => "#" + new URLSearchParams({ ...asked, ...(cold ? { cold: "true" } : {}) });

// A field for each column of the key.
function keyFields() {
  const names = state.status.key_columns, place = at("keys");
  if (names.length < 2 || place.dataset.of === names.join("\n")) return;
  place.dataset.of = names.join("\n");
  place.replaceChildren(...names.map(name => made("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": name, placeholder: name, name: "key." + name })));
  showAsked();
}

function showAsked() {
  const asked = looked.asked || {}, names = state.status?.key_columns || [], parts = asked.key && state.status ? partsOf(asked.key) : [];
  for (const field of at("keys").children) field.value = (field.name ? asked[field.name] ?? parts[names.indexOf(field.name.slice(4))] : asked.key) ?? "";
}

// The first columns alone ask for all keys that begin with them.
function fromFields() {
  const fields = [...at("keys").children];
  if (!fields[0].name) return { key: fields[0].value };
  const last = fields.findLastIndex(field => field.value);
  return Object.fromEntries(fields.slice(0, Math.max(last, 0) + 1).map(field => [field.name, field.value]));
}

// The texts of a key's columns; nothing of a key of one column.
function partsOf(key) {
  if (state.status.key_columns.length < 2) return [];
  try { return JSON.parse(key); } catch { return []; }
}
// A cell that looks up the key of its row.
function keyCell(row, place) {
  const button = place.firstChild || place.appendChild(made("button", { class: "key", type: "button", onclick: () => go(button.asked, at("cold").checked) }));
  const key = row[state.status.columns.key];
  button.asked = { key };
  say(button, partsOf(key).map(part => part || "(empty)").join(", ") || key || "(empty)");
}

async function lookUp() {
  const { asked, cold } = looked;
  if (!asked) return;
  let answer;
  try { answer = await ask(`/v1/${state.status.list}`, { ...asked, ...(cold ? { cold: "true" } : {}) }); } catch (error) {
    if (error.status === 401 || !error.status) throw error;
    if (looked.asked === asked) told(error.message, "");
    return;
  }
  if (looked.asked !== asked || looked.cold !== cold) return;
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

const identity = row => [row[state.status.columns.key], row[state.status.columns.id], row[state.status.columns.start], row[state.status.columns.end]].join(" ");
const timesOf = ({ numbered, columns }) => numbered ? [] : [columns.start, columns.end, "open_until", "event_time", "join_time"];

// The columns of a table of rows, but for those that are `hidden`.
function columnsOf(rows, hidden, times) {
  const names = Object.keys(rows[0]).filter(name => !hidden.includes(name));
  const numeric = name => !times.includes(name) && rows.some(row => typeof row[name] === "number" || typeof row[name] === "bigint");
  return names.map(name => [name.replaceAll("_", " ") + (times.includes(name) ? ", UTC" : ""), row => times.includes(name) ? time(row[name]) : cell(row[name]), numeric(name)]);
}

function showFound() {
  const { answer } = looked, { status } = state, rows = answer[status.list], { columns } = status;
  const total = rows.reduce((sum, row) => sum + Number(row.event_count || 0), 0);
  const older = answer.complete_from != null && status.keeps_open;
  const more = answer.cursor ? ` These are the first ${exact(rows.length)}, there are more.` : older ? ` What ended before ${time(answer.complete_from)} is shown with “also old sessions”.` : "";
  const asOf = `As of batch ${exact(answer.batch_id)}, from the ${answer.served_by === "store" ? "stores" : "tables"}.${more}`;
  told(rows.length ? plural(rows.length, named(status.list)) + (total ? `, ${plural(total, "events")}` : "") : `No ${named(status.list)} of this key.`, asOf);
  if (!rows.length) return;
  if (columns.start !== columns.end && !status.numbered) at("time-line-place").replaceChildren(...timeLine(rows));
  const shown = looked.asked.key != null && partsOf(looked.asked.key).length ? partsOf(looked.asked.key) : Object.values(looked.asked);
  say(at("found-caption"), `${title(status.list)} of ${shown.join(", ") || "the empty key"}`);
  fill(at("found-scroll").querySelector("table"), columnsOf(rows, [columns.key, columns.id], timesOf(status)), rows, identity, (line, row) => { line.className = identity(row) === looked.picked ? "picked" : ""; });
}

function timeLine(rows) {
  const { columns, watermark } = state.status, width = Math.max(at("found").clientWidth, 280), height = 96, pad = 8;
  const first = Math.min(...rows.map(row => row[columns.start])), last = Math.max(...rows.map(row => row[columns.end]));
  const room = Math.max((last - first) * 0.02, 1), low = first - room, high = last + room, marked = watermark != null && watermark > low && watermark < high;
  const x = us => pad + (us - low) / (high - low) * (width - 2 * pad);
  const counted = rows.some(row => row.event_count), most = Math.max(1, ...rows.map(row => Number(row.event_count || 1)));
  const svg = made("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${plural(rows.length, named(state.status.list))} from ${time(first)} to ${time(last)}; the table below has them`, id: "time-line" });
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
  const legend = made("p", { class: "legend soft" }, sample(made("rect", { class: "dot", x: 6, width: 6, height: 10, rx: 2 })), `${named(state.status.list).replace(/s$/, "")}${counted ? ", the higher, the more events" : ""}`);
  if (marked) legend.append(sample(made("line", { class: "mark", x1: 9, x2: 9, y1: 0, y2: 10 })), "watermark");
  return [svg, legend];
}
