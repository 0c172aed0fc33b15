// The state of an object as shape, word and colour together: readable in greyscale and with forced colours.

import { h, svg } from "../core/dom.js";
import { ASLEEP, ATTENTION, FAILED, READY, stateOfWord, WORKING } from "../core/status.js";
import { T } from "../texts/list.js";

const STATES = [FAILED, ATTENTION, WORKING, ASLEEP, READY]; // the worst first

const line = (d) => svg("path", { d, fill: "none", stroke: "currentColor", "stroke-width": 2 });
const mark = (d) => svg("path.state-mark", { d, fill: "none", "stroke-width": 2 });
const SHAPES = {
  [READY]: () => [svg("circle", { cx: 8, cy: 8, r: 7, fill: "currentColor" }), mark("M4.5 8.3 7 10.8 11.5 5.6")],
  [WORKING]: () => [
    svg("circle", { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2, opacity: 0.3 }),
    line("M8 2a6 6 0 0 1 0 12"),
  ],
  [ATTENTION]: () => [svg("path", { d: "M8 1 15.5 14.5H.5Z", fill: "currentColor" }), mark("M8 5.5v4.5M8 11.2v1.8")],
  [FAILED]: () => [
    svg("rect", { x: 1, y: 1, width: 14, height: 14, rx: 1.5, fill: "currentColor" }),
    mark("M5 5l6 6M11 5l-6 6"),
  ],
  [ASLEEP]: () => [svg("circle", { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2 })],
};

// The shape alone. Give it a label, unless its word stands beside it.
export function stateDot(state, label) {
  const properties = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg(
    `svg.state-dot.state-${state || ASLEEP}`,
    { viewBox: "0 0 16 16", width: 14, height: 14, ...properties },
    SHAPES[state || ASLEEP](),
  );
}

/** @param {ObjectState} found */
export function stateBadge({ state, word, message }) {
  if (!state && !word) return h("span.muted.nothing", "–");
  return h(
    `span.state.state-${state || "none"}`,
    { title: message ? `${word}: ${message}` : word },
    state && stateDot(state),
    h("span.state-word", word),
  );
}

// What a cell of a state column says. A condition is True or False, which is no word for a state.
export function stateOfCell(value, column) {
  const word = value === null || value === undefined || value === "<none>" ? "" : String(value);
  const isTrue = /^(true|false)$/i.test(word) ? word.toLowerCase() === "true" : null;
  const ratio = /^(\d+)\/(\d+)$/.exec(word);
  if (ratio) return { state: ratio[1] === ratio[2] ? READY : ATTENTION, word };
  if (isTrue === null) return { state: word && stateOfWord(word), word };
  return { state: isTrue ? READY : ATTENTION, word: isTrue ? column : (T.not[column] ?? T.notState(column)) };
}

export const rank = (state) => STATES.indexOf(state) + 1 || STATES.length + 1;
export const worst = (states) => states.reduce((a, b) => (rank(b.state) <= rank(a.state) ? b : a));
