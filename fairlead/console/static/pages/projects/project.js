// A project: quotas, what is in it, members with their roles, and what they may use.

import { review } from "../../core/access.js";
import { session } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { managed } from "../../core/kinds.js";
import { href, link } from "../../core/router.js";
import { watchList } from "../../core/watch.js";
import { namespaceOf } from "../../shell/sign-in.js";
import { T } from "../../texts/projects.js";
import { card, definition, linkButton, meter } from "../../widgets/common.js";
import { quotaTitle } from "../../widgets/quotas.js";
import { stateDot } from "../../widgets/state.js";
import { tableStates } from "../overview/table-states.js";
import { membersTab, principalLink } from "./members.js";

const MAX_MEMBERS = 10;
const INSIDE = [
  "devpodworkspaceinstances",
  "spaceinstances",
  "virtualclusterinstances",
  "appinstances",
  "projectsecrets",
];

export function summary(context) {
  const quotas = context.live(
    ({ status }) => status?.quotas,
    ({ metadata, status }) => quotaList(metadata.name, status?.quotas ?? {}),
  );
  const allowed = context.live(
    ({ spec }) => spec,
    /** @type {(project: KubernetesObject) => Child} */
    ({ spec = {} }) =>
      definition([
        [T.clusters, names(spec.allowedClusters)],
        [T.runners, names(spec.allowedRunners)],
        [T.templates, names(spec.allowedTemplates)],
      ]),
  );
  const members = context.live(
    ({ spec }) => [spec?.owner, spec?.members],
    ({ spec = {} }) => memberList(context, spec),
  );
  return h(
    "div.halves",
    h("div.stack", card(T.inside, insideList(context)), card(T.quotas, quotas)),
    h("div.stack", card(T.members, members), card(T.allowed, allowed)),
  );
}

/**
 * Who works in the project, and in which role. The tab of the members changes it.
 * @param {any} context
 * @param {Record<string, any>} spec
 */
function memberList({ object }, { owner, members = [] }) {
  const isOwned = owner?.user || owner?.team;
  const lines = [
    isOwned && [owner.team ? "Team" : "User", owner.user || owner.team, T.owner.toLowerCase()],
    ...members.slice(0, MAX_MEMBERS).map(({ kind, name, clusterRole }) => [kind, name, clusterRole || "user"]),
  ].filter(Boolean);
  return h(
    "div",
    h(
      "ul.plain.lines",
      lines.map(([kind, name, role]) => h("li", h("span.grow", principalLink(kind, name)), h("span.muted", role))),
      !lines.length && h("li.muted", T.noMembers),
    ),
    h(
      "p.card-foot",
      link(
        `projects/${encodeURIComponent(object.metadata.name)}?view=members`,
        T.allMembers(members.length + (isOwned ? 1 : 0)),
      ),
    ),
  );
}

export const tabs = (context) => [{ name: "members", title: T.members, show: (node) => membersTab(node, context) }];

// Each quota leads to the objects that count against it.
function quotaList(name, { project, user }) {
  const own = user?.used?.users?.[session.user.name] ?? {};
  const row = (quota, title, used, limit) => {
    const kind = managed(quota.split(".")[0]);
    const path = kind && `${kind.segment}?project=${encodeURIComponent(name)}`;
    return h("li", h("span.grow", path ? link(path, title) : title), meter(used, limit));
  };
  const rows = [
    ...Object.entries(project?.limit ?? {}).map(([quota, limit]) =>
      row(quota, quotaTitle(quota), project.used?.[quota] ?? 0, limit),
    ),
    ...Object.entries(user?.limit ?? {}).map(([quota, limit]) =>
      row(quota, T.mine(quotaTitle(quota)), own[quota] ?? 0, limit),
    ),
  ];
  return rows.length ? h("ul.plain.lines", rows) : h("p.muted", T.noQuotas);
}

const names = (entries) => {
  if (!entries) return h("span.muted", T.unlisted);
  if (entries.some((entry) => entry.name === "*")) return T.all;
  return entries.map((entry) => entry.name + (entry.isDefault ? ` (${T.isDefault})` : "")).join(", ") || T.noneAllowed;
};

// One line for each kind: how many, in which states, and a link to create one.
function insideList({ object, scope }) {
  const namespace = namespaceOf(object.metadata.name);
  const partly = h("p.muted.card-foot", { hidden: true }, T.onlyWhatYouSee);
  const lines = h(
    "ul.plain.lines.centred",
    INSIDE.map((plural) => {
      const kind = managed(plural);
      const count = h("strong");
      const states = h("span.tile-states");
      const create = linkButton(href(`${kind.segment}/~new`, { project: object.metadata.name }), T.create, {
        kind: "quiet",
        icon: "plus",
      });
      const line = h(
        "li",
        link(`${kind.segment}?project=${encodeURIComponent(object.metadata.name)}`, kind.pluralTitle),
        count,
        h("span.grow", states),
        create,
      );
      review({ verb: "create", kind, namespace }).then(({ allowed }) => {
        create.hidden = !allowed;
      });
      review({ verb: "list", kind, namespace }).then(({ allowed, filtered }) => {
        if (filtered) partly.hidden = false;
        if (!allowed || scope.ended) {
          line.hidden = !allowed;
          return;
        }
        watchList(kind, { namespace, as: "table" }).subscribe(scope, (list) => {
          count.textContent = String(list.items.size);
          replace(
            states,
            [...tableStates(list)].map(([state, number]) => h("span", stateDot(state, state), number)),
          );
        });
      });
      return line;
    }),
  );
  return h("div", lines, partly);
}
