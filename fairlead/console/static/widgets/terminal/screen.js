// The screen of a terminal, without any display: what a VT102 or xterm shows after the output that it was fed.
// Sequences that are not listed here have no effect.

import { Line, widthOf } from "./line.js";
import { Parser } from "./parser.js";
import { applySgr, PLAIN, parseParameters, styleOf } from "./styles.js";

const MAX_HISTORY = 5000;
const MAX_TITLE = 256;
const MAX_LINK = 2048;
const MAX_REPEAT = 4096;
const MAX_CLIPBOARD = 96 * 1024;
const LINE_DRAWING = { from: "\x60abcdefghijklmnopqrstuvwxyz{|}~", to: "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·" };
const MODES = { 4: "insert", 20: "newLine" };
const PRIVATE_MODES = {
  1: "applicationCursor",
  5: "reverse",
  7: "autowrap",
  25: "showCursor",
  66: "applicationKeypad",
  1000: "mouseClicks",
  1002: "mouseDrags",
  1003: "mouseMoves",
  1004: "focusReports",
  1006: "mouseSgr",
  2004: "bracketedPaste",
};
const defaults = () => ({
  insert: false,
  newLine: false,
  origin: false,
  autowrap: true,
  showCursor: true,
  applicationCursor: false,
  applicationKeypad: false,
  reverse: false,
  bracketedPaste: false,
  mouseClicks: false,
  mouseDrags: false,
  mouseMoves: false,
  mouseSgr: false,
  focusReports: false,
});
const ASCII = /^[ -~]*$/;
const limit = (value, low, high) => Math.max(low, Math.min(high, value));

export class Screen {
  history = [];
  dropped = 0; // lines that the history has lost at its start
  onReply = () => {};
  onTitle = () => {};
  onBell = () => {};
  onClipboard = null; // OSC 52 has no effect unless the user has opted in
  #decoder = new TextDecoder();
  #parser = new Parser(this);

  constructor(columns = 80, rows = 24) {
    this.columns = columns;
    this.rows = rows;
    this.reset();
  }

  reset() {
    this.modes = defaults();
    this.lines = this.#blank(this.rows);
    this.primary = null; // the lines of the main screen, while the alternate one is shown
    this.tabs = new Set();
    for (let column = 8; column < 1024; column += 8) this.tabs.add(column);
    this.cursorShape = 0;
    this.title = "";
    this.last = "";
    this.#softReset();
    this.x = this.y = 0;
  }

