// Fields with one control: text, numbers, choices, passwords, and text boxes for open parts of a schema.
//
// A field that is not touched returns the value that it was given, also if that is absent. A cleared one is absent.

import { h, newId, prose } from "../../core/dom.js";
import { sentence } from "../../core/kinds.js";
import { T } from "../../texts/form.js";
import { emit, parse } from "./yaml.js";

const LONG = 10_000;
const SHORT = 140;
const LONG_NAMES = /^(description|message|raw|values|objects|manifests|script|readme)$/i;
const SHORT_NAMES = /(url|uri|icon|address|endpoint)$/i;

export const labelOf = (name) => (name ? name[0].toUpperCase() + sentence(name).slice(1) : "");

// A short description, or the first sentence of a long one; the rest opens below it.
export function helpOf(description, id, isWhole) {
  if (!description) return null;
  const [, first, rest] = (!isWhole && description.length > SHORT && /^(.+?[.!?])\s+(\S.*)$/s.exec(description)) || [
    null,
    description,
    "",
  ];
  return rest
    ? h("details.field-help", { id }, h("summary", prose(first)), prose(rest))
    : h("p.field-help", { id }, prose(first));
}

// `read` returns the value of the touched control, or throws an Error that says what is wrong with it.
function leaf(place, context, control, read, ...extra) {
  const id = newId("field");
  const error = h("p.problem", { id: `${id}-error` });
  let isTouched = false;
  let value = place.value;
  let problem = "";
  const fail = (message) => {
    error.textContent = message;
    control.toggleAttribute("aria-invalid", Boolean(message));
  };
  const update = () => {
    isTouched = true;
    problem = "";
    fail("");
    try {
      value = read();
    } catch (found) {
      problem = found.message;
    }
    context.changed();
  };
  control.id = id;
  control.addEventListener("input", update);
  // Late, because the message moves what is below it: a click on a button there must still reach it.
  control.addEventListener("change", () =>
    setTimeout(() => {
      if (problem) fail(problem);
    }, 250),
  );
  control.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  if (place.required) control.setAttribute("aria-required", "true");
  if (isImmutable(place, context)) control.disabled = true;
  const label = h(
    "label",
    { for: id, title: place.isCompact ? place.schema.description : place.path },
    place.label,
    place.required && h("span.required", { "aria-hidden": "true" }, " *"),
    control.disabled && h("span.muted", ` ${T.immutable}`),
  );
  const body = control.type === "checkbox" ? [h("div.field-check", control, label)] : [label, control];
  const editor = {
    node: h("div.field", body, extra, helpOf(place.schema.description, `${id}-help`, place.isCompact), error),
    get: () => value,
    isTouched: () => isTouched,
    locate: () => editor,
    check: (report) => {
      if (problem) report(editor, problem);
      else if (place.required && !place.isGroupOptional?.() && (value === undefined || value === ""))
        report(editor, T.required);
    },
    fail,
    focus: () => control.focus(),
    set: (next) => {
      control.value = next;
      update();
    },
  };
  return editor;
}

export const isImmutable = (place, context) =>
  context.immutable === true || Boolean(context.immutable?.includes?.(place.path)) || Boolean(place.isFixed);

function textField(place, context) {
  const { schema, value, name = "" } = place;
  const isLong =
    value?.includes("\n") ||
    (name !== null && (LONG_NAMES.test(name) || (schema.maxLength >= LONG && !SHORT_NAMES.test(name))));
  const options = {
    value: value ?? "",
    placeholder: schema.default ?? "",
    maxlength: schema.maxLength,
    spellcheck: isLong && name === "description" ? null : "false",
    autocomplete: "off",
  };
  const control = place.isSecret
    ? secretInput(options, isLong)
    : isLong
      ? h("textarea", { ...options, rows: Math.min(12, (value ?? "").split("\n").length + 1) })
      : h("input", options);
  const read = () => {
    const text = control.value;
    if (text && schema.pattern && !matches(schema.pattern, text)) throw new Error(T.pattern(schema.pattern));
    return text === "" ? undefined : text;
  };
  const list = !isLong && context.suggest?.(place, control);
  return leaf(place, context, control, read, list, place.isSecret && revealButton(control));
}

