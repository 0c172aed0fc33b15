// Kinds with a create page of their own: `kind.segment` to `() => import("./module.js")`, which exports
// `show(page, {kind, namespace})`.

const createInstance = () => import("./instances/create.js");

export const CREATE_VIEWS = {
  appinstances: createInstance,
  clusters: () => import("./clusters/connect.js"),
  devpodworkspaceinstances: createInstance,
  ownedaccesskeys: () => import("./access/key-create.js"),
  spaceinstances: createInstance,
  virtualclusterinstances: createInstance,
};
