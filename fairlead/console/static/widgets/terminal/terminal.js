// A terminal in the page: shows a Screen, and passes on keys, mouse and pasted text. Output is parsed in short slices
// and painted at most once per frame, so that a flood of it does not freeze the page. Lines are light DOM, made of text
// nodes.

import { externalLink, h, replace } from "../../core/dom.js";
import { preferences } from "../../core/preferences.js";
import { announce } from "../../shell/dialogs.js";
import { T } from "../../texts/terminal.js";
import { button } from "../common.js";
import { encodeKey, encodeMouse, encodePaste } from "./keys.js";
import { widthOf } from "./line.js";
import { Screen } from "./screen.js";
import { TerminalSearch } from "./search.js";
import { PLAIN, paint } from "./styles.js";

const SLICE_MILLISECONDS = 10;
const SLICE = 16 * 1024;
const MAX_SPOKEN = 1000;
const COPIES = "copyOnSelect"; // a preference

export class Terminal {
  screen = new Screen();
  /** @type {(text: string) => void} */
  onInput = () => {};
  /** @type {(columns: number, rows: number) => void} */
  onResize = () => {};
  #queue = [];
  #nodes = new Map(); // Line to {node, version}
  #isPumping = false;
  #isPainting = false;
  #isAtEnd = true;
  #cell = { width: 8, height: 17 };
  #spoken = "";
  #marked = null; // {line, column, length}

  constructor(scope, label = T.terminal) {
    this.scope = scope;
    this.input = h("textarea.terminal-input", {
      "aria-label": T.input,
      autocapitalize: "off",
      autocomplete: "off",
      spellcheck: "false",
      rows: 1,
    });
    this.cursor = h("div.terminal-cursor", { "aria-hidden": "true" });
    this.lines = h("div.terminal-lines");
    this.found = h("div.terminal-found", { "aria-hidden": "true", hidden: true });
    this.view = h("div.terminal-view", { "aria-hidden": "true", tabindex: -1 }, this.lines, this.found, this.cursor);
    this.title = h("span.terminal-title.muted");
    this.status = h("span.terminal-status.muted", { role: "status" });
    this.speech = h("div.visually-hidden", { role: "log", "aria-live": "polite" });
    this.search = new TerminalSearch(this);
    this.frame = h("div.terminal-frame", this.view, this.input);
    this.bar = this.#buildBar();
    this.node = h(
      "section.terminal",
      { "aria-label": label },
      this.bar,
      this.search.node,
      this.frame,
      this.speech,
      h("p.muted.terminal-hint", T.leaveHint),
    );
    this.screen.onReply = (text) => this.onInput(text);
    this.screen.onTitle = (text) => {
      this.title.textContent = text;
    };
    this.#listen();
    const observer = new ResizeObserver(() => this.#fit());
    observer.observe(this.view);
    scope.add(() => observer.disconnect());
  }

  #buildBar() {
    const option = (title, onchange, checked = false) =>
      h("label.row", h("input", { type: "checkbox", onchange, checked }), title);
    this.read = option(T.readOutput);
    this.copies = option(
      T.copyOnSelect,
      ({ target }) => preferences.set(COPIES, target.checked),
      preferences.get(COPIES, false),
    );
    const allowCopy = option(T.allowCopy, ({ target }) => {
      this.screen.onClipboard = target.checked ? copy : null;
    });
    const full = button(T.fullScreen, {
      "aria-pressed": "false",
      onclick: () => {
        const isFull = this.node.classList.toggle("is-full");
        full.setAttribute("aria-pressed", String(isFull));
        this.focus();
      },
    });
    const open = button(T.search, { icon: "search", onclick: () => this.search.open() });
    return h(
      "div.row.terminal-bar",
      this.status,
      this.title,
      h("span.spring"),
      this.copies,
      allowCopy,
      this.read,
      open,
      full,
    );
  }

  focus() {
    this.input.focus({ preventScroll: true });
  }

  // The lines of the history and of the screen.
  allLines() {
    return this.screen.isAlternate ? this.screen.lines : [...this.screen.history, ...this.screen.lines];
  }

  // Marks a part of a line, and scrolls to it: {line, column, length}, or null.
  mark(place) {
    this.#marked = place;
    const row = place ? this.allLines().indexOf(place.line) : -1;
    if (row >= 0) {
      this.#isAtEnd = false;
      this.view.scrollTop = row * this.#cell.height - this.view.clientHeight / 2;
    }
    this.#schedule();
  }

