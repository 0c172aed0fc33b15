// Schemas of kinds, from the OpenAPI v3 documents of the server that serves them: the management API, or a cluster
// behind a gateway. A document is read once per server; references are resolved where they are used, so recursive
// schemas are fine.

import { request } from "../../core/api.js";

const servers = new WeakMap();
const MAX_REFERENCES = 20;

// The schema of a kind's objects. Parts of it may be references: `resolve(part, schema.document)` follows them.
export async function loadSchema(kind) {
  const path = kind.group ? `apis/${kind.group}/${kind.version}` : `api/${kind.version}`;
  const document = await remember(kind.server, path, () => readDocument(kind.server, path));
  const { group, version } = kind;
  const found = Object.values(document.components?.schemas ?? {}).find((schema) =>
    (schema["x-kubernetes-group-version-kind"] ?? []).some(
      (each) => each.kind === kind.kind && each.group === group && each.version === version,
    ),
  );
  return { ...(found ?? { type: "object", "x-kubernetes-preserve-unknown-fields": true }), document };
}

function remember(server, key, load) {
  if (!servers.has(server)) servers.set(server, new Map());
  const known = servers.get(server);
  if (!known.has(key))
    known.set(
      key,
      load().catch((error) => {
        known.delete(key);
        throw error;
      }),
    );
  return known.get(key);
}

async function readDocument(server, path) {
  const index = await remember(server, "", () => request(`${server.root}/openapi/v3`));
  const address = index.paths?.[path]?.serverRelativeURL;
  if (!address) return {};
  // The address is relative to the server as it sees itself. Proxies and gateways in front of it add to the path.
  return request(server.root + address.slice(address.indexOf("/openapi/v3")));
}

// Follows references, and merges `allOf` with one entry, in which Kubernetes wraps a reference to describe it.
export function resolve(schema, document) {
  for (let count = 0; schema && count < MAX_REFERENCES; count++) {
    const target = schema.$ref ?? schema.allOf?.[0]?.$ref;
    if (!target) return schema;
    const { $ref, allOf, ...own } = schema;
    const found = document?.components?.schemas?.[target.slice(target.lastIndexOf("/") + 1)];
    schema = { ...(found ?? { "x-kubernetes-preserve-unknown-fields": true }), ...own };
  }
  return schema ?? {};
}

// What a form needs to know of a schema: text, number, integer, boolean, enum, password, list, map, object, mixed or
// open.
export function shapeOf(schema) {
  if (schema["x-kubernetes-int-or-string"] || schema.format === "int-or-string") return "mixed";
  if (schema["x-kubernetes-preserve-unknown-fields"] && !schema.properties) return "open";
  if (schema.oneOf ?? schema.anyOf) return !schema.type || schema.type === "string" ? "text" : "open";
  if (schema.enum && schema.type === "string") return "enum";
  if (schema.type === "string") return schema.format === "password" ? "password" : "text";
  if (schema.type === "array") return schema.items ? "list" : "open";
  if (schema.type === "object" || schema.properties) {
    if (schema.properties) return "object";
    return schema.additionalProperties && schema.additionalProperties !== true ? "map" : "open";
  }
  return ["integer", "number", "boolean"].includes(schema.type) ? schema.type : "open";
}

const MATCHES = {
  text: (value) => typeof value === "string",
  password: (value) => typeof value === "string",
  enum: (value) => typeof value === "string",
  mixed: (value) => typeof value === "string" || Number.isInteger(value),
  integer: Number.isSafeInteger,
  number: Number.isFinite,
  boolean: (value) => typeof value === "boolean",
  list: Array.isArray,
  object: (value) => typeof value === "object" && !Array.isArray(value),
  map: (value) => typeof value === "object" && !Array.isArray(value),
};

// Whether a field of this shape can show the value. One that cannot is shown as text, so that nothing is lost.
export const fits = (shape, value) =>
  value === undefined || value === null || shape === "open" || MATCHES[shape](value);
