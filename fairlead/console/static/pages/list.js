// The list of any kind, from the server's Table, live. What is shown is in the URL: ?q= words, ?labels= and ?fields=
// selectors, ?state=, ?project= or ?ns=, ?sort= and ?columns=.

import { guard, review, reviewCreate } from "../core/access.js";
import { pause } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { listObjects, managed, pathOf as managementPath } from "../core/kinds.js";
import { preferences } from "../core/preferences.js";
import { href, navigate, setQuery } from "../core/router.js";
import { watchList } from "../core/watch.js";
import { announce, toast } from "../shell/dialogs.js";
import { namespaceOf, projectOf } from "../shell/sign-in.js";
import { T } from "../texts/list.js";
import { chooseColumns, stamp, tableColumns, viewMenu } from "../widgets/columns.js";
import { button, empty, linkButton, skeleton } from "../widgets/common.js";
import { download, toCsv } from "../widgets/csv.js";
import { errorBlock } from "../widgets/errors.js";
import { extraLabels, filterInput, parseFilter, printFilter } from "../widgets/filter.js";
import { sortKey } from "../widgets/rows.js";
import { rank, stateDot } from "../widgets/state.js";
import { VirtualTable } from "../widgets/table.js";
import { listViews } from "./list-views.js";

const SKELETON_AFTER = 150;
const ABOVE_WITHIN = 1; // seconds
const MANY = 1000;
const PAUSE = 120;
const positions = new Map(); // by path: the row under the keyboard, for coming back

export async function show(page, { kind, namespace = "", pathOf = managementPath }) {
  const list = new ListPage(page, kind, namespace, pathOf);
  page.setTitle(kind.pluralTitle);
  const view = kind.server.isRemote ? null : await listViews[kind.segment]?.();
  const above = view?.above({ kind, page, scope: page.scope });
  if (above) await Promise.race([above.filled, pause(ABOVE_WITHIN)]); // what comes later moves the list
  if (page.scope.ended) return;
  list.build(above?.node);
  list.connect();
}

class ListPage {
  constructor(page, kind, namespace, pathOf) {
    this.page = page;
    this.kind = kind;
    this.pathOf = pathOf;
    this.scope = page.scope;
    // Namespaces of a cluster behind a gateway are no projects.
    const { isRemote } = kind.server;
    this.projectOf = isRemote ? () => "" : projectOf;
    this.namespaceOf = isRemote ? (name) => name : namespaceOf;
    this.kinds = kind.pluralTitle.toLowerCase();
    this.query = Object.fromEntries(
      ["q", "labels", "fields", "state", "sort"].map((name) => [name, page.query.get(name) ?? ""]),
    );
    this.chosen = page.query.get("columns") ?? preferences.get(`columns.${kind.segment}`, "");
    const project = page.query.get("project");
    this.namespace = !kind.namespaced
      ? ""
      : namespace || (project ? namespaceOf(project) : (page.query.get("ns") ?? ""));
    this.words = parseFilter(this.query.q).words;
    this.definitions = null;
    this.known = { columns: [], stateOf: null };
    this.texts = new WeakMap();
    this.last = 0;
  }

  // ---- the parts of the page

  build(above) {
    const { kind, scope } = this;
    this.table = new VirtualTable({
      scope,
      label: kind.pluralTitle,
      selectable: true,
      storage: kind.segment,
      tie: (row) => {
        stamp(row);
        return sortKey(row.object.metadata.name) + (row.object.metadata.namespace ?? "");
      },
      versionOf: (row) => row.object.metadata.resourceVersion,
      classOf: (row) => (row.object.metadata.deletionTimestamp ? "is-deleting" : ""),
      open: (row) => navigate(this.pathOf(kind, row.object)),
      onSort: (sort) => this.change({ sort }),
      onSelection: () => this.showSelection(),
    });
    this.filter = filterInput({
      scope,
      text: printFilter(this.query),
      label: T.filterLabel(this.kinds),
      onWords: (parsed) => {
        this.words = parsed.words;
        this.change({ q: parsed.q });
        this.applyFilter();
      },
      onSelectors: (parsed) => this.setSelectors(parsed),
      onLeave: () => this.table.focus(),
    });
    this.count = h("span.list-count");
    this.states = h("div.state-legend");
    this.bar = h("div.state-bar", { "aria-hidden": "true" });
    this.selection = h("div.selection", { hidden: true });
    this.notice = h("div", { role: "status" });
    this.body = h("div.list-body");
    const menu = viewMenu({
      state: () => this.viewState(),
      onColumns: (ids) => this.setColumns(ids),
      onSort: (sort) => {
        this.table.setSort(sort);
        this.change({ sort });
      },
      onCompact: (isCompact) => {
        preferences.set("compact", isCompact);
        this.table.resize();
      },
    });
    const tools = h(
      "div.list-tools",
      this.filter.node,
      kind.namespaced && !kind.server.namespace && this.projectSelect(),
      h("span.spring"),
      menu,
      button("", {
        icon: "download",
        title: T.exportCsv,
        "aria-label": T.exportCsv,
        onclick: () => this.export(this.table.view),
      }),
      this.createButton(),
    );
    replace(
      this.page.main,
      above,
      tools,
      h("div.list-summary", h("div.list-states", this.count, this.states), this.selection, this.bar),
      this.notice,
      this.body,
    );
    scope.listen(document, "keydown", (event) => this.press(event));
    const path = location.pathname;
    scope.add(() => positions.set(path, this.table.activeRow?.object.metadata.uid));
    const timer = setTimeout(() => this.list.state === "loading" && replace(this.body, skeleton()), SKELETON_AFTER);
    scope.add(() => clearTimeout(timer));
  }