  write(data) {
    this.#queue.push(data);
    if (!this.#isPumping) this.#pump();
  }

  // What a new session starts with. The history stays.
  restart() {
    this.#queue = [];
    this.screen.write(`\x1bc`);
    replace(this.status);
    this.#schedule();
  }

  // The end of a session is said within the terminal, where the user looks. Enter starts the next one.
  showStatus(text, reconnect) {
    const hadFocus = this.frame.contains(document.activeElement);
    const again = reconnect && button(T.reconnect, { kind: "primary", onclick: reconnect });
    if (reconnect) this.frame.append(this.status);
    else this.bar.prepend(this.status);
    replace(this.status, text, again);
    if (again && hadFocus) again.focus({ preventScroll: true });
  }

  // --- output --------------------------------------------------------------------------------------------------------

  #pump() {
    const end = performance.now() + (document.hidden ? 1000 : SLICE_MILLISECONDS);
    while (this.#queue.length && performance.now() < end) this.#take();
    this.#isPumping = this.#queue.length > 0 && !this.scope.ended;
    if (this.#isPumping) setTimeout(() => this.#pump());
    this.#schedule();
  }

  #take() {
    const data = this.#queue[0];
    const part = data.length > SLICE ? data.slice(0, SLICE) : data;
    if (part === data) this.#queue.shift();
    else this.#queue[0] = data.slice(SLICE);
    this.screen.write(part);
    if (this.read.firstChild.checked) this.#speak();
  }

  #speak() {
    const line = this.screen.cursorLine.text().trimEnd();
    if (line && line !== this.#spoken) this.speech.textContent = (this.#spoken = line).slice(0, MAX_SPOKEN);
  }

  #schedule() {
    if (this.#isPainting || this.scope.ended) return;
    this.#isPainting = true;
    requestAnimationFrame(() => {
      this.#isPainting = false;
      this.#paint();
    });
  }

  #paint() {
    const { screen, view } = this;
    const { height, width } = this.#cell;
    const history = screen.isAlternate ? [] : screen.history;
    const total = history.length + screen.rows;
    this.lines.style.blockSize = `${total * height}px`;
    if (this.#isAtEnd) view.scrollTop = view.scrollHeight;
    const first = Math.max(0, Math.min(Math.floor(view.scrollTop / height), total - screen.rows));
    const shown = [];
    for (let index = first; index < Math.min(total, first + screen.rows + 1); index++)
      shown.push(history[index] ?? screen.lines[index - history.length]);
    this.#place(shown);
    this.lines.style.paddingBlockStart = `${first * height}px`;
    const isVisible = screen.modes.showCursor && first + screen.rows + 1 > history.length + screen.y;
    Object.assign(this.cursor.style, {
      insetInlineStart: `${screen.x * width}px`,
      insetBlockStart: `${(history.length + screen.y) * height}px`,
      inlineSize: `${width}px`,
      blockSize: `${height}px`,
    });
    this.cursor.hidden = !isVisible;
    this.#paintMark();
    this.cursor.dataset.shape = ["block", "block", "block", "line", "line", "bar", "bar"][screen.cursorShape];
    Object.assign(this.input.style, {
      insetInlineStart: `${screen.x * width}px`,
      insetBlockStart: `${screen.y * height}px`,
    });
    view.classList.toggle("reverse", screen.modes.reverse);
  }

  #paintMark() {
    const row = this.#marked ? this.allLines().indexOf(this.#marked.line) : -1;
    this.found.hidden = row < 0;
    if (row < 0) return;
    Object.assign(this.found.style, {
      insetInlineStart: `${this.#marked.column * this.#cell.width}px`,
      insetBlockStart: `${row * this.#cell.height}px`,
      inlineSize: `${this.#marked.length * this.#cell.width}px`,
      blockSize: `${this.#cell.height}px`,
    });
  }

  // Nodes of lines that are still shown stay where they are, so a selection survives output.
  #place(shown) {
    const nodes = new Map();
    for (const line of shown) {
      const known = this.#nodes.get(line) ?? { node: h("div.terminal-line"), version: -1 };
      if (known.version !== line.version) replace(known.node, renderLine(line));
      known.node.dataset.wraps = line.wraps ? "" : "no";
      known.version = line.version;
      nodes.set(line, known);
    }
    for (const [line, { node }] of this.#nodes) if (!nodes.has(line)) node.remove();
    this.#nodes = nodes;
    let index = 0;
    for (const { node } of nodes.values()) {
      const there = this.lines.children[index++];
      if (there !== node) this.lines.insertBefore(node, there ?? null);
    }
  }

