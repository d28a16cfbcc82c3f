"use strict";
// How values are written.

// A column whose whole numbers are beyond 2^53 comes as the digits that were sent.
const parsed = text => JSON.parse(text, (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? BigInt(context.source) : value);

// A number with all of its digits: those of a double are the fewest that tell it from its neighbours.
function exact(value) {
  if (value == null) return "–";
  const size = Math.abs(Number(value));
  return size !== 0 && (size < 1e-6 || (size >= 1e21 && typeof value === "number")) ? String(value) : value.toLocaleString("en", { maximumFractionDigits: 20 });
}
// A rate, or a count on an axis: three digits say enough.
const rough = value => value == null ? "–" : Math.abs(value) >= 1e7 ? (value / 1e6).toFixed(1) + " M" :
  (Math.abs(value) >= 100 ? Math.round(value) : +value.toPrecision(3)).toLocaleString("en");

function duration(us) {
  if (us == null) return "–";
  const s = Math.abs(us) / 1e6, sign = us < 0 ? "-" : "";
  for (const [unit, size] of [["y", 31557600], ["d", 86400], ["h", 3600], ["min", 60]]) {
    if (s >= size) return sign + (s / size >= 10 ? Math.round(s / size) : (s / size).toFixed(1)) + " " + unit;
  }
  return sign + (s >= 10 ? Math.round(s) : s >= 0.01 ? +s.toFixed(1) || s.toFixed(2) : s === 0 ? "0" : s.toPrecision(2)) + " s";
}
const time = us => us == null ? "–" : new Date(us / 1000).toISOString().slice(0, 19).replace("T", " ");
const clock = us => time(us).slice(11);
const plural = (count, name) => `${exact(count)} ${count === 1 ? name.replace(/s$/, "") : name}`;

// As much of a text as a cell has: a row may have come with a whole file.
const LONGEST = 2000;
const short = (text, most = LONGEST) => text.length > most ? text.slice(0, most) + "…" : text;

function cell(value) {
  if (value == null) return "–";
  if (Array.isArray(value)) return value.map(cell).join(", ");
  return typeof value === "number" || typeof value === "bigint" ? exact(value) : short(typeof value === "object" ? written(value) : String(value));
}
const written = value => JSON.stringify(value, (_, inner) => typeof inner === "bigint" ? String(inner) : inner);
// Outcomes of events, by the names of their counts, which add up to the events that came in. Those that few pipelines have are shown if there are any.
const COMMON = ["accepted", "late", "dead", "filtered", "duplicate"];
const outcomes = (names, all) => [...COMMON, ...names.filter(of => !COMMON.includes(of) && all.some(counts => counts?.[of]))];
const named = text => text.replaceAll("_", " ");
const title = text => text[0].toUpperCase() + named(text.slice(1));
const outcome = of => of === "duplicate" ? "Duplicates" : title(of);
