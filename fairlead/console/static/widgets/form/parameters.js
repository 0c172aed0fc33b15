// Parameters of templates and apps: a typed form for the values of an instance, and the section of a form in which it
// follows the chosen template.

import { can } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { listObjects } from "../../core/kinds.js";
import { T } from "../../texts/form.js";
import { FIELDS, matches } from "./fields.js";
import { emit, parse } from "./yaml.js";

const HIDDEN = "<hidden>";
const TEXT = 100_000;

// `values` is the text of `spec.parameters`, or an object by variable. `value()` returns values by variable, `text()`
// the text for `spec.parameters`. Values of unknown variables are kept.
export function parameterForm(parameters, values = {}, { immutable, onchange = () => {} } = {}) {
  const given = typeof values === "string" ? (parse(values) ?? {}) : values;
  const context = { immutable, changed: onchange };
  const block = h("p.problem");
  const fields = parameters.map((definition) => ({
    definition,
    editor: fieldOf(definition, read(given, definition.variable), context),
  }));
  const sections = Map.groupBy(fields, ({ definition }) => definition.section || "");
  const byVariable = new Map(fields.map(({ definition, editor }) => [definition.variable, editor]));
  const form = {
    node: h(
      "div.form",
      block,
      [...sections].map(([title, entries]) =>
        h(
          "div.fields",
          title && h("h3", title),
          entries.map(({ editor }) => editor.node),
        ),
      ),
    ),
    isDirty: () => fields.some(({ editor }) => editor.isTouched()),
    value() {
      if (!form.isDirty()) return given;
      const found = structuredClone(given);
      for (const [variable, editor] of byVariable) if (editor.isTouched()) write(found, variable, editor.get());
      return found;
    },
    text() {
      if (!form.isDirty() && typeof values === "string") return values;
      const found = form.value();
      return Object.keys(found).length ? `${emit(found)}\n` : "";
    },
    check: () => fields.flatMap(({ definition, editor }) => checkValue(definition, editor)),
    setErrors(causes) {
      const other = [];
      const located = causes.map((cause) => [
        cause.editor ?? byVariable.get(/parameters?(?:Secrets)?\[(.+)\]$/.exec(cause.field)?.[1] ?? cause.field),
        cause,
      ]);
      for (const [editor, cause] of located) editor ? editor.fail(cause.message) : other.push(cause.message);
      block.textContent = other.join("; ");
      located.find(([editor]) => editor)?.[0].focus();
    },
    focusFirst: () => fields[0]?.editor.focus(),
  };
  return form;
}

function fieldOf(
  { variable, label, description, type, options = [], min, max, defaultValue, placeholder, required, validation },
  value,
  context,
) {
  const isChoice = options.length > 0 && !validation && type !== "multiline";
  const hint = defaultValue && type !== "password" ? T.defaultIs(defaultValue) : "";
  const schema = {
    type: "string",
    description: [description, hint].filter(Boolean).join("\n"),
    default: placeholder || defaultValue,
    enum: options,
    minimum: min,
    maximum: max,
  };
  const place = {
    schema,
    value,
    name: "",
    label: label || variable,
    path: variable,
    required: required && !defaultValue,
  };
  if (type === "boolean")
    return FIELDS.boolean(
      {
        ...place,
        schema: { ...schema, default: /^(1|t|true)$/i.test(defaultValue ?? "") },
        value: value === undefined ? undefined : /^(1|t|true)$/i.test(value),
      },
      context,
    );
  if (type === "number")
    return FIELDS.integer(
      {
        ...place,
        schema: { ...schema, type: "integer" },
        value: value === undefined || value === null ? undefined : Number(value),
      },
      context,
    );
  if (type === "password") return FIELDS.password(place, { ...context, isExisting: false });
  const text = value === undefined || value === null ? undefined : String(value);
  if (isChoice) return FIELDS.enum({ ...place, value: text }, context);
  return FIELDS.text(
    {
      ...place,
      value: text,
      schema: { ...schema, maxLength: type === "multiline" ? TEXT : 65_536 },
      name: type === "multiline" ? "values" : "url",
    },
    context,
  );
}

