// Which module shows a page of a kind: its list, a form for a new object, or an object; also for kinds of a cluster
// behind a gateway.

export function matchKindOf(kind, rest, section) {
  if (!rest.length) return { load: () => import("./list.js"), section, parameters: { kind } };
  if (rest.at(-1) === "~new")
    return {
      load: () => import("./create-views.js"),
      section,
      parameters: { kind, namespace: rest.length > 1 ? rest[0] : "" },
    };
  if (rest.length > (kind.namespaced ? 2 : 1)) return null;
  if (kind.namespaced && rest.length === 1)
    return { load: () => import("./list.js"), section, parameters: { kind, namespace: rest[0] } };
  const [name, namespace = ""] = [...rest].reverse();
  return { load: () => import("./object.js"), section, parameters: { kind, namespace, name } };
}
