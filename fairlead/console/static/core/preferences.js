// Settings of this browser: theme, time zone, columns, pins. Nothing here is secret, and nothing here names an object
// that only this user may see, except pins, which are removed at sign-out.

const PREFIX = "fairlead.";
const target = new EventTarget();

export const preferences = {
  /**
   * @param {string} name
   * @param {any} fallback
   * @returns {any}
   */
  get(name, fallback = null) {
    try {
      return JSON.parse(localStorage.getItem(PREFIX + name) ?? "null") ?? fallback;
    } catch {
      return fallback;
    }
  },
  /**
   * @param {string} name
   * @param {any} value
   */
  set(name, value) {
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(value));
    } catch {
      /* private mode: lasts as long as the tab */
    }
    target.dispatchEvent(new CustomEvent(name, { detail: value }));
  },
  /** @param {string} name */
  remove(name) {
    try {
      localStorage.removeItem(PREFIX + name);
    } catch {
      /* as above */
    }
  },
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {string} name
   * @param {(event: any) => any} handler
   */
  listen(scope, name, handler) {
    scope.listen(target, name, handler);
  },
};
