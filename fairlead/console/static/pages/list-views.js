// What lists of some kinds show besides their table. A module may export `above(context)`, a node above the table; the
// context is {kind, page, scope, list}.

export const listViews = {
  apps: () => import("./apps/catalogue.js"),
  clusters: () => import("./clusters/cards.js"),
};
