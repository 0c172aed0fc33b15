// Pods of a cluster: where they run, their containers, their logs, and a terminal in a container.

import { query } from "../../core/api.js";
import { h, newId, replace } from "../../core/dom.js";
import { link } from "../../core/router.js";
import { ASLEEP, FAILED, READY, stateOfWord, WORKING } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/clusters.js";
import { guardAction } from "../../widgets/access.js";
import { button, card, definition, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { ownerList } from "../../widgets/owners.js";
import { stateBadge } from "../../widgets/state.js";
import { containerStatuses, restartsOf } from "./pods.js";
import { followUsage } from "./usage.js";

const TAIL = 1000;
const SHELL = "/bin/sh";

export function summary(context) {
  const facts = context.live(
    ({ spec, status }) => [spec, status],
    (/** @type {Record<string, any>} */ { metadata, spec = {}, status = {} }) =>
      definition([
        [T.node, spec.nodeName && nodeLink(context.kind.server, spec.nodeName)],
        [T.ip, (status.podIPs ?? [{ ip: status.podIP }]).map(({ ip }) => ip).join(", ")],
        [T.restarts, restartsOf({ status })],
        [T.started, status.startTime && timeElement(status.startTime)],
        [T.serviceAccount, spec.serviceAccountName],
        [T.quality, status.qosClass],
        [T.belongsTo, metadata.ownerReferences && ownerList(context.kind, { metadata })],
      ]),
  );
  const containers = context.live(
    ({ spec, status }) => [spec, status],
    (pod) => tableOf(T.containerColumns, listContainers(pod).map(containerRow)),
  );
  const usage = h("div");
  const { namespace, name } = context.object.metadata;
  followUsage(context.scope, context.kind.server, usage, { plural: "pods", namespace, name });
  return h(
    "div.stack",
    card(T.containerList, containers),
    h("section.card.wide-facts", h("h2", T.where), facts),
    h("section.card.measured", h("h2", T.usage), usage),
  );
}

// Nodes are shown by the pages of a cluster. A space is one namespace, and has none.
const nodeLink = (server, name) =>
  server.find("nodes", "") && !server.namespace ? link(`${server.pages}nodes/${encodeURIComponent(name)}`, name) : name;

function listContainers(pod) {
  const { spec = {} } = pod;
  const statuses = new Map(containerStatuses(pod).map((each) => [each.name, each]));
  const of = (containers, role) =>
    (containers ?? []).map((container) => ({ container, role, status: statuses.get(container.name) ?? {} }));
  return [
    ...of(spec.initContainers, T.initContainer),
    ...of(spec.containers, ""),
    ...of(spec.ephemeralContainers, T.debugContainer),
  ];
}

const containerRow = ({ container, role, status }) =>
  h(
    "tr",
    h("td", h("span.mono", container.name), role && h("span.muted", ` ${role}`)),
    h("td", stateBadge(stateOfContainer(status))),
    h("td", status.restartCount ?? 0),
    h("td.mono.wrap", container.image ?? ""),
    h("td", (container.ports ?? []).map(printPort).join(", ") || T.noPorts),
  );

const printPort = ({ containerPort, protocol = "TCP", name }) =>
  `${containerPort}${protocol === "TCP" ? "" : `/${protocol}`}${name ? ` (${name})` : ""}`;

/** @param {Record<string, any>} status */
function stateOfContainer({ state = {}, ready }) {
  const { waiting, running, terminated } = state;
  if (waiting)
    return {
      state: stateOfWord(waiting.reason) || WORKING,
      word: waiting.reason ?? T.waiting,
      message: waiting.message,
    };
  if (terminated)
    return terminated.exitCode === 0
      ? { state: ASLEEP, word: terminated.reason || T.ended }
      : { state: FAILED, word: T.endedWith(terminated.reason, terminated.exitCode), message: terminated.message };
  if (running) return ready ? { state: READY, word: T.running } : { state: WORKING, word: T.notReadyYet };
  return ready ? { state: READY, word: T.ready } : { state: "", word: T.unknown };
}

export const tabs = ({ kind }) =>
  [
    kind.subresources.has("log") && { name: "logs", title: T.logs, show: showLogs },
    kind.subresources.has("exec") && { name: "terminal", title: T.terminal, show: showTerminal },
  ].filter(Boolean);

/**
 * @param {KubernetesObject} pod
 * @param {() => void} [onchange]
 */
function containerSelect({ spec = {} }, onchange) {
  const names = [...(spec.containers ?? []), ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])].map(
    (each) => each.name,
  );
  const select = h(
    "select",
    { id: newId("container"), onchange },
    names.map((name) => h("option", { value: name }, name)),
  );
  return [h("span.row", h("label", { for: select.id }, T.containers), select), select];
}

async function showLogs(node, { kind, object, scope }) {
  const { LogView } = await import("../../widgets/log-view.js");
  if (scope.ended) return;
  const problem = h("div");
  let reading = null;
  let isPrevious = false;
  const view = new LogView(scope, {
    previous: (isChosen) => {
      isPrevious = isChosen;
      load();
    },
  });
  const [field, container] = containerSelect(object, () => {
    view.clear();
    load();
  });
  const load = async () => {
    reading?.end();
    const mine = (reading = scope.child());
    replace(problem);
    const path =
      kind.pathOf(object, "log") + query({ container: container.value, previous: isPrevious || "", tailLines: TAIL });
    await view.attachStream(path, mine, { follow: !isPrevious }).catch((error) => {
      if (!mine.ended) replace(problem, errorBlock(error, { retry: load }));
    });
  };
  replace(node, h("div.stack", field, problem, view.node));
  load();
}

// A session starts when it is asked for: it counts against the limits of the cluster.
async function showTerminal(node, { kind, object, scope }) {
  const [{ Terminal }, { attachSocket }] = await Promise.all([
    import("../../widgets/terminal/terminal.js"),
    import("../../widgets/terminal/socket.js"),
  ]);
  const [field, container] = containerSelect(object);
  const command = h("input", { id: newId("command"), value: SHELL, spellcheck: "false", autocomplete: "off" });
  const body = h("div");
  let session = null;
  const start = button(T.start, { kind: "primary", type: "submit", icon: "terminal" });
  const open = () => {
    session?.end();
    session = scope.child();
    const terminal = new Terminal(session, `${T.terminal} ${object.metadata.name}`);
    const parameters = new URLSearchParams({
      container: container.value,
      stdin: "true",
      stdout: "true",
      stderr: "false",
      tty: "true",
    });
    for (const word of command.value.trim().split(/\s+/)) parameters.append("command", word);
    replace(body, terminal.node);
    attachSocket(terminal, `${kind.pathOf(object, "exec")}?${parameters}`);
    terminal.focus();
  };
  const form = h(
    "form.row",
    {
      onsubmit: (event) => {
        event.preventDefault();
        if (!start.disabled && command.value.trim()) open();
      },
    },
    field,
    h("label", { for: command.id }, T.shell),
    command,
    start,
  );
  const { namespace, name } = object.metadata;
  guardAction(start, { verb: "create", kind, namespace, name, subresource: "exec" });
  replace(node, h("div.stack", form, body));
}
