// The page of one object, of any kind: what state it is in and why, its fields, events and YAML. Kinds add to it by a
// view: see object-views.js.

import { ApiError, pause } from "../core/api.js";
import { h, prose, replace } from "../core/dom.js";
import { getObject, managed, management, sentence } from "../core/kinds.js";
import { link, setQuery } from "../core/router.js";
import { stateOf } from "../core/status.js";
import { timeElement } from "../core/time.js";
import { watchObject } from "../core/watch.js";
import { announce } from "../shell/dialogs.js";
import { projectOf } from "../shell/sign-in.js";
import { T } from "../texts/object.js";
import { guardAction } from "../widgets/access.js";
import { button, card, copyable, empty, skeleton, tabsOf } from "../widgets/common.js";
import { conditionList } from "../widgets/conditions.js";
import { askDelete } from "../widgets/delete.js";
import { errorBlock } from "../widgets/errors.js";
import { eventsTab } from "../widgets/events.js";
import { fieldTree } from "../widgets/fields.js";
import { keyValues } from "../widgets/labels.js";
import { managerList } from "../widgets/managed-fields.js";
import { dependantSearch, ownerList } from "../widgets/owners.js";
import { stateBadge } from "../widgets/state.js";
import { createLink } from "../widgets/warnings.js";
import { yamlTab } from "../widgets/yaml-tab.js";
import { objectViews } from "./object-views.js";

const POLL = 5_000;
const DESCRIPTIONS_WITHIN = 2; // seconds
const HEAD = new Set(["apiVersion", "kind", "metadata"]);

export async function show(page, { kind, namespace, name }) {
  const { scope } = page;
  const listPath = (kind.server.pages ?? "") + kind.segment;
  const trail = [[kind.pluralTitle, listPath]];
  const reading = getObject(kind, namespace, name, { signal: scope.signal }).catch((error) => {
    if (error.code !== 404) throw error;
    return null;
  });
  const [object, view] = await Promise.all([reading, loadView(kind)]);
  if (!object) return showMissing(page, kind, name, trail);
  const context = makeContext(kind, object, page);
  const setTitle = (now) => page.setTitle(view.title?.(now) || now.spec?.displayName || name, trail);
  setTitle(object);
  context.onChange(setTitle);
  const banner = h("div", { role: "status" });
  const tabs = makeTabs(context, view);
  replace(
    page.main,
    h(
      "div.stack.object",
      h(
        "div.object-head",
        context.live(headOf, (each) => head(kind, each)),
        context.live(
          (each) => [each.spec?.disabled, each.metadata.deletionTimestamp],
          (_, part) => actionBar(part, view, tabs),
        ),
      ),
      banner,
      tabs.node,
    ),
  );
  follow(context, {
    changed: (before, now) => {
      if (before.metadata.uid !== now.metadata.uid) replace(banner, h("p.notice", T.recreated));
      else if (now.metadata.deletionTimestamp) replace(banner, terminating(now));
    },
    polled: () => {
      if (!banner.firstChild) replace(banner, h("p.muted", T.polled));
    },
    gone: () => {
      const message = empty(
        T.goneTitle(kind.title),
        T.gone(name),
        link(listPath, T.goneLink(kind.pluralTitle.toLowerCase())),
      );
      replace(context.isDirty() ? banner : page.main, message); // a draft can still be copied
      announce(T.gone(name));
    },
  });
}

// Without an object of this name there is a way back, and one to create it.
function showMissing(page, kind, name, trail) {
  page.setTitle(name, trail);
  const [[title, path]] = trail;
  replace(
    page.main,
    empty(
      T.missingTitle(kind.title.toLowerCase(), name),
      T.missingText,
      link(path, T.goneLink(title.toLowerCase())),
      kind.server === management && kind.verbs.has("create") && createLink(kind.plural, name),
    ),
  );
}

const loadView = async (kind) =>
  (await (kind.server === management ? objectViews : (kind.server.views ?? {}))[kind.segment]?.()) ?? {};

function makeContext(kind, object, page) {
  const notified = new Set();
  const context = {
    kind,
    object,
    page,
    scope: page.scope,
    refresh: () => {},
    isDirty: () => false,
    onChange(notify) {
      notified.add(notify);
      this.scope.add(() => notified.delete(notify));
    },
    update(next) {
      context.object = next;
      for (const notify of notified) notify(next);
    },
    live(select, render) {
      return live(this, select, render);
    },
  };
  return context;
}

