// The fields of a YAML text with their lines, found by indentation: as servers print it and people write it, also while
// they still write. It decides nothing: the server parses.

const KEY = /("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#:'"{[][^:#]*?)(?=\s*:(?:\s|$))/.source;
const LINE = new RegExp(`^( *)((?:- +)*(?:-$)?)(?:${KEY}\\s*:)?\\s*(.*)$`);
const UNFINISHED = /^(?:[|>]|"(?:[^"\\]|\\.)*$|'[^']*$|[[{][^\]}]*$)/;

/**
 * @typedef {object} Entry A field or an item of a list.
 * @property {number} line counts from 1
 * @property {number} document counts from 0
 * @property {(string | number)[]} path
 * @property {number} from where its key begins in the line
 * @property {string} [key] as it is written; items have none
 * @property {string} [value] the rest of the line
 */

/**
 * @param {string} text
 * @returns {Entry[]}
 */
export function outline(text) {
  const reader = new Outline();
  text.split("\n").forEach((line, index) => {
    reader.read(line, index + 1);
  });
  return reader.entries;
}

class Outline {
  /** @type {Entry[]} */
  entries = [];
  /** @type {{column: number, segment: string | number}[]} */
  #above = [];
  #document = 0;
  #within = -1; // the indentation of a value that goes on in the next lines

  /**
   * @param {string} raw
   * @param {number} line
   */
  read(raw, line) {
    const indent = raw.search(/\S/);
    if (this.#within >= 0 && (indent < 0 || indent > this.#within)) return;
    this.#within = -1;
    if (/^---(\s|$)/.test(raw)) {
      this.#document += this.entries.length ? 1 : 0;
      this.#above = [];
      return;
    }
    const match = LINE.exec(raw);
    if (indent < 0 || raw[indent] === "#" || !match) return;
    const [, , dashes, key, value] = match;
    let column = indent;
    for (const dash of dashes.match(/- */g) ?? []) {
      this.#addItem(line, column);
      column += dash.length;
    }
    if (key) this.#addField(line, column, key, value);
    if (UNFINISHED.test(value)) this.#within = key ? column : indent;
  }

  // An item may stand below its key in the same column.
  #addItem(line, column) {
    let index = 0;
    for (let last = this.#above.at(-1); last; last = this.#above.at(-1)) {
      const isSibling = last.column === column && typeof last.segment === "number";
      if (last.column < column || (last.column === column && !isSibling)) break;
      if (isSibling) index = Number(last.segment) + 1;
      this.#above.pop();
    }
    this.#add({ column, segment: index }, { line, from: column });
  }

  #addField(line, column, key, value) {
    while (this.#above.length && this.#above[this.#above.length - 1].column >= column) this.#above.pop();
    const segment = key.replace(/^(["'])(.*)\1$/, "$2");
    this.#add({ column, segment }, { line, from: column, key, value });
  }

  #add(place, entry) {
    this.#above.push(place);
    this.entries.push({ ...entry, document: this.#document, path: this.#above.map((each) => each.segment) });
  }
}

// The line of `spec.access[1].verbs`, or of the deepest part of it that the text has.
/**
 * @param {string} text
 * @param {string} path
 */
export function findField(text, path) {
  const wanted = [...path.matchAll(/([^.[\]]+)(?=[.[\]]|$)/g)].map(([, part]) => part);
  let line;
  let depth = 0;
  for (const entry of outline(text)) {
    if (entry.path.length <= depth || entry.path.length > wanted.length) continue;
    if (!entry.path.every((segment, index) => String(segment) === wanted[index])) continue;
    line = entry.line;
    depth = entry.path.length;
  }
  return line;
}
