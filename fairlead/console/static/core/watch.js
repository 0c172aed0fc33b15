// Lists that follow the server. All pages of a tab share one stream for the same list, and it outlives the last of them
// by some seconds, so that going back is immediate.
//
// The end of a stream has three meanings: a clean end or a lost connection resumes where it ended, with back-off; 410
// lists again once; 401 and 403 stop the list, because asking again cannot help.

import { ApiError, pause, query, request } from "./api.js";

const LINGER = 10_000;
const PAGE = 500;
const STALE_AFTER = 3_000;
const HIDDEN_AFTER = 60_000;
const POLL_SECONDS = 15;
const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const RETRYABLE = new Set([0, 408, 409, 429, 500, 502, 503, 504]);

const lists = new Map();
let streams = 0;

// Browsers open six connections to a host with HTTP/1.1, for all tabs together.
function maxStreams() {
  const entry = performance.getEntriesByType("navigation")[0];
  return entry && /^http\/1/.test(entry.nextHopProtocol ?? "") ? 2 : 8;
}

// `as` is "table" (rows with cells, and metadata only) or "object". Returns the shared list; call `subscribe` to follow
// it.
/**
 * @param {any} kind
 * @param {{namespace?: string, labelSelector?: string, fieldSelector?: string, as?: string}} options
 */
export function watchList(kind, { namespace = "", labelSelector = "", fieldSelector = "", as = "object" } = {}) {
  const key = JSON.stringify([kind.path(namespace), labelSelector, fieldSelector, as]);
  let list = lists.get(key);
  if (!list) lists.set(key, (list = new WatchedList(key, kind, { namespace, labelSelector, fieldSelector, as })));
  return list;
}

// One object, followed by the list with its name.
/**
 * @param {any} kind
 * @param {string | undefined} namespace
 * @param {string} name
 */
export const watchObject = (kind, namespace, name) =>
  watchList(kind, { namespace, fieldSelector: `metadata.name=${name}` });

/**
 * Until a list is there, or cannot be read for now.
 * @param {any} list
 * @param {import("./dom.js").Scope} scope
 */
export const firstContent = (list, scope) =>
  new Promise((/** @type {(value?: any) => void} */ resolve) =>
    list.subscribe(scope, () => (list.isComplete || list.state !== "live") && resolve()),
  );

export function refreshAll() {
  for (const list of lists.values()) list.wake();
}

// Lists that no page shows any more give their streams to others.
function stopUnused() {
  for (const list of lists.values()) list.stopIfUnused();
}

export const staleLists = () => [...lists.values()].filter((list) => list.state === "stale").length;

class WatchedList {
  items = new Map(); // by UID: the object, or {cells, object} of a table
  /** @type {any[]} */
  columns = [];
  state = "loading"; // loading | live | stale | stopped
  /** @type {any} */
  error = null;
  version = "";
  isComplete = false;
  #subscribers = new Set();
  #frame = 0;
  #linger = 0;
  /** @type {AbortController | null} */
  #controller = null;
  /** @type {((value?: any) => void) | null} */
  #sleeper = null;

  /**
   * @param {string} key
   * @param {any} kind
   * @param {Record<string, string>} options
   */
  constructor(key, kind, options) {
    this.key = key;
    this.kind = kind;
    this.options = options;
  }

