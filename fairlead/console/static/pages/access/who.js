// Who can make a request: users, teams and groups. Everyone is reviewed for the list, so only when it is asked for.

import { h, replace } from "../../core/dom.js";
import { link } from "../../core/router.js";
import { T } from "../../texts/access.js";
import { button } from "../../widgets/common.js";
import { errorBlock, sentence } from "../../widgets/errors.js";
import { createReview } from "./question.js";

const MAX_LISTED = 100;

// A button that is replaced by the list. `hint` says what it will list.
export function whoCan(resourceAttributes, scope, hint) {
  const node = h("div");
  const load = async () => {
    try {
      replace(node, whoList((await createReview("ResourceAccessReview", { resourceAttributes }, scope.signal)).status));
    } catch (error) {
      if (!scope.ended) replace(node, errorBlock(error));
    }
  };
  return replace(node, h("p.muted", hint), button(T.list, { icon: "users", onclick: load }));
}

function whoList(status) {
  const found = Object.keys(T.lists).filter((part) => status[part]?.length);
  const entry = (part, { name, via, reason }) =>
    h(
      "li",
      part === "groups" ? h("code", name) : link(`${part}/${encodeURIComponent(name)}`, name),
      h("span.muted", ` ${T.steps[via] ?? via ?? ""}${reason ? `: ${sentence(reason)}` : ""}`),
    );
  return h(
    "div.stack.who",
    found.map((part) =>
      h(
        "div",
        h("h3", T.lists[part]),
        h(
          "ul.plain",
          status[part].slice(0, MAX_LISTED).map((each) => entry(part, each)),
        ),
      ),
    ),
    !found.length && h("p", T.nobody),
    (status.truncated || found.some((part) => status[part].length > MAX_LISTED)) && h("p.muted", T.truncated),
  );
}