  createButton() {
    const { kind } = this;
    if (kind.server.isRemote || !kind.verbs.has("create") || kind.kind === "Event") return null;
    const node = this.createLink();
    node.addEventListener(
      "click",
      () => {
        node.href = this.createLink().href;
      },
      { capture: true },
    );
    this.guardCreate(node).then((isAllowed) => {
      this.canCreate = isAllowed;
      this.showRows();
    });
    return node;
  }

  createLink(look = "primary") {
    const project = projectOf(this.namespace);
    return linkButton(
      href(`${this.kind.segment}/~new`, { project, namespace: project ? "" : this.namespace }),
      this.kind.segment === "clusters" ? T.connect : T.create(this.kind.title.toLowerCase()),
      { kind: look },
    );
  }

  // A namespaced kind can be created if one project permits it.
  async guardCreate(node) {
    node.setAttribute("aria-disabled", "true");
    const projects = this.kind.namespaced && !this.namespace ? await this.projects : [];
    const { question, reason } = await reviewCreate(this.kind, [this.namespace, ...projects.map(namespaceOf)]);
    return guard(node, question, reason || T.mayNotCreate(this.kinds));
  }

  projectSelect() {
    const select = h("select", {
      "aria-label": this.kind.server.isRemote ? T.namespaceFilter : T.projectFilter,
      onchange: () => this.setNamespace(select.value),
    });
    const fill = (names) => {
      const namespaces = new Set(
        [
          ...names.map(this.namespaceOf),
          ...(this.list?.objects ?? []).slice(0, 500).map((each) => each.metadata.namespace),
          this.namespace,
        ].filter(Boolean),
      );
      const options = [...namespaces].map((each) => [this.projectOf(each) || each, each]).sort();
      replace(
        select,
        h("option", { value: "" }, this.kind.server.isRemote ? T.allNamespaces : T.allProjects),
        options.map(([text, value]) => h("option", { value }, text)),
      );
      select.value = this.namespace;
    };
    fill([]);
    this.projects = new Promise((resolve) => {
      if (this.kind.server.isRemote)
        return resolve(
          this.readNamespaces().then((names) => {
            if (document.activeElement !== select) fill(names);
            return names;
          }),
        );
      const kind = managed("projects");
      if (!kind) return resolve([]);
      watchList(kind, { as: "table" }).subscribe(this.scope, (list) => {
        const names = list.objects.map((each) => each.metadata.name);
        if (document.activeElement !== select) fill(names);
        resolve(names);
      });
    });
    return select;
  }

  // Read once: streams through a gateway are few.
  async readNamespaces() {
    const kind = this.kind.server.find("namespaces", "");
    const { items } = kind
      ? await listObjects(kind, { limit: 500, signal: this.scope.signal }).catch(() => ({ items: [] }))
      : { items: [] };
    return items.map((each) => each.metadata.name);
  }

  // ---- what is shown

  change(changes) {
    Object.assign(this.query, changes);
    setQuery(changes);
  }

  setNamespace(namespace) {
    this.namespace = namespace;
    setQuery({ project: this.projectOf(namespace), ns: this.projectOf(namespace) ? "" : namespace });
    this.definitions = null;
    this.connect();
  }

  setSelectors({ labels, fields }) {
    const all = [labels, ...extraLabels(this.query.labels)].filter(Boolean).join(",");
    if (all === this.query.labels && fields === this.query.fields) return;
    this.change({ labels: all, fields });
    this.connect();
  }

  setColumns(ids) {
    this.chosen = ids;
    setQuery({ columns: ids });
    preferences.set(`columns.${this.kind.segment}`, ids);
    this.table.setColumns(chooseColumns(this.known.columns, ids));
  }

