// What the OpenAPI document of a kind knows of a YAML text: fields and values to choose from, what a field means, and
// what the server will not accept. Where the schema is open, it says nothing.

import { T } from "../../texts/form.js";
import { resolve, shapeOf } from "../form/openapi.js";
import { outline } from "./outline.js";

const SCALAR = /^[^"'&*!|>{[\s#][^#]*|^"(?:[^"\\]|\\.)*"|^'[^']*'/;
const NUMBER = /^[-+]?(?:\d[\d_]*)?(?:\.\d*)?(?:e[-+]?\d+)?$/i;
const BOOLEAN = /^(?:true|false)$/;

/**
 * @param {any} schema
 * @param {(string | number)[]} path
 */
export function schemaAt(schema, path) {
  let found = resolve(schema, schema.document);
  for (const segment of path) {
    const more = found.additionalProperties;
    const next =
      typeof segment === "number"
        ? found.items
        : Object.hasOwn(found.properties ?? {}, segment)
          ? found.properties[segment]
          : typeof more === "object" && more;
    if (!next) return null;
    found = resolve(next, schema.document);
  }
  return found;
}

// `before` is the text to the cursor. Returns the choices and how many characters before the cursor they replace.
/**
 * @param {any} schema
 * @param {string} before
 * @param {string} text
 */
export function findCompletions(schema, before, text) {
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const above = before.slice(0, before.length - line.length);
  const asKey = /^(\s*(?:- +)*)([\w./-]*)$/.exec(line);
  if (asKey) {
    const [, start, word] = asKey;
    const place = outline(`${above}${start}${word || "x"}:`).at(-1);
    if (place?.from !== start.length || place.key !== (word || "x")) return null;
    return { length: word.length, options: listFields(schema, place, text) };
  }
  const asValue = /^(\s*(?:- +)*[\w./"-]+: +)([\w./-]*)$/.exec(line);
  const place = asValue && outline(`${above}${line}`).at(-1);
  const known = place?.key && schemaAt(schema, place.path);
  return known ? { length: asValue[2].length, options: listValues(known) } : null;
}

function listFields(schema, { path, from, line }, text) {
  const parent = schemaAt(schema, path.slice(0, -1));
  const around = JSON.stringify(path.slice(0, -1));
  const taken = new Set(
    outline(text)
      .filter((each) => each.key && each.line !== line && JSON.stringify(each.path.slice(0, -1)) === around)
      .map((each) => each.path.at(-1)),
  );
  return Object.entries(parent?.properties ?? {})
    .filter(([name]) => !taken.has(name))
    .map(([name, part]) => {
      const field = resolve(part, schema.document);
      const shape = shapeOf(field);
      return {
        label: name,
        type: "property",
        detail: wordOf(field),
        info: field.description,
        apply: name + followUp(shape, " ".repeat(from)),
        boost: parent.required?.includes(name) ? 1 : 0,
      };
    });
}

const followUp = (shape, indent) =>
  shape === "list" ? `:\n${indent}  - ` : ["object", "map"].includes(shape) ? `:\n${indent}  ` : ": ";

const listValues = (field) =>
  (field.enum ?? (field.type === "boolean" ? [true, false] : [])).map((value) => ({
    label: String(value),
    type: "enum",
  }));

const wordOf = (field) => T.shapes[shapeOf(field)] ?? "";

// What a field means: {title, text, facts}, or null.
/**
 * @param {any} schema
 * @param {import("./outline.js").Entry} entry
 */
export function describeField(schema, entry) {
  const field = schemaAt(schema, entry.path);
  if (!field) return null;
  const required = schemaAt(schema, entry.path.slice(0, -1))?.required?.includes(entry.path.at(-1));
  return {
    title: entry.path.filter((each) => typeof each === "string").join("."),
    text: field.description ?? "",
    facts: [
      wordOf(field),
      required && T.isRequired,
      field.enum && T.oneOf(field.enum.join(", ")),
      field.default !== undefined && typeof field.default !== "object" && T.defaultIs(String(field.default)),
    ].filter(Boolean),
  };
}

// What does not fit the schema: {line, from, to, message} for each, with columns in the line.
/**
 * @param {any} schema
 * @param {import("./outline.js").Entry[]} entries
 */
export function findProblems(schema, entries) {
  return entries.flatMap((entry) => {
    if (!entry.key) return [];
    const { line, from, path } = entry;
    const parent = schemaAt(schema, path.slice(0, -1));
    if (!parent) return [];
    const name = String(path.at(-1));
    if (isClosed(parent) && !Object.hasOwn(parent.properties, name))
      return [{ line, from, to: from + entry.key.length, message: unknownField(name, Object.keys(parent.properties)) }];
    const message = checkValue(schemaAt(schema, path), entry.value);
    const start = from + entry.key.length;
    return message ? [{ line, from: start, to: start + 1 + entry.value.length + 1, message }] : [];
  });
}

const isClosed = (schema) =>
  schema.properties && !schema.additionalProperties && !schema["x-kubernetes-preserve-unknown-fields"];

function unknownField(name, names) {
  const plain = (text) => text.toLowerCase().replace(/[^a-z]|s$/g, "");
  const similar = names.find((each) => plain(each) === plain(name) || (name.length > 2 && each.startsWith(name)));
  return similar ? T.unknownFieldLike(name, similar) : T.unknownField(name);
}

function checkValue(field, rest) {
  const value = SCALAR.exec(rest)?.[0].trim();
  if (!value || !field || /^(?:null|~)$/.test(value)) return "";
  const isQuoted = /^["']/.test(value);
  const plain = isQuoted ? value.slice(1, -1) : value;
  switch (shapeOf(field)) {
    case "integer":
      return !isQuoted && /^-?\d+$/.test(plain) ? "" : T.integer;
    case "boolean":
      return !isQuoted && BOOLEAN.test(plain) ? "" : T.trueOrFalse;
    case "enum":
      return field.enum.includes(plain) ? "" : T.oneOf(field.enum.join(", "));
    case "text":
      return !isQuoted && ((NUMBER.test(plain) && /\d/.test(plain)) || BOOLEAN.test(plain)) ? T.needsQuotes : "";
    case "list":
    case "object":
    case "map":
      return T.isNoText(wordOf(field));
    default:
      return "";
  }
}
