"""AuditEvent: a request in the audit log. Read-only and not persisted.

`subresources/audit_events.py` answers it from the files of the log. The fields are those of the Kubernetes type
audit.k8s.io/v1 Event, without the bodies.
"""

from typing import Any

from fairlead.core.call import DRY_RUN_ANNOTATION
from fairlead.core.objects import Object, get_path
from fairlead.core.refusals import REFUSED_BY_ANNOTATION
from fairlead.registry.kind import Column, Kind, Sensitivity
from fairlead.registry.schema import Schema, array, integer, mapping, micro_timestamp, obj, string

DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
MAX_TEXT, MAX_VALUES = 8_192, 128


def _text(description: str) -> Schema:
    return string(description, max_length=MAX_TEXT)


def _user(description: str) -> Schema:
    return obj(
        description,
        username=_text("Name of the user."),
        uid=_text("UID of the user."),
        groups=array(_text(""), "Groups of the user.", max_items=MAX_VALUES),
        extra=mapping(
            array(_text(""), max_items=MAX_VALUES), "Further attributes, such as the name of the access key."
        ),
    )


def _annotation(name: str) -> Any:
    return lambda event: (event.get("annotations") or {}).get(name)


def object_path(event: Object) -> str:
    """The object of a request as text: `apps/web` or `demo/pods/web/log`; the path if it is not about an object."""
    reference = event.get("objectRef") or {}
    if not reference.get("resource"):
        return str(event.get("requestURI") or "").partition("?")[0]
    names = ("namespace", "resource", "name", "subresource")
    return "/".join(str(reference[name]) for name in names if reference.get(name))


def _time(event: Object) -> str:
    return f"{str(event.get('stageTimestamp') or '')[:19]}Z"


def _user_name(event: Object) -> str:
    acted_as = get_path(event, "impersonatedUser.username")
    name = get_path(event, "user.username") or "<none>"
    return f"{name} as {acted_as}" if acted_as else str(name)


def _verb(event: Object) -> str:
    """A dry run looks like a change otherwise."""
    mark = " (dry run)" if (event.get("annotations") or {}).get(DRY_RUN_ANNOTATION) else ""
    return f"{event.get('verb') or ''}{mark}"


def _access_key(event: Object) -> str:
    return ",".join((get_path(event, "user.extra") or {}).get("service.sh/access-key") or ())


AUDIT_EVENT = Kind(
    name="AuditEvent",
    plural="auditevents",
    namespaced=False,
    fields={
        "level": _text("Level at which the request was recorded."),
        "auditID": _text("ID of the request, which its response has in the header Audit-Id."),
        "stage": _text("The latest stage of the request that was recorded."),
        "requestURI": _text("Path and query of the request."),
        "verb": _text("Verb of the request; for non-resource requests, the method in lower case."),
        "user": _user("The authenticated requester."),
        "impersonatedUser": _user("The user that the requester acted as."),
        "sourceIPs": array(_text(""), "Address that the request came from.", max_items=MAX_VALUES),
        "userAgent": _text("User agent that the client reported."),
        "objectRef": obj(
            "The object of the request.",
            resource=_text("Resource, in the plural."),
            namespace=_text("Namespace of the object."),
            name=_text("Name of the object."),
            uid=_text("UID of the object."),
            apiGroup=_text("API group of the resource."),
            apiVersion=_text("Version of the API group."),
            resourceVersion=_text("Resource version of the object."),
            subresource=_text("Subresource of the object."),
        ),
        "responseStatus": obj(
            "The result of the request.",
            metadata=obj("Always empty."),
            status=_text("Success or Failure."),
            message=_text("Message of an error."),
            reason=_text("Reason of an error."),
            details=obj(
                "Details of an error.",
                name=_text("Name of the object."),
                group=_text("API group of the object."),
                kind=_text("Resource of the object."),
                uid=_text("UID of the object."),
                causes=array(
                    obj(
                        "An invalid field.",
                        reason=_text("Reason."),
                        message=_text("Message."),
                        field=_text("Path of the field."),
                    ),
                    "The invalid fields.",
                    max_items=MAX_VALUES,
                ),
                retryAfterSeconds=integer("When to try again, in seconds.", bits=32),
            ),
            code=integer("HTTP status code.", bits=32),
        ),
        "requestReceivedTimestamp": micro_timestamp("When the request was received."),
        "stageTimestamp": micro_timestamp("When the stage was reached."),
        "annotations": mapping(_text(""), "Why the request was allowed or forbidden, how long it took, and notes."),
    },
    description="A request in the audit log of this server. Read-only; not persisted.",
    verbs=("get", "list", "watch"),
    persisted=False,
    is_audit_log=True,
    explicit_columns=True,
    columns=(
        Column("Time", _time, description="When the latest stage of the request was recorded."),
        Column("User", _user_name, description="Who sent the request."),
        Column("Verb", _verb, description="Verb of the request, and whether it was a dry run."),
        Column("Object", object_path, description="Namespace, resource and name of the object, or the path."),
        Column("Code", "responseStatus.code", type="integer", description="HTTP status code of the response."),
        Column("Decision", _annotation(DECISION), description="Whether the request was allowed."),
        Column("Refused By", _annotation(REFUSED_BY_ANNOTATION), description="What refused the request."),
        Column("Name", "metadata.name", description="ID of the request."),
        Column("Reason", _annotation(REASON), description="Why it was allowed or forbidden.", wide=True),
        Column("Access Key", _access_key, description="Access key of the requester.", wide=True),
        Column("Source", "sourceIPs", description="Address that the request came from.", wide=True),
        Column("User Agent", "userAgent", description="User agent that the client reported.", wide=True),
    ),
    selectable=(
        *("auditID", "stage", "verb", "user.username", "impersonatedUser.username", "objectRef.resource"),
        *("objectRef.subresource", "objectRef.namespace", "objectRef.name", "objectRef.apiGroup"),
        "responseStatus.code",
    ),
    sensitivity=Sensitivity.SECRET,
)
