// Events of one object, live, the newest first.

import { h, replace } from "../core/dom.js";
import { timeElement } from "../core/time.js";
import { watchList } from "../core/watch.js";
import { T } from "../texts/object.js";
import { empty } from "./common.js";
import { errorBlock } from "./errors.js";
import { stateBadge } from "./state.js";

const MAX_SHOWN = 200;
const lastSeen = (event) => event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? "";

export function eventsTab(node, { kind, object, scope }) {
  const events = kind.server.find("events", "");
  if (!events) return replace(node, empty(T.noEvents));
  const namespace = object.metadata.namespace || "default";  // where events of objects without a namespace are
  watchList(events, { namespace, fieldSelector: `involvedObject.uid=${object.metadata.uid}` }).subscribe(scope, (list) => {
    if (list.state === "stopped") return replace(node, errorBlock(list.error));
    const newest = list.objects.sort((a, b) => lastSeen(b).localeCompare(lastSeen(a))).slice(0, MAX_SHOWN);
    if (!newest.length) return list.isComplete && replace(node, empty(T.noEvents, T.noEventsText));
    replace(node, h("div.card.scroll", h("table.events", h("thead", h("tr", T.eventColumns.map((title) => h("th", { scope: "col" }, title)))), h("tbody", newest.map(row)))));
  });
}

const row = (event) => h("tr",
  h("td", stateBadge({ state: event.type === "Warning" ? "attention" : "", word: event.type ?? "" })), h("td.mono", event.reason ?? ""),
  h("td.wrap", event.message ?? event.note ?? "", (event.count ?? event.series?.count ?? 1) > 1 && h("span.muted", ` (${T.eventTimes(event.count ?? event.series.count)})`)),
  h("td.muted", event.reportingComponent || event.source?.component || ""), h("td", timeElement(lastSeen(event))));
