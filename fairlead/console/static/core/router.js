// Pages by URL, with the History API. Links are real links, so that a middle click and "copy address" work.

import { CONSOLE, consolePath } from "./base.js";
import { h } from "./dom.js";

let render = () => {};
let isDirty = () => false;
let shown = ""; // the address of the page that is shown, to come back if the user stays

// The current page: its path below the console ("clusters/eu-1") and its query.
export const current = () => ({
  path: decodeSegments(location.pathname.slice(CONSOLE.pathname.length)),
  query: new URLSearchParams(location.search),
});

/** @param {string} path */
const decodeSegments = (path) =>
  path
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });

/**
 * @param {string} path
 * @param {Record<string, any>} [parameters]
 */
export const href = (path, parameters) => {
  const search = new URLSearchParams(Object.entries(parameters ?? {}).filter(([, value]) => value)).toString();
  return consolePath(path) + (search ? `?${search}` : "");
};

/**
 * @param {string} path
 * @param {Child[]} children
 */
export function link(path, ...children) {
  return h("a", { href: href(path) }, ...children);
}

/**
 * @param {string} path
 * @param {{replace?: boolean, parameters?: Record<string, string>}} options
 */
export function navigate(path, { replace = false, parameters } = {}) {
  if (!mayLeave()) return;
  history[replace ? "replaceState" : "pushState"](null, "", href(path, parameters));
  shown = location.href;
  render();
}

// Changes parameters of the URL without leaving the page.
/** @param {Record<string, any>} changes */
export function setQuery(changes) {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) parameters.set(name, value);
    else parameters.delete(name);
  }
  const search = parameters.toString();
  history.replaceState(null, "", location.pathname + (search ? `?${search}` : ""));
  shown = location.href;
}

// While `check` returns true, leaving the page asks first.
/**
 * @param {import("./dom.js").Scope} scope
 * @param {() => boolean} check
 */
export function guardDraft(scope, check) {
  isDirty = check;
  scope.add(() => {
    if (isDirty === check) isDirty = () => false;
  });
}

export const hasDraft = () => isDirty();

let confirmLeave = () => true;
/** @param {() => boolean} ask */
export const setLeaveQuestion = (ask) => {
  confirmLeave = ask;
};
const mayLeave = () => !isDirty() || confirmLeave();

/** @param {() => void} renderPage */
export function startRouter(renderPage) {
  render = renderPage;
  shown = location.href;
  window.addEventListener("popstate", () => {
    if (!mayLeave()) return history.pushState(null, "", shown);
    shown = location.href;
    render();
  });
  window.addEventListener("beforeunload", (event) => {
    if (isDirty()) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const anchor = /** @type {HTMLAnchorElement} */ (/** @type {Element} */ (event.target).closest?.("a[href]"));
    if (
      !anchor ||
      event.defaultPrevented ||
      event.button ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    if (anchor.target || anchor.hasAttribute("download") || anchor.origin !== location.origin) return;
    if (!anchor.pathname.startsWith(CONSOLE.pathname) || anchor.pathname.startsWith(`${CONSOLE.pathname}assets/`))
      return;
    if (anchor.hash && anchor.pathname === location.pathname) return;
    event.preventDefault();
    if (!mayLeave()) return;
    if (anchor.href !== location.href) history.pushState(null, "", anchor.href);
    shown = location.href;
    render();
  });
  render();
}
