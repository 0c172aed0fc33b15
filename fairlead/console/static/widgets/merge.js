// Merges two changed versions of a text by lines. Changes that do not touch each other are both applied; changes of the
// same lines are conflicts, for the user to decide.

import { h, newId } from "../core/dom.js";
import { T } from "../texts/object.js";
import { button } from "./common.js";
import { changes } from "./diff.js";

// The merged text in parts: {lines, from: "base" | "mine" | "theirs" | "both"}, or {base, mine, theirs} for a conflict.
export function merge(base, mine, theirs) {
  const sides = { mine: changes(base, mine), theirs: changes(base, theirs) };
  const parts = [];
  let at = 0;
  while (sides.mine.length || sides.theirs.length) {
    const region = takeRegion(sides);
    if (region.start > at) parts.push({ from: "base", lines: base.slice(at, region.start) });
    parts.push(decide(region, base, mine, theirs));
    at = region.end;
  }
  if (at < base.length) parts.push({ from: "base", lines: base.slice(at) });
  return parts;
}

// The first change of either side, with all changes that overlap it. An insertion overlaps what it touches.
function takeRegion(sides) {
  const first = !sides.theirs.length || sides.mine[0]?.[0] <= sides.theirs[0][0] ? "mine" : "theirs";
  const region = { start: sides[first][0][0], end: sides[first][0][1], mine: [], theirs: [] };
  const overlaps = ([start, end]) =>
    start < region.end || (start === region.end && (start === end || region.start === region.end));
  region[first].push(sides[first].shift());
  for (let grown = true; grown; ) {
    grown = false;
    for (const side of ["mine", "theirs"]) {
      while (sides[side].length && overlaps(sides[side][0])) {
        const change = sides[side].shift();
        region[side].push(change);
        region.end = Math.max(region.end, change[1]);
        grown = true;
      }
    }
  }
  return region;
}

function decide(region, base, mine, theirs) {
  const before = base.slice(region.start, region.end);
  const [left, right] = [
    ["mine", mine],
    ["theirs", theirs],
  ].map(([side, lines]) => {
    const list = region[side];
    if (!list.length) return null;
    const [firstBase, , firstOwn] = list[0];
    const [, lastBase, , lastOwn] = list.at(-1);
    return lines.slice(firstOwn - (firstBase - region.start), lastOwn + (region.end - lastBase));
  });
  if (!left) return { from: "theirs", lines: right };
  if (!right) return { from: "mine", lines: left };
  if (left.join("\n") === right.join("\n")) return { from: "both", lines: left };
  return { base: before, mine: left, theirs: right };
}

export const isConflict = (part) => !part.lines;

// The lines of merged parts. `choices` has "mine", "theirs", "both" or "base" for each conflict, in order.
export function resolve(parts, choices = []) {
  let index = 0;
  return parts.flatMap((part) => {
    if (!isConflict(part)) return part.lines;
    const choice = choices[index++];
    return choice === "both" ? [...part.mine, ...part.theirs] : part[choice ?? "mine"];
  });
}

// Shows each conflict with a choice. `done(lines)` is called with the merged lines.
export function mergeView(parts, done, cancel) {
  const choices = [];
  const apply = button(T.applyMerge, { kind: "primary", disabled: true, onclick: () => done(resolve(parts, choices)) });
  const conflicts = parts.filter(isConflict).map((part, index) =>
    h(
      "fieldset.conflict",
      h("legend", T.conflictOf(index + 1)),
      ["mine", "theirs", "base"].map((side) =>
        h(`div.side.${side}`, h("span.muted", T.sides[side]), h("pre", part[side].join("\n") || T.noLines)),
      ),
      h(
        "div.row",
        ["mine", "theirs", "both", "base"].map((choice) => {
          const id = newId("choice");
          const input = h("input", {
            type: "radio",
            name: `conflict-${index}`,
            id,
            onchange: () => {
              choices[index] = choice;
              apply.disabled = choices.filter(Boolean).length < conflicts.length;
            },
          });
          return h("label.row", { for: id }, input, T.keep[choice]);
        }),
      ),
    ),
  );
  const own = parts.filter((part) => part.from === "theirs").length;
  return h(
    "section.stack.merge",
    { "aria-label": T.conflicts },
    h("p", T.conflictsFound(conflicts.length), own ? ` ${T.mergedByItself(own)}` : ""),
    conflicts,
    h("div.row", apply, button(T.back, { onclick: cancel })),
  );
}
