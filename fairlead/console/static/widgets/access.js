// Whether the user may do something with an object: of the management API, or of a cluster behind a gateway, which has
// access reviews of its own. And which kinds have values to hide.

import { guard } from "../core/access.js";
import { request } from "../core/api.js";
import { management } from "../core/kinds.js";
import { T } from "../texts/object.js";

export const isSecret = (kind) => /Secret$/.test(kind.kind);

export async function guardAction(control, question) {
  const { kind, verb, namespace, name, subresource } = question;
  if (kind.server === management) {
    const allowed = await guard(control, question);
    if (!allowed) control.title ||= T.notAllowed(verb, kind.title);
    return allowed;
  }
  const resourceAttributes = {
    verb,
    group: kind.group,
    version: kind.version,
    resource: kind.plural,
    namespace,
    name,
    subresource,
  };
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  const path = `${kind.server.root}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`;
  const { status } = await request(path, { method: "POST", body }).catch(() => ({ status: { allowed: true } }));
  if (!status.allowed)
    Object.assign(control, { disabled: true, title: status.reason || T.notAllowed(verb, kind.title) });
  return status.allowed;
}
