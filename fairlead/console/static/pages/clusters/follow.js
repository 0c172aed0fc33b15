// Objects of a cluster, space or virtual cluster as a part of a page: live, and only if the user may list them there.

import { h, replace } from "../../core/dom.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/clusters.js";
import { mayDo } from "../../widgets/access.js";
import { errorBlock } from "../../widgets/errors.js";

// Asks first whether it is allowed: the cluster decides about its own objects. `render(list)` returns what is shown.
export async function followKind(scope, server, plural, node, render) {
  const kind = server.find(plural, "");
  const namespace = (kind?.namespaced && server.namespace) || "";
  if (!kind) return replace(node, h("p.muted", T.servesNo(plural)));
  const { allowed } = await mayDo({ verb: "list", kind, namespace });
  if (scope.ended) return;
  if (!allowed) return replace(node, h("p.muted", T.mayNotList(kind.pluralNoun)));
  watchList(kind, { namespace }).subscribe(scope, (list) => {
    if (list.state === "stopped") replace(node, errorBlock(list.error));
    else if (list.isComplete) replace(node, render(list));
  });
}
