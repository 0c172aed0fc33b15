// How a cluster is: its checks, and the latency of its last probes.

import { request } from "../../core/api.js";
import { h, prose, replace } from "../../core/dom.js";
import { T } from "../../texts/clusters.js";
import { stateDot } from "../../widgets/state.js";
import { sparkLine } from "../overview/fleet.js";

const REFRESH = 15_000;

// Whether the server can reach it: by a kubeconfig, as the cluster that it runs in, or by an agent that dials out.
/** @param {KubernetesObject} cluster */
export const isConnectable = ({ spec = {} }) => Boolean(spec.config?.secretName || spec.local || spec.networkPeer);

// The checks of the last probe, with what to do about those that failed.
/** @param {KubernetesObject} cluster */
export function probeList(cluster) {
  const { status = {} } = cluster;
  if (!status.probes?.length) return h("p.muted", isConnectable(cluster) ? T.noChecks : T.notProbed);
  return h(
    "ul.plain.probes",
    status.probes.map(({ name, ok, message, severity }) => {
      const [state, label] = ok
        ? ["ready", T.passed]
        : severity === "Warning"
          ? ["attention", T.warning]
          : ["failed", T.failed];
      return h(
        "li",
        { data: { check: name, state } },
        stateDot(state, label),
        h("span", T.probes[name] ?? name, message && h("span.muted", prose(message))),
      );
    }),
  );
}

// Calls `notify(health)` with the probes of a cluster, now and from time to time.
/**
 * @param {any} kind
 * @param {string} name
 * @param {import("../../core/dom.js").Scope} scope
 * @param {(health: any) => void} notify
 */
export function followHealth(kind, name, scope, notify) {
  const load = async () => {
    if (document.hidden) return;
    const health = await request(kind.path("", name, "health"), { signal: scope.signal }).catch(() => null);
    if (health && !scope.ended) notify(health);
  };
  load();
  scope.every(REFRESH, load);
}

// The latency of the last probes.
export function showLatency(node, { samples = [] }) {
  const last = samples.at(-1)?.latencyMilliseconds;
  replace(
    node,
    samples.length > 1 && sparkLine(samples, 160),
    samples.length > 0 && h("span", last === undefined ? T.noResponse : T.milliseconds(Math.round(last))),
    !samples.length && h("span.muted", T.notMeasured),
  );
}
