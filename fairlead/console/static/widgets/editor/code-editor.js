// The editor for YAML, by CodeMirror: colours, folding, search, and what the OpenAPI document of the kind knows. It is
// a part of its own, which only pages with an editor load.

import { h } from "../../core/dom.js";
import { T } from "../../texts/form.js";
import {
  autocompletion,
  Compartment,
  codeFolding,
  completionKeymap,
  defaultKeymap,
  EditorState,
  EditorView,
  foldGutter,
  foldKeymap,
  forceLinting,
  HighlightStyle,
  highlightActiveLine,
  highlightSelectionMatches,
  history,
  historyKeymap,
  hoverTooltip,
  indentUnit,
  indentWithTab,
  keymap,
  lineNumbers,
  linter,
  lintGutter,
  lintKeymap,
  StateEffect,
  search,
  searchKeymap,
  syntaxHighlighting,
  tags,
  yaml,
} from "../../vendor/codemirror.js";
import { outline } from "./outline.js";
import { describeField, findCompletions, findProblems } from "./schema-help.js";

const COLOURS = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), color: "var(--accent)" },
  { tag: [tags.lineComment, tags.separator, tags.punctuation, tags.meta], color: "var(--muted)" },
  { tag: [tags.labelName, tags.typeName, tags.keyword], color: "var(--attention)" },
]);

const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--raised)", fontSize: "12px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "18px", maxBlockSize: "70vh", minBlockSize: "162px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderInlineStartColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--muted)", border: "0" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 6%, transparent)" },
  ".cm-content ::selection": { backgroundColor: "color-mix(in srgb, var(--accent) 35%, transparent)" },
  ".cm-selectionMatch": { backgroundColor: "var(--mark)" },
  ".cm-searchMatch": { backgroundColor: "var(--mark)" },
  ".cm-searchMatch-selected": { outline: "2px solid var(--focus)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--sunken)", color: "var(--muted)", border: "0" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--text)", borderColor: "var(--border)" },
  ".cm-panel.cm-search": { padding: "8px 32px 8px 8px" },
  ".cm-panel.cm-search label": { fontSize: "12px" },
  ".cm-textfield, .cm-button": {
    backgroundColor: "var(--raised)",
    backgroundImage: "none",
    border: "1px solid var(--border-strong)",
    borderRadius: "4px",
    color: "var(--text)",
    fontSize: "12px",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    border: "1px solid var(--border-strong)",
    borderRadius: "4px",
    color: "var(--text)",
    fontFamily: "var(--sans)",
    fontSize: "12px",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-text)" },
  ".cm-tooltip-autocomplete ul li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal" },
  ".cm-completionInfo": { maxInlineSize: "360px", padding: "8px" },
});

const errorsChanged = StateEffect.define();
const DELAY = 400; // milliseconds after the last change, until the text is compared with the schema

/**
 * @typedef {(apiVersion: string, kind: string) => Promise<any>} FindSchema The schema of a document, or null.
 */

export class CodeEditor {
  #errors = [];
  #readOnly = new Compartment();

