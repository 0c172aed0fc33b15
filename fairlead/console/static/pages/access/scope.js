// The scope of an access key: an editor for the common ones, and what a scope allows, in words.

import { h, newId, replace } from "../../core/dom.js";
import { management } from "../../core/kinds.js";
import { namespaceOf } from "../../shell/sign-in.js";
import { T } from "../../texts/access.js";
import { button, field } from "../../widgets/common.js";
import { suggestions } from "../../widgets/form/suggest.js";
import { emit, parse } from "../../widgets/form/yaml.js";

const ITEM = { projects: "project", spaces: "space", virtualClusters: "virtualCluster", clusters: "cluster" };
const READ = { rules: [{ verbs: ["get", "list", "watch"] }] };

// Without a scope, a key may do everything that its owner may.
export function scopeWords(scope) {
  const asList = (value) => (Array.isArray(value) ? value : []);
  const words = scope
    ? Object.keys(T.scopeWords).flatMap((part) => asList(scope[part]).map((entry) => T.scopeWords[part](entry ?? {})))
    : [T.everything];
  if (scope?.allowServiceCli) words.push(T.cliWords);
  return h(
    "div",
    h("p", T.mayNow),
    h(
      "ul.scope-words",
      (words.length ? words : [T.nothing]).map((each) => h("li", each)),
    ),
    scope && h("p.muted", T.upTo),
  );
}

// `value()` returns the scope, undefined for none; it throws the error of YAML that cannot be read.
export function scopeEditor(onchange) {
  const group = newId("scope");
  const entries = h("div");
  const parts = h("div");
  const cli = h("input", { type: "checkbox", checked: true, id: newId("field") });
  const text = h("textarea.mono", { spellcheck: "false" });
  let choice = "all";
  const scopes = {
    all: () => undefined,
    read: () => ({ ...(cli.checked && { allowServiceCli: true }), ...READ }),
    only: () =>
      [...entries.children].reduce(
        (scope, row) => {
          const [part, entry] = row.read();
          (scope[part] ??= []).push(entry);
          return scope;
        },
        cli.checked ? { allowServiceCli: true } : {},
      ),
    raw: () => parse(text.value) ?? {},
  };
  const value = () => scopes[choice]();
  const choose = (name) => {
    if (name === "raw") text.value = emit(value() ?? {});
    choice = name;
    if (name === "only" && !entries.children.length) entries.append(entryRow(onchange));
    const useCli = h(
      "div",
      h("div.field-check", cli, h("label", { for: cli.id }, T.cli)),
      h("p.field-help", T.cliHint),
    );
    replace(
      parts,
      name === "only" && [
        entries,
        button(T.add, {
          icon: "plus",
          onclick: () => {
            entries.append(entryRow(onchange));
            entries.lastChild.querySelector("select").focus();
            onchange();
          },
        }),
      ],
      name === "raw" && field(T.yaml, text),
      (name === "read" || name === "only") && useCli,
    );
    onchange();
  };
  const radio = (name) =>
    h(
      "label.row",
      h("input", { type: "radio", name: group, checked: name === choice, onchange: () => choose(name) }),
      T.scopes[name],
    );
  const node = h(
    "fieldset.scope",
    {
      oninput: (event) => {
        if (event.target.type !== "radio") onchange();
      },
    },
    h("legend", T.scope),
    Object.keys(T.scopes).map(radio),
    parts,
  );
  // Rules are deprecated for people who write scopes, and the only way to say "read only".
  const shownWarnings = (all) => (choice === "read" ? all.filter((each) => !each.includes("scope.rules ")) : all);
  return { node, value, shownWarnings };
}

function entryRow(onchange) {
  const part = h(
    "select",
    { "aria-label": T.kindOf },
    Object.keys(T.only).map((each) => h("option", { value: each }, T.only[each])),
  );
  const project = h("input", { "aria-label": T.project, placeholder: T.project, autocomplete: "off" });
  const names = h("span");
  const suggest = () => suggestions({ server: management }, () => namespaceOf(project.value.trim()));
  let name = null;
  const isInside = () => part.value === "spaces" || part.value === "virtualClusters";
  const rename = () => {
    name = h("input", {
      "aria-label": T.name,
      placeholder: T.anyName,
      required: true,
      autocomplete: "off",
      value: name?.value,
    });
    project.hidden = !(project.required = isInside());
    replace(names, name, suggest()({ path: ITEM[part.value] }, name));
  };
  part.addEventListener("change", rename);
  project.addEventListener("change", rename);
  const row = h(
    "div.entry-row",
    part,
    project,
    suggest()({ path: "project" }, project),
    names,
    button(T.remove, {
      kind: "quiet",
      onclick: () => {
        row.remove();
        onchange();
      },
    }),
  );
  row.read = () => [
    part.value,
    { ...(isInside() && { project: project.value.trim() }), [ITEM[part.value]]: name.value.trim() },
  ];
  rename();
  return row;
}
