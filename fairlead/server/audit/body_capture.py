"""Audit events that need a request or response body: recorded bodies, error messages, names of created objects.

The writer thread decodes and redacts the bodies, so that no request waits for it. A body that is too large, malformed
or of an unknown type is left out, and an annotation says why.
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
"""Parsing YAML is about a hundred times slower than JSON, so larger YAML bodies are left out."""

JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"


class Omitted(Exception):
    """The body is left out of the event. The message becomes the annotation that says why."""


def decoded(body: bytes, media_type: str) -> Any:
    """The decoded body. Raises BodyOmitted."""
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
    """An apply patch. Its media type says YAML, but clients nearly always send JSON."""
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


REQUEST_OMITTED, RESPONSE_OMITTED = "service.sh/request-object-omitted", "service.sh/response-object-omitted"
UNREADABLE = "service.sh/unreadable"
QUOTING_CODES = (400, 422)
"""Status codes of errors whose message may quote values from the request body."""

ENVELOPE_BYTES = 1024
_DETAILS = ("name", "group", "kind", "uid", "retryAfterSeconds")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes and their media type. `data` is None if a body was sent but not read completely."""

    data: bytes | None
    media_type: str

    @property
    def size(self) -> int:
        return len(self.data or b"")


@dataclass(frozen=True, slots=True)
class Draft:
    """An event of a request that got the status `code`, with bodies that are processed in `render`.

    `request` and `response` are recorded unless None. `inspected_response` is only read for the error message or the
    name of a created object. `kinds` are the kinds of the objects in the bodies, the request's kind first.
    """

    event: Object
    kinds: Sequence[Kind]
    code: int
    answer: Body | None = None
    request: Body | None = None
    response: Body | None = None
    discreet: bool = False
    """Whether an error message may quote a credential."""

    @property
    def size(self) -> int:
        """Bytes of memory that the event uses until it is written."""
        sizes = {id(body): body.size for body in (self.answer, self.request, self.response) if body is not None}
        return ENVELOPE_BYTES + sum(sizes.values())

    def line(self) -> bytes:
        try:
            self._look_into_bodies()
            return line(self.event)
        except Exception:  # a body that breaks the decoder must not suppress the event itself
            log.exception("recorded an audit event without its bodies", audit_id=self.event["auditID"])
        for name in ("requestObject", "responseObject"):
            self.event.pop(name, None)
        self.event["annotations"][UNREADABLE] = "the bodies could not be processed; see the server log"
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
            raise Omitted("unknown kind")
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
        raise Omitted("kind does not match the path")
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
    raise Omitted("kind does not match the path")


def _table(value: Object, kinds: Sequence[Kind]) -> Object:
    """The table without its cells: they are printer columns, and the objects contain the same data."""
    objects = [row.get("object") for row in value.get("rows") or ()]
    rows = [{"object": _response(obj, kinds, False)} for obj in objects if obj]
    return {"kind": "Table", "apiVersion": value.get("apiVersion"), "metadata": value.get("metadata"), "rows": rows}


def _status(answer: Object, discreet: bool) -> Object:
    """The `responseStatus` of an error. If the message may quote a credential, only the invalid fields are kept."""
    details = answer.get("details") or {}
    recorded: Object = {name: _told(details[name]) for name in _DETAILS if name in details}
    if discreet and details.get("causes"):
        recorded["causes"] = [
            {"reason": cause.get("reason"), "field": shown(cause.get("field", ""))} for cause in details["causes"]
        ]
    status: Object = {"status": answer.get("status"), "message": _message(answer, discreet)}
    status |= {"reason": answer.get("reason"), "details": recorded, "code": answer.get("code")}
    return {name: value for name, value in status.items() if value}


def _told(value: Any) -> Any:
    return shown(value) if isinstance(value, str) else value


def _message(answer: Object, discreet: bool) -> str:
    message = answer.get("message") or ""
    return REDACTED if discreet and message else shown(message)
