// Every kind that the server serves, by group. Each has a list, a page for each object, a form and YAML.

import { h } from "../core/dom.js";
import { management } from "../core/kinds.js";
import { link } from "../core/router.js";
import { T } from "../texts/shell.js";

export async function show(page) {
  page.setTitle(T.everyKind);
  const groups = Map.groupBy(
    management.kinds.filter((kind) => kind.isListed),
    (kind) => kind.group || "core",
  );
  page.main.append(
    h(
      "div.kind-groups",
      [...groups].map(([group, kinds]) =>
        h(
          "section.card",
          h("h2", group),
          h(
            "ul.plain",
            kinds.map((kind) => h("li", link(kind.segment, kind.pluralTitle), " ", h("span.muted", kind.plural))),
          ),
        ),
      ),
    ),
  );
}
