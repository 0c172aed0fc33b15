// The first steps on a new server, for those who may take them, until all are done or they are hidden in this browser.

import { can } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { listObjects, managed } from "../../core/kinds.js";
import { preferences } from "../../core/preferences.js";
import { href } from "../../core/router.js";
import { ASLEEP, READY } from "../../core/status.js";
import { firstContent } from "../../core/watch.js";
import { T } from "../../texts/overview.js";
import { button, card, linkButton } from "../../widgets/common.js";
import { stateDot } from "../../widgets/state.js";

const HIDDEN = "overview.steps-hidden";
const PATHS = {
  cluster: "clusters/~connect",
  project: "projects/~new",
  invite: "users/~new",
  space: "spaceinstances/~new",
  workspace: "devpodworkspaceinstances/~new",
};

// The card, or null. `tables` are those of the overview; `clusters` and `projects` are lists, or false.
export async function checklist(page, { tables, clusters, projects }) {
  if (!clusters || !projects || preferences.get(HIDDEN)) return null;
  const users = managed("users");
  const permitted = await Promise.all([
    can("create", managed("clusters")),
    can("create", managed("projects")),
    can("create", users),
    can("list", users),
  ]);
  if (!permitted.every(Boolean)) return null;
  const people = await listObjects(users, { limit: 2, signal: page.scope.signal }).catch(() => ({ items: [] }));
  const listOf = (plural) => tables.find(({ kind }) => kind.plural === plural)?.list;
  const lists = {
    cluster: clusters,
    project: projects,
    space: listOf("spaceinstances"),
    workspace: listOf("devpodworkspaceinstances"),
  };
  const isDone = (step) => (step === "invite" ? people.items.length > 1 : lists[step]?.items.size > 0);
  await Promise.all(Object.values(lists).map((list) => list && firstContent(list, page.scope)));
  if (page.scope.ended || Object.keys(PATHS).every(isDone)) return null;
  const steps = h("ol.plain.first-steps");
  const update = () => {
    const next = Object.keys(PATHS).find((step) => !isDone(step));
    replace(
      steps,
      Object.keys(PATHS).map((step) => stepLine(step, isDone(step), step === next)),
    );
  };
  for (const list of Object.values(lists)) list?.subscribe(page.scope, update);
  update();
  const hide = button(T.hideSteps, {
    kind: "quiet",
    onclick: () => {
      preferences.set(HIDDEN, true);
      node.remove();
    },
  });
  const node = card(T.steps, h("p.muted", T.stepsText), steps, hide);
  return node;
}

const stepLine = (step, isDone, isNext) =>
  h(
    "li",
    { data: { step, done: String(Boolean(isDone)) } },
    stateDot(isDone ? READY : ASLEEP, isDone ? T.done : T.open),
    h("span.grow", h("strong", T.stepTitles[step]), h("span.message", T.stepTexts[step])),
    !isDone && linkButton(href(PATHS[step]), T.stepActions[step], { kind: isNext && "primary" }),
  );
