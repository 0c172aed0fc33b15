// Above the list of clusters: each as a tile, with its latency. The table below has all of them.

import { h } from "../../core/dom.js";
import { preferences } from "../../core/preferences.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/clusters.js";
import { clusterTiles } from "../overview/fleet.js";

export function above({ kind, page }) {
  const node = h(
    "details.cluster-cards",
    { open: preferences.get("clusters.cards", innerWidth > 600) },
    h("summary", T.cards),
  );
  let tiles = null;
  const fill = () => {
    if (!node.open || tiles) return;
    const list = watchList(kind);
    tiles = clusterTiles(page, list, true);
    node.append(tiles.node);
    list.subscribe(page.scope, () => {
      node.hidden = list.isComplete && !list.items.size; // the list below says that there are none
    });
  };
  let wasOpen = node.open;
  node.addEventListener("toggle", () => {
    if (node.open !== wasOpen) preferences.set("clusters.cards", (wasOpen = node.open));
    fill();
  });
  fill();
  return { node, filled: tiles?.filled };
}
