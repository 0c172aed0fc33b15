// What runs in a space or virtual cluster: its pods, usage against its quotas, and the latest events, live, through its
// gateway. A request would wake one that sleeps, so nothing is asked of it before it is awake.

import { review } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { href } from "../../core/router.js";
import { READY, stateOf } from "../../core/status.js";
import { T } from "../../texts/projects.js";
import { linkButton, meter, skeleton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { eventLines } from "../../widgets/events.js";
import { followKind } from "../clusters/follow.js";
import { podTable } from "../clusters/pods.js";
import { openRemote } from "../clusters/remote.js";
import { followUsage } from "../clusters/usage.js";

const MAX_EVENTS = 6;

// {pods, usage, measured, events}: nodes that fill themselves. `measured` stays empty where nothing measures.
// `isAsleep(object)` is for the kind.
export function contents(context, isAsleep) {
  const parts = {
    pods: h("div", skeleton(3)),
    usage: h("div", skeleton(2)),
    measured: h("div"),
    events: h("div", skeleton(2)),
  };
  const stateNow = (object) => (isAsleep(object) ? "asleep" : stateOf(object).state === READY ? READY : "");
  const node = context.live(stateNow, (object, part) => {
    const state = stateNow(object);
    if (state === READY) follow(part, parts);
    else say(parts, state ? T.contentsAsleep : T.contentsNotReady);
    return null;
  });
  parts.pods.append(node);
  return parts;
}

function say(parts, text) {
  replace(parts.pods, h("p.muted", text));
  replace(parts.usage, h("p.muted", T.notKnown));
  replace(parts.measured);
  replace(parts.events, h("p.muted", T.notKnown));
}

async function follow(part, parts) {
  const { kind, object, scope } = part;
  const { namespace, name } = object.metadata;
  const { allowed, reason } = await review({ verb: "use", kind, namespace, name });
  if (scope.ended) return;
  if (!allowed) return say(parts, reason || T.mayNotUse);
  try {
    const server = await openRemote([kind.segment, namespace, name], scope.signal);
    await Promise.all([
      followKind(scope, server, "pods", parts.pods, showPods),
      followKind(scope, server, "resourcequotas", parts.usage, showUsage),
      followUsage(scope, server, parts.measured, { plural: "pods", namespace: server.namespace }),
      followKind(scope, server, "events", parts.events, (list) =>
        list.items.size ? eventLines(list.objects, MAX_EVENTS) : h("p.muted", T.noEvents),
      ),
    ]);
  } catch (error) {
    if (scope.ended) return;
    say(parts, "");
    replace(parts.pods, errorBlock(error, { retry: () => follow(part, parts) }));
  }
}

function showPods(list) {
  const server = list.kind.server;
  if (list.items.size) return podTable(list.kind, list.objects);
  return h(
    "div.stack.tight",
    h("p.muted", T.noPods),
    h("div", linkButton(href(`${server.pages}~new`), T.createFromYaml, { icon: "plus" })),
  );
}

// One bar for each limit of the quotas of the namespace.
function showUsage(list) {
  const rows = list.objects.flatMap((/** @type {Record<string, any>} */ { status = {} }) =>
    Object.entries(status.hard ?? {}).map(([name, limit]) => [name, status.used?.[name] ?? "0", limit]),
  );
  if (!rows.length) return h("p.muted", T.noQuotas);
  return h(
    "ul.plain.lines",
    rows.map(([name, used, limit]) => h("li", h("span.grow", T.resources[name] ?? name), meter(used, limit))),
  );
}
