// The projects of a member, with the role in each.

import { session } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { link } from "../../core/router.js";
import { T } from "../../texts/overview.js";
import { card } from "../../widgets/common.js";

const MAX_SHOWN = 12;

export function projectsCard(page, list) {
  const node = h("ul.plain.lines");
  const update = () => {
    const projects = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
    replace(
      node,
      projects.slice(0, MAX_SHOWN).map(line),
      projects.length > MAX_SHOWN && h("li", link("projects", T.more(projects.length - MAX_SHOWN))),
      !projects.length && list.isComplete && h("li.muted", T.noProjects),
    );
  };
  list.subscribe(page.scope, update);
  update();
  return card(T.projects, node);
}

/** @param {Record<string, any>} project */
const line = ({ metadata, spec = {} }) =>
  h(
    "li",
    h(
      "span.grow",
      link(`projects/${encodeURIComponent(metadata.name)}`, spec.displayName || metadata.name),
      spec.description && h("span.message", spec.description),
    ),
    h("span.muted", roleIn(spec)),
  );

/** @param {Record<string, any>} spec */
function roleIn({ owner = {}, members = [] }) {
  const teams = new Set(session.user.teams.map((team) => team.name));
  if (owner?.user === session.user.name || teams.has(owner?.team)) return T.owner;
  const isMine = ({ kind, name }) => (kind === "Team" ? teams.has(name) : name === session.user.name || name === "*");
  return [...new Set(members.filter(isMine).map((member) => member.clusterRole || "user"))].join(", ");
}
