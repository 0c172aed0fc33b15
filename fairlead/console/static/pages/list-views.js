// What lists of some kinds show besides their table. Their modules export `above({kind, page, scope})`, which
// returns {node, filled}: a node above the table, and a promise of its first content.

export const listViews = {
  apps: () => import("./apps/catalogue.js"),
  clusters: () => import("./clusters/cards.js"),
};
