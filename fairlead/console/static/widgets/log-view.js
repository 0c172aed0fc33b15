// A log: a bounded number of lines, of which only the visible ones are in the page. Colours are shown, and all other
// sequences have no effect.

import { h, replace } from "../core/dom.js";
import { T } from "../texts/terminal.js";
import { button } from "./common.js";
import { readStream } from "./log-stream.js";
import { plainText, sliceRuns, styledRuns } from "./terminal/ansi.js";
import { PLAIN, paint } from "./terminal/styles.js";

const MAX_LINES = 50_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;
const MAX_LINE = 16 * 1024;
const MAX_SHOWN = 2000;
const SPARE = 1000;
const ROW = 18;

// `previous(isChosen)` loads the log of the container before the last restart.
export class LogView {
  lines = []; // {time, text}
  dropped = 0;
  hasTimestamps = false;
  #size = 0;
  #rest = "";
  #rows = []; // what is shown: [line, start, end], in order
  #counted = 0; // lines that were considered for #rows, counted from the first line ever
  #matches = 0;
  #nodes = new Map(); // the elements of the rows that were painted last
  #isWaiting = false;
  #columns = 80;

  constructor(scope, { follow = true, previous } = {}) {
    this.scope = scope;
    const option = (title, checked, onchange) =>
      h("label.row", h("input", { type: "checkbox", checked, onchange }), title);
    this.follow = option(T.follow, follow, () => this.#schedule());
    this.times = option(T.timestamps, false, () => this.#rebuild());
    this.wrap = option(T.wrap, false, () => this.#rebuild());
    this.filter = h("input", {
      type: "search",
      placeholder: T.filter,
      "aria-label": T.filter,
      oninput: () => this.#rebuild(),
    });
    this.count = h("span.muted", { role: "status" });
    this.note = h("span.muted", { role: "status" });
    this.body = h("div.log-lines");
    this.view = h("div.log-view", { tabindex: 0, role: "region", "aria-label": T.log }, this.body);
    this.node = h(
      "section.log",
      h(
        "div.row.log-bar",
        this.filter,
        this.count,
        h("span.spring"),
        this.follow,
        this.times,
        this.wrap,
        previous &&
          option(T.previous, false, ({ target }) => {
            this.clear();
            previous(target.checked);
          }),
        button(T.download, { icon: "download", onclick: () => this.#download() }),
      ),
      this.view,
      this.note,
    );
    scope.listen(this.view, "scroll", () => this.#onScroll(), { passive: true });
    const observer = new ResizeObserver(() => this.#fit());
    observer.observe(this.view);
    scope.add(() => observer.disconnect());
  }

  append(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop().slice(0, MAX_LINE);
    for (const line of lines) this.#add(line.slice(0, MAX_LINE));
    if (this.lines.length > MAX_LINES + SPARE || this.#size > MAX_CHARACTERS) this.#drop();
    this.#schedule();
  }

  // The log at a path of the server: `format` is "pod", or "task" for those of workspaces. Raises ApiError.
  attachStream(path, scope = this.scope, options = {}) {
    return readStream(this, path, scope, options);
  }

  showNote(text) {
    this.note.textContent = text;
  }

  clear() {
    this.lines = [];
    this.#size = this.dropped = 0;
    this.#rest = "";
    this.#rebuild();
  }

  #add(line) {
    const end = this.hasTimestamps ? line.indexOf(" ") : -1;
    const text = line.slice(end + 1).replace(/\r$/, "");
    this.lines.push({ time: end > 0 ? line.slice(0, end) : "", text: text.slice(text.lastIndexOf("\r") + 1) });
    this.#size += line.length;
  }

  #drop() {
    let count = Math.max(0, this.lines.length - MAX_LINES);
    let left = this.#size;
    for (let index = 0; index < this.lines.length && (index < count || left > MAX_CHARACTERS * 0.9); index++) {
      left -= this.lines[index].text.length + this.lines[index].time.length + 1;
      count = Math.max(count, index + 1);
    }
    const gone = new Set(this.lines.splice(0, count));
    this.#size = left;
    this.dropped += count;
    const before = this.#rows.length;
    this.#rows = this.#rows.filter(([line, start]) => {
      if (gone.has(line) && start === 0) this.#matches--;
      return !gone.has(line);
    });
    if (!this.follow.firstChild.checked) this.view.scrollTop -= (before - this.#rows.length) * ROW;
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  #rebuild() {
    this.#rows = [];
    this.#matches = 0;
    this.#counted = this.dropped;
    this.#schedule();
  }

  #extend() {
    const wanted = this.filter.value.toLowerCase();
    const isWrapped = this.wrap.firstChild.checked;
    for (let index = Math.max(0, this.#counted - this.dropped); index < this.lines.length; index++) {
      const line = this.lines[index];
      const plain = wanted || isWrapped ? plainText(line.text) : "";
      if (wanted && !plain.toLowerCase().includes(wanted)) continue;
      this.#matches++;
      if (!isWrapped) this.#rows.push([line, 0, MAX_SHOWN]);
      else
        for (let start = 0; start === 0 || start < plain.length; start += this.#columns)
          this.#rows.push([line, start, start + this.#columns]);
    }
    this.#counted = this.dropped + this.lines.length;
    this.count.textContent = wanted
      ? T.matches(this.#matches, this.lines.length)
      : [T.lines(this.lines.length), this.dropped && T.dropped(this.dropped)].filter(Boolean).join(", ");
  }

  #schedule() {
    if (this.#isWaiting || this.scope.ended) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => {
      this.#isWaiting = false;
      this.#paint();
    });
  }

  #paint() {
    this.#extend();
    const { view, body } = this;
    body.style.blockSize = `${this.#rows.length * ROW}px`;
    if (this.follow.firstChild.checked) view.scrollTop = view.scrollHeight;
    const visible = Math.ceil(view.clientHeight / ROW) + 10;
    const showsTime = this.times.firstChild.checked;
    const first = Math.max(0, Math.min(Math.floor(view.scrollTop / ROW) - 5, this.#rows.length - visible));
    const shown = this.#rows.slice(first, first + visible);
    body.style.paddingBlockStart = `${first * ROW}px`;
    this.#nodes = new Map(shown.map((row) => [row, this.#nodes.get(row) ?? renderRow(row, showsTime)]));
    replace(body, [...this.#nodes.values()]);
  }

  #onScroll() {
    const isAtEnd = this.view.scrollTop + this.view.clientHeight >= this.view.scrollHeight - ROW;
    if (isAtEnd !== this.follow.firstChild.checked && !this.#isWaiting) this.follow.firstChild.checked = isAtEnd;
    this.#schedule();
  }

  #fit() {
    const probe = h("span.terminal-probe", "x".repeat(100));
    this.body.append(probe);
    const width = probe.getBoundingClientRect().width / 100;
    probe.remove();
    const columns = width
      ? Math.max(20, Math.floor(this.view.clientWidth / width) - (this.times.firstChild.checked ? 32 : 1))
      : 80;
    if (columns !== this.#columns && this.wrap.firstChild.checked) this.#rebuild();
    this.#columns = columns;
    this.#schedule();
  }

  #download() {
    const text = this.lines.map(({ time, text: line }) => (time ? `${time} ${line}` : line)).join("\n");
    const url = URL.createObjectURL(new Blob([text, "\n"], { type: "text/plain" }));
    h("a", { href: url, download: "log.txt" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

const renderRow = ([line, start, end], showsTime) =>
  h(
    "div.log-line",
    showsTime && start === 0 && h("time.muted", `${line.time} `),
    renderRuns(sliceRuns(styledRuns(line.text), start, end)),
  );

const renderRuns = (runs) =>
  runs.map(([text, style]) => {
    if (style === PLAIN) return text;
    const node = h("span", text);
    paint(node, style);
    return node;
  });
