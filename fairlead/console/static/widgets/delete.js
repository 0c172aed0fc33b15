// Asks before objects are deleted: what is deleted, what goes with it, and what the server would refuse, by a dry run.

import { GROUP } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { deleteObject, listObjects, managed, management } from "../core/kinds.js";
import { openDialog } from "../shell/dialogs.js";
import { namespaceOf } from "../shell/sign-in.js";
import { T } from "../texts/object.js";
import { button } from "./common.js";
import { dependantItem, findDependants, listMetadata } from "./owners.js";

const PARALLEL = 4;
const OWN_FINALIZER = /^([\w.-]+\.)?service\.sh\//;
const MAX_CHECKED = 100;
const MAX_SEARCHED = 3; // objects whose dependants are searched
const MAX_NAMED = 20;
const PAGE = 500;
const TYPED = new Set(["projects", "clusters"]);

const nameOf = ({ metadata }) => (metadata.namespace ? `${metadata.namespace}/${metadata.name}` : metadata.name);

async function inParallel(items, run) {
  const rest = items.entries();
  await Promise.all(
    Array.from({ length: PARALLEL }, async () => {
      for (const [index, item] of rest) await run(item, index);
    }),
  );
}

// The UID says which object is meant: one created meanwhile with the same name is not deleted.
const remove = (kind, { metadata }, options) =>
  deleteObject(kind, metadata.namespace, metadata.name, {
    ...options,
    body: {
      apiVersion: "v1",
      kind: "DeleteOptions",
      preconditions: { uid: metadata.uid },
      ...(options.dryRun ? { dryRun: ["All"] } : {}),
    },
  });

// Resolves to {deleted, failed: [[object, message]]}, or to undefined if the user cancelled.
export function askDelete(kind, objects) {
  return openDialog({
    title: T.deleteTitle(kind.title, objects.length, kind.pluralTitle),
    body: (close, scope) => dialogBody(kind, objects, close, scope),
  });
}

function dialogBody(kind, objects, close, scope) {
  const notes = objects.map(() => h("div.note.muted"));
  const extras = h("div", { "aria-live": "polite" }, h("p.muted", T.checking));
  const status = h("p", { role: "status" });
  const expected = objects.length === 1 ? objects[0].metadata.name : String(objects.length);
  const isTyped = kind.server === management && kind.group === GROUP && TYPED.has(kind.plural);
  const typed = isTyped && h("input", { autocomplete: "off", oninput: () => update() });
  const refused = new Set();
  let isChecked = false;
  let isRunning = false;
  const confirm = button(T.delete, { kind: "danger", disabled: true, onclick: () => run() });
  const cancel = button(T.cancel, { autofocus: true, onclick: () => close() });
  const update = () => {
    confirm.disabled =
      isRunning || !isChecked || refused.size === objects.length || (typed && typed.value !== expected);
    confirm.textContent =
      refused.size && refused.size < objects.length ? T.deleteSome(objects.length - refused.size) : T.delete;
  };
  const check = async (object, index) => {
    // Those of the server itself end by themselves.
    const finalizers = (found) => {
      const others = (found?.metadata?.finalizers ?? []).filter((each) => !OWN_FINALIZER.test(each));
      return others.length ? T.finalizersFirst(others) : "";
    };
    try {
      const result = index < MAX_CHECKED ? await remove(kind, object, { dryRun: true, signal: scope.signal }) : object;
      notes[index].textContent = finalizers(result?.metadata?.uid ? result : object);
    } catch (error) {
      if (scope.ended) return;
      refused.add(object);
      replace(notes[index], h("span.problem", error.code === 404 ? T.notFound : `${T.refused}: ${error.message}`));
    }
  };
  inParallel(objects, check).then(() => {
    isChecked = true;
    if (refused.size === objects.length) status.textContent = T.allRefused;
    update();
  });
  describeExtras(kind, objects, scope).then((nodes) =>
    replace(extras, nodes.length ? nodes : h("p.muted", T.nothingElse)),
  );
  const run = async () => {
    const wanted = objects.filter((object) => !refused.has(object));
    const deleted = [];
    const failed = [];
    isRunning = true;
    update();
    await inParallel(wanted, async (object) => {
      if (scope.ended) return;
      await remove(kind, object, {}).then(
        () => deleted.push(object),
        (error) => (error.code === 404 ? deleted : failed).push(error.code === 404 ? object : [object, error.message]),
      );
      status.textContent = T.progress(deleted.length, wanted.length);
    });
    if (!failed.length) return close({ deleted, failed });
    replace(
      status,
      h("p", T.finished(deleted.length)),
      h("p.problem", T.failed(failed.length)),
      h(
        "ul",
        failed.map(([object, message]) => h("li", h("span.mono", nameOf(object)), `: ${message}`)),
      ),
    );
    cancel.textContent = T.close;
    cancel.onclick = (event) => {
      event.stopImmediatePropagation();
      close({ deleted, failed });
    };
  };
  return h(
    "form.stack.delete",
    {
      onsubmit: (event) => {
        event.preventDefault();
        if (!confirm.disabled) run();
      },
    },
    h(
      "ul.victims",
      { "aria-label": T.victims },
      objects.map((object, index) =>
        h(
          "li",
          h("span.mono.wrap", nameOf(object)),
          object.spec?.displayName && h("span.muted", ` ${object.spec.displayName}`),
          notes[index],
        ),
      ),
    ),
    extras,
    typed && h("label.field", T.typeName(expected), typed),
    status,
    h("footer.row", cancel, confirm),
  );
}

