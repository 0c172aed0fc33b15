// The first page, for its reader: the fleet and what needs attention for those who see all of it; their own things and
// what they may create for members; the first steps on a new server.

import { can, review } from "../core/access.js";
import { pause, session } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { managed } from "../core/kinds.js";
import { href } from "../core/router.js";
import { firstContent, watchList } from "../core/watch.js";
import { T } from "../texts/overview.js";
import { card } from "../widgets/common.js";
import { stateDot } from "../widgets/state.js";
import { attentionList } from "./overview/attention.js";
import { recentCard } from "./overview/changes.js";
import { checklist } from "./overview/checklist.js";
import { clusterTiles } from "./overview/fleet.js";
import { mineCard } from "./overview/mine.js";
import { projectsCard } from "./overview/projects.js";
import { tableStates } from "./overview/table-states.js";

const KINDS = ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances", "appinstances", "runners"];
const FIRST_CONTENT_WITHIN = 3; // seconds

export async function show(page) {
  page.setTitle(T.welcome(session.user.displayName));
  const { scope } = page;
  const [permitted, fleet, seesProjects, recent] = await Promise.all([
    Promise.all(KINDS.map(async (plural) => (await can("list", managed(plural))) && managed(plural))),
    review({ verb: "list", kind: managed("clusters") }),
    can("list", managed("projects")),
    recentCard(page),
  ]);
  const tables = permitted.filter(Boolean).map((kind) => ({ kind, list: watchList(kind, { as: "table" }) }));
  const clusters = fleet.allowed && watchList(managed("clusters"));
  const projects = seesProjects && watchList(managed("projects"));
  const lists = [...tables.map(({ list }) => list), clusters, projects].filter(Boolean);
  const [steps] = await Promise.all([
    checklist(page, { tables, clusters, projects }),
    Promise.race([Promise.all(lists.map((list) => firstContent(list, scope))), pause(FIRST_CONTENT_WITHIN)]),
  ]);
  if (scope.ended) return;
  const attention = card(T.attention, attentionList(page, tables, clusters, projects));
  const isFleet = fleet.allowed && !fleet.filtered;
  page.main.append(
    h(
      "div.overview",
      steps,
      isFleet && tiles(page, tables),
      clusters && (clusters.items.size || !steps) && card(T.fleet, clusterTiles(page, clusters).node),
      isFleet
        ? h("div.columns", h("div.stack", attention, mineCard(page, tables)), recent)
        : h(
            "div.columns",
            h("div.stack", mineCard(page, tables, { isFirst: true }), projects && projectsCard(page, projects)),
            h("div.stack", attention, recent),
          ),
    ),
  );
}

// The number of objects of each kind, unless there are none at all.
function tiles(page, tables) {
  const node = h(
    "div.tiles",
    tables.map(({ kind, list }) => tile(page, kind, list)),
  );
  const update = () => {
    node.hidden = tables.every(({ list }) => list.isComplete && !list.items.size);
  };
  for (const { list } of tables) list.subscribe(page.scope, update);
  update();
  return node;
}

// A kind with the number of objects in each state.
function tile(page, kind, list) {
  const number = h("strong", "…");
  const states = h("span.tile-states");
  const update = () => {
    if (!list.isComplete) return;
    number.textContent = String(list.items.size);
    replace(
      states,
      [...tableStates(list)].map(([state, count]) =>
        h("span", { data: { state }, title: T.inState(count, state) }, stateDot(state), count),
      ),
    );
  };
  list.subscribe(page.scope, update);
  update();
  return h("a.card.tile", { href: href(kind.segment) }, h("span.muted", kind.pluralTitle), number, states);
}
