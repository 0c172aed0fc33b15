// The kinds that a server serves, from aggregated discovery, and the paths of their objects and pages.

import { query, request } from "./api.js";
import { API, GROUP } from "./base.js";

const DISCOVERY = ["v2", "v2beta1"]
  .map((version) => `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`)
  .join();

class Kind {
  /**
   * @param {any} server
   * @param {string} group
   * @param {string} version
   * @param {any} resource
   */
  constructor(server, group, version, resource) {
    this.server = server;
    this.group = group;
    this.version = version;
    this.kind = resource.responseKind.kind || resource.resource;
    this.plural = resource.resource;
    this.namespaced = resource.scope === "Namespaced";
    this.verbs = new Set(resource.verbs);
    this.subresources = new Map(
      (resource.subresources ?? []).map((/** @type {any} */ each) => [each.subresource, new Set(each.verbs)]),
    );
  }

  get apiVersion() {
    return this.group ? `${this.group}/${this.version}` : this.version;
  }
  get isListed() {
    return this.verbs.has("list");
  }

  // The part of a page's URL that names the kind, as kubectl would: `clusters`, `secrets`,
  // `roles.rbac.authorization.k8s.io`.
  get segment() {
    return !this.group || (this.group === GROUP && this.server === management)
      ? this.plural
      : `${this.plural}.${this.group}`;
  }

  // "SpaceInstance" -> "Space instance", "DevPodWorkspaceInstance" -> what people call it.
  get title() {
    return TITLES[this.kind] ?? sentence(this.kind);
  }
  get pluralTitle() {
    return pluralize(this.title);
  }
  // The title within a sentence: "space", "config map", "API service".
  get noun() {
    return lowerFirst(this.title);
  }
  get pluralNoun() {
    return lowerFirst(this.pluralTitle);
  }

  // Without names, the path of all objects; with names, that of an object, or of a subresource.
  /**
   * @param {string} [namespace]
   * @param {(string | undefined)[]} names
   */
  path(namespace, ...names) {
    const root = this.group
      ? `${this.server.root}/apis/${this.group}/${this.version}`
      : `${this.server.root}/api/${this.version}`;
    const scope = this.namespaced && namespace ? ["namespaces", segment(namespace)] : [];
    return [root, ...scope, this.plural, ...names.map(segment)].join("/");
  }

  /**
   * @param {any} object
   * @param {string[]} subresource
   */
  pathOf(object, ...subresource) {
    return this.path(object.metadata.namespace, object.metadata.name, ...subresource);
  }
}

// A name in a path. Names come from clusters, too, which are not trusted: without a name, a DELETE would be about all
// objects, and browsers resolve `..`, so that a request would be about an object of the management API.
/** @param {unknown} name */
function segment(name) {
  if (typeof name !== "string" || !name || name === "." || name === ".." || name.includes("/"))
    throw new Error(`${JSON.stringify(name) ?? "nothing"} is not the name of an object`);
  return encodeURIComponent(name);
}

// Groups, versions and resources are parts of paths as they are.
const PLAIN = /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/;
/**
 * @param {string} group
 * @param {string} version
 * @param {string} resource
 */
const isPlain = (group, version, resource) =>
  (!group || PLAIN.test(group)) && PLAIN.test(version) && PLAIN.test(resource);

/** @type {Record<string, string>} */
const TITLES = {
  DevPodWorkspaceInstance: "Workspace",
  DevPodWorkspaceTemplate: "Workspace template",
  SpaceInstance: "Space",
  DevPodEnvironmentTemplate: "Environment",
  DevPodWorkspacePreset: "Workspace preset",
  VirtualClusterInstance: "Virtual cluster",
  AppInstance: "Installed app",
  OwnedAccessKey: "Access key",
};

/** @param {string} name */
export function sentence(name) {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .split(" ");
  return words.map((word, index) => (index === 0 || /^[A-Z]{2,}$/.test(word) ? word : word.toLowerCase())).join(" ");
}

/** @param {string} text */
const lowerFirst = (text) => (/^[A-Z]{2}/.test(text) ? text : text.charAt(0).toLowerCase() + text.slice(1));

