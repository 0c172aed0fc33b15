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
from fairlead.server.audit.events import encode_line
from fairlead.server.audit.redaction import (
    DELETE_OPTIONS,
    redact_json_patch,
    redact_object,
    redact_outside_schema,
    redact_partial_metadata,
    sanitize,
)

MAX_CAPTURED_BYTES = 2 * 1024 * 1024
MAX_YAML_BYTES = 256 * 1024
"""Parsing YAML is about a hundred times slower than JSON, so larger YAML bodies are left out."""

JSON_PATCH = "application/json-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"


class BodyOmitted(Exception):
    """The body is left out of the event. The message becomes the annotation that says why."""


def decode_body(body: bytes, media_type: str) -> Any:
    """The decoded body. Raises BodyOmitted."""
    decode = _DECODERS.get(media_type)
    if decode is None:
        raise BodyOmitted("neither JSON nor YAML nor protobuf")
    if len(body) > MAX_CAPTURED_BYTES:
        raise BodyOmitted(f"larger than {MAX_CAPTURED_BYTES} bytes")
    try:
        return decode(body)
    except Malformed:
        raise BodyOmitted("malformed") from None  # the error itself might quote the body


def _decode_yaml(body: bytes) -> Any:
    if len(body) > MAX_YAML_BYTES:
        raise BodyOmitted(f"YAML larger than {MAX_YAML_BYTES} bytes")
    value, _ = yaml.decode(body)
    return value


def _decode_apply_patch(body: bytes) -> Any:
    """An apply patch. Its media type says YAML, but clients nearly always send JSON."""
    if body.lstrip().startswith(b"{"):
        try:
            return json.decode_body(body)
        except Malformed:
            pass
    return _decode_yaml(body)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "": json.decode_body,
    JSON: json.decode_body,
    YAML: _decode_yaml,
    protobuf.MEDIA_TYPE: protobuf.decode,
    JSON_PATCH: json.decode_body,
    "application/merge-patch+json": json.decode_body,
    "application/strategic-merge-patch+json": json.decode_body,
    _APPLY_PATCH: _decode_apply_patch,
}


REQUEST_OMITTED_ANNOTATION, RESPONSE_OMITTED_ANNOTATION = (
    "service.sh/request-object-omitted",
    "service.sh/response-object-omitted",
)
UNREADABLE_ANNOTATION = "service.sh/unreadable"
CODES_QUOTING_INPUT = (400, 422)
"""Status codes of errors whose message may quote values from the request body."""

EVENT_OVERHEAD_BYTES = 1024
_STATUS_DETAIL_FIELDS = ("name", "group", "kind", "uid", "retryAfterSeconds")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CapturedBody:
    """Bytes and their media type. `data` is None if a body was sent but not read completely."""

    data: bytes | None
    media_type: str

    @property
    def size(self) -> int:
        return len(self.data or b"")


