// Shapes that many modules of the console share, for comments such as `@param {KubernetesObject} object`.

interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    creationTimestamp?: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
    ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string; controller?: boolean }[];
    managedFields?: { manager: string; operation: string; time?: string; subresource?: string; fieldsV1?: object }[];
    [field: string]: any;
  };
  spec?: any;
  status?: any;
  [field: string]: any;
}

/** Options of `request` in core/api.js. */
interface RequestOptions {
  method?: string;
  /** An object is sent as JSON, a string as it is, with `type`. */
  body?: any;
  type?: string;
  accept?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** What to return. */
  as?: "json" | "text" | "response";
  /** A response 401 is an error, and no reason to sign in again. */
  anonymous?: boolean;
  onWarnings?: (warnings: string[]) => void;
}

/** Options of the functions that write objects. */
interface WriteOptions extends RequestOptions {
  dryRun?: boolean;
  fieldValidation?: string;
}

/** What the shell passes to the module of a page. */
interface Page {
  scope: import("../../fairlead/console/static/core/dom.js").Scope;
  main: HTMLElement;
  query: URLSearchParams;
  hasTitle: boolean;
  setTitle(title: string, trail?: [string, string][]): void;
}

/** What an access review asks about. */
interface ResourceAttributes {
  verb?: string;
  group?: string;
  version?: string;
  resource?: string;
  namespace?: string;
  name?: string;
  subresource?: string;
}

/** A question of core/access.js: about a kind, or about a path that is no resource. */
interface Question {
  verb: string;
  kind?: any;
  namespace?: string;
  name?: string;
  subresource?: string;
  path?: string;
}

/** A state of an object, as core/status.js finds it. */
interface ObjectState {
  state: string;
  word: string;
  message?: string;
}

/** What may be a child of an element; empty values are left out. */
type Child = Node | string | number | boolean | null | undefined | Child[];

interface PerformanceEntry {
  /** Of entries of the types `navigation` and `resource`. */
  readonly nextHopProtocol?: string;
}
