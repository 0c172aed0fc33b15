// The members of a project and their roles, with a form to add one. Changes are sent with the version that was shown,
// so that two people do not undo each other's.

import { review } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { listObjects, managed, patchObject } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { ATTENTION } from "../../core/status.js";
import { announce } from "../../shell/dialogs.js";
import { T } from "../../texts/projects.js";
import { button, card, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { suggestions } from "../../widgets/form/suggest.js";
import { stateBadge } from "../../widgets/state.js";
import { createLink, warningBlock } from "../../widgets/warnings.js";

const MAX_NAMES = 1000;

export async function membersTab(node, context) {
  const { kind, object } = context;
  const { allowed } = await review({ verb: "patch", kind, name: object.metadata.name });
  const body = h("tbody");
  const problem = h("div");
  let shown = "";
  const save = async (members) => {
    replace(problem);
    const before = JSON.stringify(context.object.spec?.members);
    const onWarnings = (warnings) => replace(problem, warningBlock(warnings));
    const send = () => {
      const { resourceVersion } = context.object.metadata;
      return patchObject(
        kind,
        "",
        object.metadata.name,
        { metadata: { resourceVersion }, spec: { members } },
        { onWarnings },
      );
    };
    try {
      const saved = await send().catch(async (error) => {
        if (error.code !== 409) throw error;
        await context.refresh(); // often only the status has changed
        if (JSON.stringify(context.object.spec?.members) !== before) throw error;
        return send();
      });
      context.update(saved);
      return true;
    } catch (error) {
      replace(problem, errorBlock(error));
      update(context.object); // a role that was not saved is not shown
      return false;
    }
  };
  /** @param {KubernetesObject} project */
  const update = ({ spec = {} }) => {
    const members = spec.members ?? [];
    const key = JSON.stringify([spec.owner, members]);
    if (key === shown && !problem.firstChild) return;
    shown = key;
    replace(
      body,
      ownerRow(spec.owner),
      members.map((member, index) =>
        memberRow(
          member,
          allowed && (() => save(members.filter((_, each) => each !== index))),
          allowed &&
            ((role) =>
              save(members.map((each, position) => (position === index ? { ...each, clusterRole: role } : each)))),
        ),
      ),
      !members.length && h("tr", h("td", { colspan: 4 }, h("span.muted", T.noMembers))),
    );
    markMissing(context, body);
  };
  context.onChange(update);
  update(object);
  replace(
    node,
    card(
      T.members,
      problem,
      tableOf([T.name, T.kind, T.role, ""], body, "table.members"),
      allowed && addForm(context, save),
    ),
  );
}

export const principalLink = (kind, name) => {
  if (name === "*") return T.everyone;
  const segment = kind === "Team" ? "teams" : "users";
  return h("span.principal", { data: { segment, name } }, link(`${segment}/${encodeURIComponent(name)}`, name));
};

// Names without a user or team: a typo, or one that is still to be created. Who may not list them all is told nothing.
async function markMissing(context, body) {
  const existing = await Promise.all(["users", "teams"].map((segment) => listNames(segment, context.scope.signal)));
  for (const node of body.querySelectorAll(".principal")) {
    const { segment, name } = node.dataset;
    const names = existing[segment === "users" ? 0 : 1];
    if (!names || names.has(name) || name.includes(":")) continue;
    replace(
      node,
      name,
      " ",
      stateBadge({ state: ATTENTION, word: T.missing[segment] }),
      " ",
      createLink(segment, name),
    );
  }
}

async function listNames(segment, signal) {
  const kind = managed(segment);
  const { allowed, filtered } = await review({ verb: "list", kind });
  if (!allowed || filtered) return null;
  const { items, metadata } = await listObjects(kind, { limit: MAX_NAMES, signal }).catch(() => ({
    metadata: { continue: "?" },
  }));
  return metadata.continue ? null : new Set(items.map((each) => each.metadata.name));
}

const ownerRow = (owner) =>
  (owner?.user || owner?.team) &&
  h(
    "tr",
    h("td", principalLink(owner.team ? "Team" : "User", owner.user || owner.team)),
    h("td", owner.team ? T.team : T.user),
    h("td", T.owner),
    h("td"),
  );

function memberRow(member, remove, changeRole) {
  const role = member.clusterRole || "user";
  return h(
    "tr",
    h("td", principalLink(member.kind, member.name)),
    h("td", member.kind === "Team" ? T.team : T.user),
    h("td", changeRole ? roleSelect(role, `${T.role}: ${member.name}`, changeRole) : role),
    h("td", remove && button(T.remove, { kind: "quiet", "aria-label": T.removeOf(member.name), onclick: remove })),
  );
}

function roleSelect(role, label, onchange) {
  const options = Object.keys(T.roles).includes(role) ? Object.keys(T.roles) : [...Object.keys(T.roles), role];
  return h(
    "select",
    { "aria-label": label, onchange: (event) => onchange(event.target.value) },
    options.map((value) => h("option", { value, selected: value === role }, T.roles[value] ?? value)),
  );
}

function addForm(context, save) {
  const kind = h(
    "select",
    { "aria-label": T.kind },
    h("option", { value: "User" }, T.user),
    h("option", { value: "Team" }, T.team),
  );
  const name = h("input", { "aria-label": T.name, placeholder: T.name, required: true, autocomplete: "off" });
  let role = "user";
  const names = h("span");
  const suggest = () => replace(names, suggestions(context.kind, () => "")({ path: kind.value.toLowerCase() }, name));
  kind.addEventListener("change", suggest);
  suggest();
  const add = async (event) => {
    event.preventDefault();
    const added = { kind: kind.value, name: name.value.trim(), clusterRole: role };
    if (await save([...(context.object.spec?.members ?? []), added])) {
      announce(added.name);
      name.value = "";
      name.focus();
    }
  };
  return h(
    "form.row.add-member",
    { onsubmit: add },
    h("h3", T.addMember),
    kind,
    name,
    names,
    roleSelect(role, T.role, (value) => {
      role = value;
    }),
    h("button.primary", { type: "submit" }, T.add),
  );
}
