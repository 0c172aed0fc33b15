// Nested lists whose branches open and close. A change of the model keeps the elements, so that open branches, focus
// and scrolling stay; only open branches are in the page.

import { h, replace } from "../../core/dom.js";
import { link } from "../../core/router.js";
import { T } from "../../texts/map.js";
import { skeleton } from "../../widgets/common.js";
import { stateBadge } from "../../widgets/state.js";

const MAX_SHOWN = 200;
const MAX_OPEN_AT_FIRST = 12;

export class MapTree {
  #branches = new Map();
  #isFirst = true;

  // `followPods(path, node, scope)` shows the pods of a space while its branch is open.
  constructor(scope, followPods) {
    this.scope = scope;
    this.followPods = followPods;
    this.node = h("ul.plain.map");
  }

  update(model) {
    const seen = new Set();
    const opens = this.#isFirst && model.length <= MAX_OPEN_AT_FIRST;
    this.#isFirst = false;
    this.#fill(this.node, model, seen, opens);
    for (const [key, branch] of this.#branches) {
      if (seen.has(key)) continue;
      branch.pods?.end();
      this.#branches.delete(key);
    }
  }

  #fill(list, nodes, seen, opens) {
    const shown = nodes.slice(0, MAX_SHOWN).map((node) => this.#item(node, seen, opens));
    if (nodes.length > MAX_SHOWN) shown.push(h("li.muted", T.more(nodes.length - MAX_SHOWN)));
    const isSame = shown.length === list.children.length && shown.every((each, index) => each === list.children[index]);
    if (!isSame) replace(list, shown);
  }

  #item(model, seen, opens = false) {
    seen.add(model.key);
    const branch = this.#branches.get(model.key) ?? this.#create(model.key);
    branch.model = model;
    const shown = JSON.stringify([model.title, model.path, model.state, model.word, model.facts]);
    if (branch.shown !== shown) replace(branch.line, ...lineOf(model)); // a link keeps the focus
    branch.shown = shown;
    const isLeaf = !model.children.length && !model.pods;
    if (branch.isLeaf !== isLeaf) {
      branch.isLeaf = isLeaf;
      replace(branch.item, isLeaf ? branch.line : branch.details);
      if (!isLeaf) branch.summary.append(branch.line);
    }
    if (opens || model.isOpen) branch.details.open = true;
    if (branch.details.open) this.#show(branch, seen);
    else for (const child of model.children) seen.add(child.key);
    return branch.item;
  }

  #create(key) {
    const line = h("span.map-line");
    const body = h("div.map-body");
    const summary = h("summary");
    const details = h("details", summary, body);
    const branch = { item: h("li"), line, body, summary, details, list: h("ul.plain"), isLeaf: null, pods: null };
    details.addEventListener("toggle", () => this.#show(branch, new Set()));
    this.#branches.set(key, branch);
    return branch;
  }

  #show(branch, seen) {
    const { model, details, body } = branch;
    if (!details.open || !model.pods) {
      branch.pods?.end();
      branch.pods = null;
    }
    if (!details.open) return;
    if (model.children.length) {
      this.#fill(branch.list, model.children, seen, false);
      if (branch.list.parentNode !== body) replace(body, branch.list);
    } else if (model.pods && !branch.pods) {
      branch.pods = this.scope.child();
      const pods = h("div", skeleton(2));
      replace(body, pods);
      this.followPods(model.pods, pods, branch.pods);
    }
  }
}

const lineOf = ({ title, path, kind, state, word, facts }) => [
  path ? link(path, title) : h("span", title),
  kind && h("span.muted", kind.title),
  (state || word) && stateBadge({ state, word }),
  facts.length > 0 && h("span.muted", facts.join(" · ")),
];
