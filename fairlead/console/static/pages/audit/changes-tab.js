// Who changed an object: its requests of the audit log, newest first. The log has no bodies; which fields a change has
// set is known for the newest change of each field manager, from the object itself.

import { review } from "../../core/access.js";
import { query, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { managed } from "../../core/kinds.js";
import { href, link } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/audit.js";
import { button, card, empty, linkButton, skeleton, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { fieldPaths } from "../../widgets/managed-fields.js";
import { actor, didWhat, outcome } from "./description.js";
import { CHANGES } from "./selectors.js";

const LIMIT = 50;
const MAX_FIELDS = 8;
const SAME_REQUEST = 2_000; // milliseconds: times of field managers are whole seconds

export async function show(node, context) {
  const { kind, object, scope } = context;
  const log = managed("auditevents");
  const { namespace, name } = object.metadata;
  replace(node, skeleton(4));
  const { allowed, filtered, reason } = await review({ verb: "list", kind: log });
  if (!allowed) return replace(node, empty(T.mayNotRead, reason));
  const selector = [...CHANGES, `objectRef.resource=${kind.plural}`, `objectRef.name=${name}`];
  if (namespace) selector.push(`objectRef.namespace=${namespace}`);
  const load = async () => {
    try {
      const parameters = query({ limit: LIMIT, fieldSelector: selector.join(",") });
      const { items } = await request(log.path() + parameters, { signal: scope.signal });
      const project = projectOf(namespace);
      const all = href("audit", { resource: kind.plural, name, project, what: "all" });
      replace(
        node,
        h(
          "div.stack",
          filtered && h("p.muted", T.own),
          items.length
            ? card("", changeTable(context.object, items))
            : empty(T.noChanges, filtered ? T.noOwnChanges : T.noChangesText),
          h("div.row", button(T.refresh, { onclick: load }), linkButton(all, T.allRequests, { icon: "list" })),
        ),
      );
    } catch (error) {
      if (!scope.ended) replace(node, errorBlock(error, { retry: load }));
    }
  };
  load();
}

const changeTable = (object, events) =>
  tableOf(
    [T.time, T.who, T.did, T.fields, T.result],
    events.map((event) => {
      const [result, state] = outcome(event);
      return h(
        "tr",
        { data: { state } },
        h("td", link(`audit/${event.metadata.name}`, timeElement(timeOf(event)))),
        h("td", actor(event)),
        h("td", event.objectRef.subresource ? T.changedPart(event.objectRef.subresource) : didWhat(event)),
        h("td.mono.wrap", fieldsOf(object, event)),
        h("td", state ? result : T.done),
      );
    }),
    "table.changes",
  );

const timeOf = (event) => event.requestReceivedTimestamp ?? event.metadata.creationTimestamp;

// The fields that a request has set last, if the object says so.
function fieldsOf(object, event) {
  if (outcome(event)[1]) return "";
  const at = Date.parse(timeOf(event));
  const subresource = event.objectRef.subresource ?? "";
  const manager = managerOf(event);
  const paths = (object.metadata.managedFields ?? [])
    .filter(
      (entry) =>
        entry.manager === manager &&
        (entry.subresource ?? "") === subresource &&
        Math.abs(Date.parse(entry.time) - at) < SAME_REQUEST,
    )
    .flatMap((entry) => fieldPaths(entry.fieldsV1));
  if (!paths.length) return h("span.muted", T.notRecorded);
  const more = paths.length - MAX_FIELDS;
  return paths.slice(0, MAX_FIELDS).join(", ") + (more > 0 ? T.moreFields(more) : "");
}

// The field manager of a request: the one that it names, or its client.
function managerOf({ requestURI = "", userAgent = "" }) {
  return new URLSearchParams(requestURI.split("?")[1]).get("fieldManager") ?? userAgent.split("/")[0];
}
