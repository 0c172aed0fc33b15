// The settings of the installation that change at run time: the one Config, and what is in effect.

import { guard } from "../core/access.js";
import { h } from "../core/dom.js";
import { getObject, managed } from "../core/kinds.js";
import { href } from "../core/router.js";
import { codeBlock, card, definition, linkButton } from "../widgets/common.js";
import { T } from "../texts/account.js";

const NAME = "service-manager-config";

export async function show(page) {
  page.setTitle(T.settings);
  const kind = managed("configs");
  const config = await getObject(kind, "", NAME, { signal: page.scope.signal });
  const edit = linkButton(href(`configs/${NAME}`, { view: "yaml" }), T.editConfig, { kind: "primary", icon: "edit" });
  guard(edit, { verb: "update", kind, name: NAME });
  page.main.append(h("div.stack", h("p", T.settingsText), h("div.grid", card(T.current, definition(flatten(config.status ?? {}))), card("Config", config.spec?.raw ? codeBlock(config.spec.raw) : h("p.muted", "{}"), h("p"), edit))));
}

const flatten = (value, prefix = "") => Object.entries(value).flatMap(([name, each]) =>
  (each && typeof each === "object" && !Array.isArray(each) ? flatten(each, `${prefix}${name}.`) : [[prefix + name, String(each)]]));