  viewState() {
    const labelKeys = () =>
      [
        ...new Set(this.table.view.slice(0, 500).flatMap((row) => Object.keys(row.object.metadata.labels ?? {}))),
      ].sort();
    return {
      columns: this.known.columns,
      shown: this.table.columns,
      sort: this.table.sort,
      labelKeys,
      compact: preferences.get("compact", false),
    };
  }

  connect() {
    this.stream?.end();
    this.stream = this.scope.child();
    const { labels, fields } = this.query;
    this.list = watchList(this.kind, {
      namespace: this.namespace,
      labelSelector: labels,
      fieldSelector: fields,
      as: "table",
    });
    this.list.subscribe(this.stream, () => this.notify());
  }

  // Large lists are shown some times per second, not with every frame.
  notify() {
    const wait = this.list.items.size > MANY ? this.last + PAUSE - performance.now() : 0;
    if (wait <= 0) return this.update();
    this.timer ??= setTimeout(() => {
      if (!this.scope.ended) this.update();
    }, wait);
  }

  update() {
    clearTimeout(this.timer);
    this.timer = null;
    this.last = performance.now();
    const { list } = this;
    if (list.state === "loading") return;
    if (
      list.columns.length &&
      this.definitions !== list.columns &&
      JSON.stringify(this.definitions) !== JSON.stringify(list.columns)
    )
      this.takeColumns(list.columns);
    this.table.setRows(list.items);
    this.showRows();
  }

  takeColumns(definitions) {
    const isFirst = !this.definitions;
    this.definitions = definitions;
    this.known = tableColumns(this.kind, definitions, {
      showProject: this.kind.namespaced && !this.namespace,
      pathOf: this.pathOf,
    });
    const byTime = this.known.columns.find((column) => column.id === "last-seen");
    this.table.setColumns(
      chooseColumns(this.known.columns, this.chosen),
      this.query.sort || (byTime ? "last-seen" : "name"),
    );
    this.applyFilter();
    if (isFirst) this.back = positions.get(location.pathname);
  }

  applyFilter() {
    const { words, query, known } = this;
    const isState = query.state && known.stateOf ? (row) => known.stateOf(row).word === query.state : null;
    const hasWords = (row) => {
      const text = this.textOf(row);
      return words.every((word) => text.includes(word));
    };
    this.table.setFilter(words.length || isState ? (row) => (!isState || isState(row)) && hasWords(row) : null);
    this.showRows();
    clearTimeout(this.speech);
    this.speech = setTimeout(
      () =>
        !this.scope.ended && announce(T.announceCount(this.table.rows.view.length, this.table.rows.size, this.kinds)),
      800,
    );
  }

