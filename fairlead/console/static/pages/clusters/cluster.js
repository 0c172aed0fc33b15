// The page of a cluster: since when it is online, its checks, how to use it, who may, and what runs in it.

import { request } from "../../core/api.js";
import { API, GROUP, ROOT } from "../../core/base.js";
import { h, replace } from "../../core/dom.js";
import { managed } from "../../core/kinds.js";
import { href, link, navigate } from "../../core/router.js";
import { condition, stateOf } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { watchList } from "../../core/watch.js";
import { button, card, codeBlock, copyable, definition, linkButton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { stateBadge } from "../../widgets/state.js";
import { T } from "../../texts/clusters.js";
import { pathOf } from "../routes.js";
import { latencyLine, probeList } from "./health.js";

const MAX_SHOWN = 20;
const INSTANCES = ["spaceinstances", "virtualclusterinstances"];

export const gatewayOf = (name) => new URL(`kubernetes/cluster/${encodeURIComponent(name)}`, ROOT);

export function summary(context) {
  const { kind, object, scope } = context;
  const { name } = object.metadata;
  const line = latencyLine(kind, name, scope);
  const facts = h("div"), checks = h("div");
  let shown = "";
  const update = (cluster) => {
    const key = JSON.stringify(cluster.status ?? {});
    if (key === shown) return;
    shown = key;
    replace(facts, factList(cluster, line));
    const isBroken = cluster.status?.probes?.some((each) => !each.ok && each.severity !== "Warning");
    replace(checks, probeList(cluster), isBroken && linkButton(href("clusters/~connect", { name }), T.another));
  };
  context.onChange(update);
  update(object);
  return h("div.columns.cluster", h("div.stack", card(T.state, facts), card(T.checks, checks)),
    h("div.stack", card(T.kubectl, h("p.muted", T.kubeconfigHint), codeBlock(`fairlead kubeconfig --cluster ${name}`), h("p.muted", T.gateway), copyable(gatewayOf(name).href)),
      card(T.inside, INSTANCES.map(managed).filter(Boolean).map((each) => instances(each, `spec.clusterRef.cluster=${name}`, scope))),
      card(T.users, accessList(name, scope))));
}

function factList({ status = {} }, line) {
  const connected = condition({ status }, "Connected");
  return definition([
    [connected?.status === "True" ? T.online : T.offline, connected && timeElement(connected.lastTransitionTime)],
    [T.version, status.version], [T.nodes, status.nodes], [T.latency, line], [T.lastProbe, status.lastProbeTime && timeElement(status.lastProbeTime)],
  ]);
}

// The objects of a kind that a field selector finds, live.
export function instances(kind, fieldSelector, scope) {
  const node = h("div");
  watchList(kind, { fieldSelector }).subscribe(scope, (list) => {
    if (list.state === "stopped") return replace(node, h("h3", kind.pluralTitle), errorBlock(list.error));
    const found = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
    const items = found.slice(0, MAX_SHOWN).map((each) => h("li.row", link(pathOf(kind, each), each.spec?.displayName || each.metadata.name), stateBadge(stateOf(each))));
    replace(node, h("h3", kind.pluralTitle), items.length ? h("ul.plain", items) : h("p.muted", T.none),
      found.length > MAX_SHOWN && link(`${kind.segment}?fields=${encodeURIComponent(fieldSelector)}`, T.all(found.length)));
  });
  return node;
}

// Everyone is reviewed for it, so only when asked.
function accessList(name, scope) {
  const node = h("div");
  const load = async () => {
    const resourceAttributes = { verb: "use", group: GROUP, version: "v1", resource: "clusters", name };
    const body = { apiVersion: `${GROUP}/v1`, kind: "ResourceAccessReview", spec: { resourceAttributes } };
    try {
      const { status } = await request(`${API}/apis/${GROUP}/v1/resourceaccessreviews`, { method: "POST", body, signal: scope.signal });
      const parts = Object.keys(T.kinds).filter((field) => status[field]?.length);
      replace(node, parts.length ? definition(parts.map((field) => [T.kinds[field], h("ul.plain", status[field].slice(0, 50).map((each) => h("li", h("span.mono", each.name), h("span.muted", ` ${each.via ?? ""}`))))])) : h("p", T.nobody),
        (status.truncated || parts.some((field) => status[field].length > 50)) && h("p.muted", T.more));
    } catch (error) { if (!scope.ended) replace(node, errorBlock(error)); }
  };
  return replace(node, h("p.muted", T.usersHint), button(T.showUsers, { icon: "users", onclick: load }));
}

export function actions({ kind, object: { metadata: { name } } }) {
  return [{ title: T.browse, icon: "grid", question: { verb: "use", kind, name }, run: () => navigate(`clusters/${encodeURIComponent(name)}/~browse`) }];
}