// Follows the object by a watch. Who may get it but not list it reads it again and again.
function follow(context, { changed, polled, gone }) {
  const {
    kind,
    scope,
    object: {
      metadata: { namespace, name },
    },
  } = context;
  const watching = scope.child();
  const take = (next) => {
    const before = context.object;
    if (before.metadata.resourceVersion === next.metadata.resourceVersion && before.metadata.uid === next.metadata.uid)
      return;
    context.update(next);
    changed(before, next);
  };
  const read = async () => {
    try {
      take(await getObject(kind, namespace, name, { signal: scope.signal }));
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.code === 404 && !scope.ended) {
        watching.end();
        gone();
        return false;
      }
      return true; // not reachable: the frame of the page says so
    }
  };
  const poll = () => {
    watching.end();
    polled();
    const again = async () => {
      if (!scope.ended && (await read())) setTimeout(again, POLL);
    };
    setTimeout(again, POLL);
  };
  context.refresh = read;
  changed(context.object, context.object);
  if (!kind.isListed) return poll();
  watchObject(kind, namespace, name).subscribe(watching, async (list) => {
    if (watching.ended) return;
    if (list.state === "stopped") poll();
    else if (list.objects[0]) take(list.objects[0]);
    else if (list.isComplete && (await read()) && !watching.ended) poll(); // filtered out of lists, but readable
  });
}

const headOf = ({ metadata, spec, status }) => [
  metadata.deletionTimestamp,
  metadata.finalizers,
  spec?.displayName,
  status?.phase,
  status?.conditions,
  status?.message,
  status?.reason,
];

function head(kind, object) {
  const { metadata } = object;
  const state = stateOf(object);
  const project = kind.server === management && projectOf(metadata.namespace);
  return h(
    "div.stack.tight",
    h(
      "div.row",
      (state.state || state.word) && stateBadge(state),
      state.message && h("span.wrap", prose(state.message)),
    ),
    h(
      "div.row.facts",
      h("span", kind.title),
      copyable(metadata.name),
      project
        ? h("span", `${T.project} `, link(`projects/${project}`, project))
        : metadata.namespace && h("span", `${T.namespace} `, h("span.mono", metadata.namespace)),
      h("span", `${T.age} `, timeElement(metadata.creationTimestamp, { age: true })),
    ),
  );
}

const terminating = ({ metadata }) =>
  h(
    "div.notice",
    h("strong", T.terminating),
    " ",
    metadata.finalizers?.length ? T.waitsFor(metadata.finalizers) : T.waitsForNothing,
  );

function actionBar(context, view, tabs) {
  const {
    kind,
    object: { metadata },
  } = context;
  const own = { kind, namespace: metadata.namespace, name: metadata.name };
  const actions = [
    ...(view.actions?.(context) ?? []),
    kind.verbs.has("update") && {
      title: T.edit,
      icon: "edit",
      question: { ...own, verb: "update" },
      run: () => {
        tabs.select("yaml");
        setQuery({ view: "yaml" });
      },
    },
    kind.verbs.has("delete") && {
      title: T.deleteMore,
      icon: "trash",
      danger: true,
      question: { ...own, verb: "delete" },
      run: () => askDelete(kind, [context.object]),
    },
  ].filter(Boolean);
  const problem = h("div");
  const start = async (run) => {
    replace(problem);
    try {
      await run();
    } catch (error) {
      replace(problem, errorBlock(error));
    }
  };
  return h(
    "div.stack",
    h(
      "div.row.actions",
      actions.map(({ title, icon, danger, primary, question, run, isShown }) => {
        const node = button(title, {
          icon,
          kind: danger ? "danger" : primary && "primary",
          onclick: () => {
            if (node.getAttribute("aria-disabled") !== "true") start(run);
          },
        });
        if (metadata.deletionTimestamp) {
          node.setAttribute("aria-disabled", "true");
          node.title = T.isDeleted;
        } else if (question) guardAction(node, question);
        const update = () => {
          node.hidden = isShown?.(context.object) === false;
        };
        update();
        context.onChange(update);
        return node;
      }),
    ),
    problem,
  );
}

