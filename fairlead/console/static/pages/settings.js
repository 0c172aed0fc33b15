// The settings of the installation: those of the Config, which change at run time, and those of the server's start.

import { review } from "../core/access.js";
import { request } from "../core/api.js";
import { ROOT } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { getObject, managed, patchObject } from "../core/kinds.js";
import { href } from "../core/router.js";
import { toast } from "../shell/dialogs.js";
import { T } from "../texts/settings.js";
import { button, card, copyable, definition, linkButton, tableOf } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { emit } from "../widgets/form/yaml.js";

const NAME = "service-manager-config";
const SIGN_ON = ["auth.connectors", "auth.groupMappings"];

export async function show(page) {
  page.setTitle(T.title);
  const { signal } = page.scope;
  const kind = managed("configs");
  const [config, settings, answer] = await Promise.all([
    getObject(kind, "", NAME, { signal }),
    request("settings", { signal }),
    review({ verb: "patch", kind, name: NAME }),
  ]);
  const context = { kind, config, mayEdit: answer.allowed, scope: page.scope };
  const { connectors = [], groupMappings = [] } = config.status?.auth ?? {};
  page.main.append(
    h(
      "div.stack",
      runTimeCard(context, settings.runTime),
      connectors.length > 0 && signOnCards(connectors, groupMappings),
      startCard(settings.start),
    ),
  );
}

// ---- settings of the Config

