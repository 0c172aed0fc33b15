// How many objects of a kind a cluster has, and of workloads in which states, for the page that leads to their lists.
// The cluster is asked once for each kind, and first whether the user may list it.

import { query, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { stateOf } from "../../core/status.js";
import { T } from "../../texts/clusters.js";
import { mayDo } from "../../widgets/access.js";
import { rank, stateDot } from "../../widgets/state.js";
import { stateOfRow } from "../overview/table-states.js";

const PARALLEL = 4;
const MOST = 500; // objects whose states are counted
const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/**
 * @param {import("../../core/dom.js").Scope} scope
 * @param {{kind: any, namespace: string, node: HTMLElement, hasStates: boolean}[]} wanted
 */
export async function fillCounts(scope, wanted) {
  const rest = wanted.values();
  await Promise.all(
    Array.from({ length: PARALLEL }, async () => {
      for (const each of rest) {
        if (scope.ended) return;
        await fillCount(each, scope.signal).catch(() => {}); // the link to the list says why it cannot be read
      }
    }),
  );
}

async function fillCount({ kind, namespace, node, hasStates }, signal) {
  const place = kind.namespaced ? namespace : "";
  const { allowed } = await mayDo({ verb: "list", kind, namespace: place });
  if (!allowed) return;
  const list = await request(kind.path(place) + query({ limit: hasStates ? MOST : 1 }), {
    signal,
    accept: hasStates ? TABLE : METADATA,
  });
  const found = list.rows ?? list.items ?? [];
  const { remainingItemCount: more, continue: next } = list.metadata ?? {};
  const count = found.length + (more ?? 0);
  const columns = (list.columnDefinitions ?? []).map(({ name }) => ({ name }));
  const states = new Map();
  for (const each of hasStates ? found : []) {
    const state = list.rows ? stateOfRow({ columns }, each) : stateOf(each).state;
    if (state) states.set(state, (states.get(state) ?? 0) + 1);
  }
  replace(
    node,
    h("strong", next && more === undefined ? T.atLeast(count) : String(count)),
    h(
      "span.tile-states",
      [...states]
        .sort(([a], [b]) => rank(a) - rank(b))
        .map(([state, number]) => h("span", stateDot(state, T.inState(number, state)), String(number))),
    ),
  );
}
