// The nodes of a cluster and what they have together, for those who may use the cluster.

import { review } from "../../core/access.js";
import { pause } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { parseQuantity, printBytes } from "../../core/quantity.js";
import { ATTENTION, condition, READY, stateOf } from "../../core/status.js";
import { T } from "../../texts/clusters.js";
import { definition, skeleton, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { objectLink } from "../../widgets/owners.js";
import { stateBadge } from "../../widgets/state.js";
import { followKind } from "./follow.js";
import { isConnectable } from "./health.js";
import { openRemote } from "./remote.js";
import { followUsage } from "./usage.js";

const MAX_SHOWN = 50;
const CAPACITY_WITHIN = 2; // seconds
const ROLE = "node-role.kubernetes.io/";

export function nodeList(context) {
  const node = h("div", skeleton(3));
  const usage = h("div");
  const isReady = (cluster) => stateOf(cluster).state === READY && isConnectable(cluster);
  const part = context.live(isReady, (cluster, { scope }) => {
    if (isReady(cluster)) follow(context.kind, cluster.metadata.name, scope, node, usage);
    else replace(node, h("p.muted", isConnectable(cluster) ? T.nodesUnknown : T.nodesWithoutKubeconfig));
    return null;
  });
  part.hidden = true;
  return h("div.stack", node, usage, part);
}

async function follow(kind, name, scope, node, usage) {
  const { allowed, reason } = await review({ verb: "use", kind, name });
  if (scope.ended) return;
  if (!allowed) return replace(node, h("p.muted", reason || T.mayNotUse));
  try {
    const server = await openRemote([kind.segment, name], scope.signal);
    let capacity = { cpu: 0, memory: 0 };
    let know = () => {};
    /** @type {Promise<void>} */
    const known = new Promise((resolve) => {
      know = resolve;
    });
    await followKind(scope, server, "nodes", node, (list) => {
      capacity = { cpu: sumOf(list.objects, "cpu"), memory: sumOf(list.objects, "memory") };
      know();
      return showNodes(list);
    });
    await Promise.race([known, pause(CAPACITY_WITHIN)]);
    await followUsage(scope, server, usage, { plural: "nodes", capacity: () => capacity });
  } catch (error) {
    if (!scope.ended) replace(node, errorBlock(error, { retry: () => follow(kind, name, scope, node, usage) }));
  }
}

const sumOf = (nodes, name) =>
  nodes.reduce((total, { status }) => total + (parseQuantity(status?.capacity?.[name]) || 0), 0);

function showNodes(list) {
  const nodes = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  const ready = nodes.filter((each) => condition(each, "Ready")?.status === "True").length;
  return h(
    "div.stack",
    definition([
      [T.ready, T.ratio(ready, nodes.length)],
      [T.cpu, String(sumOf(nodes, "cpu"))],
      [T.memory, printBytes(sumOf(nodes, "memory"))],
      [T.podCapacity, String(sumOf(nodes, "pods"))],
    ]),
    tableOf(
      T.nodeColumns,
      nodes.slice(0, MAX_SHOWN).map((node) => row(list.kind, node)),
      "table.nodes",
    ),
    nodes.length > MAX_SHOWN && h("p.muted", T.morePods(nodes.length - MAX_SHOWN)),
  );
}

/**
 * @param {any} kind
 * @param {Record<string, any>} node
 */
function row(kind, { metadata, spec = {}, status = {} }) {
  const ready = condition({ status }, "Ready");
  const roles = Object.keys(metadata.labels ?? {})
    .filter((label) => label.startsWith(ROLE))
    .map((label) => label.slice(ROLE.length));
  const state =
    ready?.status === "True"
      ? { state: spec.unschedulable ? ATTENTION : READY, word: spec.unschedulable ? T.cordoned : T.ready }
      : { state: ATTENTION, word: T.nodeNotReady, message: ready?.message };
  return h(
    "tr",
    h("td.mono", objectLink(kind, metadata, metadata.name)),
    h("td", stateBadge(state)),
    h("td", roles.join(", ")),
    h("td", status.capacity?.cpu ?? ""),
    h("td", status.capacity?.memory ? printBytes(parseQuantity(status.capacity.memory)) : ""),
    h("td", status.nodeInfo?.kubeletVersion ?? ""),
  );
}
