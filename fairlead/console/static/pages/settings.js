// The settings of the installation that change at run time: the one Config, and what is in effect.

import { guard } from "../core/access.js";
import { ROOT } from "../core/base.js";
import { h } from "../core/dom.js";
import { getObject, managed } from "../core/kinds.js";
import { href } from "../core/router.js";
import { card, codeBlock, copyable, definition, linkButton, tableOf } from "../widgets/common.js";
import { T } from "../texts/account.js";

const NAME = "service-manager-config";

export async function show(page) {
  page.setTitle(T.settings);
  const kind = managed("configs");
  const config = await getObject(kind, "", NAME, { signal: page.scope.signal });
  const edit = linkButton(href(`configs/${NAME}`, { view: "yaml" }), T.editConfig, { kind: "primary", icon: "edit" });
  guard(edit, { verb: "update", kind, name: NAME });
  const { auth: { connectors = [], groupMappings = [], ...auth } = {}, ...rest } = config.status ?? {};
  page.main.append(h("div.stack", h("p", T.settingsText), connectors.length > 0 && signOnCards(connectors, groupMappings),
    h("div.grid", card(T.current, definition(flatten({ ...rest, auth }))), card("Config", config.spec?.raw ? codeBlock(config.spec.raw) : h("p.muted", "{}"), h("p"), edit))));
}

// Providers of single sign-on, and which of their claims give which teams and groups. They are edited as YAML.
function signOnCards(connectors, rules) {
  const names = (list, map = (each) => each) => list?.map(map).join(", ");
  const about = ({ id, oidc = {} }) => definition([
    [T.connectorId, h("code", id)], [T.issuer, oidc.issuerURL], [T.client, oidc.clientId], [T.secret, oidc.clientSecretRef && `${oidc.clientSecretRef.namespace ?? "service-system"}/${oidc.clientSecretRef.name}`],
    [T.redirect, copyable(new URL(`auth/${id}/callback`, ROOT).href)], [T.onlyGroups, names(oidc.allowedGroups)], [T.onlyDomains, names(oidc.allowedDomains)], [T.newUsers, oidc.createUsers === false ? T.mustExist : T.areCreated],
  ]);
  const row = ({ connector, claim, value, teams, groups }) => h("tr", h("td", connector), h("td.mono", `${claim ?? "groups"} = ${value}`), h("td", names(teams)), h("td.mono", names(groups)));
  return h("div.stack", h("div.grid", connectors.map((each) => card(each.displayName || each.id, about(each)))),
    card(T.rules, rules.length ? tableOf([T.provider, T.claim, T.teams, T.groups], rules.map(row)) : h("p.muted", T.noRules)));
}

const flatten = (value, prefix = "") => Object.entries(value).flatMap(([name, each]) =>
  (each && typeof each === "object" && !Array.isArray(each) ? flatten(each, `${prefix}${name}.`) : [[prefix + name, String(each)]]));
