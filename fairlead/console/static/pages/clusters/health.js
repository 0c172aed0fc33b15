// How a cluster is: its checks, and the latency of its last probes.

import { request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { T } from "../../texts/clusters.js";
import { stateDot } from "../../widgets/state.js";
import { sparkLine } from "../overview/fleet.js";

const REFRESH = 15_000;

// The checks of the last probe, with what to do about those that failed.
export function probeList({ status = {}, spec = {} }) {
  if (!status.probes?.length) return h("p.muted", spec.config?.secretName ? T.noChecks : T.notProbed);
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
        h("span", T.probes[name] ?? name, message && h("span.muted", message)),
      );
    }),
  );
}

export function latencyLine(kind, name, scope) {
  const node = h("span.spark");
  const load = async () => {
    if (document.hidden) return;
    const health = await request(kind.path("", name, "health"), { signal: scope.signal }).catch(() => null);
    const samples = health?.samples ?? [];
    const last = samples.at(-1)?.latencyMilliseconds;
    if (samples.length)
      replace(
        node,
        samples.length > 1 && sparkLine(samples, 160),
        last !== undefined && h("span", T.milliseconds(Math.round(last))),
      );
  };
  load();
  scope.every(REFRESH, load);
  return node;
}
