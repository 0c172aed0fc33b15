// What the user owns, and what the user may create.

import { can, reviewCreate } from "../../core/access.js";
import { session } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { listObjects, managed, pathOf } from "../../core/kinds.js";
import { href, link } from "../../core/router.js";
import { READY } from "../../core/status.js";
import { namespaceOf, projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/overview.js";
import { card, linkButton, skeleton } from "../../widgets/common.js";
import { stateDot } from "../../widgets/state.js";
import { stateOfRow } from "./table-states.js";

const OWNED = ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances"];
const MAX_SHOWN = 12;
const MAX_PROJECTS = 50;

// `isFirst`: creating something is what the page is for.
export function mineCard(page, tables, { isFirst = false } = {}) {
  const rows = h("ul.plain.lines");
  const actions = h("div.create-links", skeleton(1));
  const owned = tables.filter(({ kind }) => OWNED.includes(kind.plural));
  let mayCreate = null;
  const update = () => {
    const found = owned.flatMap(({ kind, list }) => ownRows(list).map((row) => ({ kind, list, row })));
    const isComplete = owned.every(({ list }) => list.isComplete || list.state === "stopped");
    replace(
      rows,
      found.slice(0, MAX_SHOWN).map(({ kind, list, row }) => line(kind, list, row)),
      found.length > MAX_SHOWN && h("li.muted", T.more(found.length - MAX_SHOWN)),
      !found.length && isComplete && mayCreate !== null && h("li.muted", mayCreate ? T.noneOfMine : T.nothingToCreate),
    );
  };
  creatableKinds(page.scope.signal).then((kinds) => {
    if (page.scope.ended) return;
    mayCreate = kinds.length > 0;
    replace(
      actions,
      kinds.map((kind, index) =>
        linkButton(href(`${kind.segment}/~new`), T.create[kind.plural], {
          icon: "plus",
          kind: isFirst && index === 0 && "primary",
        }),
      ),
    );
    actions.hidden = !mayCreate;
    update();
  });
  for (const { list } of owned) list.subscribe(page.scope, update);
  update();
  return card(T.mine, rows, actions);
}

function ownRows(list) {
  const column = list.columns.findIndex(({ name }) => name === "Owner");
  return [...list.items.values()].filter((row) => row.cells[column] === session.user.name);
}

const line = (kind, list, row) =>
  h(
    "li",
    stateDot(stateOfRow(list, row) || READY),
    link(pathOf(kind, row.object), row.object.metadata.name),
    h("span.muted", T.kindInProject(kind.title, projectOf(row.object.metadata.namespace))),
  );

// The kinds that the user may create in a project that the user sees, or everywhere.
async function creatableKinds(signal) {
  const kinds = OWNED.map(managed).filter(Boolean);
  const projects = managed("projects");
  const { items } = (await can("list", projects))
    ? await listObjects(projects, { limit: MAX_PROJECTS, signal }).catch(() => ({ items: [] }))
    : { items: [] };
  const namespaces = ["", ...items.map((each) => namespaceOf(each.metadata.name))];
  const answers = await Promise.all(kinds.map((kind) => reviewCreate(kind, namespaces)));
  return kinds.filter((_, index) => answers[index].allowed);
}
