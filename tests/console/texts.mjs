// Properties of diff, merge and the texts of objects, on random texts. Prints "ok" or the first counterexample.
// Usage: node texts.mjs FOLDER-OF-THE-CONSOLE SEED

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const load = (path) => import(new URL(path, pathToFileURL(`${process.argv[2]}/`)));
const { changes, diffLines } = await load("widgets/diff.js");
const { merge, isConflict, resolve } = await load("widgets/merge.js");
const { findField } = await load("widgets/editor/outline.js");
const { foldYaml, locateErrors, withServerLines } = await load("widgets/yaml.js");

let state = Number(process.argv[3]);
const random = (limit) => {
  // mulberry32: the same numbers for the same seed
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) % limit;
};
const randomLines = (length, words) => Array.from({ length }, () => `line ${random(words)}`);

function edit(lines, edits) {
  const edited = [...lines];
  for (let count = 0; count < edits; count++)
    edited.splice(random(edited.length + 1), random(3), ...randomLines(random(3), 50));
  return edited;
}

function applyChanges(a, b, found) {
  const result = [];
  let at = 0;
  for (const [startA, endA, startB, endB] of found) {
    result.push(...a.slice(at, startA), ...b.slice(startB, endB));
    at = endA;
  }
  return [...result, ...a.slice(at)];
}

function longestCommon(a, b) {
  // by the textbook's table
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  return table[0][0];
}

function checkDiff() {
  const a = randomLines(random(30), 6);
  const b = random(2) ? edit(a, random(6)) : randomLines(random(30), 6);
  const found = changes(a, b);
  assert.deepEqual(applyChanges(a, b, found), b);
  assert.deepEqual(
    applyChanges(
      b,
      a,
      found.map(([x, y, u, v]) => [u, v, x, y]),
    ),
    a,
  );
  assert.equal(a.length - found.reduce((sum, [start, end]) => sum + end - start, 0), longestCommon(a, b));
  const shown = diffLines(a.join("\n"), b.join("\n"));
  assert.equal(
    shown
      .filter((each) => each.type !== "added")
      .map((each) => each.line)
      .join("\n"),
    a.join("\n"),
  );
  assert.equal(
    shown
      .filter((each) => each.type !== "removed")
      .map((each) => each.line)
      .join("\n"),
    b.join("\n"),
  );
}

function checkMergeOfSeparateChanges() {
  // every line differs, and mine is above an untouched line, theirs is below it
  const base = Array.from({ length: 10 + random(20) }, (_, index) => `${index}`);
  const middle = 2 + random(base.length - 4);
  const above = edit(base.slice(0, middle), 1 + random(3));
  const below = edit(base.slice(middle + 1), 1 + random(3));
  const mine = [...above, ...base.slice(middle)];
  const theirs = [...base.slice(0, middle + 1), ...below];
  for (const [left, right] of [
    [mine, theirs],
    [theirs, mine],
  ]) {
    const parts = merge(base, left, right);
    assert.ok(!parts.some(isConflict));
    assert.deepEqual(resolve(parts), [...above, base[middle], ...below]);
  }
}

function checkAnyMerge() {
  const base = randomLines(random(20), 30);
  const mine = edit(base, random(5));
  const theirs = edit(base, random(5));
  const parts = merge(base, mine, theirs);
  const sides = (name) => parts.flatMap((part) => (isConflict(part) ? [name] : []));
  assert.deepEqual(resolve(merge(base, mine, base)), mine);
  assert.deepEqual(resolve(merge(base, base, theirs)), theirs);
  assert.deepEqual(resolve(merge(base, mine, mine)), mine);
  const swapped = merge(base, theirs, mine);
  assert.equal(swapped.filter(isConflict).length, parts.filter(isConflict).length);
  assert.deepEqual(resolve(swapped, sides("mine")), resolve(parts, sides("theirs")));
  const rebuilt = parts.flatMap((part) => (isConflict(part) ? part.base : part.from === "base" ? part.lines : ["?"]));
  assert.ok(rebuilt.filter((line) => line !== "?").every((line) => base.includes(line)));
}

function checkTexts() {
  const kind = (...names) => ({ subresources: new Map(names.map((name) => [name, new Set()])) });
  const text = [
    "kind: Project",
    "metadata:",
    "  annotations:",
    "    managedFields: mine",
    "  generation: 3",
    "  managedFields:",
    "  - manager: a",
    "    fieldsV1:",
    "      f:spec: {}",
    "",
    "  name: demo",
    '  resourceVersion: "7"',
    "spec:",
    "  access:",
    "  - verbs:",
    "    - get",
    "    name: one",
    "  - name: two",
    "    verbs: [x]",
    "  text: |",
    "    status: of a text",
    "  status: inner",
    "status:",
    "  conditions:",
    "  - type: Ready",
    "",
  ].join("\n");
  const folded = foldYaml(text, kind("status"));
  assert.ok(!folded.includes("manager: a") && !folded.includes("type: Ready"));
  assert.ok(
    folded.includes("managedFields: mine") &&
      folded.includes("status: inner") &&
      folded.includes("status: of a text") &&
      folded.endsWith("inner\n"),
  );
  assert.ok(foldYaml(text, kind()).includes("type: Ready"));
  assert.equal(
    withServerLines('  resourceVersion: "1"\n  name: a', 'metadata:\n  resourceVersion: "2"'),
    '  resourceVersion: "2"\n  name: a',
  );
  const lineOf = (path) => text.split("\n")[findField(text, path) - 1];
  assert.equal(lineOf("spec.access[0].name"), "    name: one");
  assert.equal(lineOf("spec.access[1].verbs"), "    verbs: [x]");
  assert.equal(lineOf("spec.access[1].name"), "  - name: two");
  assert.equal(lineOf("spec.status"), "  status: inner");
  assert.equal(lineOf("metadata.name"), "  name: demo");
  assert.equal(lineOf("spec.missing.deeper"), "spec:");
  assert.equal(locateErrors({ message: "yaml: line 4: no", causes: [] }, text)[0].line, 4);
  assert.equal(locateErrors({ message: 'unknown field "spec.access[0].name"', causes: [] }, text)[0].line, 17);
  assert.equal(locateErrors({ message: "no", causes: [{ field: "spec.text", message: "bad" }] }, text)[0].line, 20);
}

function checkLargeTexts() {
  // finds nothing in common within its limits, and says so at once
  const [a, b] = ["a", "b"].map((name) => Array.from({ length: 10_000 }, (_, index) => `${name} ${index}`));
  const start = performance.now();
  assert.deepEqual(changes(a, b), [[0, 10_000, 0, 10_000]]);
  assert.equal(changes(a, [...a.slice(0, 5000), "new", ...a.slice(5000)]).length, 1);
  assert.ok(performance.now() - start < 5000);
}

checkTexts();
checkLargeTexts();
for (let round = 0; round < 2000; round++) {
  const seed = state;
  try {
    checkDiff();
    checkMergeOfSeparateChanges();
    checkAnyMerge();
  } catch (error) {
    error.message = `round ${round}, state ${seed}: ${error.message}`;
    throw error;
  }
}
console.log("ok");
