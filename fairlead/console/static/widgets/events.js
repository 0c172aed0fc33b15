// Events of one object, live, the newest first.

import { review } from "../core/access.js";
import { h, replace } from "../core/dom.js";
import { management } from "../core/kinds.js";
import { timeElement } from "../core/time.js";
import { watchList } from "../core/watch.js";
import { T } from "../texts/object.js";
import { card, empty, tableOf } from "./common.js";
import { errorBlock } from "./errors.js";
import { stateBadge } from "./state.js";

const MAX_SHOWN = 200;
const lastSeen = (event) =>
  event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? "";

export async function eventsTab(node, { kind, object, scope }) {
  const events = kind.server.find("events", "");
  if (!events) return replace(node, empty(T.noEvents));
  const namespace = object.metadata.namespace || "default"; // where events of objects without a namespace are
  const { allowed, reason } =
    kind.server === management ? await review({ verb: "list", kind: events, namespace }) : { allowed: true };
  if (!allowed) return replace(node, empty(T.eventsDenied(namespace), reason));
  watchList(events, { namespace, fieldSelector: `involvedObject.uid=${object.metadata.uid}` }).subscribe(
    scope,
    (list) => {
      if (list.state === "stopped") return replace(node, errorBlock(list.error));
      const newest = list.objects.sort((a, b) => lastSeen(b).localeCompare(lastSeen(a))).slice(0, MAX_SHOWN);
      if (!newest.length) return list.isComplete && replace(node, empty(T.noEvents, T.noEventsText));
      replace(node, card("", tableOf(T.eventColumns, newest.map(row), "table.events")));
    },
  );
}

const row = (event) =>
  h(
    "tr",
    h("td", stateBadge({ state: event.type === "Warning" ? "attention" : "", word: event.type ?? "" })),
    h("td.mono", event.reason ?? ""),
    h(
      "td.wrap",
      event.message ?? event.note ?? "",
      (event.count ?? event.series?.count ?? 1) > 1 &&
        h("span.muted", ` (${T.eventTimes(event.count ?? event.series.count)})`),
    ),
    h("td.muted", event.reportingComponent || event.source?.component || ""),
    h("td", timeElement(lastSeen(event))),
  );
