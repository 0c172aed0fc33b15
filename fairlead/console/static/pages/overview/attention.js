// What needs attention: failed and stalled objects, unwell clusters, keys about to expire, quotas nearly used, slow
// deletions.

import { can } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { getObject, managed, pathOf } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { ATTENTION, FAILED, stateOf, WORKING } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/overview.js";
import { stateBadge } from "../../widgets/state.js";
import { stateOfRow } from "./table-states.js";

const MAX_ITEMS = 20;
const MAX_PENDING = 10 * 60_000;
const EXPIRES_SOON = 3 * 86_400_000;
const HIGH_USE = 0.8;

export function attentionList(page, tables, clusters) {
  const node = h("ul.plain.lines");
  const sources = new Map();
  const details = new Map();
  const update = () => render(page, node, sources, details);
  const follow = (key, list, find) =>
    list.subscribe(page.scope, () => {
      sources.set(key, { items: list.isComplete || list.error ? find(list) : null, failed: Boolean(list.error) });
      update();
    });
  for (const { kind, list } of tables) follow(kind.plural, list, () => unwellRows(kind, list));
  if (clusters)
    follow("clusters", clusters, () =>
      clusters.objects.map((object) => ({ kind: clusters.kind, object, ...stateOf(object) })).filter(isUnwell),
    );
  follow("keys", watchList(managed("ownedaccesskeys")), (list) =>
    list.objects.flatMap((key) => expiring(list.kind, key)),
  );
  can("list", managed("projects")).then(
    (allowed) =>
      allowed &&
      !page.scope.ended &&
      follow("projects", watchList(managed("projects")), (list) =>
        list.objects.flatMap((project) => fullQuotas(list.kind, project)),
      ),
  );
  replace(node, h("li.muted", T.checking));
  return node;
}

const isUnwell = ({ state }) => state === FAILED || state === ATTENTION;

// Rows have no message; it is read for those that are shown.
function unwellRows(kind, list) {
  const found = [];
  for (const row of list.items.values()) {
    const state = stateOfRow(list, row);
    const { deletionTimestamp, creationTimestamp } = row.object.metadata;
    const isSlow = state === WORKING && Date.now() - Date.parse(deletionTimestamp ?? creationTimestamp) > MAX_PENDING;
    if (state === FAILED || state === ATTENTION || isSlow)
      found.push({ kind, object: row.object, state: isSlow ? ATTENTION : state, word: "", hasDetails: true });
  }
  return found;
}

function expiring(kind, key) {
  const { ttl, ttlAfterLastActivity, type, disabled } = key.spec ?? {};
  if (!ttl || type !== "User" || disabled || ttlAfterLastActivity) return [];
  const end = Date.parse(key.metadata.creationTimestamp) + ttl * 1000;
  if (end - Date.now() > EXPIRES_SOON) return [];
  return [
    {
      kind,
      object: key,
      state: ATTENTION,
      word: end < Date.now() ? "Expired" : "Expiring",
      message: [end < Date.now() ? T.expired : T.expires, " ", timeElement(new Date(end))],
    },
  ];
}

function fullQuotas(kind, project) {
  const { limit, used } = flatten(project.status?.quotas?.project ?? {});
  return Object.keys(limit)
    .filter((name) => Number(limit[name]) > 0 && Number(used[name] ?? 0) / Number(limit[name]) >= HIGH_USE)
    .map((name) => ({
      kind,
      object: project,
      state: ATTENTION,
      word: "Quota",
      message: T.quota(name, used[name] ?? 0, limit[name]),
    }));
}

const flatten = (quotas) => ({ limit: quotas.limit ?? quotas.limits ?? {}, used: quotas.used ?? {} });

function render(page, node, sources, details) {
  const all = [...sources.values()];
  const items = all.flatMap((source) => source.items ?? []);
  items.sort((a, b) => (b.state === FAILED) - (a.state === FAILED));
  const shown = items.slice(0, MAX_ITEMS);
  if (!items.length)
    return replace(
      node,
      h(
        "li.muted",
        all.some((source) => source.failed) ? T.notAll : all.some((source) => !source.items) ? T.checking : T.nothing,
      ),
    );
  replace(
    node,
    shown.map((item) => line(page, item, details, () => render(page, node, sources, details))),
    items.length > MAX_ITEMS && h("li.muted", T.more(items.length - MAX_ITEMS)),
  );
}

function line(page, item, details, update) {
  const { kind, object, hasDetails } = item;
  const known = details.get(object.metadata.uid);
  if (hasDetails && known?.version !== object.metadata.resourceVersion) loadDetails(page, item, details, update);
  const { state, word, message } = known?.found ?? item;
  return h(
    "li.attention",
    stateBadge({ state: item.state === ATTENTION && state === WORKING ? ATTENTION : state, word: word || kind.title }),
    h(
      "span.grow",
      link(pathOf(kind, object), object.spec?.displayName || object.metadata.name),
      " ",
      h("span.muted", kind.title),
      message && h("span.message", message),
    ),
  );
}

async function loadDetails(page, { kind, object }, details, update) {
  const { uid, namespace, name, resourceVersion } = object.metadata;
  details.set(uid, { ...details.get(uid), version: resourceVersion });
  const full = await getObject(kind, namespace, name, { signal: page.scope.signal }).catch(() => null);
  if (!full || page.scope.ended) return;
  details.set(uid, { version: resourceVersion, found: stateOf(full) });
  update();
}
