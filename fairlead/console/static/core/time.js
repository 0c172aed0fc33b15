// Times: relative, with the exact local time and UTC on hover. One timer updates all of them.

import { h } from "./dom.js";
import { preferences } from "./preferences.js";

/** @type {[string, number][]} */
const UNITS = [
  ["y", 31_536_000],
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

// "5m", "3h", "12d": as kubectl prints ages.
/** @param {number} seconds */
export function duration(seconds) {
  const rest = Math.max(0, Math.round(seconds));
  const [unit, size] = UNITS.find(([, each]) => rest >= each * (each === 60 ? 2 : 1)) ?? UNITS[UNITS.length - 1];
  return `${Math.floor(rest / size)}${unit}`;
}

const formats = new Map(); // by time zone: making one takes longer than a row of a table

/** @param {Date} date */
export function exact(date) {
  const zone = preferences.get("zone") === "utc" ? "UTC" : undefined;
  if (!formats.has(zone))
    formats.set(zone, new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone: zone }));
  return formats.get(zone).format(date) + (zone ? " UTC" : "");
}

// "5m ago", or "in 3d" for a time in the future. `age` leaves out the words.
/**
 * @param {any} timestamp
 * @param {{age?: boolean}} options
 */
export function timeElement(timestamp, { age = false } = {}) {
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return h("span", timestamp ?? "");
  const node = h("time", {
    datetime: date.toISOString(),
    title: `${exact(date)} (${date.toISOString()})`,
    data: age ? { age: "" } : {},
  });
  node.textContent = describe(date, age);
  return node;
}

/**
 * @param {Date} date
 * @param {boolean} age
 */
function describe(date, age) {
  const seconds = (Date.now() - date.getTime()) / 1000;
  if (age) return duration(seconds);
  if (seconds < -1) return `in ${duration(-seconds)}`;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

setInterval(() => {
  if (document.hidden) return;
  for (const node of document.querySelectorAll("time")) {
    if (!node.dateTime) continue;
    const text = describe(new Date(node.dateTime), "age" in node.dataset);
    if (node.textContent !== text) node.textContent = text;
  }
}, 5000);
