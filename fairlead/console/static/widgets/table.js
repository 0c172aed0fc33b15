// A table for any number of rows. Beyond some hundred rows only those in view have elements, which are reused while it
// scrolls. It is one stop of the Tab key: the row under the keyboard keeps its element, wherever it is scrolled to.

import { h, replace } from "../core/dom.js";
import { preferences } from "../core/preferences.js";
import { T } from "../texts/list.js";
import { Rows } from "./rows.js";

const RECYCLE_ABOVE = 300;
const OVERSCAN = 6;
const MAX_ROWS = 96;
const MAX_HEIGHT = 15_000_000; // browsers cap the height of an element near 16 million pixels
const NARROW = 640;
const HEIGHTS = { narrow: 66, touch: 44, normal: 32, compact: 28 };
const CHARACTER = 7.6;
const MIN_WIDTH = 56;
// Where a table would scroll sideways otherwise.
const TIGHT = { character: 8, padding: 14, state: 22, text: 80, name: 150 };
const SAMPLE = 200;

export class VirtualTable {
  #columns = [];
  #sort = "";
  #elements = new Map(); // by row id
  #active = null; // id of the row under the keyboard
  #mark = null; // where a range begins
  #height = HEIGHTS.normal;
  #natural = [];
  #tight = [];
  #options;

  // `scope` ends it. `tie` and `versionOf`: see Rows. `open(row)` is called for Enter and clicks, `onSort(sort)` and
  // `onSelection()` after changes. `storage` names the preference with the widths of columns.
  constructor(options) {
    this.#options = {
      selectable: false,
      open: () => {},
      onSort: () => {},
      onSelection: () => {},
      classOf: () => "",
      ...options,
    };
    this.rows = new Rows(options);
    this.selected = new Set();
    this.head = h("div.vtable-head", { role: "rowgroup" });
    this.body = h("div.vtable-body", { role: "rowgroup" });
    this.node = h(
      "div.vtable",
      { role: "grid", "aria-label": options.label, "aria-multiselectable": this.#options.selectable ? "true" : null },
      this.head,
      this.body,
    );
    this.#listen(options.scope);
  }

  get view() {
    return this.rows.view.map((entry) => entry.row);
  }
  get columns() {
    return this.#columns;
  }
  get sort() {
    return this.#sort;
  }
  get selection() {
    return [...this.selected].map((id) => this.rows.get(id)?.row).filter(Boolean);
  }

