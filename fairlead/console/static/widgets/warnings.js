// Warnings of the server about what it has accepted. One about an object that does not exist offers to create it.

import { can } from "../core/access.js";
import { h } from "../core/dom.js";
import { management } from "../core/kinds.js";
import { href } from "../core/router.js";
import { T } from "../texts/object.js";
import { sentence } from "./errors.js";

const KINDS = { user: "users", team: "teams", cluster: "clusters", runner: "runners", Role: "roles" };
const MISSING = /there is no (user|team|cluster|runner|Role|ClusterRole|project role or ClusterRole) "([^"]+)"/;

export const warningBlock = (warnings) =>
  warnings.length > 0 &&
  h(
    "div.notice.warnings",
    { role: "status" },
    warnings.map((each) => h("p", readable(each), " ", createOffer(each))),
  );

// A sentence, without the path of the field, which is no word of the product.
const readable = (text) => sentence(text.replace(/^(spec|subjects|roleRef)[\w.[\]]*: /, "").replace(/[^.]$/, "$&."));

function createOffer(text) {
  const [, noun, name] = text.match(MISSING) ?? [];
  return noun && createLink(KINDS[noun] ?? "clusterroles", name);
}

// A link to the form for an object with this name, for those who may create it.
export function createLink(plural, name) {
  const kind = management.find(plural);
  const node = h("span");
  if (kind) {
    can("create", kind).then((isAllowed) => {
      if (isAllowed)
        node.append(
          h("a", { href: href(`${kind.segment}/~new`, { name }) }, T.createMissing(kind.title.toLowerCase(), name)),
        );
    });
  }
  return node;
}
