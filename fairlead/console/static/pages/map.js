// The fleet as a tree that follows the server: clusters, or projects, with the spaces and virtual clusters in them, and
// the pods in these. Pods are asked for when a space is opened, and never of one that sleeps.

import { can } from "../core/access.js";
import { h, replace } from "../core/dom.js";
import { managed } from "../core/kinds.js";
import { setQuery } from "../core/router.js";
import { watchList } from "../core/watch.js";
import { T } from "../texts/map.js";
import { card, empty, skeleton } from "../widgets/common.js";
import { buildModel } from "./map/model.js";
import { followPods } from "./map/pods.js";
import { MapTree } from "./map/tree.js";

const KINDS = ["clusters", "projects", "spaceinstances", "virtualclusterinstances", "devpodworkspaceinstances"];
const FEW = new Set(["clusters", "projects"]);

export async function show(page) {
  page.setTitle(T.title);
  page.main.append(skeleton());
  const allowed = await Promise.all(KINDS.map((plural) => can("list", managed(plural))));
  if (page.scope.ended) return;
  const kinds = KINDS.filter((_, index) => allowed[index]).map(managed);
  const lists = new Map(
    kinds.map((kind) => [kind.plural, watchList(kind, { as: FEW.has(kind.plural) ? "object" : "table" })]),
  );
  let by = page.query.get("by") === "projects" ? "projects" : "clusters";
  const filter = h("input", {
    type: "search",
    placeholder: T.filter,
    "aria-label": T.filter,
    data: { filter: "" },
    value: page.query.get("q") ?? "",
    oninput: () => {
      setQuery({ q: filter.value });
      update();
    },
  });
  const tree = new MapTree(page.scope, followPods);
  const body = h("div", skeleton());
  const choice = h(
    "select",
    {
      "aria-label": T.arrange,
      onchange: () => {
        by = choice.value;
        setQuery({ by: by === "clusters" ? "" : by });
        update();
      },
    },
    ["clusters", "projects"].map((each) => h("option", { value: each, selected: each === by }, T.by[each])),
  );
  const update = () => {
    const all = [...lists.values()];
    if (!all.every((list) => list.isComplete || list.state === "stopped")) return;
    const model = buildModel(lists, by, filter.value.trim().toLowerCase());
    if (!model.length) return replace(body, empty(filter.value ? T.noMatch : T.nothing, ""));
    tree.update(model);
    if (tree.node.parentNode !== body) replace(body, tree.node);
  };
  replace(page.main, h("div.row.map-bar", choice, filter), card("", body));
  for (const list of lists.values()) list.subscribe(page.scope, update);
  if (!lists.size) replace(body, empty(T.nothing, ""));
}
