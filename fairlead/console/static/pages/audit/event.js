// One request of the audit log: what it was, how it was decided, and what to do about a denial.

import { can } from "../../core/access.js";
import { session } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { getObject, listObjects, managed, management, pathOf } from "../../core/kinds.js";
import { href, link } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { T } from "../../texts/audit.js";
import { describeClient } from "../../widgets/client.js";
import { card, copyable, definition, linkButton } from "../../widgets/common.js";
import { actor, describeObject, didWhat, isDenied, isInWords, outcome, REFUSED_BY } from "./description.js";

const DECISION = "authorization.k8s.io/decision";
const REASON = "authorization.k8s.io/reason";

export async function show(page, id) {
  page.setTitle(T.event, [[T.title, "audit"]]);
  const event = await getObject(managed("auditevents"), "", id, { signal: page.scope.signal });
  const { annotations = {}, objectRef = {}, responseStatus = {}, verb, user = {}, impersonatedUser } = event;
  const wasDenied = isDenied(annotations);
  const byAdmission = wasDenied && annotations[DECISION] === "allow";
  page.setTitle(
    (wasDenied ? T.deniedSentence : T.sentence)(
      actor(event),
      wasDenied && !isInWords(event) ? verb : didWhat(event),
      phrase(event),
    ),
    [[T.title, "audit"]],
  );
  const question = {
    verb,
    resource: objectRef.resource,
    group: objectRef.apiGroup,
    subresource: objectRef.subresource,
    namespace: objectRef.namespace,
    name: objectRef.name,
    ...(await subjectOf(event, page.scope.signal)),
  };
  page.main.append(
    h(
      "div.grid",
      card(
        wasDenied ? T.wasDenied : T.decision,
        definition([
          [T.decision, wasDenied ? T.denied : T.allowed],
          [T.refusedBy, annotations[REFUSED_BY]],
          [T.reason, byAdmission ? "" : annotations[REASON]],
          [T.status, outcome(event)[0]],
          [T.message, responseStatus.message],
        ]),
        objectRef.resource &&
          h("div.stack", h("p.muted", T.accessText), linkButton(href("access", question), T.ask, { icon: "shield" })),
      ),
      card(
        T.event,
        definition([
          [T.who, user.username],
          [T.actedAs, impersonatedUser?.username],
          [T.key, keyOf(event)],
          [T.object, objectLink(objectRef)],
          [T.path, h("code", event.requestURI ?? "")],
          [T.received, timeElement(event.requestReceivedTimestamp ?? event.metadata.creationTimestamp)],
          [T.address, event.sourceIPs?.join(", ")],
          [T.agent, describeClient(event.userAgent)],
          [T.id, copyable(event.metadata.name)],
        ]),
      ),
      card(
        T.annotations,
        definition(Object.entries(annotations).filter(([name]) => ![DECISION, REASON, REFUSED_BY].includes(name))),
      ),
    ),
  );
}

// Nothing follows the words for a login: the path of its request is in the card.
const phrase = (event) => {
  if (event.objectRef?.name) return T.the(describeObject(event));
  return isInWords(event) ? "" : describeObject(event);
};

/** @param {Record<string, any>} event */
const keyOf = ({ user = {} }) => user.extra?.["service.sh/access-key"]?.join(", ");

// About whom "May I?" is asked: the key of the request if it has a scope, as its user may be allowed more.
async function subjectOf(event, signal) {
  const { user = {}, impersonatedUser } = event;
  const key = keyOf(event);
  const keys = managed("ownedaccesskeys");
  if (key && key === session.key && !impersonatedUser) return {};
  const isReadable = key && !impersonatedUser && (await can("list", keys));
  const { items = [] } = isReadable
    ? await listObjects(keys, { fieldSelector: `metadata.name=${key}`, signal }).catch(() => ({}))
    : {};
  return items[0]?.spec?.scope ? { accessKey: key } : { user: (impersonatedUser ?? user).username };
}

function objectLink(objectRef) {
  const kind = objectRef.resource && management.find(objectRef.resource, objectRef.apiGroup ?? "");
  if (!kind?.isListed || !objectRef.name) return describeObject({ objectRef });
  return link(pathOf(kind, { metadata: objectRef }), describeObject({ objectRef }));
}
