// The tree of the map: {key, name, title, path, kind, state, word, facts, children}. What has pods to show has `pods`,
// the path of a space or virtual cluster.

import { pathOf } from "../../core/kinds.js";
import { ATTENTION, FAILED, READY, stateOf } from "../../core/status.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/map.js";
import { stateFoundInRow } from "../overview/table-states.js";

const IN_CLUSTERS = ["spaceinstances", "virtualclusterinstances"];
const MEMBERS = { clusters: IN_CLUSTERS, projects: [...IN_CLUSTERS, "devpodworkspaceinstances"] };
const NAME_OF = {
  clusters: (list, row) => cellOf(list, row, "Cluster"),
  projects: (_, row) => projectOf(row.object.metadata.namespace),
};

// `lists` are by plural: clusters and projects as objects, others as tables. `by` is "clusters" or "projects".
export function buildModel(lists, by, filter) {
  const top = (lists.get(by)?.objects ?? []).map((object) => nodeOfObject(lists.get(by).kind, object));
  const known = new Map(top.map((node) => [node.name, node]));
  for (const plural of MEMBERS[by]) {
    const list = lists.get(plural);
    for (const row of list?.items.values() ?? []) {
      const name = NAME_OF[by](list, row);
      if (!known.has(name)) {
        known.set(name, nodeOfName(by, name));
        top.push(known.get(name));
      }
      known.get(name).children.push(nodeOfRow(list, row, by));
    }
  }
  const found = filter ? top.map((node) => keepMatching(node, filter)).filter(Boolean) : top;
  for (const node of found) {
    node.children.sort(inOrder);
    node.facts = summarize(node.children);
  }
  return found.sort((a, b) => Number(!a.name) - Number(!b.name) || inOrder(a, b));
}

const inOrder = (a, b) => a.title.localeCompare(b.title) || a.key.localeCompare(b.key);
const cellOf = (list, row, name) => row.cells[list.columns.findIndex((each) => each.name === name)] ?? "";

function nodeOfObject(kind, object) {
  const { name } = object.metadata;
  const { state, word } = stateOf(object);
  const path = pathOf(kind, object);
  return { key: path, name, title: object.spec?.displayName || name, path, kind, state, word, facts: [], children: [] };
}

function nodeOfRow(list, row, by) {
  const { kind } = list;
  const { name, namespace } = row.object.metadata;
  const { state, word } = stateFoundInRow(list, row);
  const path = pathOf(kind, row.object);
  const hasPods = IN_CLUSTERS.includes(kind.plural) && state === READY;
  const other = NAME_OF[by === "clusters" ? "projects" : "clusters"](list, row);
  return {
    key: path,
    name,
    title: cellOf(list, row, "Display Name") || name,
    path,
    kind,
    state,
    word,
    facts: [other && T.in[by](other)].filter(Boolean),
    pods: hasPods && [kind.segment, namespace, name],
    children: [],
  };
}

// A cluster or project that the user may not see, or none yet.
function nodeOfName(by, name) {
  const path = name && `${by}/${encodeURIComponent(name)}`;
  const title = name || T.without[by];
  return { key: `${by}/${name}`, name, title, path, kind: null, state: "", word: "", facts: [], children: [] };
}

function keepMatching(node, filter) {
  const matches = (each) => `${each.title}\n${each.name}`.toLowerCase().includes(filter);
  if (matches(node)) return node;
  const children = node.children.filter(matches);
  return children.length > 0 && { ...node, children, isOpen: true };
}

// "3 spaces, 1 workspace", and how many of them need attention.
function summarize(children) {
  const counts = [...Map.groupBy(children, (each) => each.kind)].map(([kind, all]) =>
    all.length === 1 ? `1 ${kind.noun}` : `${all.length} ${kind.pluralNoun}`,
  );
  const troubled = children.filter((each) => [FAILED, ATTENTION].includes(each.state)).length;
  return [counts.join(", "), troubled > 0 && T.troubled(troubled)].filter(Boolean);
}
