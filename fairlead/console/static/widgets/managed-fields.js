// Who set which fields of an object, from its managedFields.

import { h } from "../core/dom.js";
import { timeElement } from "../core/time.js";
import { T } from "../texts/object.js";

const MAX_PATHS = 300;

// ["spec.displayName", "spec.access[name=admins]", ...] of one entry.
export function fieldPaths(fields, prefix = "") {
  return Object.entries(fields ?? {}).flatMap(([key, inner]) => {
    if (key === ".") return [];
    const path = prefix + step(key, prefix);
    const deeper = fieldPaths(inner, path);
    return deeper.length ? deeper : [path];
  });
}

function step(key, prefix) {
  const value = key.slice(2);
  if (key.startsWith("f:")) return /^[\w-]+$/.test(value) ? (prefix && ".") + value : `[${JSON.stringify(value)}]`;
  if (!key.startsWith("k:")) return `[${value}]`;
  try {
    const pairs = Object.entries(JSON.parse(value)).map(([name, each]) => `${name}=${each}`);
    return `[${pairs.join(",")}]`;
  } catch {
    return `[${value}]`;
  }
}

export function managerList(entries) {
  if (!entries?.length) return h("p.muted", T.noManagers);
  const newest = [...entries].sort((a, b) => String(b.time ?? "").localeCompare(String(a.time ?? "")));
  return h(
    "div.managers",
    newest.map((entry) => {
      const paths = fieldPaths(entry.fieldsV1);
      return h(
        "details",
        h(
          "summary",
          h("span.mono", entry.manager || "?"),
          ` ${entry.operation}${entry.subresource ? ` /${entry.subresource}` : ""} · `,
          T.managerFields(paths.length),
          " · ",
          entry.time ? timeElement(entry.time) : T.unknownTime,
        ),
        h(
          "ul.mono",
          paths.slice(0, MAX_PATHS).map((path) => h("li", path)),
          paths.length > MAX_PATHS && h("li", T.moreValues(paths.length - MAX_PATHS)),
        ),
      );
    }),
  );
}
