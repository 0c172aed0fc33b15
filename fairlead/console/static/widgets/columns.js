// The columns of a list: those of the server's Table, the project, and labels. A column has `value(row)` to sort by,
// `text(row)` to filter and measure by, `export(row)` for files, and `render(row)`.

import { h, newId } from "../core/dom.js";
import { href } from "../core/router.js";
import { timeElement } from "../core/time.js";
import { projectOf } from "../shell/sign-in.js";
import { T } from "../texts/list.js";
import { describeLogin } from "./client.js";
import { button } from "./common.js";
import { parseAge, sortKey } from "./rows.js";
import { stateBadge, stateOfCell, worst } from "./state.js";

const STATE = /^(status|phase|state|ready|online|health)$/i;
const SEEN = / (seen|used)$/i; // Kubernetes declares these as text
const TIMESTAMP = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/;
const received = new WeakMap();

// Printed ages are as old as their row: call this when a row arrives.
export const stamp = (row) => received.set(row, Date.now());

const metadataOf = (row) => row.object.metadata;
const idOf = (title) => title.toLowerCase().replace(/\s+/g, "-");

// `pathOf(kind, object)` is the page of an object.
export function tableColumns(kind, definitions, { showProject, pathOf }) {
  const columns = definitions
    .map((definition, index) => columnOf(kind, definition, index, pathOf))
    .filter((column) => !(showProject && column.id === (kind.server.isRemote ? "namespace" : "project")));
  if (!columns.some((column) => column.isName))
    columns.unshift(nameColumn(kind, { name: T.name }, (row) => metadataOf(row).name, pathOf));
  const name = columns.find((column) => column.isName);
  // Generated names, as of Events, are no titles.
  const linked = name.priority ? columns.find((column) => column.isText) : null;
  if (linked) linked.isTitle = true;
  if (linked)
    linked.render = (row) => h("a", { href: href(pathOf(kind, row.object)), tabindex: "-1" }, linked.text(row));
  if (showProject) columns.splice(columns.indexOf(linked ?? name) + 1, 0, projectColumn(kind.server.isRemote));
  const states = columns.filter((column) => column.stateOf);
  const state = (row) => rowState(row, states);
  const [first] = states;
  if (first) first.render = (row) => stateBadge(metadataOf(row).deletionTimestamp ? state(row) : first.stateOf(row));
  return { columns, stateOf: states.length ? state : null };
}

function rowState(row, columns) {
  const { deletionTimestamp, finalizers = [] } = metadataOf(row);
  if (deletionTimestamp)
    return { state: "working", word: T.deleting, message: finalizers.length ? T.waitsFor(finalizers.join(", ")) : "" };
  return worst(columns.map((column) => column.stateOf(row)));
}

function columnOf(kind, definition, index, pathOf) {
  const cell = (row) => row.cells[index];
  const { name, type } = definition;
  if (definition.format === "name" || name === "Name") return nameColumn(kind, definition, cell, pathOf);
  if (name === "Age") return timeColumn(definition, (row) => metadataOf(row).creationTimestamp);
  if (type === "date" || SEEN.test(name)) return timeColumn(definition, (row) => timeOfAge(row, cell(row)));
  if (STATE.test(name) || (kind.kind === "Event" && name === "Type")) return stateColumn(definition, cell);
  if (type === "boolean") return column(definition, cell, { text: (row) => (cell(row) ? T.yes : T.no), width: 70 });
  if (type === "integer" || type === "number") return column(definition, cell, { align: "end" });
  if (kind.kind === "Event" && name === "Object")
    return column(definition, cell, { text: (row) => titleOf(kind.server, String(cell(row) ?? "")) });
  if (kind.kind === "OwnedAccessKey" && name === "Display Name")
    return column(definition, cell, { text: (row) => describeLogin(String(cell(row) ?? "")) });
  return column(definition, cell, { render: (row) => textNode(cell(row)), isText: true });
}

function column(definition, value, more = {}) {
  const text = more.text ?? ((row) => String(value(row) ?? ""));
  return {
    id: more.id ?? idOf(definition.name),
    title: definition.name,
    description: definition.description ?? "",
    priority: definition.priority ?? 0,
    value: (row) => sortKey(value(row)),
    text,
    export: more.export ?? text,
    render: more.render ?? text,
    ...more,
  };
}

// A time, alone or before a comma, is shown as all others.
function textNode(value) {
  const [first, ...rest] = String(value ?? "").split(", ");
  return TIMESTAMP.test(first) ? [timeElement(first), rest.map((each) => `, ${each}`)] : String(value ?? "");
}

// "spaceinstance/web" -> "Space web"
function titleOf(server, text) {
  const [resource, name] = text.split("/");
  const kind = name && server.kinds.find((each) => each.kind.toLowerCase() === resource);
  return kind ? `${kind.title} ${name}` : text;
}

function nameColumn(kind, definition, cell, pathOf) {
  const render = (row) => {
    const { deletionTimestamp } = metadataOf(row);
    return [
      h("a.mono", { href: href(pathOf(kind, row.object)), tabindex: "-1", draggable: "false" }, cell(row)),
      deletionTimestamp && h("span.muted", ` ${T.deletingMark}`),
    ];
  };
  return column(definition, cell, { isName: true, render });
}

