// Which module shows the page of a URL. Pages of kinds are generic: /SEGMENT, /SEGMENT/~new, /SEGMENT/[NAMESPACE/]NAME.

import { management } from "../core/kinds.js";

// Hand-made pages by the first segments of their path. The rest of the path is passed as `rest`.
const PAGES = [
  ["", () => import("./overview.js"), "overview"],
  ["clusters/~connect", () => import("./clusters/connect.js"), "clusters"],
  ["clusters/*/~browse", () => import("./clusters/browse.js"), "clusters"],
  ["spaceinstances/*/*/~browse", () => import("./clusters/browse.js"), "spaceinstances"],
  ["virtualclusterinstances/*/*/~browse", () => import("./clusters/browse.js"), "virtualclusterinstances"],
  ["access", () => import("./access.js"), "access"],
  ["account", () => import("./account.js"), ""],
  ["authorize", () => import("./authorize.js"), ""],
  ["device", () => import("./device.js"), ""],
  ["signed-in", () => import("./signed-in.js"), ""],
  ["audit", () => import("./audit.js"), "system"],
  ["kinds", () => import("./kinds.js"), "system"],
  ["settings", () => import("./settings.js"), "system"],
  ["about", () => import("./about.js"), "system"],
];

export function matchPage(path) {
  const page = PAGES.filter(([prefix]) => startsWith(path, prefix)).sort((a, b) => b[0].length - a[0].length)[0];
  if (page) return { load: page[1], section: page[2], parameters: { path, rest: path.slice(page[0] ? page[0].split("/").length : 0) } };
  return matchKind(path) ?? { load: () => import("./not-found.js") };
}

const startsWith = (path, prefix) => (prefix ? prefix.split("/").every((part, index) => part === "*" || path[index] === part) : path.length === 0);

function matchKind([segment, ...rest]) {
  const kind = management.findSegment(segment);
  return kind && matchKindOf(kind, rest, segment);
}

// The page of a kind; also for kinds of a cluster behind a gateway.
export function matchKindOf(kind, rest, section) {
  if (!rest.length) return { load: () => import("./list.js"), section, parameters: { kind } };
  if (rest.at(-1) === "~new") return { load: () => import("./create.js"), section, parameters: { kind, namespace: rest.length > 1 ? rest[0] : "" } };
  if (rest.length > (kind.namespaced ? 2 : 1)) return null;
  if (kind.namespaced && rest.length === 1) return { load: () => import("./list.js"), section, parameters: { kind, namespace: rest[0] } };
  const [name, namespace = ""] = [...rest].reverse();
  return { load: () => import("./object.js"), section, parameters: { kind, namespace, name } };
}

// The path of an object's page.
export const pathOf = (kind, object) => [kind.segment, kind.namespaced && object.metadata.namespace, object.metadata.name].filter(Boolean).map(encodeURIComponent).join("/");