  #softReset() {
    this.modes = { ...defaults(), reverse: this.modes.reverse };
    this.style = PLAIN;
    this.charsets = ["B", "B"];
    this.shift = 0;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.wrapNext = false;
    this.saved = null;
  }

  get isAlternate() {
    return this.primary !== null;
  }
  get cursorLine() {
    return this.lines[this.y];
  }

  write(data) {
    this.#parser.feed(typeof data === "string" ? data : this.#decoder.decode(data, { stream: true }));
  }

  // The text of the whole screen, without blanks at the ends of lines.
  text() {
    return this.lines.map((line) => line.text().trimEnd());
  }

  // --- text ----------------------------------------------------------------------------------------------------------

  print(text) {
    const translate = this.charsets[this.shift] === "0";
    if (!translate && !this.modes.insert && this.modes.autowrap && ASCII.test(text)) return this.#printSimple(text);
    for (let character of text) {
      if (translate) character = LINE_DRAWING.to[LINE_DRAWING.from.indexOf(character)] ?? character;
      const width = widthOf(character);
      if (width) this.#place(character, width);
      else this.cursorLine.combine(this.wrapNext ? this.x : Math.max(0, this.x - 1), character);
    }
  }

  // The usual case, which has to be fast: nothing but ASCII.
  #printSimple(text) {
    for (let start = 0; start < text.length; ) {
      if (this.wrapNext) this.#wrap();
      const end = Math.min(text.length, start + this.columns - this.x);
      this.cursorLine.putAll(this.x, text, start, end, this.style);
      this.x += end - start;
      start = end;
      if (this.x < this.columns) continue;
      this.x = this.columns - 1;
      this.wrapNext = true;
    }
    this.last = text.at(-1);
  }

  #place(character, width) {
    if (width > this.columns) return;
    if (this.wrapNext || this.x + width > this.columns) this.#wrap(width);
    const line = this.cursorLine;
    if (this.modes.insert) line.shift(this.x, width, this.#erased());
    line.put(this.x, character, this.style);
    if (width === 2) {
      line.put(this.x + 1, " ", this.style);
      line.characters[this.x] = character;
      line.characters[this.x + 1] = "";
    }
    this.last = character;
    if (this.x + width < this.columns) this.x += width;
    else {
      this.x = this.columns - 1;
      this.wrapNext = this.modes.autowrap;
    }
  }

  #wrap(width) {
    if (!this.modes.autowrap) {
      this.x = this.columns - width;
      return;
    }
    this.cursorLine.wraps = true;
    this.wrapNext = false;
    this.x = 0;
    this.#lineFeed();
  }

  control(code) {
    if (code === 7) this.onBell();
    else if (code === 8) this.#move(this.x - 1, this.y);
    else if (code === 9) this.#tab(1);
    else if (code >= 10 && code <= 12) {
      if (this.modes.newLine) this.x = 0;
      this.#lineFeed();
    } else if (code === 13) this.#move(0, this.y);
    else if (code === 14 || code === 15) this.shift = 15 - code;
  }

  // --- movement ------------------------------------------------------------------------------------------------------

  #move(x, y) {
    this.x = limit(x, 0, this.columns - 1);
    this.y = limit(y, 0, this.rows - 1);
    this.wrapNext = false;
  }

  // An absolute position; in origin mode it is relative to the scroll region, and stays inside.
  #goTo(x, y) {
    if (this.modes.origin) this.#move(x, limit(y + this.top, this.top, this.bottom));
    else this.#move(x, y);
  }

  // Up or down; the margins of the scroll region stop a cursor that is inside.
  #vertical(count) {
    const low = this.y >= this.top ? this.top : 0;
    const high = this.y <= this.bottom ? this.bottom : this.rows - 1;
    this.#move(this.x, limit(this.y + count, low, high));
  }

  #tab(count) {
    for (let left = Math.min(Math.abs(count), this.columns); left > 0; left--) {
      do this.x += Math.sign(count);
      while (this.x > 0 && this.x < this.columns - 1 && !this.tabs.has(this.x));
    }
    this.#move(this.x, this.y);
  }

  #lineFeed() {
    this.wrapNext = false;
    if (this.y === this.bottom) this.#scroll(1);
    else if (this.y < this.rows - 1) this.y++;
  }

  #reverseLineFeed() {
    if (this.y === this.top) this.#scroll(-1);
    else this.#move(this.x, this.y - 1);
  }

  // --- lines ---------------------------------------------------------------------------------------------------------

  #blank(count, style = PLAIN) {
    return Array.from({ length: count }, () => new Line(this.columns, style));
  }
  #erased() {
    return styleOf(null, this.style.bg, 0, "");
  }

  // Moves the lines of the scroll region, from `top` on: up if count is positive. Blank lines follow.
  #scroll(count, top = this.top, isRemembered = true) {
    const size = Math.min(Math.abs(count), this.bottom - top + 1);
    const end = this.bottom - size + 1;
    const gone = this.lines.splice(count > 0 ? top : end, size);
    this.lines.splice(count > 0 ? end : top, 0, ...this.#blank(size, this.#erased()));
    if (count > 0 && top === 0 && isRemembered && !this.isAlternate) this.#remember(gone);
  }

  #remember(lines) {
    for (const line of lines) this.history.push(line.trim());
    if (this.history.length > MAX_HISTORY + 500)
      this.dropped += this.history.splice(0, this.history.length - MAX_HISTORY).length;
  }

  #insertLines(count) {
    if (this.y < this.top || this.y > this.bottom) return;
    this.#scroll(-count, this.y, false);
    this.#move(0, this.y);
  }

  #eraseDisplay(kind) {
    const style = this.#erased();
    if (kind === 3) {
      this.dropped += this.history.length;
      this.history = [];
      return;
    }
    if (kind < 2) this.#eraseLine(kind);
    const [start, end] = [
      [this.y + 1, this.rows],
      [0, this.y],
      [0, this.rows],
    ][kind] ?? [0, 0];
    for (let row = start; row < end; row++) this.lines[row].erase(0, this.columns, style);
  }

  #eraseLine(kind) {
    const [start, end] = [
      [this.x, this.columns],
      [0, this.x + 1],
      [0, this.columns],
    ][kind] ?? [0, 0];
    this.wrapNext = false;
    if (end) this.cursorLine.erase(start, end, this.#erased());
  }

  // --- state ---------------------------------------------------------------------------------------------------------

  #save() {
    this.saved = {
      x: this.x,
      y: this.y,
      style: this.style,
      charsets: [...this.charsets],
      shift: this.shift,
      origin: this.modes.origin,
      wrapNext: this.wrapNext,
    };
  }

  #restore() {
    const { x, y, style, charsets, shift, origin, wrapNext } = this.saved ?? {
      x: 0,
      y: 0,
      style: PLAIN,
      charsets: ["B", "B"],
      shift: 0,
      origin: false,
      wrapNext: false,
    };
    Object.assign(this, { style, charsets: [...charsets], shift });
    this.modes.origin = origin;
    this.#move(x, y);
    this.wrapNext = wrapNext && this.x === this.columns - 1;
  }

  #showAlternate(isShown) {
    if (isShown === this.isAlternate) return;
    if (isShown) {
      this.primary = this.lines;
      this.lines = this.#blank(this.rows, this.#erased());
    } else {
      this.lines = this.primary;
      this.primary = null;
    }
  }

  #setMode(name, value) {
    if (MODES[name]) this.modes[MODES[name]] = value;
  }

  #setPrivateMode(name, value) {
    if (PRIVATE_MODES[name]) this.modes[PRIVATE_MODES[name]] = value;
    else if (name === 6) {
      this.modes.origin = value;
      this.#goTo(0, 0);
    } else if (name === 3) {
      // 80 or 132 columns: the size is that of the window, but the screen is cleared
      this.top = 0;
      this.bottom = this.rows - 1;
      this.#move(0, 0);
      this.#eraseDisplay(2);
    } else if (name === 1048) value ? this.#save() : this.#restore();
    else if (name === 47 || name === 1047) this.#showAlternate(value);
    else if (name === 1049) {
      if (value) this.#save();
      this.#showAlternate(value);
      if (!value) this.#restore();
    }
  }

  resize(columns, rows) {
    [columns, rows] = [limit(columns, 2, 1000), limit(rows, 1, 500)];
    if (columns === this.columns && rows === this.rows) return;
    const shift = this.#resizeLines(this.primary ?? this.lines, columns, rows, this.primary ? rows - 1 : this.y);
    if (this.primary) this.#resizeLines(this.lines, columns, rows, this.y, false);
    const y = this.primary ? this.y : this.y + shift;
    Object.assign(this, { columns, rows, top: 0, bottom: rows - 1 });
    this.#move(this.x, y);
  }

  // Lines are cut or padded. Those that do not fit above the cursor go to the history, and come back from there.
  #resizeLines(lines, columns, rows, cursor, hasHistory = true) {
    let shift = 0;
    while (lines.length > rows && lines.length - 1 > cursor + shift) lines.pop();
    if (lines.length > rows) {
      const gone = lines.splice(0, lines.length - rows);
      shift -= gone.length;
      if (hasHistory) this.#remember(gone);
    }
    while (hasHistory && lines.length < rows && this.history.length) {
      lines.unshift(this.history.pop());
      shift++;
    }
    while (lines.length < rows) lines.push(new Line(columns));
    for (const line of lines) line.resize(columns);
    return shift;
  }

  // --- sequences -----------------------------------------------------------------------------------------------------

  escape(name) {
    if (name[0] === "(" || name[0] === ")") this.charsets[name[0] === "(" ? 0 : 1] = name[1];
    else ESCAPES[name]?.call(this);
  }

  sequence(name, text) {
    const parameters = parseParameters(text);
    const value = (index, fallback = 0) => parameters[index]?.[0] || fallback;
    SEQUENCES[name]?.call(this, value, parameters);
  }

  command(text) {
    const [, name, rest = ""] = /^(\d{1,4});?(.*)$/s.exec(text) ?? [];
    if (name === "0" || name === "2") {
      this.title = rest.replace(/\p{C}/gu, "").slice(0, MAX_TITLE);
      this.onTitle(this.title);
    } else if (name === "8") {
      const link = rest.slice(rest.indexOf(";") + 1);
      const { fg, bg, flags } = this.style;
      this.style = styleOf(fg, bg, flags, link.startsWith("https://") && link.length <= MAX_LINK ? link : "");
    } else if (name === "52" && this.onClipboard && rest.length <= MAX_CLIPBOARD)
      this.#copy(rest.slice(rest.indexOf(";") + 1));
  }

  #copy(encoded) {
    try {
      this.onClipboard(new TextDecoder().decode(Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0))));
    } catch {
      /* a question, or not base64 */
    }
  }

  static handlers = {
    escapes: {
      7() {
        this.#save();
      },
      8() {
        this.#restore();
      },
      D() {
        this.#lineFeed();
      },
      M() {
        this.#reverseLineFeed();
      },
      E() {
        this.x = 0;
        this.#lineFeed();
      },
      H() {
        this.tabs.add(this.x);
      },
      Z() {
        this.onReply("\x1b[?62;22c");
      },
      c() {
        this.reset();
      },
      "="() {
        this.modes.applicationKeypad = true;
      },
      ">"() {
        this.modes.applicationKeypad = false;
      },
      "#8"() {
        for (const line of this.lines) {
          line.erase(0, this.columns, PLAIN);
          line.characters.fill("E");
        }
        this.top = 0;
        this.bottom = this.rows - 1;
        this.#move(0, 0);
      },
    },
    sequences: {
      A(value) {
        this.#vertical(-value(0, 1));
      },
      B(value) {
        this.#vertical(value(0, 1));
      },
      C(value) {
        this.#move(this.x + value(0, 1), this.y);
      },
      D(value) {
        this.#move(this.x - value(0, 1), this.y);
      },
      E(value) {
        this.x = 0;
        this.#vertical(value(0, 1));
      },
      F(value) {
        this.x = 0;
        this.#vertical(-value(0, 1));
      },
      G(value) {
        this.#move(value(0, 1) - 1, this.y);
      },
      H(value) {
        this.#goTo(value(1, 1) - 1, value(0, 1) - 1);
      },
      I(value) {
        this.#tab(value(0, 1));
      },
      Z(value) {
        this.#tab(-value(0, 1));
      },
      J(value) {
        this.#eraseDisplay(value(0));
      },
      K(value) {
        this.#eraseLine(value(0));
      },
      L(value) {
        this.#insertLines(value(0, 1));
      },
      M(value) {
        this.#insertLines(-value(0, 1));
      },
      P(value) {
        this.cursorLine.shift(this.x, -value(0, 1), this.#erased());
        this.wrapNext = false;
      },
      "@"(value) {
        this.cursorLine.shift(this.x, value(0, 1), this.#erased());
        this.wrapNext = false;
      },
      X(value) {
        this.cursorLine.erase(this.x, Math.min(this.columns, this.x + value(0, 1)), this.#erased());
        this.wrapNext = false;
      },
      S(value) {
        this.#scroll(value(0, 1));
      },
      T(value, parameters) {
        if (parameters.length < 2) this.#scroll(-value(0, 1));
      },
      b(value) {
        if (this.last) this.print(this.last.repeat(Math.min(value(0, 1), MAX_REPEAT)));
      },
      c(value) {
        if (!value(0)) this.onReply("\x1b[?62;22c");
      },
      ">c"() {
        this.onReply("\x1b[>1;10;0c");
      },
      d(value) {
        this.#goTo(this.x, value(0, 1) - 1);
      },
      e(value) {
        this.#vertical(value(0, 1));
      },
      g(value) {
        if (value(0) === 3) this.tabs.clear();
        else if (!value(0)) this.tabs.delete(this.x);
      },
      h(_value, parameters) {
        for (const [name] of parameters) this.#setMode(name, true);
      },
      l(_value, parameters) {
        for (const [name] of parameters) this.#setMode(name, false);
      },
      "?h"(_value, parameters) {
        for (const [name] of parameters) this.#setPrivateMode(name, true);
      },
      "?l"(_value, parameters) {
        for (const [name] of parameters) this.#setPrivateMode(name, false);
      },
      m(_value, parameters) {
        this.style = applySgr(this.style, parameters);
      },
      n(value) {
        if (value(0) === 5) this.onReply("\x1b[0n");
        else if (value(0) === 6) this.onReply(`\x1b[${this.y + 1 - (this.modes.origin ? this.top : 0)};${this.x + 1}R`);
      },
      r(value) {
        const top = value(0, 1) - 1;
        const bottom = Math.min(value(1, this.rows), this.rows) - 1;
        if (top >= bottom) return;
        Object.assign(this, { top, bottom });
        this.#goTo(0, 0);
      },
      s() {
        this.#save();
      },
      u() {
        this.#restore();
      },
      t(value) {
        if (value(0) === 18) this.onReply(`\x1b[8;${this.rows};${this.columns}t`);
      },
      "!p"() {
        this.#softReset();
      },
      " q"(value) {
        this.cursorShape = limit(value(0), 0, 6);
      },
    },
  };
}

const { escapes: ESCAPES, sequences: SEQUENCES } = Screen.handlers;
for (const [name, same] of [
  ["f", "H"],
  ["\x60", "G"],
  ["a", "C"],
  ["j", "D"],
  ["k", "A"],
  ["?J", "J"],
  ["?K", "K"],
])
  SEQUENCES[name] = SEQUENCES[same];
