// The roles that are bound to a user for the whole server, and through what: the user itself, a team or a group.

import { review } from "../../core/access.js";
import { h } from "../../core/dom.js";
import { listObjects, management } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { T } from "../../texts/access.js";

const LIMIT = 500;
const RBAC = "rbac.authorization.k8s.io";
const TEAM_PREFIX = "service:team:";
const EVERYONE = "system:authenticated";

/**
 * Resolves to a list; to a sentence for those who may not list the bindings.
 * @param {Record<string, any>} user
 * @param {import("../../core/dom.js").Scope} scope
 */
export async function roleList({ metadata, spec = {}, status = {} }, scope) {
  const kind = management.find("clusterrolebindings", RBAC);
  const { allowed, filtered } = kind ? await review({ verb: "list", kind }) : { allowed: false, filtered: false };
  if (!allowed || filtered) return h("p.muted", T.rolesNotShown);
  const { items } = await listObjects(kind, { limit: LIMIT, signal: scope.signal });
  const groups = new Map([
    [EVERYONE, T.asEveryone],
    ...(spec.groups ?? []).map((group) => [group, T.viaGroup(group)]),
    ...(status.teams ?? []).map((team) => [TEAM_PREFIX + team, T.via(team)]),
  ]);
  const sourceOf = (subject) =>
    subject.kind === "User" && subject.name === metadata.name
      ? T.directly
      : subject.kind === "Group" && groups.get(subject.name);
  const found = items.flatMap((binding) => {
    const source = (binding.subjects ?? []).map(sourceOf).find(Boolean);
    return source ? [{ role: binding.roleRef.name, source }] : [];
  });
  if (!found.length) return h("p.muted", T.noRoles);
  return h(
    "ul.plain.lines",
    found.map(({ role, source }) =>
      h("li", h("span.grow", link(`clusterroles.${RBAC}/${encodeURIComponent(role)}`, role)), h("span.muted", source)),
    ),
  );
}