  #fit() {
    const probe = h("span.terminal-probe", "x".repeat(100));
    this.lines.append(probe);
    const box = probe.getBoundingClientRect();
    probe.remove();
    if (!box.width || !this.view.clientWidth) return;
    this.#cell = { width: box.width / 100, height: Math.round(box.height) };
    const columns = Math.floor(this.view.clientWidth / this.#cell.width);
    const rows = Math.floor(this.view.clientHeight / this.#cell.height);
    const { screen } = this;
    const before = `${screen.columns} ${screen.rows}`;
    screen.resize(columns, rows);
    if (before !== `${screen.columns} ${screen.rows}`) this.onResize(screen.columns, screen.rows);
    this.#schedule();
  }

  // --- input ---------------------------------------------------------------------------------------------------------

  #listen() {
    const { input, view } = this;
    const listen = (target, type, handler, options) => this.scope.listen(target, type, handler.bind(this), options);
    listen(input, "keydown", this.#onKey);
    listen(input, "input", (event) => {
      if (!event.isComposing) this.#flush();
    });
    listen(input, "compositionend", this.#flush);
    listen(input, "paste", (event) => {
      event.preventDefault();
      this.#send(encodePaste(event.clipboardData.getData("text/plain"), this.screen.modes));
    });
    for (const [type, text] of [
      ["focus", "I"],
      ["blur", "O"],
    ])
      listen(input, type, () => {
        if (this.screen.modes.focusReports) this.onInput(`\x1b[${text}`);
      });
    listen(
      view,
      "scroll",
      () => {
        this.#isAtEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - this.#cell.height / 2;
        this.#schedule();
      },
      { passive: true },
    );
    listen(view, "copy", (event) => {
      event.preventDefault();
      event.clipboardData.setData("text/plain", this.selectedText());
    });
    listen(view, "mousedown", (event) => {
      this.#onMouse("down", event);
    });
    listen(view, "mousemove", (event) => {
      this.#onMouse("move", event);
    });
    listen(view, "mouseup", (event) => {
      if (this.#onMouse("up", event)) return;
      if (getSelection().isCollapsed) this.focus();
      else if (this.copies.firstChild.checked) copy(this.selectedText());
    });
    listen(view, "keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey) this.focus();
      else if (event.shiftKey) this.#onKey(event);
    }); // after a selection
    listen(view, "wheel", this.#onWheel, { passive: false });
  }

  #send(text) {
    if (!text) return;
    this.#isAtEnd = true;
    this.onInput(text);
    this.#schedule();
  }

  #flush() {
    this.#send(this.input.value.replace(/\n/g, "\r"));
    this.input.value = "";
  }

  #onKey(event) {
    const isCommand = event.ctrlKey && event.shiftKey;
    if (isCommand && event.key === "F6") {
      event.preventDefault();
      this.read.firstChild.focus();
      announce(T.left);
    } else if (isCommand && event.code === "KeyC") {
      event.preventDefault();
      copy(this.selectedText());
    } else if (isCommand && event.code === "KeyF") {
      event.preventDefault();
      this.search.open();
    } else if (!(isCommand && event.code === "KeyV")) {
      // the browser pastes
      const text = encodeKey(event, this.screen.modes);
      if (text === null) return;
      event.preventDefault();
      this.#send(text);
    }
    event.stopPropagation();
  }

  // Whether the program wants the event. With Shift, it is always the page's, to select text.
  #onMouse(kind, event) {
    if (event.shiftKey) return false;
    const box = this.lines.getBoundingClientRect();
    const { width, height } = this.#cell;
    const history = this.screen.isAlternate ? 0 : this.screen.history.length;
    const column = Math.floor((event.clientX - box.left) / width);
    const row = Math.floor((event.clientY - box.top) / height) - history;
    const text =
      row >= 0 &&
      encodeMouse(
        kind,
        event,
        Math.max(0, Math.min(column, this.screen.columns - 1)),
        Math.min(row, this.screen.rows - 1),
        this.screen.modes,
      );
    if (!text) return false;
    event.preventDefault();
    this.focus();
    this.onInput(text);
    return true;
  }

  #onWheel(event) {
    if (this.#onMouse("wheel", event) || !this.screen.isAlternate || event.ctrlKey) return;
    event.preventDefault();
    this.#send(
      encodeKey(
        new KeyboardEvent("keydown", { key: event.deltaY < 0 ? "ArrowUp" : "ArrowDown" }),
        this.screen.modes,
      ).repeat(3),
    );
  }

  // The selection as text: without blanks at the ends of lines, and with wrapped lines in one piece.
  selectedText() {
    const selection = getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return "";
    const whole = selection.getRangeAt(0);
    let text = "";
    for (const node of this.lines.children) {
      if (!whole.intersectsNode(node)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      if (node.contains(whole.startContainer)) range.setStart(whole.startContainer, whole.startOffset);
      if (node.contains(whole.endContainer)) range.setEnd(whole.endContainer, whole.endOffset);
      text += node.dataset.wraps === "no" ? `${range.toString().trimEnd()}\n` : range.toString();
    }
    return text.replace(/\n$/, "");
  }
}

const copy = (text) => navigator.clipboard?.writeText(text).catch(() => {});

function renderLine(line) {
  const runs = line.runs();
  return runs.map(([text, style]) => {
    if (style === PLAIN && text.length && !hasWide(text)) return text;
    const node = style.link ? externalLink(style.link, "") : h("span");
    replace(node, hasWide(text) ? [...text].map((each) => (widthOf(each) === 2 ? h("span.wide", each) : each)) : text);
    paint(node, style);
    return node;
  });
}

const hasWide = (text) => /[^\0-\u10ff]/.test(text);
