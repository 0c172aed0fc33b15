// The page of a runner: whether it responds, what is wrong with its machine, its workspaces, and how to start it.

import { h, replace } from "../../core/dom.js";
import { getObject, managed, management } from "../../core/kinds.js";
import { condition } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/workspaces.js";
import { card, codeBlock, definition } from "../../widgets/common.js";
import { instances } from "../clusters/cluster.js";

const HEARTBEAT = 10_000;

export function summary(context) {
  const {
    object: {
      metadata: { name },
    },
    scope,
  } = context;
  const heartbeat = h("span");
  const facts = context.live(
    ({ spec, status }) => [spec, status],
    (runner) => factList(runner, heartbeat),
  );
  const isProblem = ({ status, type, message }) =>
    status !== "True" && message && !/^(Stalled|Reconciling)$/.test(type);
  const problems = context.live(
    ({ status }) => status?.conditions,
    ({ status }) => (status?.conditions ?? []).filter(isProblem).map(({ message }) => h("p.notice", message)),
  );
  followHeartbeat(heartbeat, name, scope);
  return h(
    "div.columns",
    h(
      "div.stack",
      problems,
      card(T.facts, facts),
      card("", instances(managed("devpodworkspaceinstances"), `spec.runnerRef.runner=${name}`, scope)),
    ),
    card(
      T.startIt,
      h(
        "div.stack.tight",
        h("p.muted", T.startHint),
        codeBlock(`fairlead runner doctor ${name}`),
        codeBlock(`fairlead runner start ${name}`),
      ),
    ),
  );
}

function factList(runner, heartbeat) {
  const { spec = {}, status = {} } = runner;
  const ready = condition(runner, "Ready");
  const term = ready?.status === "True" ? T.online : T.offline;
  return definition([
    [term, status.phase ? ready && timeElement(ready.lastTransitionTime) : T.neverReported],
    [T.heartbeat, heartbeat],
    [T.endpoint, spec.endpoint],
    [T.draining, spec.unusable && T.drainingText],
    [T.owner, spec.owner?.user || spec.owner?.team],
  ]);
}

// The Lease that a runner renews every ten seconds. Most users may not read it.
function followHeartbeat(node, name, scope) {
  const leases = management.find("leases", "coordination.k8s.io");
  let isReadable = Boolean(leases);
  const load = async () => {
    if (!isReadable || document.hidden) return;
    try {
      const { spec } = await getObject(leases, "service-system", `runner-${name}`, { signal: scope.signal });
      replace(node, timeElement(spec.renewTime));
    } catch (error) {
      isReadable = error.code !== 403;
      if (!scope.ended) replace(node, "–");
    }
  };
  scope.every(HEARTBEAT, load);
  load();
}
