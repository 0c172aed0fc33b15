// The pods of a space or virtual cluster in the map, through its gateway, while its branch is open.

import { h, replace } from "../../core/dom.js";
import { stateOf } from "../../core/status.js";
import { T } from "../../texts/map.js";
import { errorBlock } from "../../widgets/errors.js";
import { objectLink } from "../../widgets/owners.js";
import { stateBadge } from "../../widgets/state.js";
import { followKind } from "../clusters/follow.js";
import { openRemote } from "../clusters/remote.js";

const MAX_SHOWN = 100;

export async function followPods(path, node, scope) {
  try {
    const server = await openRemote(path, scope.signal);
    await followKind(scope, server, "pods", node, showPods);
  } catch (error) {
    if (!scope.ended) replace(node, errorBlock(error));
  }
}

function showPods(list) {
  const pods = list.objects.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  if (!pods.length) return h("p.muted", T.noPods);
  return h(
    "ul.plain",
    pods
      .slice(0, MAX_SHOWN)
      .map((pod) =>
        h(
          "li.map-line",
          h("span.mono", objectLink(list.kind, pod.metadata, pod.metadata.name)),
          stateBadge(stateOf(pod)),
          h("span.muted", pod.spec?.nodeName ?? ""),
        ),
      ),
    pods.length > MAX_SHOWN && h("li.muted", T.more(pods.length - MAX_SHOWN)),
  );
}
