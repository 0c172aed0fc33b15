// Deployments and other kinds that have pods: a tab with them, live.

import { h, replace } from "../../core/dom.js";
import { stateOf } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/clusters.js";
import { card, empty, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { objectLink } from "../../widgets/owners.js";
import { stateBadge } from "../../widgets/state.js";

const MAX_SHOWN = 200;

export const tabs = () => [{ name: "pods", title: T.pods, show: showPods }];

function showPods(node, { kind, object, scope }) {
  const pods = kind.server.find("pods", "");
  const labelSelector = printSelector(object.spec?.selector);
  if (!pods || !labelSelector) return replace(node, empty(T.noPods));
  watchList(pods, { namespace: object.metadata.namespace, labelSelector }).subscribe(scope, (list) => {
    if (list.state === "stopped") return replace(node, errorBlock(list.error));
    if (!list.items.size) return list.isComplete && replace(node, empty(T.noPods));
    const found = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name)).slice(0, MAX_SHOWN);
    replace(
      node,
      card(
        "",
        tableOf(
          [T.pods, T.status, T.restarts, T.node, T.age],
          found.map((pod) => row(pods, pod)),
        ),
      ),
    );
  });
}

const row = (kind, pod) =>
  h(
    "tr",
    h("td.mono", objectLink(kind, pod.metadata, pod.metadata.name)),
    h("td", stateBadge(stateOf(pod))),
    h(
      "td",
      (pod.status?.containerStatuses ?? []).reduce((sum, each) => sum + (each.restartCount ?? 0), 0),
    ),
    h("td", pod.spec?.nodeName ?? ""),
    h("td", timeElement(pod.metadata.creationTimestamp, { age: true })),
  );

// A label selector of the API as the text of a query.
function printSelector({ matchLabels = {}, matchExpressions = [] } = {}) {
  const print = ({ key, operator, values = [] }) =>
    ({ In: `${key} in (${values})`, NotIn: `${key} notin (${values})`, Exists: key, DoesNotExist: `!${key}` })[
      operator
    ];
  return [...Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`), ...matchExpressions.map(print)].join(
    ",",
  );
}
