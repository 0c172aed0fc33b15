// Search in what a terminal shows and has shown. A match is marked where it stands; output meanwhile moves the mark
// with its line.

import { h } from "../../core/dom.js";
import { T } from "../../texts/terminal.js";
import { button } from "../common.js";

const MAX_MATCHES = 1000;

export class TerminalSearch {
  #matches = [];
  #at = -1;

  // `terminal` is the Terminal that it belongs to.
  constructor(terminal) {
    this.terminal = terminal;
    this.field = h("input", {
      type: "search",
      "aria-label": T.search,
      placeholder: T.search,
      oninput: () => this.#search(),
      onkeydown: (event) => this.#key(event),
    });
    this.count = h("span.muted", { role: "status" });
    this.node = h(
      "div.row.terminal-search",
      { hidden: true },
      this.field,
      button("↑", { "aria-label": T.searchBack, title: T.searchBack, onclick: () => this.#step(-1) }),
      button("↓", { "aria-label": T.searchOn, title: T.searchOn, onclick: () => this.#step(1) }),
      this.count,
      button(T.searchEnd, { kind: "quiet", onclick: () => this.close() }),
    );
  }

  open() {
    this.node.hidden = false;
    this.field.focus();
    this.field.select();
    this.#search();
  }

  close() {
    this.node.hidden = true;
    this.terminal.mark(null);
    this.terminal.focus();
  }

  #key(event) {
    if (event.key === "Enter") this.#step(event.shiftKey ? 1 : -1);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
  }

  // The newest match first: what was printed last is what people look for.
  #search() {
    this.#matches = find(this.terminal.allLines(), this.field.value);
    this.#at = this.#matches.length;
    this.#step(-1);
  }

  #step(by) {
    const { length } = this.#matches;
    this.#at = length ? (this.#at + by + length) % length : -1;
    this.terminal.mark(this.#matches[this.#at] ?? null);
    this.count.textContent = this.field.value && T.found(this.#at + 1, length);
  }
}

// {line, column, length} of each match, without regard to case.
function find(lines, text) {
  const wanted = text.toLowerCase();
  const found = [];
  if (!wanted) return found;
  for (const line of lines) {
    const whole = line.text().toLowerCase();
    for (let at = whole.indexOf(wanted); at >= 0; at = whole.indexOf(wanted, at + wanted.length)) {
      const column = columnOf(line, at);
      found.push({ line, column, length: columnOf(line, at + wanted.length) - column });
    }
  }
  return found.slice(-MAX_MATCHES);
}

// A wide character takes two columns, and a character with marks is longer than its column.
function columnOf(line, index) {
  let column = 0;
  for (let length = 0; column < line.length && length + line.characters[column].length <= index; column++)
    length += line.characters[column].length;
  return column;
}
