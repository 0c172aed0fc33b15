// The name of a new object, and its project or namespace.

import { review } from "../../core/access.js";
import { GROUP } from "../../core/base.js";
import { h } from "../../core/dom.js";
import { listObjects, managed, management } from "../../core/kinds.js";
import { namespaceOf, projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/form.js";
import { FIELDS } from "./fields.js";

const LIMIT = 500;
const RULE = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const ANY_NAME = /^rbac\./;

// `get()` returns {name, generateName, namespace}; `check()` the problems.
export function identityFields(kind, metadata, page, { onchange }) {
  const context = { changed: onchange };
  const hasName = kind.verbs.has("get");
  const name = FIELDS.text(
    {
      schema: { type: "string", description: T.nameHelp },
      value: metadata.name || metadata.generateName,
      name: "name",
      label: T.name,
      path: "metadata.name",
      required: hasName,
    },
    context,
  );
  const suffix = FIELDS.boolean(
    {
      schema: { type: "boolean" },
      value: Boolean(metadata.generateName && !metadata.name),
      label: T.generate,
      path: "metadata.generateName",
    },
    context,
  );
  const place = kind.namespaced ? namespaceField(kind, metadata.namespace, page, context) : null;
  const isGenerated = () => suffix.get() === true;
  const problem = () => {
    const text = name.get() ?? "";
    if (!text) return hasName ? T.required : "";
    if (text.length > 253) return T.nameLong;
    return ANY_NAME.test(kind.group) || RULE.test(isGenerated() ? `${text}x` : text) ? "" : T.nameRule;
  };
  name.node.querySelector("input").addEventListener("input", () => name.fail(name.get() ? problem() : ""));
  const fieldOf = (field) => (field === "metadata.namespace" && place ? place : name);
  return {
    node: h("div.fields.identity", place?.node, hasName && name.node, hasName && suffix.node),
    get: () => ({
      name: isGenerated() ? undefined : name.get(),
      generateName: isGenerated() && name.get() ? name.get().replace(/-?$/, "-") : undefined,
      namespace: place?.get(),
    }),
    check: () =>
      [
        place && !place.get() && { field: "metadata.namespace", message: T.projectMissing },
        problem() && { field: "metadata.name", message: problem() },
      ].filter(Boolean),
    setErrors(causes) {
      for (const { field, message } of causes) fieldOf(field).fail(message);
      fieldOf(causes[0].field).focus();
    },
    focus: () => (place && !place.get() ? place : hasName ? name : place)?.focus(),
  };
}

// Projects in which the user may create the kind; for kinds that do not belong to projects, namespaces.
function namespaceField(kind, namespace, page, context) {
  const isProject = kind.group === GROUP && kind.server === management;
  const project = page.query.get("project");
  const wanted = namespace || (project ? namespaceOf(project) : "");
  const node = h("div");
  let field = null;
  const showField = (choices) => {
    const value = field?.get() || wanted || (choices?.length === 1 ? choices[0] : undefined);
    const label = isProject ? T.project : T.namespace;
    const options = [...new Set([...(choices ?? []), value].filter(Boolean))];
    field = choices
      ? FIELDS.enum(
          {
            schema: { enum: options, description: choices.length ? "" : T.noProjects },
            value,
            label,
            path: "metadata.namespace",
            required: true,
          },
          context,
        )
      : FIELDS.text(
          { schema: { type: "string" }, value, label: T.namespace, path: "metadata.namespace", required: true },
          context,
        );
    for (const option of field.node.querySelectorAll("option[value]"))
      option.textContent = (isProject && projectOf(option.value)) || option.textContent;
    node.replaceChildren(field.node);
  };
  showField(wanted ? [wanted] : []);
  loadNamespaces(kind, isProject, page.scope.signal).then((found) => {
    if (!page.scope.ended) showField(found);
  });
  return { node, get: () => field.get(), fail: (message) => field.fail(message), focus: () => field.focus() };
}

async function loadNamespaces(kind, isProject, signal) {
  try {
    const source = isProject ? managed("projects") : kind.server.find("namespaces", "");
    const { items } = await listObjects(source, { limit: LIMIT, signal });
    const names = items.map((each) => (isProject ? namespaceOf(each.metadata.name) : each.metadata.name));
    if (kind.server !== management) return names;
    const answers = await Promise.all(names.map((name) => review({ verb: "create", kind, namespace: name })));
    return names.filter((_, index) => answers[index].allowed);
  } catch {
    return null;
  }
}
