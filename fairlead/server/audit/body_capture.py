"""Bodies as values, for the log: decoded if that is cheap, and otherwise the reason why not.

Called in the writer's thread, by `body_capture.py`. A body that the server could not read has been answered with an error
already; here it is no error but a remark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from fairlead.core import json, yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.secret_fields import REDACTED
from fairlead.server.api import protobuf
from fairlead.server.api.content import JSON, YAML
from fairlead.server.audit.events import line
from fairlead.server.audit.redaction import (
    DELETE_OPTIONS,
    cleansed,
    cleansed_json_patch,
    known,
    shown,
    without_fields,
)

CAPTURED_BYTES = 2 * 1024 * 1024
YAML_BYTES = 256 * 1024
"""YAML is read a hundred times as slowly as JSON; what is larger than this is not worth the time."""

JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"


class Omitted(Exception):
    """There is a body, but the log does not have it. The text says why."""


def decoded(body: bytes, media_type: str) -> Any:
    """The value of a body. Raises Omitted."""
    decode = _DECODERS.get(media_type)
    if decode is None:
        raise Omitted("neither JSON nor YAML nor protobuf")
    if len(body) > CAPTURED_BYTES:
        raise Omitted(f"larger than {CAPTURED_BYTES} bytes")
    try:
        return decode(body)
    except Malformed:
        raise Omitted("malformed") from None  # the error itself might quote the body


def _from_yaml(body: bytes) -> Any:
    if len(body) > YAML_BYTES:
        raise Omitted(f"YAML larger than {YAML_BYTES} bytes")
    value, _ = yaml.decode(body)
    return value


def _from_configuration(body: bytes) -> Any:
    """What is applied is YAML by name, and JSON nearly always."""
    if body.lstrip().startswith(b"{"):
        try:
            return json.decode(body)
        except Malformed:
            pass
    return _from_yaml(body)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "": json.decode,
    JSON: json.decode,
    YAML: _from_yaml,
    protobuf.MEDIA_TYPE: protobuf.decode,
    JSON_PATCH: json.decode,
    "application/merge-patch+json": json.decode,
    "application/strategic-merge-patch+json": json.decode,
    _APPLY: _from_configuration,
}


# DOC-MERGED server/audit/draft
# Events that need a look at a body, finished in the writer's thread so that no request waits for it.
#
# That is: bodies that are recorded, why a request was refused, and the name that the server gave to a new object.


REQUEST_OMITTED, RESPONSE_OMITTED = "service.sh/request-object-omitted", "service.sh/response-object-omitted"
UNREADABLE = "service.sh/unreadable"
QUOTING_CODES = (400, 422)
"""Refusals that quote what was sent."""

ENVELOPE_BYTES = 1024
_DETAILS = ("name", "group", "kind", "uid", "retryAfterSeconds")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes and their media type. None for bytes that were sent and never read, or not to their end."""

    data: bytes | None
    media_type: str

    @property
    def size(self) -> int:
        return len(self.data or b"")


