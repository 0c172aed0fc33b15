// Values over time as a picture: a line, a band up to the highest values, and marks for failures. The same numbers are
// there as a sentence, at the pointer, and as a table. Made of SVG elements, which the content security policy allows.

import { h, replace, svg } from "../core/dom.js";

const HEIGHT = 168;
const LEAST_LEFT = 52;
const CHARACTER = 6.6; // of a label
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;
const MIN_WIDTH = 200;
const TICK_WIDTH = 90;
const ROUND_TICKS = [1, 2, 5, 10];
const ROUND_MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440];
const MINUTE = 60_000;

/**
 * @typedef {object} PlotPoint
 * @property {number} time Milliseconds since 1970.
 * @property {number | null} value Null where there is none: the line has a gap.
 * @property {number | null} [high] The upper end of the band.
 * @property {number} [failures] The share that failed, from 0 to 1.
 * @property {string} text What is known of this time, as a sentence.
 */

/**
 * @typedef {object} PlotOptions
 * @property {number} step The distance of two points; where it is longer, there is a gap.
 * @property {string} unit
 * @property {number} from
 * @property {number} to
 * @property {PlotPoint[]} points
 * @property {string} summary What the picture shows.
 * @property {string} hint There until the pointer reads a point.
 */

/**
 * @param {import("../core/dom.js").Scope} scope
 * @param {PlotOptions} options
 * @returns {HTMLElement}
 */
export function timePlot(scope, options) {
  const frame = h("div.plot-frame");
  const readout = h("p.plot-readout", options.hint);
  const node = h("figure.plot", frame, h("figcaption", readout, h("p.muted", options.summary)));
  const draw = () => {
    const width = Math.max(MIN_WIDTH, Math.floor(frame.clientWidth));
    replace(
      frame,
      picture(width, options, (point) => replace(readout, point ? point.text : options.hint)),
    );
  };
  const observer = new ResizeObserver(draw);
  observer.observe(frame);
  scope.add(() => observer.disconnect());
  return node;
}

function picture(width, { step, unit, from, to, points, summary }, onPoint) {
  const values = points.map((point) => point.high ?? point.value ?? 0);
  const ticks = roundTicks(Math.max(...values, unit === "ms" ? 1 : 0.001));
  const left = Math.max(LEAST_LEFT, 14 + CHARACTER * Math.max(...ticks.map((each) => `${each} ${unit}`.length)));
  const x = (time) => left + ((time - from) / (to - from)) * (width - left - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / ticks.at(-1)) * (HEIGHT - TOP - BOTTOM);
  const at = (time, value) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`;
  const runs = runsOf(points, step);
  const marked = runs.length ? ticks : []; // without values there is nothing to read off
  const cursor = svg("line.plot-cursor", { y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const show = (point) => {
    cursor.setAttribute("visibility", point ? "visible" : "hidden");
    if (point) for (const name of ["x1", "x2"]) cursor.setAttribute(name, x(point.time).toFixed(1));
    onPoint(point);
  };
  const node = svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": summary },
    marked.map((value) => [
      svg("line.plot-grid", { x1: left, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text.plot-label", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, `${value} ${unit}`),
    ]),
    timesBetween(from, to, width - left - RIGHT).map((time) =>
      svg("text.plot-label", { x: x(time), y: HEIGHT - 6, "text-anchor": "middle" }, minuteLabel(time)),
    ),
    runs.map((run) => svg("polygon.plot-band", { points: bandOf(run, at) })),
    runs.map((run) => svg("polyline.plot-line", { points: run.map((point) => at(point.time, point.value)).join(" ") })),
    runs
      .filter((run) => run.length === 1)
      .map(([point]) => svg("circle.plot-dot", { cx: x(point.time), cy: y(point.value), r: 2.5 })),
    points.filter((point) => point.failures).map((point) => failureMark(point, step, x)),
    cursor,
  );
  node.addEventListener("pointermove", (event) => {
    const time = from + ((event.offsetX - left) / (width - left - RIGHT)) * (to - from);
    show(nearest(points, time, step));
  });
  node.addEventListener("pointerleave", () => show(null));
  return node;
}

// From the bottom, as high as the share that failed, and never too small to be seen.
function failureMark({ time, failures }, step, x) {
  const room = HEIGHT - TOP - BOTTOM;
  const height = Math.max(4, failures * room);
  const width = Math.max(2, x(time + step) - x(time));
  return svg("rect.plot-failure", {
    x: (x(time) - width / 2).toFixed(1),
    y: (HEIGHT - BOTTOM - height).toFixed(1),
    width: width.toFixed(1),
    height: height.toFixed(1),
  });
}

const bandOf = (run, at) =>
  [
    ...run.map((point) => at(point.time, point.high ?? point.value)),
    ...run.toReversed().map((point) => at(point.time, point.value)),
  ].join(" ");

// Points with values and without gaps between them.
function runsOf(points, step) {
  const runs = [];
  let before = null;
  for (const point of points) {
    if (point.value === null) {
      before = null;
      continue;
    }
    if (before && point.time - before.time <= step * 1.5) runs.at(-1).push(point);
    else runs.push([point]);
    before = point;
  }
  return runs;
}

function nearest(points, time, step) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point.time - time) < Math.abs(best.time - time)) best = point;
  return best && Math.abs(best.time - time) <= step * 2 ? best : null;
}

// Zero, and some round numbers up to one that is not below the highest value.
function roundTicks(highest) {
  const magnitude = 10 ** Math.floor(Math.log10(highest / 2));
  const size = ROUND_TICKS.map((each) => each * magnitude).find((each) => each * 4 >= highest) ?? highest;
  const ticks = [0];
  while (ticks.at(-1) < highest) ticks.push(Math.round((ticks.at(-1) + size) * 1000) / 1000);
  return ticks;
}

// Round times of the local clock, as many as have room.
function timesBetween(from, to, width) {
  const room = Math.max(1, Math.floor(width / TICK_WIDTH));
  const span = (to - from) / MINUTE;
  const minutes = ROUND_MINUTES.find((each) => span / each <= room) ?? ROUND_MINUTES.at(-1);
  const time = new Date(from);
  time.setHours(0, 0, 0, 0);
  const found = [];
  for (; time.getTime() <= to; time.setMinutes(time.getMinutes() + minutes))
    if (time.getTime() >= from) found.push(time.getTime());
  return found;
}

export const minuteLabel = (time) =>
  new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
