// The first page: the fleet as a picture, what needs attention, what is mine, and what changed.

import { can, reviewCreate } from "../core/access.js";
import { request, session } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { listObjects, managed, pathOf } from "../core/kinds.js";
import { href, link } from "../core/router.js";
import { READY } from "../core/status.js";
import { timeElement } from "../core/time.js";
import { watchList } from "../core/watch.js";
import { namespaceOf } from "../shell/sign-in.js";
import { T } from "../texts/overview.js";
import { card, empty, linkButton, skeleton } from "../widgets/common.js";
import { stateDot } from "../widgets/state.js";
import { attentionList } from "./overview/attention.js";
import { clusterTiles } from "./overview/fleet.js";
import { stateOfRow, tableStates } from "./overview/table-states.js";

const KINDS = ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances", "appinstances", "runners"];
const OWNED = ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances"];
const MAX_RECENT = 8;

export async function show(page) {
  page.setTitle(T.welcome(session.user.displayName));
  const permitted = await Promise.all(
    KINDS.map(async (plural) => (await can("list", managed(plural))) && managed(plural)),
  );
  const tables = permitted.filter(Boolean).map((kind) => ({ kind, list: watchList(kind, { as: "table" }) }));
  const clusters = (await can("list", managed("clusters"))) && watchList(managed("clusters"));
  page.main.append(
    h(
      "div.overview",
      h(
        "div.tiles",
        tables.map(({ kind, list }) => tile(page, kind, list)),
      ),
      clusters && card(T.fleet, clusterTiles(page, clusters).node),
      h(
        "div.columns",
        card(T.attention, attentionList(page, tables, clusters)),
        h("div.stack", mineCard(page, tables), await recentCard(page)),
      ),
    ),
  );
}

// A kind with the number of objects in each state.
function tile(page, kind, list) {
  const number = h("strong", "…");
  const states = h("span.tile-states");
  list.subscribe(page.scope, () => {
    number.textContent = String(list.items.size);
    replace(
      states,
      [...tableStates(list)].map(([state, count]) => h("span", { data: { state } }, stateDot(state), count)),
    );
  });
  return h("a.card.tile", { href: href(kind.segment) }, h("span.muted", kind.pluralTitle), number, states);
}

// What the user owns, and else what the user may create. Who may list nothing has no watch that would fill the card.
function mineCard(page, tables) {
  const node = h("ul.plain.lines", h("li", skeleton(2)));
  const owned = tables.filter(({ kind }) => OWNED.includes(kind.plural));
  const isMine = (list, row) =>
    row.cells[list.columns.findIndex((column) => column.name === "Owner")] === session.user.name;
  const update = () => {
    const rows = owned.flatMap(({ kind, list }) =>
      [...list.items.values()].filter((row) => isMine(list, row)).map((row) => ({ kind, list, row })),
    );
    if (!rows.length) return owned.every(({ list }) => list.isComplete || list.state === "stopped") && showCreatable();
    replace(
      node,
      rows
        .slice(0, 12)
        .map(({ kind, list, row }) =>
          h(
            "li",
            stateDot(stateOfRow(list, row) || READY),
            link(pathOf(kind, row.object), row.object.metadata.name),
            h("span.muted", kind.title),
          ),
        ),
      rows.length > 12 && h("li.muted", T.more(rows.length - 12)),
    );
  };
  let isAsked = false;
  const showCreatable = async () => {
    if (isAsked) return;
    isAsked = true;
    const kinds = await creatableKinds(
      owned.map(({ kind }) => kind),
      page.scope.signal,
    );
    const links = kinds.map((kind) => linkButton(href(`${kind.segment}/~new`), CREATE[kind.plural]));
    if (!node.querySelector("a"))
      replace(node, h("li", empty("", kinds.length ? T.noneOfMine : T.nothingToCreate, links)));
  };
  for (const { list } of owned) list.subscribe(page.scope, update);
  if (!owned.length) showCreatable();
  return card(T.mine, node);
}

async function creatableKinds(kinds, signal) {
  const projects = managed("projects");
  const mayList = projects && (await can("list", projects));
  const { items } = mayList
    ? await listObjects(projects, { limit: 50, signal }).catch(() => ({ items: [] }))
    : { items: [] };
  const namespaces = ["", ...items.map((each) => namespaceOf(each.metadata.name))];
  const answers = await Promise.all(kinds.map((kind) => reviewCreate(kind, namespaces)));
  return kinds.filter((_, index) => answers[index].allowed);
}

const CREATE = {
  devpodworkspaceinstances: T.createWorkspace,
  spaceinstances: T.createSpace,
  virtualclusterinstances: T.createCluster,
};

// The last changes that the user may see, from the audit log.
async function recentCard(page) {
  const kind = managed("auditevents");
  if (!kind || !(await can("list", kind))) return null;
  const node = h("ul.plain.lines");
  const load = async () => {
    if (document.hidden) return;
    const events = await recentChanges(kind, page.scope.signal).catch(() => null);
    if (events) replace(node, events.map(changeLine), !events.length && h("li.muted", T.noRecent));
  };
  load();
  page.scope.every(15_000, load);
  return card(T.recent, node, h("p"), link("audit", T.allChanges));
}

async function recentChanges(kind, signal) {
  const found = [];
  const list = await request(
    `${kind.path()}?limit=100&fieldSelector=${encodeURIComponent("verb!=get,verb!=list,verb!=watch,dryRun!=All")}`,
    { signal },
  );
  for (const event of list.items) {
    const { verb, objectRef = {} } = event;
    if (
      !T.verbs[verb] ||
      !objectRef.name ||
      objectRef.subresource ||
      /review|selves|leases|^events$/.test(objectRef.resource)
    )
      continue;
    if (event.user?.username?.startsWith("system:")) continue;
    found.push(event);
    if (found.length === MAX_RECENT) break;
  }
  return found;
}

function changeLine(event) {
  const { objectRef, user, verb, responseStatus } = event;
  const failed = responseStatus?.code >= 400;
  return h(
    "li",
    h(
      "span.grow",
      T.did(user?.username ?? "", T.verbs[verb], `${objectRef.resource}/${objectRef.name}`),
      failed && h("span.muted", ` (${responseStatus.code === 403 ? T.denied : responseStatus.code})`),
    ),
    link(
      `audit/${event.metadata.name}`,
      timeElement(event.requestReceivedTimestamp ?? event.metadata.creationTimestamp),
    ),
  );
}
