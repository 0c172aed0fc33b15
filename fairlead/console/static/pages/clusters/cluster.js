// The page of a cluster: since when it is online, its checks, how to use it, who may, and what runs in it.

import { GROUP, ROOT } from "../../core/base.js";
import { h, replace } from "../../core/dom.js";
import { managed, pathOf } from "../../core/kinds.js";
import { href, link, navigate } from "../../core/router.js";
import { condition, stateOf } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/clusters.js";
import { card, codeBlock, copyable, definition, linkButton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { stateBadge } from "../../widgets/state.js";
import { whoCan } from "../access/who.js";
import { dayOfProbes } from "./day.js";
import { followHealth, probeList, showLatency } from "./health.js";
import { nodeList } from "./nodes.js";

const MAX_SHOWN = 20;
const INSTANCES = ["spaceinstances", "virtualclusterinstances"];

const gatewayOf = (name) => new URL(`kubernetes/cluster/${encodeURIComponent(name)}`, ROOT);

export function summary(context) {
  const { kind, object, scope } = context;
  const { name } = object.metadata;
  const line = h("span.spark");
  const day = dayOfProbes(scope);
  followHealth(kind, name, scope, (health) => {
    showLatency(line, health);
    day.show(health);
  });
  const facts = context.live(
    ({ status }) => status,
    (cluster) => factList(cluster, line),
  );
  const isBroken = ({ status }) => status?.probes?.some((each) => !each.ok && each.severity !== "Warning");
  const checks = context.live(
    ({ status, spec }) => [status?.probes, spec?.config],
    (cluster) =>
      h("div", probeList(cluster), isBroken(cluster) && linkButton(href("clusters/~connect", { name }), T.another)),
  );
  return h(
    "div.columns.cluster",
    h(
      "div.stack",
      card(T.state, facts),
      card(T.day, day.node),
      card(T.nodeList, nodeList(context)),
      card(T.checks, checks),
    ),
    h(
      "div.stack",
      card(
        T.kubectl,
        h("p.muted", T.kubeconfigHint),
        codeBlock(`fairlead kubeconfig --cluster ${name}`),
        h("p.muted", T.gateway),
        copyable(gatewayOf(name).href),
      ),
      card(
        T.inside,
        INSTANCES.map(managed)
          .filter(Boolean)
          .map((each) => instances(each, `spec.clusterRef.cluster=${name}`, scope)),
      ),
      card(
        T.users,
        whoCan({ verb: "use", group: GROUP, version: "v1", resource: "clusters", name }, scope, T.usersHint),
      ),
    ),
  );
}

/**
 * @param {KubernetesObject} cluster
 * @param {Child} line
 */
function factList({ status = {} }, line) {
  const connected = condition({ status }, "Connected");
  return definition([
    [connected?.status === "True" ? T.online : T.offline, connected && timeElement(connected.lastTransitionTime)],
    [T.version, status.version],
    [T.nodes, status.nodes],
    [T.latency, line],
    [T.lastProbe, status.lastProbeTime && timeElement(status.lastProbeTime)],
  ]);
}

// The objects of a kind that a field selector finds, live.
export function instances(kind, fieldSelector, scope) {
  const node = h("div");
  watchList(kind, { fieldSelector }).subscribe(scope, (list) => {
    if (list.state === "stopped") return replace(node, h("h3", kind.pluralTitle), errorBlock(list.error));
    const found = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
    const items = found
      .slice(0, MAX_SHOWN)
      .map((each) =>
        h("li.row", link(pathOf(kind, each), each.spec?.displayName || each.metadata.name), stateBadge(stateOf(each))),
      );
    replace(
      node,
      h("h3", kind.pluralTitle),
      items.length ? h("ul.plain", items) : h("p.muted", T.none),
      found.length > MAX_SHOWN &&
        link(`${kind.segment}?fields=${encodeURIComponent(fieldSelector)}`, T.all(found.length)),
    );
  });
  return node;
}

export function actions({
  kind,
  object: {
    metadata: { name },
  },
}) {
  return [
    {
      title: T.browse,
      icon: "grid",
      primary: true,
      question: { verb: "use", kind, name },
      run: () => navigate(`clusters/${encodeURIComponent(name)}/~browse`),
    },
  ];
}