// The checks of the server, in its order: a value among the options passes, then the expressions decide.
function checkValue({ options = [], validation, invalidation }, editor) {
  const found = [];
  editor.check((each, message) => found.push({ editor: each, message }));
  const value = editor.get();
  if (found.length || typeof value !== "string" || !value || value === HIDDEN || options.includes(value)) return found;
  if (validation && !matches(validation, value)) found.push({ editor, message: T.pattern(validation) });
  else if (invalidation && matches(invalidation, value, false))
    found.push({ editor, message: T.invalid(invalidation) });
  else if (options.length && !validation && !invalidation) found.push({ editor, message: T.options(options) });
  return found;
}

// A dot nests: `image.tag` is written as one key, or as nested maps.
function read(values, variable) {
  if (Object.hasOwn(values, variable)) return values[variable];
  return variable
    .split(".")
    .reduce(
      (value, key) => (value && typeof value === "object" && Object.hasOwn(value, key) ? value[key] : undefined),
      values,
    );
}

function write(values, variable, value) {
  const path =
    Object.hasOwn(values, variable) || read(values, variable) === undefined ? [variable] : variable.split(".");
  const last = path.pop();
  const parent = path.reduce((each, key) => each[key], values);
  if (value === undefined) delete parent[last];
  else Object.defineProperty(parent, last, { value, enumerable: true, writable: true, configurable: true });
}

// The parameters of a version of a template: the newest that matches `1.2.x`, or those of the unversioned definition.
export function parametersOf(template, version = "") {
  const wanted = version.split(".");
  const found = (template.spec.versions ?? [])
    .filter(
      (each) =>
        version && each.version?.split(".").every((part, index) => wanted[index] === "x" || wanted[index] === part),
    )
    .sort((a, b) => b.version.localeCompare(a.version, "en", { numeric: true }))[0];
  return (found ?? template.spec).parameters ?? [];
}

// The section for `spec.parameters` of an instance: a typed form once the template is known, a text before.
// Call `follow(spec)` after each change of the spec.
export function templateParameters(kind, text = "", onchange) {
  const node = h("section");
  const isApp = kind.kind === "AppInstance";
  const template = kind.server.find(
    isApp ? "apps" : `${kind.kind.replace(/Instance$/, "Template").toLowerCase()}s`,
    kind.group,
  );
  let form = null;
  let shown = null;
  const showForm = (parameters) => {
    const before = form?.text() ?? text;
    form = plainForm(before, onchange);
    try {
      if (parameters?.length) form = parameterForm(parameters, before, { onchange });
    } catch {
      /* a text that the form cannot read stays a text */
    }
    replace(node, (parameters?.length > 0 || before) && [h("h2", T.parameters), form.node]);
  };
  showForm(null);
  return {
    node,
    text: () => form.text(),
    check: () => form.check(),
    setErrors: (causes) => form.setErrors(causes),
    async follow(spec) {
      const { name = "", version = "" } = (isApp ? spec?.appRef : spec?.templateRef) ?? {};
      const key = `${name}@${version}`;
      if (key === shown) return;
      shown = key;
      // Names are typed letter by letter, so most do not exist: a list without items is no error.
      const isReadable = name && template && (await can("list", template));
      const list = isReadable
        ? await listObjects(template, { fieldSelector: `metadata.name=${name}` }).catch(() => null)
        : null;
      if (shown === key) showForm(list?.items[0] && parametersOf(list.items[0], version));
    },
  };
}

function plainForm(text, onchange) {
  const editor = FIELDS.text(
    {
      schema: { type: "string", description: T.parameterText },
      value: text || undefined,
      name: "values",
      label: T.parameters,
      path: "spec.parameters",
    },
    { changed: onchange },
  );
  return {
    node: editor.node,
    text: () => editor.get() ?? "",
    check: () => [],
    setErrors: ([cause]) => {
      editor.fail(cause.message);
      editor.focus();
    },
  };
}
