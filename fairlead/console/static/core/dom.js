// Builds DOM nodes. Every text becomes a text node: the page never parses HTML, so no string of a user can become
// markup.

const SVG = "http://www.w3.org/2000/svg";

// h("button.primary", {onclick: save, disabled: true}, "Save"). Properties that are false, null or undefined are left
// out. `style` is an object, `data` becomes data-* attributes. Children may be nodes, strings, numbers, arrays or empty
// values. Its type is `any`, because which element it is stands in a string.
/**
 * @param {string} selector
 * @param {Child | Record<string, any>} [properties]
 * @param {Child[]} children
 * @returns {any}
 */
export function h(selector, properties, ...children) {
  const [tag, ...classes] = selector.split(".");
  return fill(document.createElement(tag || "div"), classes, properties, children);
}

/**
 * @param {string} selector
 * @param {Child | Record<string, any>} [properties]
 * @param {Child[]} children
 * @returns {any}
 */
export function svg(selector, properties, ...children) {
  const [tag, ...classes] = selector.split(".");
  return fill(document.createElementNS(SVG, tag), classes, properties, children);
}

/**
 * @param {any} node
 * @param {string[]} classes
 * @param {any} properties
 * @param {Child[]} children
 */
function fill(node, classes, properties, children) {
  if (classes.length) node.classList.add(...classes);
  if (properties instanceof Node || typeof properties !== "object" || Array.isArray(properties))
    children.unshift(properties);
  else setProperties(node, properties ?? {});
  append(node, children);
  return node;
}

/**
 * @param {any} node
 * @param {Record<string, any>} properties
 */
function setProperties(node, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked" || name === "indeterminate") node[name] = value ?? "";
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
}

/**
 * @param {ParentNode} node
 * @param {Child[]} children
 */
function append(node, children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * @template {ParentNode} Parent
 * @param {Parent} node
 * @param {Child[]} children
 */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

// Only https links lead out of the console: a link of a user may be `javascript:`.
/**
 * @param {string} url
 * @param {string} [label]
 */
export function externalLink(url, label) {
  let parsed = null;
  try {
    parsed = new URL(url);
  } catch {
    /* not a URL: shown as text */
  }
  if (parsed?.protocol !== "https:") return h("span", label ?? url);
  return h("a", { href: parsed.href, rel: "noreferrer noopener", target: "_blank" }, label ?? url);
}

let lastId = 0;
export const newId = (prefix = "id") => `${prefix}-${++lastId}`;

// A scope ends everything that a page or widget started: watches, timers, listeners, requests.
export class Scope {
  #controller = new AbortController();
  get signal() {
    return this.#controller.signal;
  }
  get ended() {
    return this.signal.aborted;
  }
  end() {
    this.#controller.abort();
  }
  /** @param {() => void} stop */
  add(stop) {
    if (this.ended) stop();
    else this.signal.addEventListener("abort", stop, { once: true });
  }
  /**
   * @param {EventTarget} target
   * @param {string} type
   * @param {(event: any) => any} handler
   * @param {AddEventListenerOptions} [options]
   */
  listen(target, type, handler, options) {
    target.addEventListener(type, handler, { ...options, signal: this.signal });
  }
  /**
   * @param {number} milliseconds
   * @param {() => void} run
   */
  every(milliseconds, run) {
    const timer = setInterval(run, milliseconds);
    this.add(() => clearInterval(timer));
  }
  child() {
    const scope = new Scope();
    const end = () => scope.end();
    this.add(end);
    scope.add(() => this.signal.removeEventListener("abort", end));
    return scope;
  }
}

// A sentence of the server: `names` in backticks are code. The text stays as it is if they are not in pairs.
/**
 * @param {string} text
 * @returns {Child}
 */
export function prose(text) {
  const parts = text.split("\x60");
  return parts.length % 2 ? parts.map((each, index) => (index % 2 ? h("code", each) : each)) : text;
}
