// What the text of an object needs without parsing it: parts that the server keeps are left out, and the line of an
// error is found.

import { splitLines } from "./diff.js";
import { findField } from "./editor/outline.js";

// Without the block of a key, in YAML as servers print it. `indent` is that of the key: "" for `status`.
function withoutBlock(lines, key, indent, from = 0, to = lines.length) {
  const start = lines.findIndex((line, index) => index >= from && index < to && line.startsWith(`${indent}${key}:`));
  if (start < 0) return lines;
  let end = start + 1;
  while (
    end < lines.length &&
    (!lines[end].trim() || lines[end].startsWith(`${indent} `) || lines[end].startsWith(`${indent}- `))
  )
    end++;
  if (end === lines.length && lines.at(-1) === "") end--;
  return [...lines.slice(0, start), ...lines.slice(end)];
}

// The text to edit. Servers keep managedFields that a PUT leaves out, and the status of kinds with /status.
export function foldYaml(text, kind) {
  let lines = splitLines(text);
  if (kind.subresources.has("status")) lines = withoutBlock(lines, "status", "");
  const start = lines.indexOf("metadata:");
  if (start < 0) return lines.join("\n");
  let end = start + 1;
  while (end < lines.length && /^(\s|$)/.test(lines[end])) end++;
  return withoutBlock(lines, "managedFields", "  ", start, end).join("\n");
}

const SERVER_LINE = /^ {2}(resourceVersion|generation): .*$/;

// With the lines of metadata that only the server sets, such as the version, taken from `newest`.
export function withServerLines(text, newest) {
  const found = new Map(
    newest.split("\n").flatMap((line) => {
      const match = SERVER_LINE.exec(line);
      return match ? [[match[1], line]] : [];
    }),
  );
  return text
    .split("\n")
    .map((line) => found.get(SERVER_LINE.exec(line)?.[1]) ?? line)
    .join("\n");
}

// The errors of a response with the lines that they name, or those of the fields that they name.
export function locateErrors(error, text) {
  const causes = (error.causes ?? []).filter((cause) => cause.field);
  if (causes.length)
    return causes.map((cause) => ({ line: findField(text, cause.field), message: `${cause.field}: ${cause.message}` }));
  const line = /line (\d+)/.exec(error.message)?.[1];
  if (line) return [{ line: Number(line), message: error.message }];
  const fields = [...error.message.matchAll(/(?:unknown|duplicate) field "([^"]+)"/g)];
  if (fields.length) return fields.map(([message, field]) => ({ line: findField(text, field), message }));
  return [{ message: error.message }];
}
