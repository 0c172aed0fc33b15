// The command palette: pages, actions and objects by name, from the keyboard.

import { can } from "../core/access.js";
import { request } from "../core/api.js";
import { h, newId, replace, Scope } from "../core/dom.js";
import { navigate } from "../core/router.js";
import { T } from "../texts/shell.js";
import { icon } from "../widgets/common.js";
import { listEntries, mayShow } from "./navigation.js";
import { showShortcuts } from "./shortcuts.js";
import { projectOf, signOut } from "./sign-in.js";
import { setTheme, THEMES } from "./theme.js";

const SEARCHED = new Set([
  "projects",
  "clusters",
  "devpodworkspaceinstances",
  "spaceinstances",
  "virtualclusterinstances",
  "runners",
  "apps",
  "users",
  "teams",
]);
const MAX_SHOWN = 30;
const NAMES_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

let objects = null;
let permitted = null; // entries of pages, and those whose objects may be created
let loadedAt = 0;

export function showPalette(typed = "") {
  if (document.querySelector("dialog.palette")) return;
  const scope = new Scope();
  const listId = newId("palette");
  const input = h("input", {
    type: "search",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": listId,
    "aria-label": T.paletteLabel,
    placeholder: T.palettePlaceholder,
    autocomplete: "off",
    spellcheck: "false",
  });
  const results = h("ul", { id: listId, role: "listbox", "aria-label": T.results });
  const dialog = h("dialog.palette", { "aria-label": T.search }, input, results);
  let shown = [];
  let selected = 0;
  const close = () => {
    scope.end();
    dialog.close();
    dialog.remove();
  };
  const run = (entry) => {
    if (entry) {
      close();
      entry.run();
    }
  };
  const select = (index) => {
    selected = Math.max(0, Math.min(index, shown.length - 1));
    for (const [each, node] of [...results.children].entries())
      node.setAttribute("aria-selected", String(each === selected));
    const node = results.children[selected];
    input.setAttribute("aria-activedescendant", node?.id ?? "");
    node?.scrollIntoView({ block: "nearest" });
  };
  const update = () => {
    shown = rank([...commands(), ...(objects ?? [])], input.value.trim().toLowerCase()).slice(0, MAX_SHOWN);
    replace(
      results,
      shown.map((entry) =>
        h(
          "li",
          { id: newId("option"), role: "option", onclick: () => run(entry) },
          icon(entry.icon),
          h("span", entry.title),
          h("span.muted", entry.note),
        ),
      ),
      !shown.length && h("li.muted", { role: "option", "aria-disabled": "true" }, T.nothingFound),
    );
    select(0);
  };
  input.addEventListener("input", update);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    close();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      select(selected + 1);
    } else if (event.key === "ArrowUp") {
      event.preventDefault();
      select(selected - 1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(shown[selected]);
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  input.value = typed;
  update();
  for (const load of [loadPermitted(), loadObjects(scope)]) load.then(() => !scope.ended && update());
}

// What the user may not see or create is not offered. Objects in projects are: the form knows which project permits it.
async function loadPermitted() {
  const entries = listEntries().flatMap((section) => section.entries);
  const [shown, created] = await Promise.all([Promise.all(entries.map(mayShow)), Promise.all(entries.map(mayCreate))]);
  permitted = {
    pages: entries.filter((_, index) => shown[index]),
    created: entries.filter((_, index) => created[index]),
  };
}

const mayCreate = async ({ kind }) => Boolean(kind?.verbs.has("create")) && (kind.namespaced || can("create", kind));

function commands() {
  const { pages: shown, created } = permitted ?? { pages: [], created: [] };
  const pages = shown.map((entry) => ({
    title: entry.title,
    note: T.page,
    icon: entry.icon,
    run: () => navigate(entry.path),
  }));
  const create = created.map((entry) => ({
    title: T.create(entry.kind.title),
    note: T.action,
    icon: "plus",
    run: () => navigate(`${entry.path}/~new`),
  }));
  const themes = THEMES.map((theme) => ({
    title: `${T.theme}: ${T.choices[theme]}`,
    note: T.action,
    icon: "gear",
    run: () => setTheme(theme),
  }));
  return [
    ...pageActions(),
    ...pages,
    ...create,
    { title: T.shortcuts, note: T.action, icon: "info", run: showShortcuts },
    ...themes,
    { title: T.signOut, note: T.action, icon: "user", run: () => signOut() },
  ];
}

// What the page offers to do with its object, and its tabs.
function pageActions() {
  const controls = ["main .tabs button", "main .actions button"]
    .flatMap((each) => [...document.querySelectorAll(each)])
    .filter(
      (node) =>
        !node.hidden &&
        !node.disabled &&
        node.getAttribute("aria-disabled") !== "true" &&
        node.getAttribute("aria-selected") !== "true",
    );
  return controls.map((node) => ({
    title: node.textContent,
    note: T.here(document.querySelector("h1").textContent),
    icon: node.role === "tab" ? "box" : "play",
    run: () => {
      node.focus();
      node.click();
    },
  }));
}

// The names of the most important kinds, at most once a minute.
async function loadObjects(scope) {
  if (objects && performance.now() - loadedAt < 60_000) return;
  const entries = listEntries()
    .flatMap((section) => section.entries)
    .filter((entry) => entry.kind && SEARCHED.has(entry.kind.plural));
  const lists = await Promise.all(
    entries.map(async (entry) => {
      if (!(await can("list", entry.kind))) return [];
      const list = await request(`${entry.kind.path()}?limit=500`, { accept: NAMES_ONLY, signal: scope.signal }).catch(
        () => ({ items: [] }),
      );
      return list.items.map(({ metadata }) => ({
        title: metadata.name,
        note: [entry.kind.title, projectOf(metadata.namespace) || metadata.namespace].filter(Boolean).join(" · "),
        icon: entry.icon,
        run: () =>
          navigate([entry.path, metadata.namespace, metadata.name].filter(Boolean).map(encodeURIComponent).join("/")),
      }));
    }),
  );
  if (scope.ended) return;
  objects = lists.flat();
  loadedAt = performance.now();
}

// Entries that contain all words; those that begin with the text come first.
function rank(entries, text) {
  if (!text) return entries;
  const words = text.split(/\s+/);
  const score = ({ title, note }) => {
    const full = `${title} ${note}`.toLowerCase();
    if (!words.every((word) => full.includes(word))) return -1;
    return title.toLowerCase().startsWith(text) ? 2 : title.toLowerCase().includes(text) ? 1 : 0;
  };
  return entries
    .map((entry) => [score(entry), entry])
    .filter(([value]) => value >= 0)
    .sort((a, b) => b[0] - a[0])
    .map(([, entry]) => entry);
}
