// Pods of a cluster: their logs, and a terminal in a container.

import { query } from "../../core/api.js";
import { h, newId, replace } from "../../core/dom.js";
import { T } from "../../texts/clusters.js";
import { guardAction } from "../../widgets/access.js";
import { button } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";

const TAIL = 1000;
const SHELL = "/bin/sh";

export const tabs = ({ kind }) =>
  [
    kind.subresources.has("log") && { name: "logs", title: T.logs, show: showLogs },
    kind.subresources.has("exec") && { name: "terminal", title: T.terminal, show: showTerminal },
  ].filter(Boolean);

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
