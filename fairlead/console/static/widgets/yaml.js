// An editor for YAML: a textarea over coloured lines, with line numbers and marks for errors. And what the text of an
// object needs without parsing it: parts that the server keeps are left out, and the line of a field is found.

import { h, replace } from "../core/dom.js";
import { T } from "../texts/object.js";
import { splitLines } from "./diff.js";
import { renderLines } from "./highlight.js";

const MAX_COLOURED = 2000;

export class YamlEditor {
  #lines = [];
  #shown = [];
  #freesTab = false;
  #errors = new Map();

  constructor({ value = "", label = T.yaml, readOnly = false, onchange = () => {} } = {}) {
    this.onchange = onchange;
    this.area = h("textarea", {
      "aria-label": label,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      wrap: "off",
      readonly: readOnly,
      oninput: () => {
        this.#render();
        this.onchange();
      },
      onkeydown: (event) => this.#key(event),
      onscroll: () => this.#follow(),
      onfocus: () => {
        this.#freesTab = false;
      },
    });
    this.colours = h("pre", { "aria-hidden": "true", inert: true });
    this.numbers = h("pre", { "aria-hidden": "true", inert: true });
    this.problems = h("div.problems", { role: "alert" });
    this.node = h(
      "div.yaml",
      this.problems,
      h("div.yaml-frame", h("div.numbers", this.numbers), h("div.text", h("div.colours", this.colours), this.area)),
      h("p.muted.hint", T.tabHint),
    );
    this.value = value;
  }

  get value() {
    return this.area.value;
  }
  set value(text) {
    this.area.value = text;
    this.#render();
    this.setErrors([]);
  }

  // `errors` are {line, message}; `line` counts from 1 and may be missing.
  setErrors(errors) {
    this.#errors = new Map(errors.filter((each) => each.line).map((each) => [each.line, each.message]));
    this.area.setAttribute("aria-invalid", String(errors.length > 0));
    replace(
      this.problems,
      errors.map(({ line, message }) =>
        h(
          "p.problem",
          line &&
            h(
              "button.link",
              {
                type: "button",
                onclick: () => this.focusLine(line),
              },
              T.line(line),
            ),
          line && ": ",
          message,
        ),
      ),
    );
    this.#number();
    if (errors[0]?.line) this.focusLine(errors[0].line);
  }

  focusLine(line) {
    const start = this.#lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(start, start + (this.#lines[line - 1]?.length ?? 0));
    this.area.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(this.area).lineHeight));
    this.area.scrollIntoView({ block: "nearest" });
  }

  #render() {
    const count = this.#lines.length;
    this.#lines = this.area.value.split("\n");
    const coloured = this.#lines.length <= MAX_COLOURED ? this.#lines : [];
    renderLines(this.colours, this.#shown, coloured);
    this.#shown = coloured;
    this.area.classList.toggle("plain", !coloured.length);
    this.area.rows = Math.min(Math.max(this.#lines.length + 1, 8), 40);
    if (count !== this.#lines.length) this.#number();
    this.#follow();
  }

  #number() {
    const numbers = this.#lines
      .map((_, index) => (this.#errors.has(index + 1) ? `✖ ${index + 1}` : index + 1))
      .join("\n");
    if (this.numbers.textContent !== numbers) this.numbers.textContent = numbers;
  }

  #follow() {
    this.colours.style.transform = `translate(${-this.area.scrollLeft}px, ${-this.area.scrollTop}px)`;
    this.numbers.style.transform = `translateY(${-this.area.scrollTop}px)`;
  }

  #key(event) {
    if (event.key === "Escape") this.#freesTab = true;
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing) this.#breakLine(event);
    else if (event.key === "Tab" && !this.#freesTab && !this.area.readOnly && !event.ctrlKey && !event.altKey)
      this.#indent(event);
    else if (event.key !== "Shift" && event.key !== "Tab") this.#freesTab = false;
  }

  #breakLine(event) {
    const before = this.value.slice(
      this.value.lastIndexOf("\n", this.area.selectionStart - 1) + 1,
      this.area.selectionStart,
    );
    const indent = before.match(/^\s*/)[0] + (/:\s*[|>]?[-+]?$/.test(before) ? "  " : "");
    if (!indent || this.area.readOnly) return;
    event.preventDefault();
    this.#insert(`\n${indent}`);
  }

  #indent(event) {
    event.preventDefault();
    const { selectionStart: start, selectionEnd: end, value } = this.area;
    if (start === end && !event.shiftKey) return this.#insert("  ");
    const first = value.lastIndexOf("\n", start - 1) + 1;
    const block = value.slice(first, end);
    const moved = event.shiftKey ? block.replace(/^ {1,2}/gm, "") : block.replace(/^(?=.)/gm, "  ");
    this.area.setSelectionRange(first, end);
    this.#insert(moved);
    this.area.setSelectionRange(Math.max(first, start + (event.shiftKey ? -2 : 2)), first + moved.length);
  }

  // Typed text can be undone; text set by a script cannot. This is the only way to type.
  #insert(text) {
    const done = text ? document.execCommand("insertText", false, text) : document.execCommand("delete");
    if (!done) this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    this.#render();
    this.onchange();
  }
}

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

// The line of `spec.access[1].verbs`, or of the deepest part of it that the text has.
export function findField(text, path) {
  const lines = text.split("\n");
  let line = 0;
  let from = 0;
  let indent = -1;
  for (const [, key, index] of path.matchAll(/([^.[\]]+)(?=[.[\]]|$)|\[(\d+)\]/g)) {
    const isItem = index !== undefined || /^\d+$/.test(key);
    const found = isItem ? findItem(lines, from, indent, Number(index ?? key)) : findKey(lines, from, indent, key);
    if (!found) break;
    [line, from, indent] = found;
  }
  return line || undefined;
}

const depth = (line) => line.search(/[^\s-]|-(?! )/);

function findKey(lines, from, indent, key) {
  let inner = -1;
  for (let at = from; at < lines.length; at++) {
    if (!lines[at].trim()) continue;
    const here = depth(lines[at]);
    if (here <= indent) return null;
    if (inner < 0) inner = here;
    if (here < inner || (at > from && lines[at].search(/\S/) < inner && indent >= 0)) return null;
    if (
      here === inner &&
      lines[at]
        .slice(here)
        .replace(/^["']|["'](?=:)/g, "")
        .startsWith(`${key}:`)
    )
      return [at + 1, at + 1, here];
  }
  return null;
}

function findItem(lines, from, indent, index) {
  const dash = lines[from]?.search(/\S/) ?? -1;
  if (dash < indent) return null;
  for (let at = from, count = -1; at < lines.length; at++) {
    if (!lines[at].trim()) continue;
    if (lines[at].search(/\S/) < dash) return null;
    if (lines[at].startsWith("- ", dash) && ++count === index) return [at + 1, at, dash];
    if (lines[at].search(/\S/) === dash && !lines[at].startsWith("- ", dash)) return null;
  }
  return null;
}
