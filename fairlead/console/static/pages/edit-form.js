// Edits an existing object as a form: a tab of the object page. Sends only what changed, as a merge patch.
//
// Changes by others do not disturb the form. If they do not touch the same fields, saving keeps both; otherwise it
// asks.

import { can } from "../core/access.js";
import { h, replace } from "../core/dom.js";
import { getObject, patchObject } from "../core/kinds.js";
import { guardDraft } from "../core/router.js";
import { announce } from "../shell/dialogs.js";
import { T } from "../texts/form.js";
import { button } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { schemaForm } from "../widgets/form/form.js";
import { loadSchema } from "../widgets/form/openapi.js";

const MAX_ATTEMPTS = 3;

export async function show(node, context) {
  const { kind, scope } = context;
  const { namespace = "", name } = context.object.metadata;
  const [schema, mayPatch] = await Promise.all([loadSchema(kind), can("patch", kind, namespace, name)]);
  const verdict = h("div.verdict");
  const holder = h("div");
  let base = null;
  let form = null;
  const save = button(T.save, { kind: "primary", type: "submit" });
  const showForm = (object) => {
    base = object;
    form = schemaForm({
      kind,
      schema,
      value: base,
      isExisting: true,
      immutable: !mayPatch,
      onchange: () => replace(verdict),
    });
    replace(holder, form.node);
  };
  const finish = (object) => {
    showForm(object);
    replace(verdict, h("p.notice", { role: "status" }, T.saved));
    announce(T.saved);
  };

  async function send(patch, version, attempt = 1) {
    save.disabled = true;
    try {
      finish(
        await patchObject(kind, namespace, name, {
          ...patch,
          metadata: { ...patch.metadata, resourceVersion: version },
        }),
      );
    } catch (error) {
      if (error.code === 409 && error.reason === "Conflict" && attempt < MAX_ATTEMPTS)
        return resolveConflict(patch, attempt);
      if (!form.setErrors((error.causes ?? []).filter((cause) => cause.field)) || error.code !== 422)
        replace(verdict, errorBlock(error));
    } finally {
      save.disabled = false;
    }
  }

  async function resolveConflict(patch, attempt) {
    const latest = await getObject(kind, namespace, name);
    const theirs = changedPaths(written(base), written(latest));
    const both = changedPaths(written(base), written(form.value())).filter((mine) =>
      theirs.some((each) => overlap(mine, each)),
    );
    const version = latest.metadata.resourceVersion;
    if (!both.length) return send(patch, version, attempt + 1);
    const list = (title, paths) =>
      paths.length > 0 && [
        h("p", title),
        h(
          "ul.causes",
          paths.map((path) => h("li", h("code", path))),
        ),
      ];
    replace(
      verdict,
      h(
        "div.error",
        { role: "alert" },
        h("p.error-title", T.conflict),
        list(
          T.theirs,
          theirs.filter((path) => !both.includes(path)),
        ),
        list(T.both, both),
        h(
          "div.row",
          button(T.reapply, { onclick: () => send(patch, version) }),
          button(T.discard, {
            onclick: () => {
              showForm(latest);
              replace(verdict);
            },
          }),
        ),
      ),
    );
  }

  const submit = (event) => {
    event.preventDefault();
    const problems = form.check();
    const patch = mergePatch(base, form.value());
    if (problems.length) form.setErrors(problems);
    else if (!patch) replace(verdict, h("p.muted", T.noChanges));
    else send(patch, base.metadata.resourceVersion);
  };
  const discard = button(T.discard, {
    kind: "quiet",
    onclick: () => {
      showForm(context.object);
      replace(verdict);
    },
  });
  showForm(context.object);
  context.onChange?.((object) => {
    if (!form.isDirty() && !holder.contains(document.activeElement) && mergePatch(written(base), written(object)))
      showForm(object);
  });
  guardDraft(scope, () => form.isDirty());
  replace(
    node,
    h(
      "form.create",
      { onsubmit: submit, novalidate: true },
      !mayPatch && h("p.notice", T.readOnly),
      holder,
      verdict,
      h("div.form-actions", mayPatch && [save, discard]),
    ),
  );
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

// What people write: not the status, and not the bookkeeping of the server.
function written({ status, metadata, ...rest }) {
  return { ...rest, metadata: { labels: metadata.labels, annotations: metadata.annotations } };
}

// The merge patch from one object to another; undefined if they are equal. Lists are replaced as a whole.
function mergePatch(before, after) {
  const patch = {};
  for (const name of new Set([...Object.keys(before ?? {}), ...Object.keys(after)])) {
    const [old, now] = [before?.[name], after[name]];
    if (same(old, now)) continue;
    if (now === undefined) patch[name] = null;
    else patch[name] = isObject(old) && isObject(now) ? (mergePatch(old, now) ?? {}) : now;
  }
  return Object.keys(patch).length ? patch : undefined;
}

function changedPaths(before, after, path = "") {
  return [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].flatMap((name) => {
    const [old, now] = [before?.[name], after?.[name]];
    const here = path ? `${path}.${name}` : name;
    if (same(old, now)) return [];
    return isObject(old) && isObject(now) ? changedPaths(old, now, here) : [here];
  });
}

const overlap = (a, b) => a === b || a.startsWith(`${b}.`) || b.startsWith(`${a}.`);