// What is deleted with the objects, as far as the user can see it.
async function describeExtras(kind, objects, scope) {
  const nodes = await Promise.all(
    objects.slice(0, MAX_SEARCHED).map(async (object) => {
      const name = objects.length > 1 ? ` (${object.metadata.name})` : "";
      const [{ found }, inside] = await Promise.all([
        findDependants(kind, object, scope.signal),
        findInside(kind, object, scope.signal),
      ]);
      return [
        inside.length > 0 && [
          h("h3", (kind.plural === "clusters" ? T.using : T.inside)(object.metadata.name)),
          h(
            "ul.plain",
            inside.map((each) => h("li.wrap", T.counted(...each))),
          ),
        ],
        found.length > 0 && [
          h("h3", T.alsoDeleted + name),
          h(
            "ul.plain",
            found.slice(0, MAX_NAMED).map(dependantItem),
            found.length > MAX_NAMED && h("li.muted", T.alsoMore),
          ),
        ],
      ]
        .flat(2)
        .filter(Boolean);
    }),
  );
  return nodes.flat();
}

// [[number, more, title, some names]] of what is in a project, or on a cluster.
async function findInside(kind, { metadata: { name } }, signal) {
  if (kind.server !== management || kind.group !== GROUP) return [];
  if (kind.plural === "projects") {
    const kinds = management.kinds.filter((each) => each.group === GROUP && each.namespaced && each.isListed);
    const lists = await Promise.all(kinds.map((each) => listMetadata(each, namespaceOf(name), signal)));
    return lists
      .filter((list) => list.items.length)
      .map((list) => [
        list.items.length + list.rest,
        list.more && !list.rest,
        titleOf(list.kind, list.items.length),
        namesOf(list.items),
      ]);
  }
  if (kind.plural !== "clusters") return [];
  const kinds = ["spaceinstances", "virtualclusterinstances"].map(managed).filter(Boolean);
  const counts = await Promise.all(
    kinds.map(async (each) => {
      const list = await listObjects(each, { limit: PAGE, signal }).catch(() => ({ items: [] }));
      const found = list.items.filter((item) => item.spec?.clusterRef?.cluster === name);
      return [found.length, Boolean(list.metadata?.continue), titleOf(each, found.length), namesOf(found)];
    }),
  );
  return counts.filter(([number]) => number);
}

const namesOf = (items) => items.slice(0, MAX_NAMED).map(({ metadata }) => metadata.name);
const titleOf = (kind, number) => (number === 1 ? kind.title : kind.pluralTitle);
