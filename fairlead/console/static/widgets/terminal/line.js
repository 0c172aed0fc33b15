// One line of a screen: a character and a style for each column. The second column of a wide character is "".

import { PLAIN } from "./styles.js";

const ZERO = /^(?:[\p{Mn}\p{Me}\u1160-\u11ff]|(?!\u00ad)\p{Cf})/u;
const WIDE_RANGES =
  "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60" +
  "\uffe0-\uffe6\u{16fe0}-\u{1b2ff}\u{1f200}-\u{1f265}\u{20000}-\u{3fffd}";
const WIDE = new RegExp(`^(?:[${WIDE_RANGES}]|\\p{Emoji_Presentation})`, "u");
const MAX_CELL = 16;

export function widthOf(character) {
  if (character < "\u0300") return 1;
  return ZERO.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
}

export class Line {
  wraps = false; // whether the text goes on in the next line
  version = 0;

  constructor(columns, style = PLAIN) {
    this.characters = new Array(columns).fill(" ");
    this.styles = new Array(columns).fill(style);
  }

  get length() {
    return this.characters.length;
  }

  put(column, character, style) {
    if (this.characters[column] === "" || this.characters[column + 1] === "") this.#split(column);
    this.characters[column] = character;
    this.styles[column] = style;
    this.version++;
  }

  putAll(column, text, start, end, style) {
    const { characters, styles } = this;
    if (characters[column] === "") this.#split(column);
    for (; start < end; start++, column++) {
      characters[column] = text[start];
      styles[column] = style;
    }
    if (characters[column] === "") characters[column] = " ";
    this.version++;
  }

  // Half of a wide character cannot stay when the other half is overwritten.
  #split(column) {
    if (this.characters[column] === "" && column > 0) this.characters[column - 1] = " ";
    if (this.characters[column + 1] === "") this.characters[column + 1] = " ";
  }

  combine(column, character) {
    if (this.characters[column] === "" && column > 0) column--;
    if (this.characters[column].length < MAX_CELL) this.characters[column] += character;
    this.version++;
  }

  erase(start, end, style) {
    if (this.characters[start] === "") this.#split(start);
    if (this.characters[end] === "") this.#split(end - 1);
    this.characters.fill(" ", start, end);
    this.styles.fill(style, start, end);
    if (end >= this.length) this.wraps = false;
    this.version++;
  }

  // Inserts blanks (count > 0) or deletes characters (count < 0) at a column; the rest of the line moves.
  shift(column, count, style) {
    const { length } = this;
    const size = Math.min(Math.abs(count), length - column);
    if (this.characters[column] === "") this.#split(column);
    for (const [cells, blank] of [
      [this.characters, " "],
      [this.styles, style],
    ]) {
      if (count > 0) cells.copyWithin(column + size, column, length - size).fill(blank, column, column + size);
      else cells.copyWithin(column, column + size).fill(blank, length - size);
    }
    if (this.characters[column] === "") this.characters[column] = " ";
    if (this.characters[column + size] === "" && count > 0) this.characters[column + size] = " ";
    this.version++;
  }

  resize(columns) {
    if (this.characters[columns] === "") this.characters[columns - 1] = " ";
    while (this.length < columns) {
      this.characters.push(" ");
      this.styles.push(PLAIN);
    }
    this.characters.length = this.styles.length = columns;
    this.version++;
  }

  // Without the blanks at its end, which are most of a long history.
  trim() {
    let end = this.length;
    while (end && this.characters[end - 1] === " " && this.styles[end - 1] === PLAIN) end--;
    this.characters.length = this.styles.length = end;
    return this;
  }

  text(start = 0, end = this.length) {
    return this.characters.slice(start, end).join("");
  }

  // The line as [text, style] with equal neighbours joined.
  runs() {
    const runs = [];
    for (let column = 0; column < this.length; column++) {
      const last = runs.at(-1);
      if (last?.[1] === this.styles[column]) last[0] += this.characters[column];
      else runs.push([this.characters[column], this.styles[column]]);
    }
    return runs;
  }
}
