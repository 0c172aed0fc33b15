// What the editor for YAML finds in a text, and knows of it from a schema. Prints "ok" or the first failure.
// Usage: node editor.mjs FOLDER-OF-THE-CONSOLE

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

globalThis.sessionStorage = { getItem: () => null };
globalThis.document = { cookie: "" };

const load = (path) => import(new URL(path, pathToFileURL(`${process.argv[2]}/`)));
const { outline } = await load("widgets/editor/outline.js");
const { describeField, findCompletions, findProblems, schemaAt } = await load("widgets/editor/schema-help.js");

const paths = (text) => outline(text).map((each) => `${each.document}:${each.path.join(".")}`);
assert.deepEqual(
  paths("spec:\n  ports:\n  - name: http\n    port: 80\n  - port: 81\n  args:\n    - a\n    - b\n  last: 1\n"),
  ["spec", "spec.ports", "spec.ports.0", "spec.ports.0.name", "spec.ports.0.port", "spec.ports.1", "spec.ports.1.port"]
    .concat(["spec.args", "spec.args.0", "spec.args.1", "spec.last"])
    .map((each) => `0:${each}`),
);
assert.deepEqual(paths("a: |\n  b: 1\n\n  c: 2\nd: {e: 1,\n  f: 2}\n---\n# x\n'g': 1\n"), ["0:a", "0:d", "1:g"]);
assert.deepEqual(paths("- - a: 1\n    b: 2\n  - c: 3\n"), ["0:0", "0:0.0", "0:0.0.a", "0:0.0.b", "0:0.1", "0:0.1.c"]);

const document = {
  components: {
    schemas: {
      Port: {
        type: "object",
        required: ["port"],
        properties: { name: { type: "string" }, port: { type: "integer", description: "Where it listens." } },
      },
    },
  },
};
const schema = {
  document,
  type: "object",
  properties: {
    kind: { type: "string" },
    spec: {
      type: "object",
      properties: {
        ports: { type: "array", items: { $ref: "#/components/schemas/Port" } },
        policy: { type: "string", enum: ["Always", "Never"] },
        isPaused: { type: "boolean" },
        labels: { type: "object", additionalProperties: { type: "string" } },
        anything: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      },
    },
  },
};
assert.equal(schemaAt(schema, ["spec", "ports", 3, "port"]).type, "integer");
assert.equal(schemaAt(schema, ["spec", "ports", 3, "constructor"]), null);

const complete = (text, rest = "") => findCompletions(schema, text, text + rest);
const labels = (found) => found.options.map((each) => each.label);
assert.deepEqual(labels(complete("spec:\n  po", "\n  policy: Never\n")), ["ports", "isPaused", "labels", "anything"]);
assert.deepEqual(labels(complete("spec:\n  ports:\n    - name: a\n      ")), ["port"]);
assert.deepEqual(labels(complete("spec:\n  ports:\n  - ")), ["name", "port"]);
assert.deepEqual(labels(complete("spec:\n  policy: A")), ["Always", "Never"]);
assert.deepEqual(labels(complete("spec:\n  isPaused: ")), ["true", "false"]);
assert.equal(complete("spec:\n  po").options.find((each) => each.label === "ports").apply, "ports:\n    - ");
assert.equal(complete("spec:\n  anything: |\n    po"), null);

const problems = (text) => findProblems(schema, outline(text)).map(({ line, message }) => `${line} ${message}`);
assert.deepEqual(
  problems(
    "spec:\n  ports:\n  - port: 80\n    prot: 1\n  policy: Often\n  isPaused: yes\n  port: 1\n  anything:\n    x: 1\n",
  ),
  [
    "4 There is no field prot here.",
    "5 One of: Always, Never",
    "6 Enter true or false.",
    "7 There is no field port here. Did you mean ports?",
  ],
);
assert.deepEqual(problems('spec:\n  labels: {a: "1"}\n  ports: none\n  policy: null # later\n'), [
  "3 This has to be a list, not a single value.",
]);
assert.deepEqual(problems('spec:\n  labels:\n    a: 1\n    b: "1"\n    c: "yes" # said\n    d: x\n'), [
  "3 This has to be a text: put it into quotes.",
]);
const [entry] = outline("spec:\n  ports:\n  - port: 1\n").slice(-1);
assert.deepEqual(describeField(schema, entry), {
  title: "spec.ports.port",
  text: "Where it listens.",
  facts: ["a whole number", "required"],
});
console.log("ok");
