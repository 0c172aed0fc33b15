// Tabs of a workspace: the logs of its tasks, a terminal in it, and the ports that its programs listen on.

import { request } from "../../core/api.js";
import { h, newId, replace } from "../../core/dom.js";
import { href } from "../../core/router.js";
import { exact } from "../../core/time.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/workspaces.js";
import { guardAction } from "../../widgets/access.js";
import { button, codeBlock, linkButton, skeleton, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { listTasks, taskKey } from "./progress.js";

export async function showLog(node, context) {
  const { kind, object, scope } = context;
  const { LogView } = await import("../../widgets/log-view.js");
  if (scope.ended) return;
  const view = new LogView(scope);
  const problem = h("div");
  const select = h("select", { id: newId("task"), onchange: () => read() });
  let reading = null;
  let shown = "";
  let seen = taskKey(object);
  const read = async () => {
    const id = select.value || select.options[1]?.value;
    if (!id || id === shown) return;
    shown = id;
    reading?.end();
    const mine = (reading = scope.child());
    view.clear();
    await view
      .attachStream(`${kind.pathOf(object, "log")}?taskID=${encodeURIComponent(id)}`, mine, { format: "task" })
      .catch((error) => {
        if (!mine.ended) replace(problem, errorBlock(error));
      });
  };
  const choice = h("div.row", h("label", { for: select.id }, T.whichTask), select);
  const showParts = (isShown) => {
    choice.hidden = view.node.hidden = !isShown;
  };
  const load = async () => {
    replace(problem);
    try {
      const tasks = await listTasks(kind, object, scope.signal);
      const chosen = select.value;
      replace(
        select,
        h("option", { value: "" }, T.newest),
        tasks.map(({ id, type, status, createdAt }) =>
          h("option", { value: id }, `${T.lastTask(type, status)}, ${exact(new Date(createdAt))}`),
        ),
      );
      select.value = tasks.some(({ id }) => id === chosen) ? chosen : "";
      showParts(true);
      choice.hidden = !tasks.length;
      if (!tasks.length) view.showNote(T.noTasks);
      read();
    } catch (error) {
      if (scope.ended) return;
      replace(problem, errorBlock(error, { retry: load }));
      if (!shown) showParts(false);
    }
  };
  context.onChange((now) => {
    if (taskKey(now) === seen) return;
    seen = taskKey(now);
    load();
  });
  replace(node, h("div.stack", choice, problem, view.node));
  load();
}

// A workspace that runs gets a session at once. One that sleeps is only woken up when that is asked for.
export async function showTerminal(node, { kind, object, scope }) {
  const [{ Terminal }, { attachSocket }] = await Promise.all([
    import("../../widgets/terminal/terminal.js"),
    import("../../widgets/terminal/socket.js"),
  ]);
  const { name, namespace } = object.metadata;
  const open = () => {
    const terminal = new Terminal(scope, `${T.terminal} ${name}`);
    replace(node, terminal.node);
    attachSocket(terminal, `${kind.pathOf(object, "exec")}?stdin=true&tty=true&wake=true`);
    terminal.focus();
  };
  const start = button(T.openTerminal, {
    kind: "primary",
    icon: "terminal",
    onclick: () => {
      if (start.getAttribute("aria-disabled") !== "true") open();
    },
  });
  const isRunning = object.status?.lastWorkspaceStatus === "Running";
  replace(node, h("div.row", start, !isRunning && h("span.muted", T.wakes)));
  if ((await guardAction(start, { verb: "use", kind, namespace, name })) && isRunning && start.isConnected) open();
}

export function showPorts(node, { kind, object, scope }) {
  const { name, namespace } = object.metadata;
  const list = h("div", skeleton(2));
  const portPage = (port) => href("open-port", { project: projectOf(namespace), workspace: name, port });
  const load = async () => {
    try {
      const { ports = [] } = await request(kind.pathOf(object, "ports"), { signal: scope.signal });
      const rows = ports.map(({ port, address, process }) =>
        h(
          "tr",
          h("td", String(port)),
          h("td", process ?? ""),
          h("td.mono", address ?? ""),
          h("td", linkButton(portPage(port), T.openPort, { target: "_blank", rel: "noopener" })),
          h("td", codeBlock(`fairlead workspace port-forward ${name} ${port} --project ${projectOf(namespace)}`)),
        ),
      );
      replace(
        list,
        rows.length ? tableOf([T.port, T.process, T.address, T.inBrowser, T.forward], rows) : h("p.muted", T.noPorts),
      );
    } catch (error) {
      if (!scope.ended) replace(list, errorBlock(error, { retry: load }));
    }
  };
  replace(node, h("div.stack", h("div.row", button(T.refresh, { onclick: load })), list));
  load();
}