  // Calls `notify(list)` now if there is something to show, and once per animation frame after changes. Ends with
  // `scope`.
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {(list: WatchedList) => void} notify
   */
  subscribe(scope, notify) {
    this.#subscribers.add(notify);
    clearTimeout(this.#linger);
    if (!this.#controller) this.#start();
    else if (this.state !== "loading") queueMicrotask(() => !scope.ended && notify(this));
    scope.add(() => {
      this.#subscribers.delete(notify);
      if (!this.#subscribers.size) this.#linger = setTimeout(() => this.#stop(), LINGER);
    });
    return this;
  }

  get objects() {
    return [...this.items.values()].map((item) => (this.options.as === "table" ? item.object : item));
  }

  wake() {
    this.#sleeper?.();
  }

  stopIfUnused() {
    if (!this.#subscribers.size) this.#stop();
  }

  #stop() {
    this.#controller?.abort();
    this.#controller = null;
    lists.delete(this.key);
  }

  async #start() {
    const controller = (this.#controller = new AbortController());
    const { signal } = controller;
    let failures = 0;
    let stale = 0; // a short gap is not shown
    const connected = () => {
      clearTimeout(stale);
      stale = failures = 0;
      this.#set("live");
    };
    signal.addEventListener("abort", () => clearTimeout(stale), { once: true });
    while (!signal.aborted) {
      try {
        if (!this.version) {
          await this.#list(signal);
          connected();
        }
        await this.#follow(signal, connected);
      } catch (caught) {
        const error = /** @type {any} */ (caught);
        if (signal.aborted) return;
        if (error instanceof ApiError && error.code === 410) this.version = "";
        else if (error instanceof ApiError && !RETRYABLE.has(error.code)) {
          lists.delete(this.key); // the next page asks again
          return this.#set("stopped", error);
        } else {
          failures++;
          stale ||= setTimeout(() => this.#set("stale", error), this.isComplete ? STALE_AFTER : 0);
          await this.#sleep(
            error.retryAfter || Math.min(15, 0.5 * 2 ** failures) * (0.7 + 0.6 * Math.random()),
            signal,
          );
        }
      }
    }
  }

  // Waits, but not longer than until the tab wakes up.
  /**
   * @param {number} seconds
   * @param {AbortSignal} signal
   */
  async #sleep(seconds, signal) {
    await Promise.race([
      pause(seconds, signal).catch(() => {}),
      new Promise((resolve) => {
        this.#sleeper = resolve;
      }),
    ]);
    this.#sleeper = null;
  }

  /**
   * @param {string} state
   * @param {any} error
   */
  #set(state, error = null) {
    if (this.state === state && this.error === error) return;
    this.state = state;
    this.error = error;
    this.#changed();
  }

  #changed() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      for (const notify of this.#subscribers) notify(this);
    });
    if (document.hidden && this.#frame) {
      // hidden tabs have no frames
      cancelAnimationFrame(this.#frame);
      this.#frame = 0;
      queueMicrotask(() => {
        for (const notify of this.#subscribers) notify(this);
      });
    }
  }

  /** @param {Record<string, any>} parameters */
  #path(parameters) {
    const { namespace, labelSelector, fieldSelector, as } = this.options;
    const include = as === "table" ? { includeObject: "Metadata" } : {};
    return this.kind.path(namespace) + query({ labelSelector, fieldSelector, ...include, ...parameters });
  }

  get #accept() {
    return this.options.as === "table" ? TABLE : "application/json";
  }

  /** @param {AbortSignal} signal */
  async #list(signal) {
    const fresh = new Map();
    let next = "";
    let version = "";
    do {
      const page = await request(this.#path({ limit: PAGE, continue: next }), { accept: this.#accept, signal });
      this.#take(page, fresh);
      next = page.metadata?.continue ?? "";
      version = page.metadata?.resourceVersion ?? "";
      if (next && !this.isComplete) {
        // show the first page while the others load
        this.items = fresh;
        this.#set("live");
        this.#changed();
      }
    } while (next);
    this.version = version; // not before: a list that failed halfway begins again
    this.items = fresh;
    this.isComplete = true;
    this.#changed();
  }

  /**
   * @param {any} page
   * @param {Map<string, any>} items
   */
  #take(page, items) {
    if (page.columnDefinitions?.length) this.columns = page.columnDefinitions;
    for (const row of page.rows ?? []) items.set(row.object.metadata.uid ?? row.object.metadata.name, row);
    for (const item of page.items ?? []) {
      item.kind ??= this.kind.kind;
      item.apiVersion ??= this.kind.apiVersion;
      items.set(item.metadata.uid ?? item.metadata.name, item);
    }
  }

  /**
   * @param {AbortSignal} signal
   * @param {() => void} connected
   */
  async #follow(signal, connected) {
    if (streams >= maxStreams()) stopUnused();
    if (!this.kind.verbs.has("watch") || streams >= maxStreams()) {
      await this.#sleep(POLL_SECONDS, signal);
      this.version = "";
      return;
    }
    const stream = new AbortController();
    const stop = () => stream.abort();
    signal.addEventListener("abort", stop, { once: true });
    const hide = watchVisibility(stop);
    streams++;
    try {
      const path = this.#path({ watch: "true", resourceVersion: this.version, allowWatchBookmarks: "true" });
      const response = await request(path, { accept: this.#accept, signal: stream.signal, as: "response" });
      connected();
      for await (const line of readLines(response.body)) this.#apply(JSON.parse(line));
    } catch (error) {
      if (signal.aborted || !stream.signal.aborted) throw error;
    } finally {
      streams--;
      hide.end();
      signal.removeEventListener("abort", stop);
    }
    if (hide.wasHidden) await hide.visible;
    else await this.#sleep(0.2, signal); // a clean end: resume at once, but never in a busy loop
  }

  /** @param {{type: string, object: any}} event */
  #apply({ type, object }) {
    if (type === "ERROR") throw new ApiError(object);
    this.version =
      object.metadata?.resourceVersion || object.rows?.[0]?.object.metadata.resourceVersion || this.version;
    if (type === "BOOKMARK") return;
    if (type === "DELETED") {
      const gone = object.rows ? object.rows.map((/** @type {any} */ row) => row.object) : [object];
      for (const each of gone) this.items.delete(each.metadata.uid ?? each.metadata.name);
    } else this.#take(object.rows ? object : { items: [object] }, this.items);
    this.#changed();
  }
}

// Calls `stop` when the tab has been hidden for a minute. `visible` then resolves when it is shown again.
/** @param {() => void} stop */
function watchVisibility(stop) {
  const listeners = new AbortController();
  const state = {
    wasHidden: false,
    /** @type {Promise<unknown> | null} */
    visible: null,
    end: () => {
      clearTimeout(timer);
      listeners.abort();
    },
  };
  let timer = 0;
  const check = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(hide, HIDDEN_AFTER);
  };
  const hide = () => {
    state.wasHidden = true;
    state.visible = new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    stop();
  };
  document.addEventListener("visibilitychange", check, { signal: listeners.signal });
  check();
  return state;
}

/** @param {ReadableStream<Uint8Array<ArrayBuffer>>} body */
export async function* readLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line) yield line;
    }
    if (rest.trim()) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

document.addEventListener("visibilitychange", () => !document.hidden && refreshAll());
window.addEventListener("online", refreshAll);
