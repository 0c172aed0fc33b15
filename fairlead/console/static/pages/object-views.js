// Kinds with parts of their own on their object page: SEGMENT: () => import("./MODULE.js"), with `summary`, `tabs`,
// `actions`. An action with `isShown(object)` is hidden while that is false. What its `run` throws is shown below the
// actions.

export const objectViews = {
  appinstances: () => import("./apps/instance.js"),
  apps: () => import("./apps/app.js"),
  clusters: () => import("./clusters/cluster.js"),
  ownedaccesskeys: () => import("./access/key.js"),
  devpodworkspaceinstances: () => import("./workspaces/workspace.js"),
  projects: () => import("./projects/project.js"),
  runners: () => import("./workspaces/runner.js"),
  spaceinstances: () => import("./projects/instance.js"),
  teams: () => import("./access/team.js"),
  users: () => import("./access/user.js"),
  virtualclusterinstances: () => import("./projects/instance.js"),
};