@dataclass(frozen=True, slots=True)
class DeferredEvent:
    """An event of a request that got the status `code`, with bodies that are processed in `render`.

    `request` and `response` are recorded unless None. `inspected_response` is only read for the error message or the
    name of a created object. `kinds` are the kinds of the objects in the bodies, the request's kind first.
    """

    event: Object
    kinds: Sequence[Kind]
    code: int
    inspected_response: CapturedBody | None = None
    request: CapturedBody | None = None
    response: CapturedBody | None = None
    is_sensitive: bool = False
    """Whether an error message may quote a credential."""

    @property
    def size(self) -> int:
        """Bytes of memory that the event uses until it is written."""
        sizes = {
            id(body): body.size for body in (self.inspected_response, self.request, self.response) if body is not None
        }
        return EVENT_OVERHEAD_BYTES + sum(sizes.values())

    def render(self) -> bytes:
        try:
            self._process_bodies()
            return encode_line(self.event)
        except Exception:  # a body that breaks the decoder must not suppress the event itself
            log.exception("recorded an audit event without its bodies", audit_id=self.event["auditID"])
        for name in ("requestObject", "responseObject"):
            self.event.pop(name, None)
        self.event["annotations"][UNREADABLE_ANNOTATION] = "the bodies could not be processed; see the server log"
        return encode_line(self.event)

    def _process_bodies(self) -> None:
        if self.inspected_response is not None:
            answer = _decode_object(self.inspected_response)
            if self.code >= 400:
                self._add_status(answer)
            else:
                self._add_created_object(answer)
        if self.request is not None:
            self._add_body("requestObject", REQUEST_OMITTED_ANNOTATION, self.request)
        if self.response is not None:
            self._add_body("responseObject", RESPONSE_OMITTED_ANNOTATION, self.response)

    def _add_status(self, response: Object) -> None:
        if response.get("kind") == "Status":
            self.event["responseStatus"] |= _redact_status(response, self._hides_message)
            name = (response.get("details") or {}).get("name")
            if name and "objectRef" in self.event:
                self.event["objectRef"].setdefault("name", sanitize(name))

    def _add_created_object(self, response: Object) -> None:
        metadata = response.get("metadata")
        if "objectRef" not in self.event or not isinstance(metadata, dict):
            return
        for name in ("name", "uid", "resourceVersion"):
            if isinstance(metadata.get(name), str) and metadata[name]:
                self.event["objectRef"].setdefault(name, sanitize(metadata[name]))

    def _add_body(self, field: str, annotation: str, body: CapturedBody) -> None:
        try:
            self.event[field] = self._redact_body(field, body)
        except BodyOmitted as reason:
            self.event["annotations"][annotation] = str(reason)

    def _redact_body(self, field: str, body: CapturedBody) -> Any:
        if body.data is None:
            raise BodyOmitted("not read")
        if not self.kinds:
            raise BodyOmitted("unknown kind")
        value = decode_body(body.data, body.media_type)
        if field == "responseObject":
            return _redact_response(value, self.kinds, self._hides_message)
        if body.media_type == JSON_PATCH:
            return redact_json_patch(value, self.kinds[0])
        return _redact_request(value, self.kinds[0], self.event["verb"])

    @property
    def _hides_message(self) -> bool:
        return self.is_sensitive and self.code in CODES_QUOTING_INPUT


def _decode_object(body: CapturedBody) -> Object:
    try:
        value = decode_body(body.data or b"", body.media_type)
    except BodyOmitted:
        return {}
    return value if isinstance(value, dict) else {}


def _redact_request(value: Any, kind: Kind, verb: str) -> Any:
    if verb in ("delete", "deletecollection"):
        return redact_outside_schema(value, DELETE_OPTIONS)
    if isinstance(value, dict) and value.get("kind") not in (None, "", kind.name):
        raise BodyOmitted("kind does not match the path")
    return redact_object(value, kind)


def _redact_response(value: Any, kinds: Sequence[Kind], hide_message: bool) -> Any:
    name = value.get("kind") if isinstance(value, dict) else None
    if name == "Status":
        return {"kind": name, "apiVersion": "v1", "metadata": {}, **_redact_status(value, hide_message)}
    if name == "Table":
        return _redact_table(value, kinds)
    for kind in kinds:
        if name == kind.name:
            return redact_object(value, kind)
        if name == "PartialObjectMetadata":
            return redact_partial_metadata(value, kind)
        if name in (kind.list_kind, "PartialObjectMetadataList"):
            clean = redact_object if name == kind.list_kind else redact_partial_metadata
            return {**value, "items": [clean(item, kind) for item in value.get("items") or ()]}
    raise BodyOmitted("kind does not match the path")


def _redact_table(value: Object, kinds: Sequence[Kind]) -> Object:
    """The table without its cells: they are printer columns, and the objects contain the same data."""
    objects = [row.get("object") for row in value.get("rows") or ()]
    rows = [{"object": _redact_response(obj, kinds, False)} for obj in objects if obj]
    return {"kind": "Table", "apiVersion": value.get("apiVersion"), "metadata": value.get("metadata"), "rows": rows}


def _redact_status(response: Object, hide_message: bool) -> Object:
    """The `responseStatus` of an error. If the message may quote a credential, only the invalid fields are kept."""
    details = response.get("details") or {}
    recorded: Object = {name: _sanitize_string(details[name]) for name in _STATUS_DETAIL_FIELDS if name in details}
    if hide_message and details.get("causes"):
        recorded["causes"] = [
            {"reason": cause.get("reason"), "field": sanitize(cause.get("field", ""))} for cause in details["causes"]
        ]
    status: Object = {"status": response.get("status"), "message": _redact_message(response, hide_message)}
    status |= {"reason": response.get("reason"), "details": recorded, "code": response.get("code")}
    return {name: value for name, value in status.items() if value}


def _sanitize_string(value: Any) -> Any:
    return sanitize(value) if isinstance(value, str) else value


def _redact_message(response: Object, hide_message: bool) -> str:
    message = response.get("message") or ""
    return REDACTED if hide_message and message else sanitize(message)
