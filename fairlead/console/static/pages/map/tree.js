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
      replace(branch.item, h("div.map-row", !isLeaf && branch.toggle, branch.line), !isLeaf && branch.body);
    }
    branch.toggle.setAttribute("aria-label", T.inside(model.title));
    if (opens || model.isOpen) setOpen(branch, true);
    if (branch.isOpen) this.#show(branch, seen);
    else for (const child of model.children) seen.add(child.key);
    return branch.item;
  }

  #create(key) {
    const branch = {
      item: h("li"),
      line: h("span.map-line"),
      body: h("div.map-body", { hidden: true }),
      toggle: h("button.map-toggle", {
        type: "button",
        "aria-expanded": "false",
        onclick: () => {
          setOpen(branch, !branch.isOpen);
          this.#show(branch, new Set());
        },
      }),
      list: h("ul.plain"),
      isOpen: false,
      isLeaf: null,
      pods: null,
    };
    this.#branches.set(key, branch);
    return branch;
  }

  #show(branch, seen) {
    const { model, isOpen, body } = branch;
    if (!isOpen || !model.pods) {
      branch.pods?.end();
      branch.pods = null;
    }
    if (!isOpen) return;
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

// A button beside the link, not a summary around it: a control must not contain another one.
function setOpen(branch, isOpen) {
  branch.isOpen = isOpen;
  branch.toggle.setAttribute("aria-expanded", String(isOpen));
  branch.body.hidden = !isOpen;
}

const lineOf = ({ title, path, kind, state, word, facts }) => [
  path ? link(path, title) : h("span", title),
  kind && h("span.muted", kind.title),
  (state || word) && stateBadge({ state, word }),
  facts.length > 0 && h("span.muted", facts.join(" · ")),
];