function runTimeCard(context, settings) {
  const body = h("tbody");
  const problem = h("div");
  const refresh = async () => {
    context.config = await getObject(context.kind, "", NAME, { signal: context.scope.signal });
    draw((await request("settings", { signal: context.scope.signal })).runTime);
  };
  const draw = (all) =>
    replace(
      body,
      all.map((each) =>
        runTimeRow(context, each, async (value) => {
          replace(problem);
          try {
            await save(context, each.name, value);
            await refresh();
            toast(T.saved(each.name));
          } catch (error) {
            replace(problem, errorBlock(error));
          }
        }),
      ),
    );
  draw(settings);
  const yaml = linkButton(href(`configs/${NAME}`, { view: "yaml" }), T.editYaml, { icon: "edit" });
  return card(
    T.runTime,
    h("p.muted", T.runTimeText, " ", /^\s*#/m.test(context.config.spec?.raw ?? "") && T.comments),
    problem,
    tableOf([T.setting, T.value, T.standard, T.source], body, "table.settings"),
    h("p"),
    yaml,
  );
}

function runTimeRow(context, setting, change) {
  const isChanged = setting.source === "Config";
  const source = isChanged ? T.fromConfig : setting.startSource ? T.fromStart(setting.startSource) : T.byDefault;
  const control = setting.type && context.mayEdit ? valueForm(setting, change) : valueText(setting.value, setting);
  const reset =
    isChanged &&
    setting.type &&
    context.mayEdit &&
    button(T.reset, { kind: "quiet", "aria-label": T.resetOf(setting.name), onclick: () => change(undefined) });
  return h(
    "tr",
    nameCell(setting),
    h("td", control),
    h("td", valueText(setting.default, setting)),
    h("td", source, " ", reset),
  );
}

const nameCell = ({ name, description }) => h("td", h("code", name), h("p.muted", description));

function valueText(value, { name }) {
  if (SIGN_ON.includes(name) || (value && typeof value === "object")) return T.entries(Object.keys(value ?? {}).length);
  if (value === undefined || value === null || value === "") return h("span.muted", T.nothing);
  if (typeof value === "boolean") return value ? T.yes : T.no;
  if (/Seconds$/.test(name)) return h("span", String(value), h("span.muted", ` ${T.seconds(value)}`));
  return String(value);
}

// A control for one value, with a button that appears once it differs from what is stored.
function valueForm(setting, change) {
  const { name, type, value, minimum, maximum } = setting;
  const choices =
    type === "boolean"
      ? [
          [false, T.no],
          [true, T.yes],
        ]
      : setting.enum && [["", T.nothing], ...setting.enum.filter(Boolean).map((each) => [each, each])];
  const control = choices
    ? h(
        "select",
        { "aria-label": name },
        choices.map(([each, title]) =>
          h("option", { value: String(each), selected: String(each) === String(value ?? "") }, title),
        ),
      )
    : h("input", {
        "aria-label": name,
        type: type === "integer" ? "number" : "text",
        min: minimum,
        max: maximum,
        step: 1,
        required: true,
        value: String(value ?? ""),
      });
  const before = control.value;
  const submit = h("button.primary", { type: "submit", hidden: true, "aria-label": T.saveOf(name) }, T.save);
  const hint = h("span.muted", /Seconds$/.test(name) && T.seconds(value));
  const update = () => {
    submit.hidden = control.value === before;
    if (/Seconds$/.test(name)) hint.textContent = T.seconds(Number(control.value));
  };
  control.addEventListener("input", update);
  const read = () =>
    type === "boolean"
      ? control.value === "true"
      : type === "integer"
        ? Number(control.value)
        : control.value || undefined;
  return h(
    "form.row",
    {
      onsubmit: (event) => {
        event.preventDefault();
        change(read());
      },
    },
    control,
    hint,
    submit,
  );
}

// The Config has its settings as text. They are written from what the server has read of it, without comments.
async function save({ kind, config }, name, value) {
  const settings = structuredClone(config.status ?? {});
  const path = name.split(".");
  const last = path.pop();
  const groups = [settings];
  for (const each of path) groups.push((groups.at(-1)[each] ??= {}));
  if (value === undefined) delete groups.at(-1)[last];
  else groups.at(-1)[last] = value;
  path.toReversed().forEach((each, index) => {
    const parent = groups.at(-2 - index);
    if (!Object.keys(parent[each]).length) delete parent[each];
  });
  const raw = Object.keys(settings).length ? `${emit(settings)}\n` : null;
  await patchObject(kind, "", NAME, { metadata: { resourceVersion: config.metadata.resourceVersion }, spec: { raw } });
}

// ---- settings of the server's start

function startCard(settings) {
  const filter = h("input", { type: "search", placeholder: T.filter, "aria-label": T.filter });
  const parts = h("div.stack");
  const update = () => {
    const wanted = filter.value.trim().toLowerCase();
    const shown = settings.filter((each) =>
      `${each.name} ${each.description} ${each.variable}`.toLowerCase().includes(wanted),
    );
    const groups = Map.groupBy(shown, ({ group }) => group);
    replace(
      parts,
      [...groups].map(([group, each]) =>
        h(
          "div",
          h("h3", group),
          tableOf([T.setting, T.value, T.standard, T.source], each.map(startRow), "table.settings"),
        ),
      ),
      !shown.length && h("p.muted", T.noMatch),
    );
  };
  filter.addEventListener("input", update);
  update();
  return card(T.start, h("p.muted", T.startText), filter, parts);
}

function startRow(setting) {
  const { flag, variable, source, value } = setting;
  const text = Array.isArray(value) ? value.join(", ") : value;
  return h(
    "tr",
    { title: T.changedBy(setting.changedBy) },
    nameCell(setting),
    h("td.wrap", valueText(text, setting)),
    h("td.wrap", valueText(setting.default === "()" ? "" : setting.default, setting)),
    h("td", source || T.byDefault, h("p.muted", T.how(flag, variable))),
  );
}

// ---- single sign-on

// Providers of single sign-on, and which of their claims give which teams and groups. They are edited as YAML.
function signOnCards(connectors, rules) {
  const names = (list, map = (each) => each) => list?.map(map).join(", ");
  const about = ({ id, oidc = {} }) =>
    definition([
      [T.connectorId, h("code", id)],
      [T.issuer, oidc.issuerURL],
      [T.client, oidc.clientId],
      [
        T.secret,
        oidc.clientSecretRef && `${oidc.clientSecretRef.namespace ?? "service-system"}/${oidc.clientSecretRef.name}`,
      ],
      [T.redirect, copyable(new URL(`auth/${id}/callback`, ROOT).href)],
      [T.onlyGroups, names(oidc.allowedGroups)],
      [T.onlyDomains, names(oidc.allowedDomains)],
      [T.newUsers, oidc.createUsers === false ? T.mustExist : T.areCreated],
    ]);
  const row = ({ connector, claim, value, teams, groups }) =>
    h(
      "tr",
      h("td", connector),
      h("td.mono", `${claim ?? "groups"} = ${value}`),
      h("td", names(teams)),
      h("td.mono", names(groups)),
    );
  return h(
    "div.stack",
    h(
      "div.grid",
      connectors.map((each) => card(each.displayName || each.id, about(each))),
    ),
    card(
      T.rules,
      rules.length ? tableOf([T.provider, T.claim, T.teams, T.groups], rules.map(row)) : h("p.muted", T.noRules),
    ),
  );
}
