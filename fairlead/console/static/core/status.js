// What state an object is in, as one of five, from its conditions, phase and metadata. Generic over kinds.

export const READY = "ready";
export const WORKING = "working";
export const ATTENTION = "attention";
export const FAILED = "failed";
export const ASLEEP = "asleep";
const NONE = "";

const WORDS = {
  [READY]:
    "ready online running active succeeded synced available bound deployed initialized " +
    "healthy usable true complete completed yes",
  [WORKING]:
    "pending creating initializing starting stopping terminating deleting progressing " +
    "deploying containercreating waking reconciling busy",
  [ATTENTION]: "warning degraded silent notready outofsync offline false no",
  [FAILED]:
    "failed error stalled crashloopbackoff imagepullbackoff errimagepull errimageneverpull " +
    "invalidimagename createcontainerconfigerror createcontainererror runcontainererror evicted oomkilled",
  [ASLEEP]: "sleeping asleep stopped unknown paused disabled expired suspended notstarted",
};
const STATES = new Map(
  Object.entries(WORDS).flatMap(([state, words]) => words.split(" ").map((word) => [word, state])),
);

/**
 * @param {any} object
 * @param {string} type
 * @returns {any}
 */
export const condition = (object, type) =>
  object.status?.conditions?.find?.((/** @type {any} */ each) => each.type === type);

// The state that a word of the server stands for: a phase, or the cell of a Status column. "" for other words.
/** @param {unknown} word */
export const stateOfWord = (word) =>
  STATES.get(
    String(word)
      .toLowerCase()
      .replace(/[\s_-]/g, ""),
  ) ?? NONE;

// {state, word, message}. `message` is one sentence that says why it is not ready.
/** @param {any} object */
export function stateOf(object) {
  const { phase = "", reason = "", message = "" } = object.status ?? {};
  if (object.metadata?.deletionTimestamp) {
    const waiting = object.metadata.finalizers ?? [];
    return { state: WORKING, word: "Deleting", message: waiting.length ? `waits for ${waiting.join(", ")}` : "" };
  }
  const container = failedContainer(object);
  if (container) return { state: FAILED, word: container.reason, message: container.message ?? "" };
  const ready = condition(object, "Ready") ?? condition(object, "Available");
  const why = worst(object)?.message || ready?.message || message || "";
  const byPhase = stateOfWord(phase);
  if (condition(object, "Stalled")?.status === "True")
    return { state: FAILED, word: "Failed", message: condition(object, "Stalled").message || why };
  if (byPhase === FAILED || byPhase === ASLEEP) return { state: byPhase, word: phase, message: why };
  if (ready?.status === "True")
    return { state: READY, word: ready.reason === "Running" ? "Running" : "Ready", message: "" };
  if (ready?.status === "False") return notReady(ready, byPhase, phase || reason, why);
  if (ready?.reason === "Progressing") return { state: WORKING, word: phase || "Pending", message: why };
  if (ready)
    return stateOfWord(ready.reason) === ATTENTION
      ? { state: ATTENTION, word: ready.reason, message: why }
      : { state: ASLEEP, word: "Unknown", message: why };
  if (phase)
    return {
      state: byPhase || WORKING,
      word: phase === "Initialized" ? "Ready" : phase,
      message: byPhase === READY ? "" : why,
    };
  return { state: NONE, word: "", message: "" };
}

// Why a container of a pod does not start: the phase and the conditions of the pod only say that it is not ready.
/** @param {any} pod */
const failedContainer = ({ status }) =>
  [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])]
    .map((each) => each.state?.waiting)
    .find((waiting) => waiting?.reason && stateOfWord(waiting.reason) === FAILED);

/**
 * @param {any} ready
 * @param {string} byPhase
 * @param {string} word
 * @param {string} message
 */
function notReady(ready, byPhase, word, message) {
  const byReason = stateOfWord(ready.reason); // of a workspace: the phase does not say that it is stopped, for example
  if (byReason === ASLEEP || byReason === WORKING || ready.reason === "Degraded")
    return { state: byReason, word: ready.reason, message };
  if (byPhase === WORKING) return { state: WORKING, word, message };
  return { state: ATTENTION, word: stateOfWord(word) === READY || !word ? "Not ready" : word, message };
}

/** @param {any} object */
const worst = (object) =>
  object.status?.conditions?.find?.(
    (/** @type {any} */ each) => each.status === "False" && each.severity === "Error" && each.message,
  );
