// The rows of a table: filtered and sorted by raw values, and kept so at little cost while a watch changes some of
// them.
//
// Sort keys and matches are computed once per row. A change costs one pass over the rows and a sort of the changed
// ones, so hundreds of events per second on ten thousand rows stay far below the time of a frame.

const UNITS = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};
const SECONDS = { y: 31_536_000, d: 86_400, h: 3600, m: 60, s: 1 };

// "3m12s" -> 192; null if it is no duration as kubectl prints it.
export function parseAge(text) {
  if (!/^(\d+[ydhms])+$/.test(text)) return null;
  return [...text.matchAll(/(\d+)([ydhms])/g)].reduce((sum, [, count, unit]) => sum + count * SECONDS[unit], 0);
}

function parseQuantity(text) {
  const found = /^([+-]?\d+(?:\.\d+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(text);
  return found ? Number(found[1]) * UNITS[found[2] ?? ""] : null;
}

// What a value is sorted by: numbers, quantities and booleans by size, other text with the numbers in it by size.
export function sortKey(value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value !== "string") return Number(value);
  return parseQuantity(value) ?? value.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(10, "0"));
}

// Empty values are last, whatever the direction.
function compareKeys(a, b, direction) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  if (typeof a !== typeof b) return typeof a === "number" ? -direction : direction;
  return a < b ? -direction : direction;
}

export class Rows {
  view = []; // the entries {id, row} to show, in their order
  #entries = new Map(); // by id
  #sorted = [];
  #key = () => null;
  #direction = 1;
  #tie;
  #matches = null;
  #filter = 0; // counts filters: a match of another one is no longer valid

  // `tie(row)` sorts rows with equal keys. `versionOf(row)` tells whether a new row differs from the old one.
  constructor({ tie, versionOf }) {
    this.#tie = tie;
    this.versionOf = versionOf;
  }

  get size() {
    return this.#entries.size;
  }
  get all() {
    return this.#sorted;
  }
  get(id) {
    return this.#entries.get(id);
  }

  // Takes all rows, a Map by id. Returns whether something changed.
  update(rows) {
    const changed = [];
    let same = 0;
    for (const [id, row] of rows) {
      const entry = this.#entries.get(id);
      if (entry?.row === row) same++;
      else if (entry && this.versionOf(row) && this.versionOf(entry.row) === this.versionOf(row)) same++;
      else changed.push(this.#add(id, row));
    }
    if (!changed.length && same === this.#entries.size) return false;
    if (this.#entries.size > rows.size)
      for (const id of this.#entries.keys()) if (!rows.has(id)) this.#entries.delete(id);
    const kept = this.#sorted.filter((entry) => this.#entries.get(entry.id) === entry);
    this.#sorted = merge(kept, changed.sort(this.#compare), this.#compare);
    this.#select();
    return true;
  }

  #add(id, row) {
    const entry = { id, row, key: this.#key(row), tie: this.#tie(row), filter: -1, isMatch: true };
    this.#entries.set(id, entry);
    return entry;
  }

  #compare = (a, b) => compareKeys(a.key, b.key, this.#direction) || (a.tie < b.tie ? -1 : a.tie > b.tie ? 1 : 0);

  sort(key, direction) {
    this.#key = key;
    this.#direction = direction;
    for (const entry of this.#sorted) entry.key = key(entry.row);
    this.#sorted.sort(this.#compare);
    this.#select();
  }

  // `matches(row)`, or null for all rows.
  filter(matches) {
    this.#matches = matches;
    this.#filter++;
    this.#select();
  }

  #select() {
    this.view = this.#matches ? this.#sorted.filter((entry) => this.#isMatch(entry)) : this.#sorted;
  }

  #isMatch(entry) {
    if (entry.filter !== this.#filter) {
      entry.filter = this.#filter;
      entry.isMatch = this.#matches(entry.row);
    }
    return entry.isMatch;
  }
}

function merge(a, b, compare) {
  if (!b.length) return a;
  const merged = [];
  let i = 0;
  for (const entry of b) {
    while (i < a.length && compare(a[i], entry) <= 0) merged.push(a[i++]);
    merged.push(entry);
  }
  while (i < a.length) merged.push(a[i++]);
  return merged;
}
