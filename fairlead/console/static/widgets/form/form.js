// A form for an object, from its schema.
//
//   const form = schemaForm({ kind, schema: await loadSchema(kind), value: object });
//   page.main.append(form.node);
//   form.value();              // the object with the changes; what was not touched is as it was, also unknown fields
//   form.check();              // problems that need no server, for `setErrors`
//   form.setErrors(causes);    // shows the causes of an error at their fields, and focuses the first

import { h, replace } from "../../core/dom.js";
import { T } from "../../texts/form.js";
import { causeList } from "../errors.js";
import { resolve } from "./openapi.js";
import { objectField } from "./structures.js";
import { suggestions } from "./suggest.js";

const HIDDEN = new Set(["apiVersion", "kind", "status"]);
const METADATA = ["labels", "annotations"];
const FOLDED = new Set(["spec.template", "spec.config.template"]);

// `include` and `exclude` are paths such as `spec.owner`; `immutable` too, or true. `first` are paths to show without
// unfolding. `isExisting`: the object is stored, so an empty password keeps the stored one.
export function schemaForm({
  kind,
  schema,
  value = {},
  include,
  exclude = [],
  immutable,
  first = [],
  isExisting = false,
  namespace = () => value.metadata?.namespace,
  onchange = () => {},
}) {
  const covers = (list, path) =>
    list.some((each) => path === each || path.startsWith(`${each}.`) || each.startsWith(`${path}.`));
  const block = h("div.form-errors");
  const context = {
    kind,
    document: schema.document,
    immutable,
    isExisting,
    flat: ["spec"],
    suggest: suggestions(kind, namespace),
    isShown: (path) => !exclude.includes(path) && (!include || covers(include, path.replace(/\[\d+\]/g, ""))),
    isFirst: (path) => path === "spec" || covers(first, path),
    isFolded: (parent, name) => FOLDED.has(`${parent}.${name}`),
    changed: () => onchange(),
  };
  const top = objectField({ schema: topSchema(schema), value, path: "", isFlat: true, name: "", label: "" }, context);
  const locate = ({ editor, field }) => editor ?? (field ? top.locate(field) : top);
  const form = {
    node: h("div.form", block, top.node),
    value: () => top.get(),
    isDirty: () => top.isTouched(),
    check() {
      const found = [];
      top.check((editor, message) => found.push({ editor, message }));
      return found;
    },
    setErrors(causes) {
      const elsewhere = causes.filter((cause) => locate(cause) === top);
      replace(
        block,
        elsewhere.length > 0 && h("div.error", { role: "alert" }, h("p", T.otherProblems), causeList(elsewhere)),
      );
      const located = causes
        .filter((cause) => !elsewhere.includes(cause))
        .map((cause) => [locate(cause), cause.message]);
      const messages = new Map();
      for (const [editor, message] of located)
        messages.set(editor, [messages.get(editor), message].filter(Boolean).join("; "));
      for (const [editor, message] of messages) editor.fail(message);
      const editors = [...messages.keys()].sort((a, b) =>
        a.node.compareDocumentPosition(b.node) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1,
      );
      editors[0]?.focus();
      return located.length > 0;
    },
    focusFirst: () => top.focus(),
  };
  return form;
}

// The parts of an object that people write: everything but its type and status, and only labels and annotations of
// metadata.
function topSchema(schema) {
  const properties = { ...schema.properties };
  for (const name of HIDDEN) delete properties[name];
  if (properties.metadata) {
    const metadata = resolve(properties.metadata, schema.document);
    const kept = METADATA.filter((name) => metadata.properties?.[name]).map((name) => [
      name,
      metadata.properties[name],
    ]);
    delete properties.metadata;
    if (kept.length)
      properties.metadata = { type: "object", properties: Object.fromEntries(kept), description: T.metadata };
  }
  return {
    type: "object",
    properties,
    required: (schema.required ?? []).filter((name) => properties[name] && name !== "metadata"),
  };
}
