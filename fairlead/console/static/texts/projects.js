// Texts of projects, spaces and virtual clusters.

export const T = {
  browse: "Browse objects",
  quotas: "Quotas", noQuotas: "No limits are set.", mine: (title) => `${title}, mine`, awake: ", awake", inside: "In this project", create: "Create",
  members: "Members", name: "Name", role: "Role", kind: "Kind", user: "User", team: "Team", owner: "Owner", addMember: "Add a member", add: "Add", remove: "Remove", removeOf: (name) => `Remove ${name}`, everyone: "all", missing: { users: "There is no such user", teams: "There is no such team" }, noMembers: "No members yet. Only the owner and administrators can work here.",
  roles: { admin: "admin: everything in the project", user: "user: create and manage own objects", viewer: "viewer: read what is shared" },
  allowed: "What members may use", clusters: "Clusters", runners: "Runners", templates: "Templates", all: "all", unlisted: "not restricted", noneAllowed: "none", isDefault: "default",
  sentence: "State", connect: "Use it", kubeconfig: "Write a kubeconfig for it:", facts: "Facts", project: "Project", cluster: "Cluster", namespaceThere: "Namespace in the cluster", template: "Template", version: "Version", noCluster: "none",
  parameters: "Parameters", drift: "The template has changes that are not applied.", applyTemplate: "Apply the template", applied: "The template is being applied",
  asleepSince: "Asleep since", sleeps: "Falls asleep", wakesUp: "Wakes up", sleepAfter: (time) => `${time} after the last activity`, causes: { inactivitySleep: "(not used; a request wakes it)", scheduledSleep: "(by its schedule)", forcedSleep: "(by request)", forcedDurationSleep: "(by request, for a time)" },
  wake: "Wake up", putToSleep: "Put to sleep", askSleep: (name) => `Put ${name} to sleep?`, sleepText: "Its pods end. Everything else is kept. Requests do not wake it from that sleep, only people do.",
  move: "Move to another project…", moveTitle: (name) => `Move ${name} to another project`, target: "Project", check: "Check", checked: "Everything can be moved. Nothing has been changed yet.", moveNow: "Move", moved: (name) => `Moved to ${name}`, moveText: "It keeps its name, cluster and data. Owner and access must be permitted in the new project.",
};
