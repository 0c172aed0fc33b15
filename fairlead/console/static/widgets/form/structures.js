// Fields that contain fields: objects, lists and maps. What is not open is not built, so recursive schemas end where
// the user stops opening them, and what is not built returns the value that it was given.

import { h, newId } from "../../core/dom.js";
import { T } from "../../texts/form.js";
import { FIELDS, helpOf, isImmutable, labelOf, openField } from "./fields.js";
import { fits, resolve, shapeOf } from "./openapi.js";

// Optional fields that people fill in most often. They are shown like required ones; the rest is folded.
const COMMON = new Set([
  "displayName",
  "description",
  "templateRef",
  "appRef",
  "runnerRef",
  "clusterRef",
  "target",
  "parameters",
  "members",
  "quotas",
  "allowedClusters",
  "users",
  "user",
  "username",
  "email",
  "name",
  "version",
  "clusterRole",
  "rules",
  "subjects",
  "roleRef",
  "data",
  "stringData",
  "raw",
  "config",
  "chart",
  "repoURL",
  "verbs",
  "resources",
  "apiGroups",
  "key",
  "ttl",
  "replicas",
  "image",
  "containers",
  "template",
  "selector",
  "cluster",
  "project",
]);

function build(place, context) {
  const schema = resolve(place.schema, context.document);
  const shape = shapeOf(schema);
  const resolved = { ...place, schema };
  if (!fits(shape, place.value)) return openField(resolved, context);
  const builders = { object: objectField, list: listField, map: mapField };
  return (builders[shape] ?? FIELDS[shape])(resolved, context);
}

// Field names of an object: those to show, and those to fold.
function partition(place, context) {
  const { schema, value } = place;
  const names = Object.keys(schema.properties).filter((name) => context.isShown(pathOf(place.path, name)));
  const required = new Set(schema.required);
  const isFirst = (name) =>
    required.has(name) || value?.[name] !== undefined || context.isFirst(pathOf(place.path, name));
  const shown = names.filter((name) => isFirst(name) || (COMMON.has(name) && !context.isFolded(place.path, name)));
  const rest = names.filter((name) => !shown.includes(name));
  shown.sort((a, b) => required.has(b) - required.has(a));
  return !shown.length || names.length <= 4 ? [[...shown, ...rest], []] : [shown, rest];
}

const pathOf = (path, name) => (path ? `${path}.${name}` : name);

// `place.isFlat`: without a frame, as at the top of a form and in entries of lists.
export function objectField(place, context) {
  const { schema, value, path } = place;
  const children = new Map();
  const error = h("p.problem");
  const add = (name) => {
    const child = build(
      {
        schema: schema.properties[name],
        value: value?.[name],
        name,
        label: labelOf(name),
        path: pathOf(path, name),
        required: schema.required?.includes(name),
        isFixed: isImmutable(place, context),
        isCompact: place.isEntry,
        isFlat: context.flat?.includes(pathOf(path, name)),
        isGroupOptional: () => !place.required && !place.isFlat && editor.get() === undefined,
      },
      context,
    );
    children.set(name, child);
    return child.node;
  };
  const [first, rest] = partition(place, context);
  const fold = rest.length > 0 && lazyDetails("details.more", T.more(rest.length), () => rest.map(add));
  const fill = () => [error, first.map(add), fold ? fold.node : null];
  const frame = place.isFlat
    ? { node: h("div.fields"), open: () => {} }
    : lazyDetails(
        "details.group",
        [place.label, place.required && " *"],
        () => [helpOf(schema.description), fill()],
        place.label,
        schema.description,
      );
  if (place.isFlat) frame.node.append(...fill().flat().filter(Boolean));
  const isOpen =
    place.required ||
    (path.split(".").length < 4 && Object.keys(schema.properties).some((name) => value?.[name] !== undefined));
  const isTouched = () => [...children.values()].some((child) => child.isTouched());
  const editor = {
    node: frame.node,
    isTouched,
    get() {
      if (!isTouched()) return value;
      const found = { ...value };
      for (const [name, child] of children) {
        const each = child.get();
        if (each === undefined) delete found[name];
        else found[name] = each;
      }
      return Object.keys(found).length || value ? found : undefined;
    },
    locate(tail) {
      const name = Object.keys(schema.properties).find(
        (each) => tail === each || tail.startsWith(`${each}.`) || tail.startsWith(`${each}[`),
      );
      if (!name) return this;
      frame.open();
      if (rest.includes(name)) fold.open();
      return children.get(name)?.locate(tail.slice(name.length).replace(/^\./, "")) ?? this;
    },
    check: (report) => {
      for (const child of children.values()) child.check(report);
    },
    fail: (message) => {
      frame.open();
      error.textContent = message;
    },
    focus: () => {
      frame.open();
      frame.node.querySelector("input, select, textarea, button, summary")?.focus();
    },
  };
  if (!place.isFlat && isOpen) frame.open();
  return editor;
}

// While it is closed, the first sentence of `description` says what is inside.
function lazyDetails(selector, title, content, label, description = "") {
  const hint =
    description &&
    h(
      "span.muted",
      { id: newId("hint"), "aria-hidden": "true" },
      ` ${/^.*?[.!?](?=\s|$)/s.exec(description)?.[0] ?? description}`,
    );
  // Before the event `toggle`, which is late for quick typing.
  const summary = h("summary", { onclick: () => make(), "aria-describedby": hint?.id }, title, hint);
  const node = h(selector, { "aria-label": label }, summary);
  let isBuilt = false;
  const make = () => {
    if (isBuilt) return;
    isBuilt = true;
    node.append(h("div.fields", content()));
  };
  node.addEventListener("toggle", () => {
    if (node.open) make();
  });
  return {
    node,
    open: () => {
      make();
      node.open = true;
    },
  };
}

