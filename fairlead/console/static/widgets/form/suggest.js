// Names of existing objects, offered in fields that name one. They are listed when such a field gets the focus, if the
// user may list them; at most LIMIT of a kind.

import { can } from "../../core/access.js";
import { request } from "../../core/api.js";
import { h, newId } from "../../core/dom.js";

const LIMIT = 300;
const METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const OWN_NAME = /^(user|team|cluster|project|runner|space|virtualCluster|clusterRole|role)s?$/;

// Fields, and keys of maps (`PATH{}`), with words that the server knows.
const INSTANCES = ["spaceinstances", "virtualclusterinstances", "devpodworkspaceinstances", "appinstances"];
const FIXED = [
  [/^spec\.members\[\d+\]\.clusterRole$/, ["admin", "user", "viewer"]],
  [/^spec\.quotas\.(project|user)\{\}$/, INSTANCES.flatMap((each) => [each, `${each}.active`])],
];

// Plurals of the kinds that a field may name: from its own name (`cluster`, `users[0]`), or from its parent's
// (`appRef.name`).
function namedKinds(path, kind) {
  if (/\[(?!\d+\]$)[^\]]*\]$/.test(path)) return []; // the value of a map
  const names = path.replace(/\[[^\]]*\]/g, "").split(".");
  const last = names.at(-1);
  let word = OWN_NAME.test(last) ? last : last === "name" ? (names.at(-2) ?? "") : "";
  if (/Ref$/.test(word)) word = word.slice(0, -3);
  word = word
    .replace(/^allowed/, "")
    .toLowerCase()
    .replace(/s$/, "");
  if (!word) return [];
  if (word === "member") return ["users", "teams"];
  if (word === "subject") return ["users"];
  if (word === "template") return kind ? [`${kind.kind.replace(/Instance$/, "Template").toLowerCase()}s`] : [];
  if (word === "role") return ["clusterroles", "roles"];
  return [`${word}s`, `${word}instances`];
}

// Returns a function for the context of a form: it adds suggestions to the control of a field, and returns their list.
export function suggestions(kind, namespace) {
  const lists = new Map();
  return ({ path }, control) => {
    const words = FIXED.find(([pattern]) => pattern.test(path))?.[1];
    const kinds = namedKinds(path, kind)
      .map((plural) => kind?.server.find(plural))
      .filter((each) => each?.isListed);
    if (!words && !kinds.length) return null;
    const key = (words ?? kinds.map((each) => each.plural)).join();
    const isFirst = !lists.has(key);
    const node = isFirst
      ? h(
          "datalist",
          { id: newId("names") },
          words?.map((value) => h("option", { value })),
        )
      : lists.get(key);
    lists.set(key, node);
    control.setAttribute("list", node.id);
    control.addEventListener("focus", () => {
      if (!words && !node.dataset.loaded) load(node, kinds, namespace());
    });
    return isFirst ? node : null;
  };
}

async function load(node, kinds, namespace) {
  node.dataset.loaded = "true";
  for (const kind of kinds) {
    const scope = kind.namespaced ? namespace : "";
    if ((kind.namespaced && !scope) || !(await can("list", kind, scope))) continue;
    try {
      const found = await request(`${kind.path(scope)}?limit=${LIMIT}`, { accept: METADATA });
      node.append(
        ...found.items.map((each) => h("option", { value: each.metadata.name }, kinds.length > 1 && kind.title)),
      );
    } catch {
      /* a field works without suggestions */
    }
  }
}
