"""Decodes Kubernetes protobuf bodies, for the kinds that kubectl and Helm send as protobuf.

Since 1.32, `kubectl create` and `kubectl auth` send built-in kinds as protobuf, without a fallback to JSON. So does
Helm 4, which also deletes with DeleteOptions in protobuf. The tables below have the field numbers of the Kubernetes
schemas; unknown fields are skipped, as usual with protobuf. Invalid data raises `Malformed`. Responses are never in
protobuf: all clients accept JSON.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.core.protobuf_wire import VARINT, decode_fields

_MAX_FIELDS = 10_000
_MAX_TIMESTAMP = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())

WireValue = int | bytes
FieldReader = Callable[[WireValue], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field's JSON name and the function that reads its value.

    `repeated` collects values in a list, `is_map` builds a map from key-value entries, and `has_presence` keeps the
    field even if its value is empty.
    """

    name: str
    read: FieldReader
    repeated: bool = False
    is_map: bool = False
    has_presence: bool = False


MessageSchema = Mapping[int, Field]


def _iter_fields(data: bytes) -> Iterator[tuple[int, WireValue]]:
    """Iterate over the fields of a message: number and raw value."""
    for count, (number, wire_type, integer, content) in enumerate(decode_fields(data)):
        if count == _MAX_FIELDS:
            raise Malformed(f"a message has more than {_MAX_FIELDS} fields; send JSON")
        yield number, integer if wire_type == VARINT else content


def message_reader(fields: MessageSchema) -> FieldReader:
    """A function that reads a message with these fields."""
    telling = frozenset(field.name for field in fields.values() if field.has_presence)

    def read(value: WireValue) -> Object:
        found: Object = {}
        for field_number, each in _iter_fields(read_bytes(value)):
            field = fields.get(field_number)
            if field is None:
                continue
            if field.is_map:
                entry = dict(_iter_fields(read_bytes(each)))
                found.setdefault(field.name, {})[read_text(entry.get(1, b""))] = field.read(entry.get(2, b""))
            elif field.repeated:
                found.setdefault(field.name, []).append(field.read(each))
            else:
                found[field.name] = field.read(each)
        # Kubernetes encodes empty values explicitly; nearly all of them are equivalent to an absent field.
        return {name: value for name, value in found.items() if value not in ("", None, {}, b"") or name in telling}

    return read


def read_bytes(value: WireValue) -> bytes:
    if isinstance(value, int):
        raise Malformed("a field has a number where a string or a message is expected")
    return value


def read_text(value: WireValue) -> str:
    try:
        return read_bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def read_text_list(value: WireValue) -> list[str]:
    """Read a message whose only field is a repeated string."""
    return [read_text(each) for field_number, each in _iter_fields(read_bytes(value)) if field_number == 1]


def read_base64(value: WireValue) -> str:
    return base64.b64encode(read_bytes(value)).decode()


def read_int(value: WireValue) -> int:
    if not isinstance(value, int):
        raise Malformed("a number has the wrong wire type")
    return value


def read_bool(value: WireValue) -> bool:
    return bool(read_int(value))


def read_time(value: WireValue) -> str | None:
    seconds = read_int(dict(_iter_fields(read_bytes(value))).get(1, 0))
    if not 0 <= seconds <= _MAX_TIMESTAMP:
        raise Malformed("a time is out of range")
    return timestamp(datetime.fromtimestamp(seconds, UTC)) if seconds else None


MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def decode(body: bytes) -> Object:
    """Decodes an object. Raises Malformed if the body is invalid, or of an unsupported kind."""
    if not body.startswith(_MAGIC):
        raise Malformed("it does not start with the magic number of Kubernetes protobuf")
    envelope = message_reader(_ENVELOPE)(body[len(_MAGIC) :])
    types = envelope.get("typeMeta") or {}
    kind = types.get("kind", "")
    fields = _KINDS.get(kind)
    if fields is None:
        raise Malformed(f"protobuf is not supported for {kind or 'a body without a kind'}; send JSON or YAML")
    return {**types, **message_reader(fields)(envelope.get("raw", b""))}


_ENVELOPE: MessageSchema = {
    1: Field("typeMeta", message_reader({1: Field("apiVersion", read_text), 2: Field("kind", read_text)})),
    2: Field("raw", read_bytes),
}

_OWNER_REFERENCE: MessageSchema = {
    1: Field("kind", read_text),
    3: Field("name", read_text),
    4: Field("uid", read_text),
    5: Field("apiVersion", read_text),
    6: Field("controller", read_bool),
    7: Field("blockOwnerDeletion", read_bool),
}

_METADATA = Field(
    "metadata",
    message_reader(
        {
            1: Field("name", read_text),
            2: Field("generateName", read_text),
            3: Field("namespace", read_text),
            5: Field("uid", read_text),
            6: Field("resourceVersion", read_text),
            8: Field("creationTimestamp", read_time),
            11: Field("labels", read_text, is_map=True),
            12: Field("annotations", read_text, is_map=True),
            13: Field("ownerReferences", message_reader(_OWNER_REFERENCE), repeated=True),
            14: Field("finalizers", read_text, repeated=True),
        }
    ),
)

