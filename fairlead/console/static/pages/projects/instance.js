// Spaces and virtual clusters: where they run, how to use them, their template and its parameters, sleep, and moving.

import { h, replace } from "../../core/dom.js";
import { patchObject, pathOf } from "../../core/kinds.js";
import { link, navigate } from "../../core/router.js";
import { annotation, HOLD_SECONDS, heldUntil, holdFor, moment, SLEEP } from "../../core/sleep.js";
import { condition } from "../../core/status.js";
import { duration } from "../../core/time.js";
import { confirmDialog, toast } from "../../shell/dialogs.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/projects.js";
import { button, card, codeBlock, definition } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { contents } from "./contents.js";

const TEMPLATES = { spaceinstances: "spacetemplates", virtualclusterinstances: "virtualclustertemplates" };
const isAsleep = (object) => object.status?.phase === "Sleeping" || Boolean(annotation(object, `${SLEEP}sleep-type`));
const FLAGS = { spaceinstances: "--space", virtualclusterinstances: "--virtual-cluster" };

export function summary(context) {
  const facts = context.live(
    ({ metadata, spec, status }) => [metadata.namespace, metadata.annotations, spec, status],
    (object) => factList(context.kind, object),
  );
  const hasDrift = (object) => condition(object, "TemplateSynced")?.status === "False";
  const drift = context.live(hasDrift, (object) => hasDrift(object) && driftNotice(context));
  const { name, namespace } = context.object.metadata;
  const command = `fairlead kubeconfig ${FLAGS[context.kind.plural]} ${projectOf(namespace)}/${name}`;
  const { pods, usage, measured, events } = contents(context, isAsleep);
  return h(
    "div.stack",
    drift,
    card(T.pods, pods),
    h(
      "div.halves",
      h("div.stack", card(T.usage, usage), card(T.facts, facts)),
      h("div.stack", card(T.latestEvents, events), card(T.connect, h("p.muted", T.kubeconfig), codeBlock(command))),
    ),
    h("section.card.measured", h("h2", T.measured), measured),
  );
}

function factList(kind, object) {
  const { metadata, spec = {}, status = {} } = object;
  const { spec: policy = {}, status: sleep = {} } = status.sleepModeConfig ?? {};
  const rule = policy.sleepAfter > 0 && T.sleepAfter(duration(policy.sleepAfter));
  const project = projectOf(metadata.namespace);
  const { cluster, namespace } = spec.clusterRef ?? {};
  const template = spec.templateRef?.name;
  return definition([
    [T.project, project && link(`projects/${project}`, project)],
    [T.cluster, cluster ? link(`clusters/${encodeURIComponent(cluster)}`, cluster) : T.noCluster],
    [T.namespaceThere, namespace && h("code", namespace)],
    [T.owner, spec.owner?.user || spec.owner?.team],
    [T.template, template && link(`${TEMPLATES[kind.plural]}/${encodeURIComponent(template)}`, template)],
    [T.version, spec.templateRef?.version],
    [T.parameters, spec.parameters && h("pre", spec.parameters)],
    [T.sentence, status.reason],
    [
      T.asleepSince,
      isAsleep(object) &&
        h("span", moment(annotation(object, `${SLEEP}sleeping-since`)), ` ${T.causes[sleep.sleepType] ?? ""}`),
    ],
    [T.sleeps, !isAsleep(object) && (moment(sleep.scheduledSleep) || rule)],
    [T.held, moment(heldUntil(object))],
    [T.wakesUp, isAsleep(object) && moment(sleep.scheduledWakeup)],
  ]);
}

function driftNotice({ kind, object }) {
  const problem = h("div");
  const { name, namespace } = object.metadata;
  const apply = async () => {
    try {
      await patchObject(kind, namespace, name, { spec: { templateRef: { syncOnce: true } } });
      toast(T.applied);
    } catch (error) {
      replace(problem, errorBlock(error));
    }
  };
  return h("div.notice", h("p", T.drift), button(T.applyTemplate, { onclick: apply }), problem);
}

export function actions(context) {
  const { kind, object } = context;
  const { name, namespace } = object.metadata;
  const browse = {
    title: T.browse,
    icon: "grid",
    primary: true,
    question: { verb: "use", kind, namespace, name },
    run: () => navigate(`${pathOf(kind, object)}/~browse`),
  };
  const create = {
    title: T.createFromYaml,
    icon: "plus",
    question: { verb: "use", kind, namespace, name },
    run: () => navigate(`${pathOf(kind, object)}/~browse/~new`),
  };
  const update = { verb: "update", kind, namespace, name };
  const annotate = (changes) => patchObject(kind, namespace, name, { metadata: { annotations: changes } });
  const canSleep = ({ spec }) =>
    Boolean(spec?.clusterRef?.namespace) && !spec.config && !spec.external && !spec.networkPeer;
  const wake = (now) => {
    const since = Number(annotation(now, `${SLEEP}sleeping-since`)) || 0;
    return annotate({
      [`${SLEEP}force`]: null,
      [`${SLEEP}force-duration`]: null,
      [`${SLEEP}last-activity`]: String(Math.max(Math.floor(Date.now() / 1000), since + 1)),
    });
  };
  const rest = [
    { title: T.wake, icon: "play", question: update, isShown: isAsleep, run: () => wake(context.object) },
    {
      title: T.putToSleep,
      icon: "moon",
      question: update,
      isShown: (now) => canSleep(now) && !isAsleep(now),
      run: async () => {
        if (await confirmDialog({ title: T.askSleep(name), text: T.sleepText, confirm: T.putToSleep }))
          await annotate({ [`${SLEEP}force`]: "true", [`${SLEEP}force-duration`]: null });
      },
    },
  ];
  const mayFallAsleep = (now) => !isAsleep(now) && now.status?.sleepModeConfig?.spec?.sleepAfter > 0;
  rest.push(
    {
      title: T.hold,
      icon: "moon",
      question: update,
      isShown: (now) => mayFallAsleep(now) && !heldUntil(now),
      run: () => annotate(holdFor(HOLD_SECONDS)),
    },
    {
      title: T.release,
      icon: "moon",
      question: update,
      isShown: (now) => !isAsleep(now) && heldUntil(now) > 0,
      run: () => annotate(holdFor(0)),
    },
  );
  if (kind.plural !== "virtualclusterinstances") return [browse, create, ...rest];
  return [
    browse,
    create,
    ...rest,
    {
      title: T.move,
      icon: "folder",
      question: { verb: "update", kind, namespace, name },
      run: async () => (await import("./move.js")).askMove(context),
    },
  ];
}