  textOf(row) {
    let text = this.texts.get(row);
    if (text === undefined) {
      const labels = Object.entries(row.object.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`);
      text = [...this.known.columns.map((column) => column.text(row)), row.object.metadata.namespace, ...labels]
        .join("\n")
        .toLowerCase();
      this.texts.set(row, text);
    }
    return text;
  }

  showRows() {
    const { list, table } = this;
    if (!list || list.state === "loading") return;
    const { size, view } = table.rows;
    this.count.textContent =
      T.count(view.length, size, size === 1 ? this.kind.title.toLowerCase() : this.kinds) +
      (list.isComplete ? "" : ` ${T.loadingMore}`);
    replace(this.notice, list.state === "stale" && h("p.stale", stateDot("attention"), T.stale));
    this.showStates();
    const instead = this.explainEmpty();
    if (instead === undefined) return; // it is not known yet what to say: the page stays as it is
    if (instead) replace(this.body, instead);
    else if (table.node.parentNode !== this.body) {
      replace(this.body, table.node);
      table.resize();
      if (this.back) table.focus(this.back);
      this.back = null;
    }
  }

  // Nothing exists, nothing matches and nothing is permitted are different answers.
  explainEmpty() {
    const { list, kinds, query } = this;
    const { size, view } = this.table.rows;
    if (list.state === "stopped" && list.error.code === 403)
      return empty(T.forbiddenTitle(kinds), T.forbiddenText(list.error.message), errorBlock(list.error));
    if (list.state === "stopped" || (list.state === "stale" && !size))
      return errorBlock(list.error, {
        retry: () => {
          list.wake();
          this.connect();
        },
      });
    if (view.length || !list.isComplete) return null;
    if (size || query.labels || query.fields)
      return empty(
        T.noMatchTitle(kinds),
        size ? T.noMatchText(size) : T.noMatchSelector,
        button(T.clearFilter, { onclick: () => this.clearFilter() }),
      );
    return this.explainNone();
  }

  // A list that the server filters leaves out what the user may not see: then nothing is known about what exists.
  explainNone() {
    const { kind, kinds, canCreate } = this;
    const place = this.namespace && (this.projectOf(this.namespace) || this.namespace);
    const title = place ? T.noneInProject(kinds, place) : T.noneTitle(kinds);
    if (kind.server.isRemote || !kind.verbs.has("create")) return empty(title);
    if (this.reviewed !== this.namespace) {
      this.reviewed = this.namespace;
      review({ verb: "list", kind, namespace: this.namespace }).then(({ filtered }) => {
        this.isFiltered = filtered;
        this.showRows();
      });
      return undefined;
    }
    const known = this.isFiltered
      ? (T.onlyYours[kind.plural] ?? T.onlyPermitted(kinds))
      : !canCreate && T.noneExist(kinds);
    const next = canCreate ? T.makeFirst(kind.title.toLowerCase()) : T.askOthers;
    const action = canCreate ? this.createLink("") : linkButton(href("access", this.whyNot()), T.whyNot);
    return empty(this.isFiltered ? T.noneForYou(kinds, place) : title, [known, next].filter(Boolean).join(" "), action);
  }

  // The page "May I?" about creating an object of this kind.
  whyNot() {
    const { plural: resource, group, namespaced } = this.kind;
    return { verb: "create", resource, group, namespace: namespaced ? this.namespace : "" };
  }

  clearFilter() {
    this.change({ state: "", labels: "" });
    this.filter.clear();
    this.connect();
    this.filter.input.focus();
  }

  // How many objects are in which state; a click shows only those.
  showStates() {
    const { stateOf } = this.known;
    const counts = new Map();
    if (stateOf)
      for (const { row } of this.table.rows.all) {
        const { state, word } = stateOf(row);
        if (!word) continue;
        const found = counts.get(word);
        if (found) found.count++;
        else counts.set(word, { state, word, count: 1 });
      }
    const found = [...counts.values()].sort((a, b) => rank(a.state) - rank(b.state) || b.count - a.count);
    const key = JSON.stringify([found, this.query.state]);
    if (key === this.shownStates) return;
    this.shownStates = key;
    const focused = this.states.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement).dataset.word
      : null;
    replace(
      this.states,
      found.map(({ state, word, count }) =>
        h(
          "button.state-filter",
          {
            type: "button",
            "aria-pressed": String(this.query.state === word),
            title: T.showOnly(word),
            data: { word },
            onclick: () => {
              this.change({ state: this.query.state === word ? "" : word });
              this.applyFilter();
            },
          },
          state && stateDot(state),
          h("span", word),
          h("b", T.number(count)),
        ),
      ),
    );
    replace(
      this.bar,
      found.some(({ state }) => state) &&
        found.map(({ state, count }) => h(`span.state-${state || "none"}`, { style: { "flex-grow": String(count) } })),
    );
    if (focused) [...this.states.children].find((each) => each.dataset.word === focused)?.focus();
  }

  // ---- selected rows

  showSelection() {
    const { size } = this.table.selected;
    this.selection.hidden = !size;
    this.selection.parentNode.classList.toggle("has-selection", size > 0);
    if (!size) return;
    const remove = this.kind.verbs.has("delete") && button(T.remove, { kind: "danger", onclick: () => this.remove() });
    replace(
      this.selection,
      h("b", T.selected(size)),
      remove,
      button(T.copyNames, { onclick: () => this.copyNames() }),
      button(T.exportCsv, { onclick: () => this.export(this.selectedInOrder) }),
      button(T.clear, {
        kind: "quiet",
        onclick: () => {
          this.table.select([]);
          this.table.focus();
        },
      }),
    );
    announce(T.selected(size));
  }

  get selectedInOrder() {
    return this.table.rows.all.filter((entry) => this.table.selected.has(entry.id)).map((entry) => entry.row);
  }

  async remove() {
    const all = this.table.selection.map((row) => row.object);
    const fit = all.filter((object) => !object.metadata.deletionTimestamp);
    if (fit.length < all.length) toast(T.unfit(all.length - fit.length));
    const { askDelete } = await import("../widgets/delete.js");
    if (fit.length && (await askDelete(this.kind, fit))) this.table.select([]);
  }

  async copyNames() {
    const names = this.selectedInOrder.map((row) => row.object.metadata.name);
    await navigator.clipboard.writeText(names.join("\n"));
    toast(T.copied(names.length));
  }

  export(rows) {
    download(`${this.kind.plural}.csv`, toCsv(this.table.columns, rows));
  }

  // Keys of the list work on the whole page, except while typing.
  press(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (
      event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog, [popover]") ||
      (this.table.node.contains(event.target) && event.key !== "e")
    )
      return;
    if (["j", "k", "x"].includes(event.key)) this.table.focus();
    else if (event.key === "e" && this.table.activeRow)
      navigate(this.pathOf(this.kind, this.table.activeRow.object), { parameters: { view: "yaml" } });
    else return;
    event.preventDefault();
  }
}
