// Kinds with parts of their own on their object page: SEGMENT: () => import("./MODULE.js"), with `summary`, `tabs`, `actions`.

export const objectViews = {
  clusters: () => import("./clusters/cluster.js"),
};
