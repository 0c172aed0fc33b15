// What an event of the audit log says, in words.

import { T } from "../../texts/audit.js";

export const REFUSED_BY = "service.sh/refused-by";
const DRY_RUN = "service.sh/dry-run"; // stored nothing, whatever the verb says

export function describeObject({ objectRef, requestURI = "" }) {
  if (!objectRef?.resource) return requestURI.split("?")[0];
  return [objectRef.resource, objectRef.name, objectRef.subresource].filter(Boolean).join("/");
}

// A login is no object. What its request did is said in words, and the path stays a link.
export function didWhat({ verb, objectRef, requestURI = "", annotations = {} }) {
  const words = (!objectRef?.resource && T.requests[requestURI.split("?")[0]]) || (T.verbs[verb] ?? verb);
  return annotations[DRY_RUN] ? T.dryRun(words) : words;
}

export const actor = ({ user = {}, impersonatedUser }) =>
  impersonatedUser ? `${user.username} (${impersonatedUser.username})` : (user.username ?? "");

// Admission and quotas refuse requests that authorization allows. Events of earlier versions have only the decision.
export const isDenied = (annotations) =>
  Boolean(annotations[REFUSED_BY]) || annotations["authorization.k8s.io/decision"] === "forbid";

export function outcome({ responseStatus = {}, annotations = {} }) {
  const code = responseStatus.code ?? "";
  if (isDenied(annotations)) return [`${code} ${T.denied}`, "denied"];
  return code >= 400 ? [`${code} ${responseStatus.reason ?? T.failed}`, "failed"] : [String(code), ""];
}