  /** @param {{label: string, findSchema: FindSchema, onchange: () => void}} options */
  constructor({ label, findSchema, onchange }) {
    this.findSchema = findSchema;
    this.extensions = [
      lineNumbers(),
      codeFolding(),
      foldGutter(),
      lintGutter(),
      history(),
      search({ top: true }),
      highlightActiveLine(),
      highlightSelectionMatches(),
      yaml(),
      indentUnit.of("  "),
      EditorState.tabSize.of(2),
      syntaxHighlighting(COLOURS),
      THEME,
      autocompletion({ override: [(context) => this.#complete(context)], icons: false }),
      hoverTooltip((view, position) => this.#describe(view, position)),
      linter((view) => this.#check(view), {
        delay: DELAY,
        needsRefresh: ({ transactions }) =>
          transactions.some(({ effects }) => effects.some((each) => each.is(errorsChanged))),
      }),
      keymap.of([
        ...completionKeymap,
        ...searchKeymap,
        ...foldKeymap,
        ...lintKeymap,
        ...historyKeymap,
        indentWithTab,
        ...defaultKeymap,
      ]),
      this.#readOnly.of([]),
      EditorView.contentAttributes.of({
        "aria-label": label,
        "aria-multiline": "true",
        spellcheck: "false",
        tabindex: "0",
      }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) onchange();
      }),
    ];
    this.view = new EditorView({ extensions: this.extensions });
    this.node = this.view.dom;
  }

  get value() {
    return this.view.state.doc.toString();
  }
  set value(text) {
    const isReadOnly = this.view.state.readOnly;
    this.view.setState(EditorState.create({ doc: text, extensions: this.extensions }));
    this.setReadOnly(isReadOnly);
  }

  setReadOnly(isReadOnly) {
    const attributes = EditorView.contentAttributes.of({ "aria-readonly": "true" });
    const effect = this.#readOnly.reconfigure(isReadOnly ? [EditorState.readOnly.of(true), attributes] : []);
    this.view.dispatch({ effects: effect });
  }

  // `errors` are {line, message}; those without a line are shown by others.
  setErrors(errors) {
    this.#errors = errors.filter((each) => each.line);
    this.view.contentDOM.setAttribute("aria-invalid", String(errors.length > 0));
    this.view.dispatch({ effects: errorsChanged.of(null) });
    forceLinting(this.view);
  }

  focus() {
    this.view.focus();
  }

  focusLine(number) {
    const line = this.#lineAt(number);
    this.view.dispatch({
      selection: { anchor: line.from, head: line.to },
      effects: EditorView.scrollIntoView(line.from, { y: "center" }),
    });
    this.view.focus();
  }

  #lineAt(number) {
    const { doc } = this.view.state;
    return doc.line(Math.max(1, Math.min(number, doc.lines)));
  }

  // The schema of the document that an entry is in.
  async #schemaFor(entries, document) {
    const read = (name) =>
      entries
        .find((each) => each.document === document && each.path.length === 1 && each.path[0] === name)
        ?.value.replace(/\s+#.*$/, "")
        .replace(/^(["'])(.*)\1$/, "$2") ?? "";
    return this.findSchema(read("apiVersion"), read("kind")).catch(() => null);
  }

  async #complete(context) {
    const text = context.state.doc.toString();
    const before = text.slice(0, context.pos);
    const entries = outline(text);
    const schema = await this.#schemaFor(entries, outline(`${before}x:`).at(-1)?.document ?? 0);
    const found = schema && findCompletions(schema, before, text);
    if (!found || !(found.length || context.explicit || /[ \n]$/.test(before))) return null;
    return { from: context.pos - found.length, options: found.options, validFor: /^[\w./-]*$/ };
  }

  async #describe(view, position) {
    const line = view.state.doc.lineAt(position);
    const entries = outline(view.state.doc.toString());
    const entry = entries.find((each) => each.key && each.line === line.number);
    const from = line.from + (entry?.from ?? 0);
    if (!entry || position < from || position > from + entry.key.length) return null;
    const schema = await this.#schemaFor(entries, entry.document);
    const about = schema && describeField(schema, entry);
    if (!about) return null;
    const dom = h(
      "div.field-about",
      h("strong.mono", about.title),
      about.facts.length > 0 && h("p.muted", about.facts.join(" · ")),
      h("p", about.text || T.noDescription),
    );
    return { pos: from, end: from + entry.key.length, above: true, create: () => ({ dom }) };
  }

  async #check(view) {
    const { doc } = view.state;
    const entries = outline(doc.toString());
    const found = [];
    for (const document of new Set(entries.map((each) => each.document))) {
      const schema = await this.#schemaFor(entries, document);
      const own = entries.filter((each) => each.document === document);
      if (schema) found.push(...findProblems(schema, own));
    }
    const at = ({ line, from, to, message }) => {
      const start = doc.line(line).from;
      const end = doc.line(line).to;
      return { from: Math.min(start + from, end), to: Math.min(start + to, end), message, severity: "warning" };
    };
    const errors = this.#errors
      .map((error) => ({ line: this.#lineAt(error.line), message: error.message }))
      .map(({ line, message }) => ({ from: line.from, to: line.to, message, severity: "error" }));
    return [...found.map(at), ...errors];
  }
}
