"""Objects as the store keeps them, and as they are served.

A stored value begins with apiVersion, kind and metadata and carries no resourceVersion: the store's revision is the
version. It is spliced in once, right after `"metadata":{`, when the view takes the record in.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from fairlead.core.objects import LAST_APPLIED, Object, dig
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.registry.secret_fields import without_hidden
from fairlead.storage.contract import Key, Record
from fairlead.storage.view import Entry

_METADATA = b'"metadata":{'
_LAST_APPLIED_MARK = LAST_APPLIED.encode()
_OWN_MARK = b'"service.sh/'
"""What objects that are the server's own are told by; others may have it, too."""
_NO_LABELS: Mapping[str, str] = {}


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    """Just enough of an object to find its labels: the rest of the JSON is skipped, not built."""

    metadata: _Labels


_labelled = msgspec.json.Decoder(_Labelled).decode


def encode(obj: Object) -> bytes:
    """The stored form of an object."""
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"]}
    ordered.update(obj)
    metadata = ordered["metadata"]
    if "resourceVersion" in metadata:
        ordered["metadata"] = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    return orjson.dumps(ordered)


def stamped(value: bytes, revision: int) -> bytes:
    """The served form: the stored one with its resourceVersion."""
    at = value.index(_METADATA) + len(_METADATA)
    return b'%b"resourceVersion":"%d",%b' % (value[:at], revision, value[at:])


def restamped(entry: Entry, revision: int) -> bytes:
    """An object's last state under the revision of its end, as DELETED events carry it."""
    return entry.body.replace(b'"resourceVersion":"%d"' % entry.revision, b'"resourceVersion":"%d"' % revision, 1)


def decode(entry: Entry) -> Object:
    """The object with its hidden fields, to be read or changed by the caller alone. It never leaves the server so."""
    obj: Object = orjson.loads(entry.whole or entry.body)
    return obj


def served(kind: Kind, body: bytes) -> bytes:
    """The answer that an object makes: without its hidden fields, also where kubectl has written them down again."""
    marks = (*_marks(kind.hidden), _LAST_APPLIED_MARK) if kind.hidden else (_OWN_MARK,) if kind.secret else ()
    if not any(mark in body for mark in marks):
        return body
    obj = orjson.loads(body)
    return orjson.dumps(without_hidden(obj, kind)) if kind.hidden_in(obj) else body


@lru_cache
def _marks(paths: tuple[str, ...]) -> tuple[bytes, ...]:
    """What the JSON of an object with such a field must hold."""
    return tuple(b'"%b":' % path.rpartition(".")[2].encode() for path in paths)


def finisher(catalog: Catalog) -> Callable[[Record], Entry]:
    """What the view turns records into entries with."""

    def finish(record: Record) -> Entry:
        kind = catalog.resource(record.key[0], record.key[1])
        whole = stamped(record.value, record.revision)
        body = served(kind, whole) if kind is not None else whole
        labels = (_labelled(record.value).metadata.labels if b'"labels":' in record.value else None) or _NO_LABELS
        fields = selectable_fields(kind, record.key, record.value)
        return Entry(record.key, record.revision, body, labels, fields, b"" if body is whole else whole)

    return finish


def selectable_fields(kind: Kind | None, key: Key, value: bytes) -> Mapping[str, str]:
    """What a fieldSelector can ask of an object, each as the text that it is compared with."""
    fields = {"metadata.name": key[3]}
    if kind is None:
        return fields
    if kind.namespaced:
        fields["metadata.namespace"] = key[2]
    if kind.selectable:
        obj = orjson.loads(value)
        read = kind.selectable_value or dig
        for path in kind.selectable:
            fields[path] = _as_text(read(obj, path))
    return fields


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