/** @param {string} title */
function pluralize(title) {
  if (/(s|x|ch)$/.test(title)) return `${title}es`;
  return /[^aeiou]y$/.test(title) ? `${title.slice(0, -1)}ies` : `${title}s`;
}

// A server of kinds: the management API, or a cluster behind a gateway.
export class Server {
  /** @param {string} root */
  constructor(root) {
    this.root = root;
    /** @type {Kind[]} */
    this.kinds = [];
    this.namespace = ""; // of a space, which is a part of a cluster
  }

  /** @param {AbortSignal} [signal] */
  async load(signal) {
    const groups = await Promise.all(
      ["/api", "/apis"].map((path) => request(this.root + path, { accept: DISCOVERY, signal })),
    );
    const kinds = [];
    for (const item of groups.flatMap((list) => list.items ?? [])) {
      const preferred = item.versions?.[0];
      const group = item.metadata?.name ?? "";
      for (const resource of preferred?.resources ?? []) {
        if (isPlain(group, preferred.version, resource.resource))
          kinds.push(new Kind(this, group, preferred.version, resource));
      }
    }
    this.kinds = kinds;
    return this;
  }

  /**
   * @param {string} plural
   * @param {string} [group]
   */
  find(plural, group) {
    return this.kinds.find((kind) => kind.plural === plural && (group === undefined || kind.group === group));
  }
  /** @param {string} segment */
  findSegment(segment) {
    return this.kinds.find((kind) => kind.segment === segment);
  }
  /**
   * @param {string} name
   * @param {string} apiVersion
   */
  findKind(name, apiVersion = "") {
    const group = apiVersion.includes("/") ? apiVersion.split("/")[0] : "";
    return this.kinds.find((kind) => kind.kind === name && kind.group === group);
  }
}

export const management = new Server(API);
/** @param {string} plural */
export const managed = (plural) => management.find(plural, GROUP);

// The path of an object's page.
/**
 * @param {any} kind
 * @param {any} object
 */
export const pathOf = (kind, object) =>
  [kind.segment, kind.namespaced && object.metadata.namespace, object.metadata.name]
    .filter(Boolean)
    .map(encodeURIComponent)
    .join("/");

// Objects of a kind. `create` and `patch` take {dryRun: true}.
/**
 * @param {any} kind
 * @param {string | undefined} namespace
 * @param {string} name
 * @param {RequestOptions} [options]
 */
export const getObject = (kind, namespace, name, options) => request(kind.path(namespace, name), options);
/**
 * @param {any} kind
 * @param {{namespace?: string, signal?: AbortSignal, [parameter: string]: any}} options
 */
export const listObjects = (kind, { namespace, signal, ...parameters } = {}) =>
  request(kind.path(namespace) + query(parameters), { signal });
/**
 * @param {any} kind
 * @param {string | undefined} namespace
 * @param {any} body
 * @param {WriteOptions} [options]
 */
export const createObject = (kind, namespace, body, options) => write(kind.path(namespace), "POST", body, options);
/**
 * @param {any} kind
 * @param {string | undefined} namespace
 * @param {string} name
 * @param {WriteOptions} options
 */
export const deleteObject = (kind, namespace, name, options = {}) =>
  write(kind.path(namespace, name), "DELETE", options.body, options);
/**
 * @param {any} kind
 * @param {string | undefined} namespace
 * @param {string} name
 * @param {any} body
 * @param {WriteOptions} [options]
 */
export const patchObject = (kind, namespace, name, body, options) =>
  write(kind.path(namespace, name), "PATCH", body, { type: "application/merge-patch+json", ...options });

/**
 * @param {string} path
 * @param {string} method
 * @param {any} body
 * @param {WriteOptions} options
 */
function write(path, method, body, { dryRun, type, accept, signal, onWarnings, fieldValidation = "Strict" } = {}) {
  const parameters = { dryRun: dryRun ? "All" : "" };
  if (method !== "DELETE") Object.assign(parameters, { fieldManager: "fairlead-console", fieldValidation });
  const show = onWarnings ?? (dryRun ? () => {} : undefined); // those of a dry run come again with the write
  return request(path + query(parameters), { method, body, type, accept, signal, onWarnings: show });
}
