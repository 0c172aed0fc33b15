// What state an object is in, in one of five words, from its conditions, phase and metadata. Generic over kinds.

export const READY = "ready", WORKING = "working", ATTENTION = "attention", FAILED = "failed", ASLEEP = "asleep", NONE = "";

const PHASES = {
  ready: READY, online: READY, running: READY, active: READY, succeeded: READY, synced: READY, available: READY, bound: READY, deployed: READY,
  pending: WORKING, creating: WORKING, initializing: WORKING, starting: WORKING, stopping: WORKING, terminating: WORKING, progressing: WORKING, deploying: WORKING,
  warning: ATTENTION, degraded: ATTENTION, notready: ATTENTION, outofsync: ATTENTION,
  failed: FAILED, error: FAILED, offline: FAILED, stalled: FAILED, crashloopbackoff: FAILED,
  sleeping: ASLEEP, asleep: ASLEEP, stopped: ASLEEP, unknown: ASLEEP, paused: ASLEEP,
};

export const condition = (object, type) => object.status?.conditions?.find?.((each) => each.type === type);

// {state, word, message}. `word` is what the server calls it, `message` is one sentence.
export function stateOf(object) {
  if (object.metadata?.deletionTimestamp) {
    const waiting = object.metadata.finalizers ?? [];
    return { state: WORKING, word: "Deleting", message: waiting.length ? `waits for ${waiting.join(", ")}` : "" };
  }
  const stalled = condition(object, "Stalled");
  if (stalled?.status === "True") return { state: FAILED, word: "Stalled", message: stalled.message ?? stalled.reason };
  const phase = object.status?.phase;
  const ready = condition(object, "Ready") ?? condition(object, "Available");
  const byPhase = typeof phase === "string" && phase ? PHASES[phase.toLowerCase()] ?? WORKING : null;
  if (byPhase && byPhase !== READY) return { state: byPhase, word: phase, message: messageOf(object, ready) };
  if (ready && ready.status !== "True") {
    const state = ready.status === "Unknown" ? ASLEEP : ATTENTION;
    return { state, word: phase && state !== ATTENTION ? phase : "Not ready", message: messageOf(object, ready) };
  }
  if (byPhase || ready) return { state: READY, word: phase || "Ready", message: "" };
  return { state: NONE, word: "", message: "" };
}

function messageOf(object, ready) {
  const failed = object.status?.conditions?.find?.((each) => each.status === "False" && each.severity === "Error" && each.message);
  return failed?.message || ready?.message || object.status?.message || object.status?.reason || ready?.reason || "";
}