  #listen(scope) {
    const { node } = this;
    scope.listen(node, "scroll", () => this.#render(), { passive: true });
    scope.listen(node, "keydown", (event) => this.#press(event));
    scope.listen(node, "click", (event) => this.#click(event));
    scope.listen(node, "pointerdown", (event) => this.#startResize(event));
    scope.listen(node, "focusin", (event) => {
      const id = event.target.closest(".vtable-body .vtable-row")?.dataset.id;
      if (id) this.#activate(id);
    });
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(node);
    scope.add(() => observer.disconnect());
    scope.listen(window, "resize", () => this.resize());
  }

  // ---- content

  setColumns(columns, sort = this.#sort) {
    this.#columns = columns;
    this.#elements.forEach((element) => {
      element.row = null;
    });
    this.#natural = [];
    this.setSort(sort);
  }

  // "age" or "-age": the id of a column, and the direction.
  setSort(sort) {
    const id = sort.replace(/^-/, "");
    const column =
      this.#columns.find((each) => each.id === id) ?? this.#columns.find((each) => each.isName) ?? this.#columns[0];
    this.#sort = column && column.id === id ? sort : (column?.id ?? "");
    if (column) this.rows.sort(column.value, sort.startsWith("-") && column.id === id ? -1 : 1);
    this.#renderHead();
    this.#refresh();
  }

  setFilter(matches) {
    this.rows.filter(matches);
    this.#refresh();
  }

  // All rows, a Map by id. The row under the keyboard, or else the first one in view, stays where it is on the screen.
  setRows(rows) {
    const anchor = this.#anchor();
    if (!this.rows.update(rows)) return false;
    for (const id of this.selected)
      if (!this.rows.get(id)) {
        this.selected.delete(id);
        this.#options.onSelection();
      }
    this.#refresh(anchor);
    return true;
  }

  #anchor() {
    const focused = this.body.contains(document.activeElement) ? this.#indexOf(this.#active) : -1;
    const first = Math.floor(this.#virtualTop / this.#height);
    const visible = this.node.clientHeight / this.#height;
    const index = focused >= first && focused < first + visible ? focused : this.node.scrollTop > 0 ? first : -1;
    const entry = this.rows.view[index];
    return entry ? { id: entry.id, index, offset: index * this.#height - this.#virtualTop } : null;
  }

  #refresh(anchor) {
    const { view } = this.rows;
    if (this.#active !== null && view.length && !this.#isShown(this.#active)) {
      this.#active = (view[Math.min(anchor?.index ?? 0, view.length - 1)] ?? view[0]).id;
      if (this.body.contains(document.activeElement)) this.#refocus = true;
    }
    this.node.setAttribute("aria-rowcount", view.length + 1);
    this.#measure();
    const index = anchor ? this.#indexOf(anchor.id) : -1;
    if (index >= 0) this.#scrollTo(index * this.#height - anchor.offset);
    this.#render();
  }

  #refocus = false;
  #indexOf(id) {
    return id === null ? -1 : this.rows.view.findIndex((entry) => entry.id === id);
  }
  #isShown(id) {
    const entry = this.rows.get(id);
    return entry && this.#indexOf(id) >= 0;
  }

  // ---- geometry

  get #total() {
    return this.rows.view.length * this.#height;
  }
  get #viewport() {
    return Math.max(0, this.node.clientHeight - this.head.offsetHeight);
  }
  get #scale() {
    const capped = Math.min(this.#total, MAX_HEIGHT) - this.#viewport;
    return this.#total > MAX_HEIGHT ? (this.#total - this.#viewport) / capped : 1;
  }
  get #virtualTop() {
    return this.node.scrollTop * this.#scale;
  }
  #scrollTo(virtualTop) {
    this.node.scrollTop = Math.round(virtualTop / this.#scale);
  }

  // Row height, column widths and the height of the table, which ends at the lower edge of the window.
  resize() {
    const width = this.node.clientWidth;
    if (!width) return;
    const isNarrow = width < NARROW;
    const density = isNarrow
      ? "narrow"
      : matchMedia("(pointer: coarse)").matches
        ? "touch"
        : preferences.get("compact")
          ? "compact"
          : "normal";
    const top =
      this.node.getBoundingClientRect().top + (this.#options.fit === false ? 0 : document.scrollingElement.scrollTop);
    if (this.#options.fit !== false) this.node.style.maxHeight = `${Math.max(240, innerHeight - top - 16)}px`;
    this.node.classList.toggle("is-narrow", isNarrow);
    this.#height = HEIGHTS[density];
    this.node.style.setProperty("--row", `${this.#height}px`);
    this.#measure();
    this.#render();
  }

  #measure() {
    this.body.style.height = `${Math.min(this.#total, MAX_HEIGHT)}px`;
    if (!this.#natural.length && this.rows.view.length) {
      const lengths = this.#columns.map((column) => this.#longest(column));
      this.#natural = this.#columns.map((column, i) => this.#naturalWidth(column, lengths[i]));
      this.#tight = this.#columns.map((column, i) => this.#tightWidth(column, lengths[i]));
    }
    const widths = this.#widths();
    const check = this.#options.selectable ? ["36px"] : [];
    this.node.style.setProperty(
      "--columns",
      [
        ...check,
        ...widths.map((width, i) => (this.#isFixed(i) ? `${width}px` : `minmax(${width}px, ${width}fr)`)),
      ].join(" "),
    );
    this.node.style.setProperty("--width", `${widths.reduce((sum, width) => sum + width, check.length * 36)}px`);
  }

  #isFixed(index) {
    const column = this.#columns[index];
    return column.isTime || column.align || this.#stored[column.id];
  }

  get #stored() {
    return preferences.get(`widths.${this.#options.storage}`, {});
  }

  #longest(column) {
    return this.rows.view.slice(0, SAMPLE).reduce((most, { row }) => Math.max(most, column.text(row).length), 0);
  }

  #naturalWidth(column, length) {
    const content = length * (column.isName ? 8.6 : CHARACTER) + (column.stateOf ? 44 : 24);
    return Math.ceil(
      Math.max(
        column.width ?? MIN_WIDTH,
        column.title.length * CHARACTER + 42,
        Math.min(content, column.isName ? 600 : 420),
      ),
    );
  }

  // Room for states, and for titles and texts that are short.
  #tightWidth(column, length) {
    const { character, padding, state, text, name } = TIGHT;
    if (column.stateOf) return Math.ceil(length * character + padding + state);
    const longest = Math.max(length * character, column.title.length * CHARACTER) + padding;
    return Math.ceil(Math.max(MIN_WIDTH, Math.min(longest, column.isName ? name : text)));
  }

  // Widths that the user chose, or those of the content. Long cells shrink first, then names, then all of them.
  #widths() {
    const stored = this.#stored;
    const widths = this.#columns.map((column, i) => stored[column.id] ?? this.#natural[i] ?? 120);
    const fixed = this.#columns.map((column) => Boolean(stored[column.id]));
    let excess = widths.reduce((sum, width) => sum + width, this.#options.selectable ? 36 : 0) - this.node.clientWidth;
    const shrink = (leastOf) => {
      const room = widths.map((width, i) => (fixed[i] ? 0 : Math.max(0, width - leastOf(this.#columns[i], i))));
      const sum = room.reduce((a, b) => a + b, 0);
      if (excess <= 0 || !sum) return;
      const share = Math.min(1, excess / sum);
      room.forEach((each, i) => {
        widths[i] -= each * share;
      });
      excess -= sum * share;
    };
    shrink((column) => (column.isName ? Infinity : 96));
    shrink((column) => (column.isName ? 220 : Infinity));
    this.node.classList.toggle("is-tight", excess > 0);
    shrink((_, i) => this.#tight[i] ?? MIN_WIDTH);
    return widths.map(Math.floor);
  }

  #setWidth(id, width) {
    preferences.set(`widths.${this.#options.storage}`, {
      ...this.#stored,
      [id]: Math.max(MIN_WIDTH, Math.round(width)),
    });
    this.#measure();
  }

  #startResize(event) {
    const cell = event.target.closest(".vtable-resizer")?.parentElement;
    if (!cell) return;
    event.preventDefault();
    const from = { x: event.clientX, width: cell.offsetWidth };
    const sign = getComputedStyle(this.node).direction === "rtl" ? -1 : 1;
    const move = (each) => this.#setWidth(cell.dataset.column, from.width + sign * (each.clientX - from.x));
    event.target.setPointerCapture(event.pointerId);
    event.target.addEventListener("pointermove", move);
    event.target.addEventListener("pointerup", () => event.target.removeEventListener("pointermove", move), {
      once: true,
    });
  }

  // ---- elements

  #renderHead() {
    const sorted = this.#sort.replace(/^-/, "");
    const focused = this.head.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement.closest("[data-column]"))?.dataset.column
      : null;
    const cells = this.#columns.map((column) => {
      const direction = column.id !== sorted ? null : this.#sort.startsWith("-") ? "descending" : "ascending";
      return h(
        "div.vtable-cell",
        {
          role: "columnheader",
          "aria-sort": direction,
          data: { column: column.id, align: column.align ?? "" },
          title: column.description,
        },
        h(
          "button",
          { type: "button", tabindex: "-1" },
          h("span", column.title),
          direction && h("span.vtable-arrow", { "aria-hidden": "true" }, direction === "ascending" ? "↑" : "↓"),
        ),
        h("span.vtable-resizer", { "aria-hidden": "true" }),
      );
    });
    const all =
      this.#options.selectable &&
      h(
        "div.vtable-cell.vtable-check",
        { role: "columnheader" },
        (this.all = h("input", { type: "checkbox", tabindex: "-1", "aria-label": T.selectAll })),
      );
    replace(this.head, h("div.vtable-row", { role: "row", "aria-rowindex": 1 }, all, cells));
    this.node.setAttribute("aria-colcount", this.#columns.length + (all ? 1 : 0));
    if (focused) this.head.querySelector(`[data-column="${CSS.escape(focused)}"] button`)?.focus();
  }

  #window() {
    const count = this.rows.view.length;
    if (count <= RECYCLE_ABOVE) return [0, count];
    const first = Math.max(0, Math.floor(this.#virtualTop / this.#height) - OVERSCAN);
    return [
      first,
      Math.min(count, first + MAX_ROWS, first + Math.ceil(this.#viewport / this.#height) + 2 * OVERSCAN + 1),
    ];
  }

  #render() {
    const [first, last] = this.#window();
    const { view } = this.rows;
    const wanted = view.slice(first, last).map((entry, i) => [entry, first + i]);
    if (this.#active === null && view.length) this.#active = view[0].id;
    const active = this.#indexOf(this.#active);
    if (active >= 0 && active < first) wanted.unshift([view[active], active]);
    if (active >= last) wanted.push([view[active], active]);
    const ids = new Set(wanted.map(([entry]) => entry.id));
    const free = [];
    for (const [id, element] of this.#elements)
      if (!ids.has(id)) {
        this.#elements.delete(id);
        free.push(element);
      }
    const shift = this.node.scrollTop - this.#virtualTop;
    const reused = new Set(free);
    const ordered = wanted.map(([entry, index]) => this.#show(entry, index, shift, free));
    for (const element of free) {
      element.remove();
      reused.delete(element);
    }
    this.#arrange(ordered, reused);
    if (this.#refocus) {
      this.#refocus = false;
      this.#elements.get(this.#active)?.focus({ preventScroll: true });
    }
    this.#showSelection();
  }

  #show(entry, index, shift, free) {
    let element = this.#elements.get(entry.id);
    if (!element) {
      element = free.pop() ?? h("div.vtable-row", { role: "row" });
      this.#elements.set(entry.id, element);
      element.dataset.id = entry.id;
    }
    if (element.row !== entry.row) this.#fill(element, entry.row);
    const place = index * this.#height + shift;
    const isOdd = index % 2 === 1;
    // Most rows stay as they are while the table scrolls, and what is not written costs nothing.
    if (element.place !== place) element.style.transform = `translateY(${(element.place = place)}px)`;
    if (element.index !== index) element.ariaRowIndex = (element.index = index) + 2;
    if (element.tabIndex !== (entry.id === this.#active ? 0 : -1))
      element.tabIndex = entry.id === this.#active ? 0 : -1;
    if (element.classList.contains("odd") !== isOdd) element.classList.toggle("odd", isOdd);
    return element;
  }

  #fill(element, row) {
    element.row = row;
    element.className = `vtable-row ${this.#options.classOf(row)}`;
    const check =
      this.#options.selectable &&
      h(
        "div.vtable-cell.vtable-check",
        { role: "gridcell" },
        h("input", { type: "checkbox", tabindex: "-1", "aria-label": T.select }),
      );
    const cells = this.#columns.map((column) => {
      const text = column.text(row);
      return h(
        "div.vtable-cell",
        {
          role: column.isName ? "rowheader" : "gridcell",
          title: text,
          data: {
            align: column.align ?? "",
            title: column.title,
            kind: column.isName || column.isTitle ? "name" : column.isTime ? "time" : "",
          },
        },
        column.render(row),
      );
    });
    replace(element, check, cells);
    element.check = check ? check.firstChild : null;
    element.isSelected = null;
  }

  // Puts elements in the order of their rows without moving the focused one, which would lose the focus. Those that
  // were reused for other rows are moved, and not all that stay.
  #arrange(ordered, reused) {
    let next = this.body.firstChild;
    for (const element of ordered) {
      while (next && next !== element && reused.has(next)) next = next.nextSibling;
      if (element.contains(document.activeElement))
        while (next && next !== element) {
          const later = next.nextSibling;
          this.body.append(next);
          next = later;
        }
      if (element === next) next = next.nextSibling;
      else this.body.insertBefore(element, next);
    }
  }

  // ---- selection

  #showSelection() {
    if (!this.#options.selectable || !this.all) return; // what is typed into the filter may come before the columns
    for (const [id, element] of this.#elements) {
      const isSelected = this.selected.has(id);
      if (element.isSelected === isSelected) continue;
      element.ariaSelected = String((element.isSelected = isSelected));
      element.check.checked = isSelected;
    }
    this.all.checked = this.selected.size > 0 && this.selected.size >= this.rows.view.length;
    this.all.indeterminate = this.selected.size > 0 && !this.all.checked;
  }

  select(ids) {
    this.selected = new Set(ids);
    this.#showSelection();
    this.#options.onSelection();
  }

  selectAll() {
    this.select(this.rows.view.map((entry) => entry.id));
  }

  #toggle(id) {
    const selected = new Set(this.selected);
    if (!selected.delete(id)) selected.add(id);
    this.#mark = id;
    this.select(selected);
  }

  #selectRange(id) {
    const [from, to] = [this.#indexOf(this.#mark ?? this.#active), this.#indexOf(id)].sort((a, b) => a - b);
    this.select([...this.selected, ...this.rows.view.slice(Math.max(0, from), to + 1).map((entry) => entry.id)]);
  }

  // ---- mouse and keyboard

  #click(event) {
    const { target } = event;
    if (target === this.all) return this.all.checked ? this.selectAll() : this.select([]);
    const header = target.closest("[role=columnheader]");
    if (header) return target.closest("button") && this.#sortBy(header.dataset.column);
    const row = target.closest(".vtable-body .vtable-row");
    if (!row || event.defaultPrevented) return;
    this.#activate(row.dataset.id);
    if (target.closest(".vtable-check")) {
      if (event.shiftKey) this.#selectRange(row.dataset.id);
      else this.#toggle(row.dataset.id);
    } else if (
      !target.closest("a, button, input") &&
      !String(getSelection()) &&
      !event.ctrlKey &&
      !event.metaKey &&
      !event.shiftKey
    )
      this.#options.open(row.row);
  }

  #sortBy(id) {
    this.setSort(this.#sort === id ? `-${id}` : id);
    this.#options.onSort(this.#sort);
  }

  #activate(id) {
    if (id === this.#active) return;
    const former = this.#elements.get(this.#active);
    if (former) former.tabIndex = -1;
    this.#active = id;
    const element = this.#elements.get(id);
    if (element) element.tabIndex = 0;
  }

  get activeRow() {
    return this.rows.get(this.#active)?.row;
  }

  focus(id = this.#active) {
    if (!this.rows.view.length) return;
    this.#move(Math.max(0, this.#indexOf(id)));
  }

  #move(index, event) {
    const { view } = this.rows;
    const to = Math.max(0, Math.min(view.length - 1, index));
    if (!view.length) return;
    if (event?.shiftKey && this.#options.selectable) {
      this.#mark ??= this.#active;
      this.#selectRange(view[to].id);
    } else if (event) this.#mark = null;
    this.#activate(view[to].id);
    const top = to * this.#height;
    if (top < this.#virtualTop) this.#scrollTo(top);
    else if (top + this.#height > this.#virtualTop + this.#viewport)
      this.#scrollTo(top + this.#height - this.#viewport);
    this.#render();
    this.#elements.get(this.#active)?.focus({ preventScroll: true });
  }

  #press(event) {
    if (event.target.closest(".vtable-head")) return this.#pressHead(event);
    const index = this.#indexOf(this.#active);
    const page = Math.max(1, Math.floor(this.#viewport / this.#height) - 1);
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "a" && this.#options.selectable) {
      event.preventDefault();
      return this.selectAll();
    }
    if (isCommand || event.altKey) return;
    const moves = {
      ArrowDown: index + 1,
      j: index + 1,
      J: index + 1,
      ArrowUp: index - 1,
      k: index - 1,
      K: index - 1,
      Home: 0,
      End: Infinity,
      PageDown: index + page,
      PageUp: index - page,
    };
    if (event.key === "ArrowUp" && index === 0 && !event.shiftKey) this.head.querySelector("button")?.focus();
    else if (event.key in moves) this.#move(moves[event.key], event);
    else if (event.key === "Enter" && !event.target.closest("a, input")) this.#options.open(this.activeRow);
    else if ((event.key === "x" || event.key === " ") && this.#options.selectable) this.#toggle(this.#active);
    else if (event.key === "Escape" && this.selected.size) this.select([]);
    else return;
    event.preventDefault();
  }

  #pressHead(event) {
    const cells = [...this.head.querySelectorAll("[data-column]")];
    const index = cells.findIndex((cell) => cell.contains(event.target));
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "ArrowDown") this.focus();
    else if (step && event.shiftKey) this.#setWidth(cells[index].dataset.column, cells[index].offsetWidth + 16 * step);
    else if (step) cells[index + step]?.querySelector("button").focus();
    else return;
    event.preventDefault();
  }
}
