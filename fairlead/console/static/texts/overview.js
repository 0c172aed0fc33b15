// Texts of the overview.

export const T = {
  welcome: (name) => `Hello, ${name}`,
  fleet: "Clusters",
  noClusters: "No cluster is connected yet.",
  connect: "Connect a cluster",
  attention: "Needs attention",
  nothing: "Everything is well.",
  checking: "Checking…",
  notAll: "Some lists could not be read.",
  mine: "Mine",
  noneOfMine: "You own no workspace, space or virtual cluster yet.",
  nothingToCreate:
    "You own nothing, and you may create nothing yet. Ask an administrator, or the owner of a project, to make you " +
    "a member with the role user.",
  createWorkspace: "Create a workspace",
  createSpace: "Create a space",
  createCluster: "Create a virtual cluster",
  recent: "Recent changes",
  noRecent: "No changes yet.",
  allChanges: "Audit log",
  more: (count) => `and ${count} more`,
  nodes: (count) => `${count} ${count === 1 ? "node" : "nodes"}`,
  milliseconds: (value) => `${value} ms`,
  expires: "The access key expires",
  expired: "The access key has expired",
  quota: (what, used, limit) => `Quota of ${what}: ${used} of ${limit} used`,
  verbs: {
    create: "created",
    update: "changed",
    patch: "changed",
    delete: "deleted",
    deletecollection: "deleted all",
  },
  did: (who, verb, what) => `${who} ${verb} ${what}`,
  denied: "denied",
};
