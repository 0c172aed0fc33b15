// An editor for YAML: CodeMirror, loaded with the first editor of a page, or a text field where it cannot be loaded.

import { pause } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { T } from "../texts/object.js";
import { skeleton } from "./common.js";

const LOADED_WITHIN = 15; // seconds; then the text is edited without CodeMirror

export class YamlEditor {
  #text;
  #editor = null;
  #errors = [];
  #isReadOnly;

  /**
   * `findSchema` gives the schema of a document by its type, for completion and checks.
   * @param {{value?: string, label?: string, readOnly?: boolean, onchange?: () => void,
   *   findSchema?: import("./editor/code-editor.js").FindSchema}} options
   */
  constructor({
    value = "",
    label = T.yaml,
    readOnly = false,
    onchange = () => {},
    findSchema = async () => null,
  } = {}) {
    this.#text = value;
    this.#isReadOnly = readOnly;
    this.problems = h("div.problems", { role: "alert" });
    this.frame = h("div.yaml-frame", skeleton(8));
    this.node = h("div.yaml", this.problems, this.frame, h("p.muted.hint", T.tabHint));
    this.ready = this.#load({ label, findSchema, onchange });
  }

  async #load(options) {
    const limit = pause(LOADED_WITHIN).then(() => null);
    const module = await Promise.race([import("./editor/code-editor.js"), limit]).catch(() => null);
    this.#editor = module ? new module.CodeEditor(options) : new PlainEditor(options);
    this.#editor.value = this.#text;
    this.#editor.setReadOnly(this.#isReadOnly);
    replace(this.frame, this.#editor.node);
    if (this.#errors.length) this.setErrors(this.#errors);
  }

  get value() {
    return this.#editor ? this.#editor.value : this.#text;
  }
  set value(text) {
    this.#text = text;
    if (this.#editor) this.#editor.value = text;
    this.setErrors([]);
  }

  setReadOnly(isReadOnly) {
    this.#isReadOnly = isReadOnly;
    this.#editor?.setReadOnly(isReadOnly);
  }

  async focus() {
    await this.ready;
    this.#editor.focus();
  }

  // `errors` are {line, message}; `line` counts from 1 and may be missing.
  setErrors(errors) {
    this.#errors = errors;
    replace(
      this.problems,
      errors.map(({ line, message }) =>
        h(
          "p.problem",
          line && h("button.link", { type: "button", onclick: () => this.#editor?.focusLine(line) }, T.line(line)),
          line && ": ",
          message,
        ),
      ),
    );
    this.#editor?.setErrors(errors);
    if (errors[0]?.line) this.#editor?.focusLine(errors[0].line);
  }
}

// A text field, where CodeMirror cannot be loaded.
class PlainEditor {
  constructor({ label, onchange }) {
    this.node = h("textarea", {
      "aria-label": label,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      wrap: "off",
      rows: 24,
      oninput: onchange,
    });
  }

  get value() {
    return this.node.value;
  }
  set value(text) {
    this.node.value = text;
  }

  setReadOnly(isReadOnly) {
    this.node.readOnly = isReadOnly;
  }

  setErrors(errors) {
    this.node.setAttribute("aria-invalid", String(errors.length > 0));
  }

  focus() {
    this.node.focus();
  }

  focusLine(number) {
    const lines = this.value.split("\n");
    const start = lines.slice(0, number - 1).reduce((sum, each) => sum + each.length + 1, 0);
    this.focus();
    this.node.setSelectionRange(start, start + (lines[number - 1]?.length ?? 0));
  }
}
