// Deployments and other kinds that have pods: a tab with them, live.

import { replace } from "../../core/dom.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/clusters.js";
import { card, empty } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { podTable } from "./pods.js";

export const tabs = () => [{ name: "pods", title: T.pods, show: showPods }];

function showPods(node, { kind, object, scope }) {
  const pods = kind.server.find("pods", "");
  const labelSelector = printSelector(object.spec?.selector);
  if (!pods || !labelSelector) return replace(node, empty(T.noPods));
  watchList(pods, { namespace: object.metadata.namespace, labelSelector }).subscribe(scope, (list) => {
    if (list.state === "stopped") return replace(node, errorBlock(list.error));
    if (!list.items.size) return list.isComplete && replace(node, empty(T.noPods));
    replace(node, card("", podTable(pods, list.objects)));
  });
}

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