@dataclass(frozen=True, slots=True)
class Draft:
    """An event and the bodies that are still to be looked at, of a request that was answered with `code`.

    `request` and `response` are recorded unless None. `answer` is looked into for why the request was refused or what
    the new object is called. `kinds` are those of the objects in the bodies, first what the request takes.
    """

    event: Object
    kinds: Sequence[Kind]
    code: int
    answer: Body | None = None
    request: Body | None = None
    response: Body | None = None
    discreet: bool = False
    """Whether an error's message may quote a credential."""

    @property
    def size(self) -> int:
        """Bytes held in memory until it is written."""
        held = {id(body): body.size for body in (self.answer, self.request, self.response) if body is not None}
        return ENVELOPE_BYTES + sum(held.values())

    def line(self) -> bytes:
        try:
            self._look_into_bodies()
            return line(self.event)
        except Exception:  # whatever a body does to us, that it was sent is still recorded
            log.exception("an audit event was recorded without its bodies", audit_id=self.event["auditID"])
        for name in ("requestObject", "responseObject"):
            self.event.pop(name, None)
        self.event["annotations"][UNREADABLE] = "the bodies could not be looked into; the server's log has more"
        return line(self.event)

    def _look_into_bodies(self) -> None:
        if self.answer is not None:
            answer = _structure(self.answer)
            if self.code >= 400:
                self._tell_status(answer)
            else:
                self._name_new_object(answer)
        if self.request is not None:
            self._record("requestObject", REQUEST_OMITTED, self.request)
        if self.response is not None:
            self._record("responseObject", RESPONSE_OMITTED, self.response)

    def _tell_status(self, answer: Object) -> None:
        if answer.get("kind") == "Status":
            self.event["responseStatus"] |= _status(answer, self._is_discreet)
            name = (answer.get("details") or {}).get("name")
            if name and "objectRef" in self.event:
                self.event["objectRef"].setdefault("name", shown(name))

    def _name_new_object(self, answer: Object) -> None:
        metadata = answer.get("metadata")
        if "objectRef" not in self.event or not isinstance(metadata, dict):
            return
        for name in ("name", "uid", "resourceVersion"):
            if isinstance(metadata.get(name), str) and metadata[name]:
                self.event["objectRef"].setdefault(name, shown(metadata[name]))

    def _record(self, place: str, remark: str, body: Body) -> None:
        try:
            self.event[place] = self._recorded(place, body)
        except Omitted as reason:
            self.event["annotations"][remark] = str(reason)

    def _recorded(self, place: str, body: Body) -> Any:
        if body.data is None:
            raise Omitted("not read")
        if not self.kinds:
            raise Omitted("nothing is known of its kind")
        value = decoded(body.data, body.media_type)
        if place == "responseObject":
            return _response(value, self.kinds, self._is_discreet)
        if body.media_type == JSON_PATCH:
            return cleansed_json_patch(value, self.kinds[0])
        return _request(value, self.kinds[0], self.event["verb"])

    @property
    def _is_discreet(self) -> bool:
        return self.discreet and self.code in QUOTING_CODES


def _structure(body: Body) -> Object:
    try:
        value = decoded(body.data or b"", body.media_type)
    except Omitted:
        return {}
    return value if isinstance(value, dict) else {}


def _request(value: Any, kind: Kind, verb: str) -> Any:
    if verb in ("delete", "deletecollection"):
        return known(value, DELETE_OPTIONS)
    if isinstance(value, dict) and value.get("kind") not in (None, "", kind.name):
        raise Omitted("of another kind than the path says")
    return cleansed(value, kind)


def _response(value: Any, kinds: Sequence[Kind], discreet: bool) -> Any:
    name = value.get("kind") if isinstance(value, dict) else None
    if name == "Status":
        return {"kind": name, "apiVersion": "v1", "metadata": {}, **_status(value, discreet)}
    if name == "Table":
        return _table(value, kinds)
    for kind in kinds:
        if name == kind.name:
            return cleansed(value, kind)
        if name == "PartialObjectMetadata":
            return without_fields(value, kind)
        if name in (kind.list_kind, "PartialObjectMetadataList"):
            clean = cleansed if name == kind.list_kind else without_fields
            return {**value, "items": [clean(item, kind) for item in value.get("items") or ()]}
    raise Omitted("of another kind than the path says")


def _table(value: Object, kinds: Sequence[Kind]) -> Object:
    """The rows' cells are for people to read in a terminal; what they say is in the objects."""
    objects = [row.get("object") for row in value.get("rows") or ()]
    rows = [{"object": _response(obj, kinds, False)} for obj in objects if obj]
    return {"kind": "Table", "apiVersion": value.get("apiVersion"), "metadata": value.get("metadata"), "rows": rows}


def _status(answer: Object, discreet: bool) -> Object:
    """Of an error what the event has of it. Where the message may quote a credential, the fields at fault only."""
    details = answer.get("details") or {}
    told: Object = {name: _told(details[name]) for name in _DETAILS if name in details}
    if discreet and details.get("causes"):
        told["causes"] = [
            {"reason": cause.get("reason"), "field": shown(cause.get("field", ""))} for cause in details["causes"]
        ]
    status: Object = {"status": answer.get("status"), "message": _message(answer, discreet)}
    status |= {"reason": answer.get("reason"), "details": told, "code": answer.get("code")}
    return {name: value for name, value in status.items() if value}


def _told(value: Any) -> Any:
    return shown(value) if isinstance(value, str) else value


def _message(answer: Object, discreet: bool) -> str:
    message = answer.get("message") or ""
    return REDACTED if discreet and message else shown(message)
