// What an object belongs to, and what belongs to it.

import { query, request } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { pathOf } from "../core/kinds.js";
import { link } from "../core/router.js";
import { T } from "../texts/object.js";
import { button } from "./common.js";

const MAX_KINDS = 24;
const PAGE = 500;
const NEVER_OWNED = new Set(["events", "leases", "selves"]);
const METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

// The page of an object. A cluster behind a gateway has its pages below its own.
export const objectLink = (kind, metadata, ...children) =>
  link((kind.server.pages ?? "") + pathOf(kind, { metadata }), ...children);

export function ownerList(kind, { metadata }) {
  const owners = metadata.ownerReferences ?? [];
  if (!owners.length) return null;
  return h(
    "ul.plain",
    owners.map((owner) => {
      const found = kind.server.findKind(owner.kind, owner.apiVersion);
      const name = found
        ? objectLink(found, { namespace: metadata.namespace, name: owner.name }, owner.name)
        : owner.name;
      return h("li", `${found?.title ?? owner.kind} `, name, owner.controller && h("span.muted", ` (${T.controller})`));
    }),
  );
}

// Metadata of objects, as lists have it; at most one page. Returns {items, more, failed}.
export async function listMetadata(kind, namespace, signal, parameters = { limit: PAGE }) {
  try {
    const list = await request(kind.path(namespace) + query(parameters), { accept: METADATA, signal });
    return {
      kind,
      items: list.items ?? [],
      more: Boolean(list.metadata?.continue),
      rest: list.metadata?.remainingItemCount ?? 0,
    };
  } catch {
    return { kind, items: [], more: false, rest: 0, failed: true };
  }
}

// Objects that name this one as their owner, in a limited number of kinds: {found: [{kind, object}], kinds, failed}.
export async function findDependants(kind, { metadata }, signal) {
  const inside = metadata.namespace ?? "";
  const kinds = kind.server.kinds
    .filter((each) => each.isListed && !NEVER_OWNED.has(each.plural) && (!inside || each.namespaced))
    .slice(0, MAX_KINDS);
  const lists = await Promise.all(kinds.map((each) => listMetadata(each, inside, signal)));
  const found = lists.flatMap((list) =>
    list.items
      .filter((item) => item.metadata.ownerReferences?.some((owner) => owner.uid === metadata.uid))
      .map((object) => ({ kind: list.kind, object })),
  );
  return { found, kinds: kinds.length, failed: lists.filter((list) => list.failed).length };
}

export const dependantItem = ({ kind, object }) =>
  h("li", `${kind.title} `, objectLink(kind, object.metadata, object.metadata.name));

// Many lists are read for it, so only when asked.
export function dependantSearch(context) {
  const node = h("div");
  const search = button(T.searchDependants, {
    icon: "search",
    onclick: async () => {
      search.disabled = true;
      const { found, kinds, failed } = await findDependants(context.kind, context.object, context.scope.signal);
      if (context.scope.ended) return;
      replace(
        node,
        found.length ? h("ul.plain", found.map(dependantItem)) : h("p.muted", T.noDependants(kinds - failed)),
        failed > 0 && h("p.muted", T.notSearched(failed)),
      );
    },
  });
  return replace(node, h("p.muted", T.dependantsHint), search);
}
