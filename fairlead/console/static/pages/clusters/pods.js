// Pods as rows: state, restarts, node, and the ways to their logs and into their containers.

import { h } from "../../core/dom.js";
import { pathOf } from "../../core/kinds.js";
import { href } from "../../core/router.js";
import { stateOf } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/clusters.js";
import { tableOf } from "../../widgets/common.js";
import { objectLink } from "../../widgets/owners.js";
import { stateBadge } from "../../widgets/state.js";

const MAX_SHOWN = 200;

/** @param {Record<string, any>} pod */
export const containerStatuses = ({ status = {} }) => [
  ...(status.initContainerStatuses ?? []),
  ...(status.containerStatuses ?? []),
  ...(status.ephemeralContainerStatuses ?? []),
];

export const restartsOf = (pod) => containerStatuses(pod).reduce((sum, each) => sum + (each.restartCount ?? 0), 0);

export function podTable(kind, pods) {
  const shown = pods.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name)).slice(0, MAX_SHOWN);
  return [
    tableOf(
      [T.name, T.status, T.ready, T.restarts, T.node, T.age, T.open],
      shown.map((pod) => row(kind, pod)),
    ),
    pods.length > MAX_SHOWN && h("p.muted", T.morePods(pods.length - MAX_SHOWN)),
  ];
}

function row(kind, pod) {
  const { metadata, spec = {}, status = {} } = pod;
  const total = spec.containers?.length ?? 0;
  const ready = (status.containerStatuses ?? []).filter((each) => each.ready).length;
  const page = (kind.server.pages ?? "") + pathOf(kind, pod);
  return h(
    "tr",
    h("td.mono", objectLink(kind, metadata, metadata.name)),
    h("td", stateBadge(stateOf(pod))),
    h("td", T.ratio(ready, total)),
    h("td", restartsOf(pod)),
    h("td", spec.nodeName ?? ""),
    h("td", timeElement(metadata.creationTimestamp, { age: true })),
    h(
      "td",
      h(
        "span.row",
        kind.subresources.has("log") && h("a", { href: href(page, { view: "logs" }) }, T.logs),
        kind.subresources.has("exec") &&
          status.phase === "Running" &&
          h("a", { href: href(page, { view: "terminal" }) }, T.openTerminal),
      ),
    ),
  );
}
