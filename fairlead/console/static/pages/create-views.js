// Kinds with a create page of their own: `kind.segment` to `() => import("./module.js")`, which exports
// `show(page, {kind, namespace})`.

const createInstance = () => import("./instances/create.js");

export const CREATE_VIEWS = {
  appinstances: createInstance,
  clusters: () => import("./clusters/connect.js"),
  devpodworkspaceinstances: createInstance,
  spaceinstances: createInstance,
  virtualclusterinstances: createInstance,
};