// What lists and maps have in common: rows with a button to remove each, and one to add another.
function rowsField(place, context, { makeRow, collect, locate }) {
  const body = h("div.rows");
  const error = h("p.problem");
  const isFixed = isImmutable(place, context);
  let rows = [];
  let isTouched = false;
  const touch = () => {
    isTouched = true;
    error.textContent = "";
    context.changed();
  };
  const addRow = (...content) => {
    const row = makeRow(rows.length, ...content);
    const remove = h(
      "button.quiet.small",
      {
        type: "button",
        disabled: isFixed,
        "aria-label": T.removeEntry(place.label, rows.length + 1),
        onclick: () => {
          rows = rows.filter((each) => each !== row);
          row.frame.remove();
          touch();
          (rows.at(-1)?.editor ?? { focus: () => add.focus() }).focus();
        },
      },
      "✕",
    );
    row.frame = h("div.entry", row.nodes, remove);
    rows.push(row);
    body.append(row.frame);
    return row;
  };
  const add = h(
    "button.quiet.small",
    {
      type: "button",
      disabled: isFixed,
      "aria-label": T.addEntry(place.label),
      onclick: () => {
        const row = addRow();
        touch();
        row.focus();
      },
    },
    T.add,
  );
  const id = newId("rows");
  const editor = {
    addRow,
    node: h(
      "fieldset.field",
      { "aria-describedby": id },
      h("legend", { title: place.path }, place.label, place.required && " *"),
      helpOf(place.schema.description, id),
      error,
      body,
      add,
    ),
    isTouched: () => isTouched || rows.some((row) => row.isTouched()),
    get: () => (editor.isTouched() ? collect(rows, place.value) : place.value),
    locate: (tail) => locate(rows, tail) ?? editor,
    check: (report) => {
      for (const row of rows) row.editor.check(report);
      const keys = rows.map((row) => row.key?.value).filter(Boolean);
      const twice = keys.find((key, index) => keys.indexOf(key) !== index);
      if (twice) report(editor, T.duplicate(twice));
    },
    fail: (message) => {
      error.textContent = message;
    },
    focus: () => (rows[0] ?? { focus: () => add.focus() }).focus(),
  };
  return editor;
}

function listField(place, context) {
  const schema = resolve(place.schema.items, context.document);
  const isObject = shapeOf(schema) === "object";
  const field = rowsField(place, context, {
    makeRow: (index, value) => {
      const editor = build(
        {
          schema: { ...schema, description: isObject ? schema.description : "" },
          value,
          name: place.name,
          label: isObject ? "" : T.entry(place.label, index + 1),
          path: `${place.path}[${index}]`,
          isFlat: isObject,
          isEntry: true,
        },
        context,
      );
      return { nodes: editor.node, editor, isTouched: editor.isTouched, focus: editor.focus };
    },
    collect: (rows, before) => {
      const found = rows.map((row) => row.editor.get()).filter((each) => each !== undefined);
      return found.length || before ? found : undefined;
    },
    locate: (rows, tail) => {
      const match = /^\[(\d+)\]\.?(.*)$/s.exec(tail);
      return (
        match &&
        rows
          .filter((row) => row.editor.get() !== undefined || rows.length === 1)
          [Number(match[1])]?.editor.locate(match[2])
      );
    },
  });
  for (const each of place.value ?? []) field.addRow(each);
  return field;
}

function mapField(place, context) {
  const schema = resolve(place.schema.additionalProperties, context.document);
  const isSecret = context.kind && /Secret$/.test(context.kind.kind) && /ata$/.test(place.name);
  const field = rowsField(place, context, {
    makeRow: (index, name, value) => {
      let isTouched = name === undefined;
      const key = h("input.key", {
        value: name ?? "",
        placeholder: T.key,
        "aria-label": T.keyOf(place.label, index + 1),
        autocomplete: "off",
        spellcheck: "false",
        oninput: () => {
          isTouched = true;
          context.changed();
        },
      });
      const editor = build(
        {
          schema: { ...schema, description: "" },
          value,
          name: /ata$|env/i.test(place.name) ? "values" : null,
          label: T.value,
          path: `${place.path}[${name ?? ""}]`,
          isSecret,
          isFixed: isImmutable(place, context),
        },
        context,
      );
      return {
        nodes: [key, context.suggest?.({ path: `${place.path}{}` }, key), editor.node],
        editor,
        key,
        isTouched: () => isTouched || editor.isTouched(),
        focus: () => key.focus(),
      };
    },
    collect: (rows, before) => {
      const found = Object.fromEntries(
        rows.filter((row) => row.key.value).map((row) => [row.key.value, row.editor.get() ?? emptyOf(schema)]),
      );
      return Object.keys(found).length || before ? found : undefined;
    },
    locate: (rows, tail) =>
      rows.find((row) => row.key.value && [`[${row.key.value}]`, row.key.value].some((each) => tail.startsWith(each)))
        ?.editor,
  });
  for (const [name, value] of Object.entries(place.value ?? {})) field.addRow(name, value);
  return field;
}

const emptyOf = (schema) => ({ string: "", array: [], object: {}, boolean: false })[schema.type] ?? null;