function stateColumn(definition, cell) {
  const stateAt = (row) => stateOfCell(cell(row), definition.name);
  const render = (row) => stateBadge(stateAt(row));
  return column(definition, (row) => stateAt(row).word, { stateOf: stateAt, render });
}

const timeOfAge = (row, text) => {
  const seconds = parseAge(text ?? "");
  return seconds === null ? "" : new Date((received.get(row) ?? Date.now()) - seconds * 1000).toISOString();
};

// Sorted as ages: the newest first.
function timeColumn(definition, timestamp) {
  return column(definition, timestamp, {
    value: (row) => (timestamp(row) ? -Date.parse(timestamp(row)) : null),
    text: () => "",
    export: timestamp,
    render: (row) => (timestamp(row) ? timeElement(timestamp(row), { age: true }) : h("span.muted.nothing", "–")),
    width: 76,
    isTime: true,
  });
}

function projectColumn(isRemote) {
  const namespaceOnly = (row) => metadataOf(row).namespace ?? "";
  if (isRemote)
    return column({ name: T.namespace, description: T.namespaceColumn }, namespaceOnly, { id: "namespace" });
  const text = (row) => projectOf(metadataOf(row).namespace) || metadataOf(row).namespace || "";
  const render = (row) => {
    const { namespace = "" } = metadataOf(row);
    return projectOf(namespace) ? text(row) : h("span.muted", { title: T.namespaceOf(namespace) }, namespace);
  };
  return column({ name: T.project, description: T.projectColumn }, text, { id: "project", render });
}

const labelColumn = (key) =>
  column({ name: key.split("/").at(-1), description: T.labelColumn(key) }, (row) => metadataOf(row).labels?.[key], {
    id: `label:${key}`,
  });

// The chosen columns: `ids` like "name,phase,label:app", "wide" for all, or "" for those of the server.
export function chooseColumns(columns, ids) {
  if (ids === "wide") return columns;
  if (!ids) return columns.filter((each) => !each.priority);
  return ids
    .split(",")
    .map((id) => (id.startsWith("label:") ? labelColumn(id.slice(6)) : columns.find((each) => each.id === id)))
    .filter(Boolean);
}

// A menu with columns, sort order and row height. `state` returns {columns, shown, sort, labelKeys, compact}.
export function viewMenu({ state, onColumns, onSort, onCompact }) {
  const menu = h("div.view-menu", { popover: "", id: newId("view") });
  const opener = button(T.view, { icon: "grid" });
  opener.setAttribute("popovertarget", menu.id);
  opener.setAttribute("aria-haspopup", "dialog");
  const fill = () =>
    menu.replaceChildren(
      columnFields(state(), onColumns, fill),
      sortField(state(), onSort),
      compactField(state(), onCompact),
    );
  menu.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    fill();
    const { bottom, right } = opener.getBoundingClientRect();
    Object.assign(menu.style, {
      top: `${bottom + 4}px`,
      right: `${Math.max(8, Math.min(innerWidth - right, innerWidth - 288))}px`,
    });
  });
  return h("span", opener, menu);
}

function columnFields({ columns, shown, labelKeys }, onColumns, refill) {
  const shownIds = new Set(shown.map((each) => each.id));
  const change = (id, checked) => {
    const all = [...columns, ...shown.filter((each) => each.id.startsWith("label:"))];
    const ids = all.map((each) => each.id).filter((each) => (each === id ? checked : shownIds.has(each)));
    if (checked && !ids.includes(id)) ids.push(id);
    onColumns(ids.join(","));
    refill();
  };
  const box = (each) =>
    h(
      "label",
      h("input", {
        type: "checkbox",
        checked: shownIds.has(each.id),
        disabled: each.isName && !each.priority,
        onchange: (event) => change(each.id, event.target.checked),
      }),
      each.title,
      each.id.startsWith("label:") && h("span.muted", ` ${T.label}`),
    );
  const list = newId("labels");
  const add = h("input", {
    list,
    placeholder: T.addLabel,
    "aria-label": T.addLabel,
    onchange: () => add.value.trim() && change(`label:${add.value.trim()}`, true),
  });
  return h(
    "fieldset",
    h("legend", T.columns),
    [...columns, ...shown.filter((each) => each.id.startsWith("label:"))].map(box),
    add,
    h(
      "datalist",
      { id: list },
      labelKeys().map((key) => h("option", { value: key })),
    ),
    h(
      "div.row",
      button(T.allColumns, {
        kind: "quiet",
        onclick: () => {
          onColumns("wide");
          refill();
        },
      }),
      button(T.resetColumns, {
        kind: "quiet",
        onclick: () => {
          onColumns("");
          refill();
        },
      }),
    ),
  );
}

function sortField({ shown, sort }, onSort) {
  const options = shown.flatMap((each) => [
    [each.id, `${each.title} ↑`],
    [`-${each.id}`, `${each.title} ↓`],
  ]);
  const select = h(
    "select",
    { onchange: () => onSort(select.value) },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  select.value = sort;
  return h("label.stacked", T.sortBy, select);
}

const compactField = ({ compact }, onCompact) =>
  h(
    "label",
    h("input", { type: "checkbox", checked: compact, onchange: (event) => onCompact(event.target.checked) }),
    T.compact,
  );
