// What an event of the audit log says, in words.

import { management } from "../../core/kinds.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/audit.js";

export const REFUSED_BY = "service.sh/refused-by";
const DRY_RUN = "service.sh/dry-run"; // stored nothing, whatever the verb says

export const kindOf = ({ objectRef }) =>
  objectRef?.resource && management.find(objectRef.resource, objectRef.apiGroup ?? "");

// "space dev", "all spaces", "password of the user ada"; the path of a request that is about no object.
export function describeObject(event) {
  const { objectRef, requestURI = "" } = event;
  if (!objectRef?.resource) return requestURI.split("?")[0];
  const kind = kindOf(event);
  const { name, resource, subresource } = objectRef;
  const object = name ? `${kind?.noun ?? resource} ${name}` : (kind?.pluralNoun ?? resource);
  return subresource ? T.partOf(T.parts[subresource] ?? subresource, object) : object;
}

// The project or the namespace of an object.
export function placeOf({ objectRef }) {
  if (!objectRef?.namespace) return "";
  const project = projectOf(objectRef.namespace);
  return project ? T.inProject(project) : objectRef.namespace;
}

// A login is no object. What its request did is said in words, and the path stays a link.
export function didWhat(event) {
  const { verb, annotations = {} } = event;
  const words = requestWords(event) || (T.verbs[verb] ?? verb);
  return annotations[DRY_RUN] ? T.dryRun(words) : words;
}

/** @param {Record<string, any>} event */
const requestWords = ({ objectRef, requestURI = "" }) => !objectRef?.resource && T.requests[requestURI.split("?")[0]];

/** @param {Record<string, any>} event */
export const isInWords = (event) => Boolean(requestWords(event));

/** @param {Record<string, any>} event */
export const actor = ({ user = {}, impersonatedUser }) =>
  impersonatedUser ? `${user.username} (${impersonatedUser.username})` : (user.username ?? "");

// Admission and quotas refuse requests that authorization allows. Events of earlier versions have only the decision.
export const isDenied = (annotations) =>
  Boolean(annotations[REFUSED_BY]) || annotations["authorization.k8s.io/decision"] === "forbid";

/** @param {Record<string, any>} event */
export function outcome({ responseStatus = {}, annotations = {} }) {
  const code = responseStatus.code ?? "";
  if (isDenied(annotations)) return [`${code} ${T.denied}`, "denied"];
  return code >= 400 ? [`${code} ${responseStatus.reason ?? T.failed}`, "failed"] : [String(code), ""];
}
