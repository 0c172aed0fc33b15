// The steps of the last task of a workspace, with their times, from its log. A task under way is followed.

import { can } from "../../core/access.js";
import { ApiError, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { condition, FAILED, READY, WORKING } from "../../core/status.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/workspaces.js";
import { button } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { readStream } from "../../widgets/log-stream.js";
import { stateBadge, stateDot } from "../../widgets/state.js";

const STEP = /^(\S*) step ([A-Z]\w*)(?: took (\d+(?:\.\d+)?) s)?$/;
const MAX_STEPS = 100;
const RECENT = 600_000;
const STATES = { Running: WORKING, Succeeded: READY, Failed: FAILED };

// The tasks that the runner knows, newest first.
export async function listTasks(kind, object, signal) {
  const { tasks = [] } = await request(kind.pathOf(object, "tasks"), { signal });
  return tasks.sort((a, b) => String(b.createdAt).localeCompare(String(a.createdAt)));
}

// Changes when a task begins or ends, and when the runner responds again. Empty before the first task.
export function taskKey(object) {
  const { status, reason, lastTransitionTime } = condition(object, "TaskSucceeded") ?? {};
  return status ? [status, reason, lastTransitionTime, condition(object, "Ready")?.status].join() : "";
}

export function progress(context) {
  const { kind, object, scope } = context;
  const node = h("div.stack");
  let reading = null;
  let shown = "";
  let seen = "";
  const load = async () => {
    try {
      const [task] = await listTasks(kind, object, scope.signal);
      if (!task || `${task.id} ${task.status}` === shown) return;
      const isSame = shown.startsWith(`${task.id} `);
      shown = `${task.id} ${task.status}`;
      const head = h(
        "div.row",
        stateBadge({ state: STATES[task.status], word: T.lastTask(task.type, task.status) }),
        h("span.muted", timeElement(task.createdAt)),
      );
      if (isSame && reading) return reading.setTask(task, head);
      reading?.scope.end();
      reading = new StepList(context, task);
      replace(node, reading.node);
      reading.setTask(task, head);
    } catch (error) {
      if (!scope.ended && !(error instanceof ApiError && error.code === 503))
        replace(node, errorBlock(error, { retry: load }));
    }
  };
  const update = (now) => {
    const key = taskKey(now);
    if (!key || key === seen) return;
    seen = key;
    load();
  };
  context.onTask = load;
  can("use", kind, object.metadata.namespace, object.metadata.name).then((isAllowed) => {
    if (!isAllowed) return replace(node, h("p.muted", T.notAllowed));
    context.onChange(update);
    update(context.object);
  });
  return node;
}

class StepList {
  steps = new Map(); // name: {began, seconds}
  #isFollowed = false;

  constructor({ kind, object, scope }, { id }) {
    this.scope = scope.child();
    this.path = `${kind.pathOf(object, "log")}?taskID=${encodeURIComponent(id)}`;
    this.head = h("div");
    this.list = h("ol.steps");
    this.more = button(T.showSteps, { kind: "quiet", onclick: () => this.read() });
    this.node = h("div.stack", this.head, this.list, this.more);
    this.scope.every(1000, () => {
      if (this.task.status === "Running") this.show();
    });
  }

  // A log can be large: that of an older task that succeeded is read on request.
  setTask(task, head) {
    this.task = task;
    replace(this.head, head);
    if (task.status !== "Succeeded" || Date.now() - Date.parse(task.createdAt) < RECENT) this.read();
    this.show();
  }

  async read() {
    if (this.#isFollowed) return;
    this.#isFollowed = true;
    this.more.remove();
    await readStream({ append: (text) => this.add(text.trimEnd()), showNote() {} }, this.path, this.scope, {
      format: "task",
    }).catch((error) => replace(this.list, h("li", errorBlock(error))));
  }

  add(line) {
    const [, time, name, seconds] = STEP.exec(line) ?? [];
    if (!name || (this.steps.size >= MAX_STEPS && !this.steps.has(name))) return;
    this.steps.set(name, {
      began: this.steps.get(name)?.began ?? Date.parse(time),
      seconds: seconds && Number(seconds),
    });
    this.show();
  }

  show() {
    const isRunning = this.task.status === "Running";
    replace(
      this.list,
      [...this.steps].map(([name, { began, seconds }]) => {
        const isDone = seconds !== undefined;
        const elapsed = isDone ? seconds : (Date.now() - began) / 1000;
        return h(
          "li",
          stateDot(isDone ? READY : isRunning ? WORKING : FAILED),
          h("span", name),
          h("span.muted", isDone || (isRunning && elapsed >= 0) ? T.seconds(elapsed) : T.unfinished),
        );
      }),
    );
  }
}