const secretInput = (options, isLong) =>
  h(isLong ? "textarea.secret" : "input.secret", { ...options, rows: isLong ? 2 : null });

// Values of Secrets are readable, but hidden until they are asked for.
const revealButton = (control) =>
  h(
    "button.quiet.small",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: (event) => event.target.setAttribute("aria-pressed", String(!control.classList.toggle("secret"))),
    },
    T.reveal,
  );

// Schemas have expressions of other engines. One that the browser does not know is left to the server.
export function matches(pattern, text, otherwise = true) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return otherwise;
  }
}

function passwordField(place, context) {
  const isStored = context.isExisting || Boolean(place.value);
  const control = h("input", {
    type: "password",
    autocomplete: "new-password",
    maxlength: place.schema.maxLength,
    placeholder: isStored ? T.unchanged : "",
  });
  let isRemoved = false;
  const remove =
    context.isExisting &&
    h(
      "button.quiet.small",
      {
        type: "button",
        onclick: () => {
          isRemoved = true;
          control.placeholder = T.removed;
          editor.set("");
          isRemoved = false;
        },
      },
      T.removePassword,
    );
  // An empty password removes a stored one. An absent one keeps it.
  const editor = leaf(
    place,
    context,
    control,
    () => control.value || (isRemoved ? "" : context.isExisting ? place.value : undefined),
    remove,
  );
  return editor;
}

function numberField(place, context) {
  const { schema, value } = place;
  const isInteger = schema.type === "integer";
  const control = h("input", {
    type: "number",
    value: value ?? "",
    min: schema.minimum,
    max: schema.maximum,
    step: isInteger ? 1 : "any",
    placeholder: schema.default ?? "",
  });
  return leaf(place, context, control, () => {
    if (control.validity.badInput || (control.value && isInteger && !Number.isSafeInteger(Number(control.value))))
      throw new Error(isInteger ? T.integer : T.number);
    if (control.validity.rangeUnderflow || control.validity.rangeOverflow)
      throw new Error(T.range(schema.minimum, schema.maximum));
    return control.value === "" ? undefined : Number(control.value);
  });
}

function mixedField(place, context) {
  const control = h("input", { value: place.value ?? "", autocomplete: "off" });
  return leaf(place, context, control, () =>
    /^-?\d{1,15}$/.test(control.value) ? Number(control.value) : control.value || undefined,
  );
}

function booleanField(place, context) {
  const control = h("input", { type: "checkbox", checked: place.value ?? place.schema.default ?? false });
  return leaf({ ...place, required: false }, context, control, () => control.checked);
}

function choiceField(place, context) {
  const { schema, value } = place;
  const values = new Set(schema.enum.filter(Boolean));
  if (value) values.add(value);
  const control = h(
    "select",
    h("option", { value: "" }, place.required ? T.choose : T.notSet),
    [...values].map((each) => h("option", { value: each, selected: each === value }, each)),
  );
  return leaf(place, context, control, () => control.value || undefined);
}

// A part that the schema does not describe, as YAML or JSON.
export function openField(place, context) {
  const text = place.value === undefined || place.value === null ? "" : emit(place.value);
  const control = h("textarea.mono", {
    value: text,
    rows: Math.min(16, text.split("\n").length + 1),
    spellcheck: "false",
    placeholder: T.open,
  });
  return leaf(place, context, control, () => {
    if (!control.value.trim()) return undefined;
    try {
      return parse(control.value);
    } catch (error) {
      throw new Error(T.invalidYaml(error.message));
    }
  });
}

export const FIELDS = {
  text: textField,
  password: passwordField,
  integer: numberField,
  number: numberField,
  mixed: mixedField,
  boolean: booleanField,
  enum: choiceField,
  open: openField,
};
