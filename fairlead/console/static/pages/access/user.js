// The page of a user: teams, projects, keys, last use; setting the password, disabling.

import { review } from "../../core/access.js";
import { actAs, request, session } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { listObjects, managed, management } from "../../core/kinds.js";
import { link, navigate } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { openDialog, toast } from "../../shell/dialogs.js";
import { T } from "../../texts/access.js";
import { card, definition, field, skeleton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { expiry } from "./expiry.js";
import { toggleAction } from "./key.js";
import { roleList } from "./roles.js";

const LIMIT = 500;
const IMPERSONATED = { group: "", version: "v1", plural: "users", title: "User", server: management };

const teamLink = (name) => link(`teams/${encodeURIComponent(name)}`, name);
const plain = (items) =>
  h(
    "ul.plain",
    items.map((item) => h("li", item)),
  );

export function summary(context) {
  const { kind, object, scope } = context;
  const facts = h("div");
  const projects = h("div", skeleton(2));
  const keys = h("div", skeleton(2));
  const roles = h("div", skeleton(2));
  let lastUse = "";
  let shown = "";
  const update = () => {
    const { spec = {}, status = {} } = context.object;
    const key = JSON.stringify([spec, status.teams, lastUse]);
    if (key === shown) return;
    shown = key;
    replace(
      facts,
      spec.disabled && h("div.notice", T.isDisabledUser),
      definition([
        [T.teams, status.teams?.length ? plain(status.teams.map(teamLink)) : T.none],
        [T.groups, spec.groups?.join(", ")],
        [T.lastLogin, lastUse ? timeElement(lastUse) : ""],
      ]),
    );
  };
  const fill = async (node, load) => {
    try {
      replace(node, await load());
    } catch (error) {
      if (!scope.ended) replace(node, errorBlock(error));
    }
  };
  context.onChange(update);
  update();
  fill(projects, () => projectList(object, scope));
  fill(roles, () => roleList(object, scope));
  fill(keys, async () => {
    const { allowed, reason } = await review({
      verb: "get",
      kind,
      name: object.metadata.name,
      subresource: "accesskeys",
    });
    if (!allowed) return h("p.muted", reason);
    const found =
      (await request(kind.path("", object.metadata.name, "accesskeys"), { signal: scope.signal })).items ?? [];
    lastUse =
      found
        .map((each) => each.status?.lastActivity ?? "")
        .sort()
        .at(-1) ?? "";
    update();
    return keyList(found);
  });
  return h("div.halves", card(T.account, facts), card(T.roles, roles), card(T.projects, projects), card(T.keys, keys));
}

function keyList(keys) {
  const shown = keys.filter((key) => key.spec?.type !== "Login");
  return h(
    "div.stack",
    plain(
      shown.map((key) =>
        h(
          "span",
          link(`ownedaccesskeys/${encodeURIComponent(key.metadata.name)}`, key.spec?.displayName || key.metadata.name),
          h("span.muted", ` ${expiryWords(key)} `, expiry(key)),
        ),
      ),
    ),
    h("p.muted", T.logins(keys.length - shown.length)),
  );
}

/**
 * @param {KubernetesObject} user
 * @param {any} scope
 */
async function projectList({ metadata: { name }, status = {} }, scope) {
  const { items } = await listObjects(managed("projects"), { limit: LIMIT, signal: scope.signal });
  const teams = new Set(status.teams ?? []);
  const found = items.flatMap((project) => {
    const { owner = {}, members = [] } = project.spec ?? {};
    const roles = members
      .filter((each) => (each.kind === "Team" ? teams.has(each.name) : each.name === name || each.name === "*"))
      .map((each) => (each.clusterRole || "user") + (each.kind === "Team" ? ` ${T.via(each.name)}` : ""));
    if (owner.user === name) roles.unshift(T.owns);
    else if (teams.has(owner.team)) roles.unshift(`${T.owns} ${T.via(owner.team)}`);
    return roles.length
      ? [
          h(
            "span",
            link(
              `projects/${encodeURIComponent(project.metadata.name)}`,
              project.spec?.displayName || project.metadata.name,
            ),
            h("span.muted", ` ${roles.join(", ")}`),
          ),
        ]
      : [];
  });
  return found.length ? plain(found) : h("p.muted", T.noProjects);
}

export function actions(context) {
  const {
    kind,
    object: {
      metadata: { name },
    },
  } = context;
  return [
    {
      title: T.setPassword,
      icon: "key",
      question: { verb: "create", kind, name, subresource: "profile" },
      run: () => (name === session.user.name ? navigate("account") : setPassword(kind, name)),
    },
    toggleAction(context, T.disableUser),
    {
      title: T.actAs,
      icon: "users",
      question: { verb: "impersonate", kind: IMPERSONATED, name },
      isShown: () => name !== session.user.name && !session.user.impersonator,
      run: () => actAs(name),
    },
  ];
}

function setPassword(kind, name) {
  const password = h("input", { type: "password", autocomplete: "new-password", required: true });
  const problem = h("div");
  return openDialog({
    title: T.passwordOf(name),
    body: (close) =>
      h(
        "form.stack",
        {
          onsubmit: async (event) => {
            event.preventDefault();
            try {
              await request(kind.path("", name, "profile"), { method: "POST", body: { password: password.value } });
              password.value = "";
              toast(T.passwordSet);
              close();
            } catch (error) {
              replace(problem, errorBlock(error));
            }
          },
        },
        h("p.muted", T.passwordHint),
        field(T.password, password),
        problem,
        h("div", h("button.primary", { type: "submit" }, T.save)),
      ),
  });
}

function expiryWords(key) {
  if (key.status?.expired) return T.hasExpired;
  return `${key.spec?.disabled ? `${T.isOff} ` : ""}${T.expires.toLowerCase()}`;
}