// Tabs keep what they show while another one is in front: a draft is not lost by a look at the events.
function makeTabs(context, view) {
  const tab = (name, title, fill) => {
    let node = null;
    return {
      name,
      title,
      show: (panel) => {
        if (!node) fill((node = h("div")), context);
        replace(panel, node);
      },
    };
  };
  const entries = [
    tab("overview", T.overview, (node) => overview(node, context, view)),
    ...(view.tabs?.(context) ?? []).map((each) => tab(each.name, each.title, each.show)),
    context.kind.verbs.has("patch") &&
      context.kind.server === management &&
      tab("form", T.form, (node) => import("./edit-form.js").then((form) => form.show(node, context))),
    tab("events", T.events, eventsTab),
    context.kind.server === management &&
      managed("auditevents") &&
      tab("changes", T.changes, (node) => import("./audit/changes-tab.js").then((each) => each.show(node, context))),
    tab("details", T.details, (node) => details(node, context, view)),
    tab("yaml", T.yaml, yamlTab),
  ].filter(Boolean);
  return tabsOf(entries, context.page.query.get("view") || "overview", (name) => {
    setQuery({ view: name === "overview" ? "" : name });
  });
}

// A part of the page that is rendered again only when what it shows has changed, so that an open part stays open.
// `render(object, part)` gets a context for what it contains, which ends when the part is rendered again.
function live(context, select, render) {
  const node = h("div");
  let last;
  let scope;
  const update = () => {
    const key = JSON.stringify(select(context.object) ?? null);
    if (key === last) return;
    last = key;
    scope?.end();
    scope = context.scope.child();
    replace(node, render(context.object, Object.assign(Object.create(context), { scope })));
  };
  update();
  context.onChange(update);
  return node;
}

// What answers questions about the object comes first. Kinds with a summary have their fields in the details.
function overview(node, context, view) {
  const conditions = context.live(
    (each) => each.status?.conditions,
    (each) => each.status?.conditions && card(T.conditions, conditionList(each.status.conditions)),
  );
  replace(node, h("div.stack", view.summary?.(context), conditions, !view.summary && fieldCards(context)));
}

// Everything that is stored, and who set it: fields, labels, annotations, owners, dependants.
function details(node, context, view) {
  const { kind, object } = context;
  const meta = (field) =>
    card(
      T[field],
      context.live(
        (each) => each.metadata[field],
        (_, part) => keyValues(part, field),
      ),
    );
  const owners = ownerList(kind, object);
  const metadata = [
    meta("labels"),
    meta("annotations"),
    owners && card(T.owners, owners),
    card(T.dependants, dependantSearch(context)),
    card(
      T.managers,
      context.live(
        (each) => each.metadata.managedFields,
        (each) => managerList(each.metadata.managedFields),
      ),
    ),
  ];
  replace(
    node,
    view.summary
      ? h("div.columns", fieldCards(context), h("div.stack", metadata))
      : h("div.halves", h("div.stack", metadata.slice(0, 2)), h("div.stack", metadata.slice(2))),
  );
}

function fieldCards(context) {
  const { kind } = context;
  const schema = {};
  const select = (key) => (each) => shownPart(each, key);
  const cards = () =>
    context.live(partsOf, (each, part) =>
      h(
        "div.stack",
        partsOf(each).map((key) =>
          card(
            T.fields[key] ?? sentence(key.charAt(0).toUpperCase() + key.slice(1)),
            part.live(select(key), (now) => fieldTree(kind, select(key)(now) ?? {}, key, schema)),
          ),
        ),
      ),
    );
  const node = h("div", card("", skeleton(4)));
  Promise.race([describeFields(kind, schema), pause(DESCRIPTIONS_WITHIN)])
    .catch(() => {})
    .then(() => replace(node, cards()));
  return node;
}

// The parts of an object that are shown as trees; "" is for the fields without parts of their own, such as the type of
// a Secret.
const partsOf = (object) =>
  [
    "",
    ...Object.keys(object)
      .filter((key) => !HEAD.has(key) && object[key] && typeof object[key] === "object")
      .sort((a, b) => Number(a === "status") - Number(b === "status")),
  ].filter((key) => !isEmpty(shownPart(object, key)));

function shownPart(object, key) {
  if (!key)
    return Object.fromEntries(
      Object.entries(object).filter(([name, value]) => !HEAD.has(name) && typeof value !== "object"),
    );
  if (key !== "status" || !object.status) return object[key];
  const { conditions, observedGeneration, ...rest } = object.status;
  return rest;
}
const isEmpty = (value) =>
  value === undefined || value === null || (typeof value === "object" && !Object.keys(value).length);

// Descriptions of the fields, for those who point at them. What is shown once is not rendered again when they come
// late.
async function describeFields(kind, target) {
  const { loadSchema, resolve } = await import("../widgets/form/openapi.js");
  Object.assign(target, { schema: await loadSchema(kind), resolve });
}
