// The page of a workspace: what it does at the moment and why, the steps of its task, how to open it, and its actions.

import { can } from "../../core/access.js";
import { request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { patchObject, pathOf } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { annotation, HOLD_SECONDS, heldUntil, holdFor, moment, SLEEP } from "../../core/sleep.js";
import { condition } from "../../core/status.js";
import { duration, timeElement } from "../../core/time.js";
import { confirmDialog } from "../../shell/dialogs.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/workspaces.js";
import { card, codeBlock, copyable, definition } from "../../widgets/common.js";
import { progress } from "./progress.js";
import { showLog, showPorts, showTerminal } from "./tabs.js";

const NEEDS_RUNNER = new Set([
  "NoRunner",
  "NoRunnerUsable",
  "NoRunnerForProvider",
  "RunnerNotFound",
  "NoRunnerResponding",
]);

const why = (found) => String(found?.message || found?.reason || "").replace(/\.$/, "");
const isRunning = ({ status }) => status?.lastWorkspaceStatus === "Running";
const isBusy = (object) => condition(object, "TaskSucceeded")?.status === "Unknown";

export function summary(context) {
  const sentence = h("p.workspace-now", { role: "status" });
  const hint = h("div");
  const facts = h("div");
  const ways = h("div");
  let shown = "";
  const update = (object) => {
    const {
      metadata: { annotations },
      spec,
      status,
    } = object;
    const key = JSON.stringify([annotations, spec, status, heldUntil(object)]);
    if (key === shown) return;
    shown = key;
    const text = describe(object);
    if (sentence.textContent !== text) sentence.textContent = text;
    replace(hint, hints(context.kind, object));
    replace(facts, factList(object));
  };
  context.onChange(update);
  update(context.object);
  openWays(ways, context);
  return h(
    "div.columns",
    h("div.stack", card(T.now, sentence, hint, progress(context)), card(T.facts, facts)),
    card(T.open, ways),
  );
}

// One sentence: what the workspace does, or what it waits for.
function describe(object) {
  const { metadata, spec = {}, status = {} } = object;
  const runner = spec.runnerRef?.runner;
  const [scheduled, template, ready, task] = ["Scheduled", "TemplateResolved", "Ready", "TaskSucceeded"].map((type) =>
    condition(object, type),
  );
  if (metadata.deletionTimestamp) return T.deleting;
  if (scheduled?.status === "False") return T.waitsForRunner(why(scheduled));
  if (template?.status === "False") return T.waitsForTemplate(why(template));
  if (!runner) return T.unscheduled;
  if (ready?.reason === "RunnerSilent") return T.silent(why(ready));
  if (task?.status === "Unknown") return (T.busy[task.reason] ?? T.task)(why(task));
  if (status.phase === "Failed") return T.failed(why(status));
  if (status.phase === "Sleeping") return [T.asleep, why(status)].filter(Boolean).join(" ");
  if (isRunning(object)) {
    if (status.reason === "Recovery") return T.recovery(why(status));
    if (task?.status === "False") return T.upFailed(why(task));
    return T.activity[status.activity?.state] ?? T.running;
  }
  if (status.lastWorkspaceStatus === "Stopped") return [T.stopped, why(status)].filter(Boolean).join(" ");
  return status.lastWorkspaceStatus ? T.notStarted : T.waitsForReport(runner);
}

// What to do about what it waits for.
function hints(kind, object) {
  const { spec = {}, status = {} } = object;
  const runner = spec.runnerRef?.runner;
  const isSilent = condition(object, "Ready")?.reason === "RunnerSilent";
  if (NEEDS_RUNNER.has(condition(object, "Scheduled")?.reason) || isSilent || (runner && !status.lastWorkspaceStatus))
    return codeBlock(`fairlead runner start ${runner ?? "NAME"}`);
  if (condition(object, "TaskSucceeded")?.status === "False") return link(`${pathOf(kind, object)}?view=log`, T.seeLog);
  return condition(object, "TemplateApplied")?.status === "False" && h("p.notice", T.templateChanged);
}

const sleepRule = (policy) => (policy?.sleepAfter > 0 ? T.sleepAfter(duration(policy.sleepAfter)) : T.never);

function factList(object) {
  const { spec = {}, status = {} } = object;
  const { templateRef, runnerRef, owner, parameters } = spec;
  const { activity = {}, usage = {}, sleepModeConfig } = status;
  const named = (segment, name) => name && link(`${segment}/${encodeURIComponent(name)}`, name);
  return definition([
    [T.container, status.lastWorkspaceStatus],
    [T.source, annotation(object, "service.sh/workspace-source").replace(/^git:/, "")],
    [
      T.template,
      templateRef?.name &&
        h(
          "span",
          named("devpodworkspacetemplates", templateRef.name),
          templateRef.version && ` ${templateRef.version}`,
        ),
    ],
    [T.parameters, parameters && h("pre", parameters)],
    [T.runner, named("runners", runnerRef?.runner) || T.noRunner],
    [T.owner, owner?.user || owner?.team],
    [T.memory, usage.memory],
    [T.disk, usage.disk],
    [T.since, activity.startTime && isRunning(object) && timeElement(activity.startTime)],
    [
      T.active,
      activity.lastActivityTime && h("span", timeElement(activity.lastActivityTime), ` ${activity.reason ?? ""}`),
    ],
    [T.asleepSince, moment(annotation(object, `${SLEEP}sleeping-since`))],
    [T.held, moment(heldUntil(object))],
    [
      T.sleeps,
      isRunning(object) && (moment(sleepModeConfig?.status?.scheduledSleep) || sleepRule(sleepModeConfig?.spec)),
    ],
  ]);
}

// How to open it from the user's machine. Only the runner knows the folder of the sources in the container.
function openWays(node, context) {
  const { kind, object, scope } = context;
  const { name, namespace } = object.metadata;
  const project = projectOf(namespace);
  const host = `${name}.${project}.fairlead`;
  const vscode = h("div");
  let wasRunning = null;
  const update = async (now) => {
    if (isRunning(now) === wasRunning) return;
    wasRunning = isRunning(now);
    if (!wasRunning) return replace(vscode, h("p.muted", T.notRunning));
    const isAllowed = await can("use", kind, namespace, name);
    const { report } = isAllowed
      ? await request(kind.pathOf(object, "troubleshoot"), { signal: scope.signal }).catch(() => ({}))
      : {};
    const folder = String(report?.container?.folder || `/workspaces/${name}`)
      .split("/")
      .map(encodeURIComponent)
      .join("/");
    if (wasRunning)
      replace(
        vscode,
        h(
          "a.button.primary",
          { href: `vscode://vscode-remote/ssh-remote+${encodeURIComponent(host)}${folder}` },
          T.vscode,
        ),
        h("p.muted", T.openHint),
      );
  };
  context.onChange(update);
  update(object);
  replace(
    node,
    h(
      "div.stack.tight",
      vscode,
      h("p.muted", T.ssh),
      codeBlock(`fairlead workspace ssh ${name} --project ${project}`),
      h("p.muted", T.sshConfig),
      codeBlock("fairlead workspace ssh-config --write"),
      h("p.muted", T.host),
      copyable(host),
    ),
  );
}

export const tabs = () => [
  { name: "log", title: T.log, show: showLog },
  { name: "terminal", title: T.terminal, show: showTerminal },
  { name: "ports", title: T.ports, show: showPorts },
];

export function actions(context) {
  const { kind, object } = context;
  const { name, namespace } = object.metadata;
  const own = { kind, namespace, name };
  const run = async (task, options) => {
    await request(kind.pathOf(object, task), {
      method: "POST",
      body: { spec: options ? { options: JSON.stringify(options) } : {} },
    });
    context.onTask?.();
  };
  const ask = async (option, title, text, confirm) => {
    if (await confirmDialog({ title, text, confirm, danger: true })) await run("up", { [option]: true });
  };
  const hold = (seconds) => patchObject(kind, namespace, name, { metadata: { annotations: holdFor(seconds) } });
  const exists = (now) => !isBusy(now) && ["Running", "Stopped"].includes(now.status?.lastWorkspaceStatus);
  const mayFallAsleep = (now) => isRunning(now) && now.status?.sleepModeConfig?.spec?.sleepAfter > 0;
  const use = { ...own, verb: "use" };
  const update = { ...own, verb: "update" };
  return [
    {
      title: T.start,
      icon: "play",
      primary: true,
      question: use,
      isShown: (now) => !isRunning(now) && !isBusy(now),
      run: () => run("up", { keepContainer: true }),
    },
    {
      title: T.stop,
      icon: "stop",
      question: use,
      isShown: (now) => isRunning(now) || isBusy(now),
      run: () => run("stop"),
    },
    {
      title: T.hold,
      icon: "moon",
      question: update,
      isShown: (now) => mayFallAsleep(now) && !heldUntil(now),
      run: () => hold(HOLD_SECONDS),
    },
    {
      title: T.release,
      icon: "moon",
      question: update,
      isShown: (now) => isRunning(now) && heldUntil(now) > 0,
      run: () => hold(0),
    },
    {
      title: T.recreate,
      danger: true,
      question: use,
      isShown: exists,
      run: () => ask("recreate", T.askRecreate(name), T.recreateText, T.recreateNow),
    },
    {
      title: T.reset,
      danger: true,
      question: use,
      isShown: exists,
      run: () => ask("reset", T.askReset(name), T.resetText, T.resetNow),
    },
  ];
}
