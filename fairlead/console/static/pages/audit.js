// The audit log: who did what, newest first, with filters that the server applies. Further parts are read on demand.

import { review } from "../core/access.js";
import { ApiError, query, request } from "../core/api.js";
import { h, newId, replace } from "../core/dom.js";
import { managed } from "../core/kinds.js";
import { link, setQuery } from "../core/router.js";
import { timeElement } from "../core/time.js";
import { readLines } from "../core/watch.js";
import { T } from "../texts/audit.js";
import { button, card, tableOf } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { findKind, findName } from "../widgets/names.js";
import { actor, describeObject, didWhat, outcome, placeOf } from "./audit/description.js";
import { CHANGES, QUIET } from "./audit/selectors.js";

const PAGE = 100;
const MAX_ROWS = 2000;
const NAMED = { user: "users", project: "projects" };
const WHAT = { changes: CHANGES, denied: ["refusedBy!="], failed: QUIET, all: [] };

export async function show(page, { rest }) {
  if (rest.length) return (await import("./audit/event.js")).show(page, rest[0]);
  page.setTitle(T.title);
  const answer = await review({ verb: "list", kind: managed("auditevents") });
  new AuditPage(page).build(answer.filtered);
}

class AuditPage {
  constructor(page) {
    this.page = page;
    this.scope = page.scope;
    this.kind = managed("auditevents");
    this.next = "";
    this.loading = null;
    this.filters = Object.fromEntries(
      ["what", "user", "resource", "project", "name", "since"].map((name) => [name, page.query.get(name) ?? ""]),
    );
    this.body = h("tbody");
    this.notice = h("p.muted", { role: "status" });
    this.problem = h("div");
    this.more = button(T.older, { onclick: () => this.load(false) });
  }

  build(isFiltered) {
    const input = (name, label) =>
      this.labelled(
        label,
        h("input", {
          type: "search",
          value: this.filters[name],
          autocomplete: "off",
          onchange: ({ target }) => this.set(name, target.value.trim(), target),
        }),
      );
    const select = (name, label, choices) =>
      this.labelled(
        label,
        h(
          "select",
          { onchange: ({ target }) => this.set(name, target.value, target) },
          Object.entries(choices).map(([value, text]) =>
            h("option", { value, selected: value === this.filters[name] }, text),
          ),
        ),
      );
    const bar = h(
      "div.audit-filters",
      select("what", T.what, T.whats),
      input("user", T.user),
      input("resource", T.resource),
      input("project", T.project),
      input("name", T.name),
      select("since", T.since, T.sinces),
    );
    replace(
      this.page.main,
      isFiltered && h("p.muted", T.own),
      bar,
      this.problem,
      this.notice,
      card("", tableOf([T.time, T.who, T.did, T.object, T.result], this.body, "table.audit"), this.more),
    );
    this.load(true);
  }

  labelled(label, control) {
    control.id = newId("filter");
    return h("div.filter", h("label", { for: control.id }, label), control);
  }

  // Names as people know them become those of the audit log, in the field, too.
  async set(name, text, control) {
    const value =
      name === "resource"
        ? (findKind(text)?.plural ?? text.toLowerCase())
        : NAMED[name]
          ? await findName(NAMED[name], text, this.scope.signal)
          : text;
    if (this.scope.ended || control.value.trim() !== text) return;
    control.value = value;
    this.filters[name] = value;
    setQuery({ [name]: value });
    this.load(true);
  }

  get #selector() {
    const { what, user, resource, project, name, since } = this.filters;
    const parts = [...(WHAT[what] ?? WHAT.changes)];
    if (user) parts.push(`user.username=${user}`);
    if (resource) parts.push(`objectRef.resource=${resource}`);
    if (project) parts.push(`project=${project}`);
    if (name) parts.push(`objectRef.name=${name}`);
    if (since) parts.push(`since=${since}`);
    return parts.join(",");
  }

  async load(fresh) {
    this.loading?.end();
    const scope = (this.loading = this.scope.child());
    if (fresh) this.next = "";
    this.more.disabled = true;
    replace(this.problem);
    try {
      const list = await request(
        this.kind.path() + query({ limit: PAGE, continue: this.next, fieldSelector: this.#selector }),
        { signal: scope.signal },
      );
      if (scope.ended) return;
      if (fresh) replace(this.body);
      this.body.append(...this.#rows(list.items));
      this.next = list.metadata.continue ?? "";
      this.notice.textContent = this.body.children.length ? T.live : this.next ? T.truncated : T.none;
      this.more.hidden = !this.next || this.body.children.length >= MAX_ROWS;
      if (fresh) this.version = list.metadata.resourceVersion;
      this.follow(scope);
    } catch (error) {
      if (!scope.ended) replace(this.problem, errorBlock(error, { retry: () => this.load(fresh) }));
    } finally {
      this.more.disabled = false;
    }
  }

  // New requests are inserted at the top. A stream that ends is opened again where it ended.
  async follow(scope) {
    while (!scope.ended) {
      try {
        const response = await request(
          this.kind.path() + query({ watch: "true", resourceVersion: this.version, fieldSelector: this.#selector }),
          { signal: scope.signal, as: "response" },
        );
        this.notice.textContent = T.live;
        for await (const line of readLines(response.body)) {
          const { type, object } = JSON.parse(line);
          if (type === "ERROR") throw new ApiError(object);
          this.version = object.metadata?.resourceVersion || this.version;
          if (type !== "BOOKMARK") this.#insert(object);
        }
      } catch (error) {
        if (scope.ended) return;
        if (error.code === 410) return this.load(true); // the position is too old
        this.notice.textContent = T.notLive;
        if (error.code === 403) return;
      }
      await new Promise((resolve) => {
        setTimeout(resolve, 3000);
        scope.add(resolve);
      });
    }
  }

  #insert(event) {
    const known = document.getElementById(`audit-${event.metadata.name}`);
    const [row] = this.#rows([event]);
    if (!row) return;
    if (known) known.replaceWith(row);
    else this.body.prepend(row);
    while (this.body.children.length > MAX_ROWS) this.body.lastChild.remove();
  }

  #rows(events) {
    const isFailed = this.filters.what === "failed";
    return events
      .filter((event) => !isFailed || event.responseStatus?.code >= 400)
      .map((event) => {
        const [result, state] = outcome(event);
        return h(
          "tr",
          { id: `audit-${event.metadata.name}`, data: { state } },
          h("td", timeElement(event.requestReceivedTimestamp ?? event.metadata.creationTimestamp)),
          h("td", actor(event)),
          h("td", didWhat(event)),
          h(
            "td",
            link(`audit/${event.metadata.name}`, describeObject(event)),
            placeOf(event) && h("span.muted", ` ${placeOf(event)}`),
          ),
          h("td", result),
        );
      });
  }
}
