// Small parts that every page uses.

import { h, newId, replace, svg } from "../core/dom.js";
import { parseQuantity } from "../core/quantity.js";

const ICONS = {
  menu: "M3 6h18M3 12h18M3 18h18",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  home: "M3 11l9-8 9 8M5 10v10h14V10",
  folder: "M3 6h6l2 2h10v11H3z",
  terminal: "M4 5h16v14H4zM7 9l3 3-3 3M12 15h5",
  box: "M4 7l8-4 8 4v10l-8 4-8-4zM4 7l8 4 8-4M12 11v10",
  layers: "M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5",
  package: "M4 8h16v12H4zM4 8l2-4h12l2 4M9 12h6",
  key: "M8 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 12h9v4M17 12v3",
  server: "M4 4h16v7H4zM4 13h16v7H4zM7 7.5h.1M7 16.5h.1",
  play: "M7 4l12 8-12 8z",
  grid: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  template: "M5 3h14v18H5zM8 7h8M8 11h8M8 15h5",
  user: "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 21a8 8 0 0 1 16 0",
  users: "M9 5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7zM2 20a7 7 0 0 1 14 0M16 5a3.5 3.5 0 0 1 0 7M18 14a7 7 0 0 1 4 6",
  shield: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM9 12l2 2 4-4",
  list: "M8 6h13M8 12h13M8 18h13M3 6h.1M3 12h.1M3 18h.1",
  bell: "M6 17V10a6 6 0 0 1 12 0v7zM4 17h16M10 21h4",
  gear: "M12 9a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM12 2v4M12 18v4M2 12h4M18 12h4M5 5l3 3M16 16l3 3M19 5l-3 3M8 16l-3 3",
  info: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM12 11v6M12 7.5v.1",
  plus: "M12 5v14M5 12h14",
  copy: "M8 8h12v12H8zM4 16V4h12",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14",
  edit: "M4 20l1-5L16 4l4 4L9 19z",
  moon: "M20 14A8 8 0 1 1 10 4a6 6 0 0 0 10 10z",
  stop: "M6 6h12v12H6z",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  check: "M5 13l4 4L19 7",
};

export const icon = (name) =>
  svg("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] ?? ICONS.box }));

/**
 * @param {Child} title
 * @param {{onclick?: (event: any) => any, kind?: string, icon?: string, [property: string]: any}} options
 */
export function button(title, { onclick, kind, icon: name, ...properties } = {}) {
  return h(
    `button${kind ? `.${kind}` : ""}`,
    { type: "button", onclick: onclick ?? (() => {}), ...properties },
    name && icon(name),
    title,
  );
}

/**
 * @param {string} address
 * @param {Child} title
 * @param {{kind?: string, icon?: string, [property: string]: any}} options
 */
export const linkButton = (address, title, { kind, icon: name, ...properties } = {}) =>
  h(`a.button${kind ? `.${kind}` : ""}`, { href: address, ...properties }, name && icon(name), title);

export const card = (title, ...children) => h("section.card", title && h("h2", title), ...children);

// A labelled control. `help` is a sentence below it.
export function field(label, control, help) {
  control.id ||= newId("field");
  const hint = help && h("p.field-help", { id: newId("help") }, help);
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return h("div.field", h("label", { for: control.id }, label), control, hint);
}

// A table with a line of titles. `body` is a tbody, or an array of rows. On phones each cell stands below the other,
// with its title.
export function tableOf(titles, body, selector = "table") {
  const head = h(
    "thead",
    h(
      "tr",
      titles.map((title) => (title ? h("th", { scope: "col" }, title) : h("td"))),
    ),
  );
  const rows = Array.isArray(body) ? h("tbody", body) : body;
  const label = () => {
    for (const row of rows.rows) labelCells(row, titles);
  };
  label();
  if (rows === body) new MutationObserver(label).observe(rows, { childList: true });
  return h("div.scroll", h(`${selector}.labelled`, head, rows));
}

function labelCells(row, titles) {
  [...row.cells].forEach((cell, index) => {
    cell.dataset.label = titles[index] ?? "";
  });
}

// Terms and values; entries without a value are left out.
export const definition = (entries) =>
  h(
    "dl.definition",
    entries
      .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
      .map(([term, value]) => h("div", h("dt", term), h("dd", value))),
  );

export function copyButton(text, label = "Copy") {
  const node = button("", { kind: "quiet", icon: "copy", "aria-label": label, title: label });
  node.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    } catch {
      return;
    } // not on plain http
    replace(node, icon("check"));
    setTimeout(() => replace(node, icon("copy")), 1500);
  });
  return node;
}

export const copyable = (text) => h("span.copyable", h("code", text), copyButton(text));
export const codeBlock = (text) => h("div.code-block", h("pre", text), copyButton(text));

// A bar of usage, with its numbers as text. `limit` may be missing.
export function meter(used, limit, label) {
  if (limit === undefined || limit === null || limit === "") return h("span", String(used));
  const most = parseQuantity(limit);
  const share = most > 0 ? Math.min(1, parseQuantity(used) / most) : 1;
  const state = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  return h(
    "span.meter",
    { data: { state } },
    h("span.meter-bar", { "aria-hidden": "true" }, h("span", { style: { "inline-size": `${share * 100}%` } })),
    h("span", `${used} of ${limit}`, label && ` ${label}`),
  );
}

export const skeleton = (lines = 6) =>
  h(
    "div.skeleton",
    { "aria-busy": "true" },
    Array.from({ length: lines }, () => h("span")),
  );

export const empty = (title, text, ...actions) =>
  h("section.empty", h("p.empty-title", title), text && h("p.muted", text), actions);

// Tabs. `entries` are {name, title, show(node)}; `selected` is a name; `onselect(name)` is called after a change.
/**
 * @param {{name: string, title: string, show: (node: HTMLElement) => any}[]} entries
 * @param {string} selected
 * @param {(name: string) => boolean | void} onselect
 */
export function tabsOf(entries, selected, onselect = () => {}) {
  const panel = h("div.tab-panel", { role: "tabpanel", tabindex: "0", id: newId("panel") });
  const buttons = entries.map((entry) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: newId("tab"),
        "aria-controls": panel.id,
        onclick: () => select(entry.name, true),
      },
      entry.title,
    ),
  );
  const list = h("div.tabs", { role: "tablist" }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
  let shown = null;
  function select(name, byUser = false) {
    const index = Math.max(
      0,
      entries.findIndex((entry) => entry.name === name),
    );
    if (shown === entries[index].name) return;
    if (byUser && onselect(entries[index].name) === false) return;
    shown = entries[index].name;
    buttons.forEach((each, position) => {
      each.setAttribute("aria-selected", String(position === index));
      each.tabIndex = position === index ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[index].id);
    replace(panel);
    entries[index].show(panel);
  }
  select(selected);
  return { node: h("div.tabbed", list, panel), select };
}
