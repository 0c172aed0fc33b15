// Clusters as tiles: state, version, nodes, and the latency of the last probes as a line.

import { request } from "../../core/api.js";
import { h, replace, svg } from "../../core/dom.js";
import { href } from "../../core/router.js";
import { stateOf } from "../../core/status.js";
import { T } from "../../texts/overview.js";
import { empty, linkButton } from "../../widgets/common.js";
import { stateBadge } from "../../widgets/state.js";

const MAX_TILES = 48;
const MAX_LINES = 24;

// {node, filled}: the tiles, and a promise of the first ones. `saysWhy`: those that are not ready have the reason.
export function clusterTiles(page, list, saysWhy = false) {
  const node = h("div.cluster-tiles");
  const tiles = new Map();
  /** @type {Promise<void>} */
  const filled = new Promise((resolve) =>
    list.subscribe(page.scope, () => {
      resolve();
      for (const uid of tiles.keys()) if (!list.items.has(uid)) tiles.delete(uid);
      const clusters = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
      if (!clusters.length && list.isComplete)
        return replace(
          node,
          empty("", T.noClusters, linkButton(href("clusters/~connect"), T.connect, { kind: "primary", icon: "plus" })),
        );
      replace(
        node,
        clusters.slice(0, MAX_TILES).map((cluster) => tileOf(tiles, cluster, saysWhy)),
        clusters.length > MAX_TILES && h("p.muted", T.more(clusters.length - MAX_TILES)),
      );
    }),
  );
  const load = () => !document.hidden && loadHealth(page, list, tiles);
  setTimeout(load, 200);
  page.scope.every(15_000, load);
  return { node, filled };
}

function tileOf(tiles, cluster, saysWhy) {
  const { uid, name } = cluster.metadata;
  const line = tiles.get(uid)?.line ?? h("span.spark");
  const { version, nodes } = cluster.status ?? {};
  const state = stateOf(cluster);
  const facts =
    (saysWhy && state.message) || [version, nodes !== undefined && T.nodes(nodes)].filter(Boolean).join(" · ");
  const node = h(
    "a.cluster-tile",
    { href: href(`clusters/${encodeURIComponent(name)}`) },
    h("span.row", h("strong", cluster.spec?.displayName || name), stateBadge(state)),
    h("span.muted", facts),
    line,
  );
  tiles.set(uid, { line, name });
  return node;
}

async function loadHealth(page, list, tiles) {
  for (const { line, name } of [...tiles.values()].slice(0, MAX_LINES)) {
    if (page.scope.ended) return;
    const health = await request(list.kind.path("", name, "health"), { signal: page.scope.signal }).catch(() => null);
    const samples = health?.status?.samples ?? health?.samples;
    replace(line, samples?.length ? [sparkLine(samples), lastLatency(samples)] : h("span.muted", T.notMeasured));
  }
}

function lastLatency(samples) {
  const last = samples.at(-1).latencyMilliseconds;
  return h("span.muted", last === undefined ? T.noResponse : T.milliseconds(Math.round(last)));
}

// The line has gaps where a probe had no response. Failed probes are marked below it.
export function sparkLine(samples, width = 120, height = 24) {
  const highest = Math.max(1, ...samples.map((sample) => sample.latencyMilliseconds ?? 0));
  const step = width / Math.max(1, samples.length - 1);
  const runs = [[]];
  for (const [index, { latencyMilliseconds: latency }] of samples.entries()) {
    const y = height - 3 - (latency / highest) * (height - 6);
    if (latency === undefined) runs.push([]);
    else runs.at(-1).push(`${(index * step).toFixed(1)},${y.toFixed(1)}`);
  }
  const failures = samples.flatMap((sample, index) =>
    sample.ok === false ? [svg("circle", { cx: (index * step).toFixed(1), cy: height - 2, r: 2 })] : [],
  );
  const last = samples.at(-1).latencyMilliseconds;
  return svg(
    "svg.spark-line",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": last === undefined ? T.noResponse : T.milliseconds(Math.round(last)),
    },
    runs.filter((points) => points.length > 1).map((points) => svg("polyline", { points: points.join(" ") })),
    failures,
  );
}
