// Kinds with a create page of their own: `kind.segment` to `() => import("./module.js")`, which exports
// `show(page, {kind, namespace})`.

export const CREATE_VIEWS = {
  clusters: () => import("./clusters/connect.js"),
};
