// The last changes that the user may see, from the audit log, in words: "ada created the spaces dev and test".

import { review } from "../../core/access.js";
import { query, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { managed, pathOf } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/overview.js";
import { card, skeleton } from "../../widgets/common.js";
import { actor, kindOf } from "../audit/description.js";
import { CHANGES } from "../audit/selectors.js";

const MAX_GROUPS = 8;
const MAX_NAMES = 3;
const MAX_GAP = 10 * 60_000;
const REFRESH = 15_000;
const UNINTERESTING = new Set(["events", "leases"]);

// Resolves to a card; null for those who may not read the audit log.
export async function recentCard(page) {
  const kind = managed("auditevents");
  const { allowed, filtered } = kind ? await review({ verb: "list", kind }) : {};
  if (!allowed) return null;
  const node = h("ul.plain.lines", h("li", skeleton(3)));
  const load = async () => {
    if (document.hidden) return;
    const fieldSelector = CHANGES.join(",");
    const list = await request(kind.path() + query({ limit: 100, fieldSelector }), { signal: page.scope.signal }).catch(
      () => null,
    );
    if (!list || page.scope.ended) return;
    const groups = groupChanges(list.items).slice(0, MAX_GROUPS);
    replace(node, groups.map(changeLine), !groups.length && h("li.muted", T.noRecent));
  };
  load();
  page.scope.every(REFRESH, load);
  return card(filtered ? T.ownRecent : T.recent, node, h("p.card-foot", link("audit", T.allChanges)));
}

const timeOf = (event) => event.requestReceivedTimestamp ?? event.metadata.creationTimestamp;

// A request that was refused, and one of the server itself, changed nothing that people did.
function isChange(event) {
  const { verb, objectRef = {}, user = {}, responseStatus = {} } = event;
  return (
    Boolean(T.verbs[verb] && objectRef.name && kindOf(event)?.isListed) &&
    !objectRef.subresource &&
    !UNINTERESTING.has(objectRef.resource) &&
    !(responseStatus.code >= 400) &&
    !user.username?.startsWith("system:")
  );
}

// Changes of one kind by the same user within some minutes, the newest first: [{who, verb, kind, events}].
function groupChanges(events) {
  const groups = [];
  const open = new Map();
  for (const event of events.filter(isChange)) {
    const kind = kindOf(event);
    const who = actor(event);
    const verb = T.verbs[event.verb];
    const key = JSON.stringify([who, verb, kind.segment]);
    const group = open.get(key);
    if (group && Date.parse(timeOf(group.events.at(-1))) - Date.parse(timeOf(event)) < MAX_GAP)
      group.events.push(event);
    else {
      const fresh = { who, verb, kind, events: [event] };
      groups.push(fresh);
      open.set(key, fresh);
    }
  }
  return groups;
}

function changeLine({ who, verb, kind, events }) {
  const objects = new Map(events.map(({ objectRef }) => [`${objectRef.namespace ?? ""}/${objectRef.name}`, objectRef]));
  const shown = [...objects.values()].slice(0, MAX_NAMES);
  const rest = objects.size - shown.length;
  const isGone = verb === T.verbs.delete;
  const names = shown.map((metadata) => (isGone ? metadata.name : link(pathOf(kind, { metadata }), metadata.name)));
  if (rest) names.push(T.moreNames(rest));
  const noun = objects.size === 1 ? kind.noun : kind.pluralNoun;
  return h(
    "li",
    h("span.grow", T.didTo(who, verb, noun), " ", enumerate(names), objects.size === 1 && times(events.length)),
    link(`audit/${events[0].metadata.name}`, timeElement(timeOf(events[0]))),
  );
}

const times = (count) => count > 1 && h("span.muted", ` ${T.times(count)}`);

const enumerate = (parts) =>
  parts.map((part, index) => [index > 0 && (index === parts.length - 1 ? ` ${T.and} ` : ", "), part]);
