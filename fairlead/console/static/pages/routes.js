// Which module shows the page of a URL. Pages of kinds are generic: /SEGMENT, /SEGMENT/~new, /SEGMENT/[NAMESPACE/]NAME.

import { management } from "../core/kinds.js";
import { matchKindOf } from "./kind-pages.js";

// Hand-made pages by the first segments of their path. The rest of the path is passed as `rest`.
/** @type {[string, () => Promise<any>, string][]} */
const PAGES = [
  ["", () => import("./overview.js"), "overview"],
  ["clusters/~connect", () => import("./clusters/connect.js"), "clusters"],
  ["clusters/*/~browse", () => import("./clusters/browse.js"), "clusters"],
  ["spaceinstances/*/*/~browse", () => import("./clusters/browse.js"), "spaceinstances"],
  ["virtualclusterinstances/*/*/~browse", () => import("./clusters/browse.js"), "virtualclusterinstances"],
  ["map", () => import("./map.js"), "clusters"],
  ["access", () => import("./access.js"), "access"],
  ["account", () => import("./account.js"), ""],
  ["authorize", () => import("./authorize.js"), ""],
  ["device", () => import("./device.js"), ""],
  ["open-port", () => import("./workspaces/open-port.js"), "devpodworkspaceinstances"],
  ["signed-in", () => import("./signed-in.js"), ""],
  ["audit", () => import("./audit.js"), "system"],
  ["kinds", () => import("./kinds.js"), "system"],
  ["settings", () => import("./settings.js"), "system"],
  ["about", () => import("./about.js"), "system"],
];

// Starts loading the module of a page while the server is asked who the user is, and which kinds it has.
/** @param {string[]} path */
export function preloadPage(path) {
  const load = findPage(path)?.[1] ?? (path.length > 1 ? () => import("./object.js") : () => import("./list.js"));
  load().catch(() => {}); // the page itself says so
}

const findPage = (path) =>
  PAGES.filter(([prefix]) => startsWith(path, prefix)).sort((a, b) => b[0].length - a[0].length)[0];

export function matchPage(path) {
  const page = findPage(path);
  if (page)
    return {
      load: page[1],
      section: page[2],
      parameters: { path, rest: path.slice(page[0] ? page[0].split("/").length : 0) },
    };
  return matchKind(path) ?? { load: () => import("./not-found.js") };
}

const startsWith = (path, prefix) =>
  prefix ? prefix.split("/").every((part, index) => part === "*" || path[index] === part) : path.length === 0;

function matchKind([segment, ...rest]) {
  const kind = management.findSegment(segment);
  return kind && matchKindOf(kind, rest, segment);
}