_REQUIREMENT: MessageSchema = {
    1: Field("key", read_text),
    2: Field("operator", read_text),
    3: Field("values", read_text, repeated=True),
}

_LABEL_SELECTOR: MessageSchema = {
    1: Field("matchLabels", read_text, is_map=True),
    2: Field("matchExpressions", message_reader(_REQUIREMENT), repeated=True),
}

_SELECTOR: MessageSchema = {
    1: Field("rawSelector", read_text),
    2: Field("requirements", message_reader(_REQUIREMENT), repeated=True),
}

_RESOURCE_ATTRIBUTES: MessageSchema = {
    1: Field("namespace", read_text),
    2: Field("verb", read_text),
    3: Field("group", read_text),
    4: Field("version", read_text),
    5: Field("resource", read_text),
    6: Field("subresource", read_text),
    7: Field("name", read_text),
    8: Field("fieldSelector", message_reader(_SELECTOR)),
    9: Field("labelSelector", message_reader(_SELECTOR)),
}

_ATTRIBUTES: MessageSchema = {
    1: Field("resourceAttributes", message_reader(_RESOURCE_ATTRIBUTES), has_presence=True),
    2: Field(
        "nonResourceAttributes",
        message_reader({1: Field("path", read_text), 2: Field("verb", read_text)}),
        has_presence=True,
    ),
}

_SUBJECT_AND_ATTRIBUTES: MessageSchema = {
    **_ATTRIBUTES,
    3: Field("user", read_text),
    4: Field("groups", read_text, repeated=True),
    5: Field("extra", read_text_list, is_map=True),
    6: Field("uid", read_text),
}

_RULE: MessageSchema = {
    1: Field("verbs", read_text, repeated=True),
    2: Field("apiGroups", read_text, repeated=True),
    3: Field("resources", read_text, repeated=True),
    4: Field("resourceNames", read_text, repeated=True),
    5: Field("nonResourceURLs", read_text, repeated=True),
}

_RULES = Field("rules", message_reader(_RULE), repeated=True)
_AGGREGATION = message_reader({1: Field("clusterRoleSelectors", message_reader(_LABEL_SELECTOR), repeated=True)})

_SUBJECT: MessageSchema = {
    1: Field("kind", read_text),
    2: Field("apiGroup", read_text),
    3: Field("name", read_text),
    4: Field("namespace", read_text),
}

_BINDING: MessageSchema = {
    1: _METADATA,
    2: Field("subjects", message_reader(_SUBJECT), repeated=True),
    3: Field(
        "roleRef",
        message_reader({1: Field("apiGroup", read_text), 2: Field("kind", read_text), 3: Field("name", read_text)}),
    ),
}


def _with_spec(fields: MessageSchema) -> MessageSchema:
    """A kind with metadata and spec. A status would be ignored anyway."""
    return {1: _METADATA, 2: Field("spec", message_reader(fields))}


_BOUND_OBJECT: MessageSchema = {
    1: Field("kind", read_text),
    2: Field("apiVersion", read_text),
    3: Field("name", read_text),
    4: Field("uid", read_text),
}

_KINDS: Mapping[str, MessageSchema] = {
    "ConfigMap": {
        1: _METADATA,
        2: Field("data", read_text, is_map=True),
        3: Field("binaryData", read_base64, is_map=True),
        4: Field("immutable", read_bool),
    },
    "Secret": {
        1: _METADATA,
        2: Field("data", read_base64, is_map=True),
        3: Field("type", read_text),
        4: Field("stringData", read_text, is_map=True),
        5: Field("immutable", read_bool),
    },
    "ServiceAccount": {
        1: _METADATA,
        2: Field("secrets", message_reader({3: Field("name", read_text)}), repeated=True),
        3: Field("imagePullSecrets", message_reader({1: Field("name", read_text)}), repeated=True),
        4: Field("automountServiceAccountToken", read_bool),
    },
    "TokenRequest": _with_spec(
        {
            1: Field("audiences", read_text, repeated=True),
            3: Field("boundObjectRef", message_reader(_BOUND_OBJECT)),
            4: Field("expirationSeconds", read_int),
        }
    ),
    "Namespace": _with_spec({1: Field("finalizers", read_text, repeated=True)}),
    "Role": {1: _METADATA, 2: _RULES},
    "ClusterRole": {1: _METADATA, 2: _RULES, 3: Field("aggregationRule", _AGGREGATION, has_presence=True)},
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectAccessReview": _with_spec(_ATTRIBUTES),
    "SubjectAccessReview": _with_spec(_SUBJECT_AND_ATTRIBUTES),
    "LocalSubjectAccessReview": _with_spec(_SUBJECT_AND_ATTRIBUTES),
    "SelfSubjectRulesReview": _with_spec({1: Field("namespace", read_text)}),
    "SelfSubjectReview": {1: _METADATA},
    "DeleteOptions": {
        1: Field("gracePeriodSeconds", read_int),
        2: Field("preconditions", message_reader({1: Field("uid", read_text), 2: Field("resourceVersion", read_text)})),
        3: Field("orphanDependents", read_bool),
        4: Field("propagationPolicy", read_text),
        5: Field("dryRun", read_text, repeated=True),
    },
    "TokenReview": _with_spec({1: Field("token", read_text), 2: Field("audiences", read_text, repeated=True)}),
}
