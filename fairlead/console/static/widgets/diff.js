// Differences between two texts by lines (the shortest edit script of Myers' algorithm), and how they are shown.

import { h } from "../core/dom.js";
import { T } from "../texts/object.js";

// A longer diff is not read: what is between the first and the last change counts as replaced.
const MAX_EDITS = 1500;
const MAX_SHOWN = 3000;

export const splitLines = (text) => text.replace(/\r\n?/g, "\n").split("\n");

// The changes that make `b` of `a`, as [start in a, end in a, start in b, end in b], in order. Both are arrays of
// lines.
export function changes(a, b) {
  let start = 0;
  let endA = a.length;
  let endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  if (start === endA && start === endB) return [];
  const pairs = commonLines(a.slice(start, endA), b.slice(start, endB)).map(([x, y]) => [x + start, y + start]);
  const found = [];
  let x = start;
  let y = start;
  for (const [nextX, nextY] of [...pairs, [endA, endB]]) {
    if (nextX > x || nextY > y) found.push([x, nextX, y, nextY]);
    x = nextX + 1;
    y = nextY + 1;
  }
  return found;
}

// The pairs of indexes of a longest common subsequence. Empty if it takes too many edits to find one.
function commonLines(a, b) {
  const limit = Math.min(a.length + b.length, MAX_EDITS);
  const middle = limit + 1;
  const reach = new Int32Array(2 * middle + 1); // the furthest index in `a` on each diagonal
  const history = [];
  for (let edits = 0; edits <= limit; edits++) {
    history.push(reach.slice(middle - edits - 1, middle + edits + 2));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = middle + diagonal;
      const down = diagonal === -edits || (diagonal !== edits && reach[at - 1] < reach[at + 1]);
      let x = down ? reach[at + 1] : reach[at - 1] + 1;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x++;
      reach[at] = x;
      if (x >= a.length && x - diagonal >= b.length) return walkBack(history, a.length, b.length);
    }
  }
  return [];
}

function walkBack(history, x, y) {
  const pairs = [];
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const reach = history[edits];
    const at = x - y + edits + 1;
    const down = x - y === -edits || (x - y !== edits && reach[at - 1] < reach[at + 1]);
    const from = edits === 0 ? 0 : reach[down ? at + 1 : at - 1];
    const fromY = edits === 0 ? 0 : from - (x - y + (down ? 1 : -1));
    while (x > from && y > fromY) pairs.push([--x, --y]);
    x = from;
    y = fromY;
  }
  return pairs.reverse();
}

// Lines as {type: "same" | "removed" | "added", line, a, b}: `a` and `b` are line numbers, from 1.
export function diffLines(before, after) {
  const a = splitLines(before);
  const b = splitLines(after);
  const lines = [];
  let x = 0;
  let y = 0;
  for (const [startA, endA, startB, endB] of [...changes(a, b), [a.length, a.length, b.length, b.length]]) {
    for (; x < startA; x++, y++) lines.push({ type: "same", line: a[x], a: x + 1, b: y + 1 });
    for (; x < endA; x++) lines.push({ type: "removed", line: a[x], a: x + 1 });
    for (y = startB; y < endB; y++) lines.push({ type: "added", line: b[y], b: y + 1 });
  }
  return lines;
}

const SIGNS = { same: " ", removed: "−", added: "+" };

// A table of changed lines with some lines around them. Null if nothing differs.
export function diffView(before, after, { context = 3, caption = T.changedLines } = {}) {
  const lines = diffLines(before, after);
  const changed = lines.flatMap((each, index) => (each.type === "same" ? [] : [index]));
  if (!changed.length) return null;
  const shown = new Set(
    changed.flatMap((index) => Array.from({ length: 2 * context + 1 }, (_, i) => index - context + i)),
  );
  const rows = [];
  let last = -1;
  lines.forEach((each, index) => {
    if (!shown.has(index) || rows.length > MAX_SHOWN) return;
    if (index > last + 1) rows.push(h("tr.gap", h("td", { colspan: 3 }, T.unchanged(index - last - 1))));
    last = index;
    const word = each.type === "same" ? null : h("span.visually-hidden", T[each.type]);
    rows.push(
      h(
        `tr.${each.type}`,
        h("td.number", each.a ?? ""),
        h("td.number", each.b ?? ""),
        h("td", h("span.sign", { "aria-hidden": "true" }, SIGNS[each.type]), word, each.line),
      ),
    );
  });
  const removed = lines.filter((each) => each.type === "removed").length;
  const title = h("caption", `${caption}: ${T.diffCount(changed.length - removed, removed)}`);
  return h("div.diff", { tabindex: 0, role: "region", "aria-label": caption }, h("table", title, h("tbody", rows)));
}
