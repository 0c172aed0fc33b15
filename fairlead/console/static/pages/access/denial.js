// Why a request in a project is denied, and what would change it, from the members that the reader may see.

import { can } from "../../core/access.js";
import { session } from "../../core/api.js";
import { GROUP } from "../../core/base.js";
import { getObject, managed } from "../../core/kinds.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/access.js";

const INSTANCES = ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances", "appinstances"];
const READS = ["get", "list", "watch"];

// A sentence; "" if the request is not about a project, or the reader may not see the project.
export async function explainDenial(user, attributes, signal) {
  const { resource, group, namespace, name } = attributes;
  const isProject = group === GROUP && resource === "projects";
  const place = projectOf(namespace) || (isProject ? name : "");
  const kind = managed("projects");
  if (!place || !(await can("get", kind, "", place))) return "";
  const project = await getObject(kind, "", place, { signal }).catch(() => null);
  if (!project) return "";
  const title = project.spec?.displayName || place;
  const who = user === session.user.name ? "" : user;
  const roles = await rolesOf(user, project.spec?.members ?? [], signal);
  const wanted = whoMay(attributes, isProject);
  return roles.length ? T.roleIsNotEnough(who, roles.join(", "), title, wanted) : T.isNoMember(who, title, wanted);
}

// Who else may, as the server decides it for members: users create instances and read project secrets and events,
// admins do everything inside, and the project itself is for its owner.
function whoMay({ verb, resource, group, subresource }, isProject) {
  if (isProject) return READS.includes(verb) ? T.membersMay : T.projectOwnerMay;
  const isInstance = group === GROUP && INSTANCES.includes(resource) && !subresource;
  const isShared = resource === "events" || (group === GROUP && resource === "projectsecrets");
  if ((isInstance && verb === "create") || (isShared && READS.includes(verb))) return T.usersMay;
  return isInstance ? T.adminsAndOwnersMay : T.adminsMay;
}

async function rolesOf(user, members, signal) {
  const isMember = await Promise.all(
    members.map(async ({ kind, name }) => {
      if (kind !== "Team") return name === user || name === "*";
      if (user === session.user.name) return session.user.teams.some((team) => team.name === name);
      const teams = managed("teams");
      if (!(await can("get", teams, "", name))) return false;
      const team = await getObject(teams, "", name, { signal }).catch(() => null);
      return team?.spec?.users?.includes(user) ?? false;
    }),
  );
  return [...new Set(members.filter((_, index) => isMember[index]).map(({ clusterRole }) => clusterRole || "viewer"))];
}
