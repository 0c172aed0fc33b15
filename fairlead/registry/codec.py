"""Stored and served encodings of objects, and conversion between the kinds of two API groups.

A stored value starts with apiVersion, kind and metadata and has no resourceVersion: the store's revision is the
version. It is inserted once, right after `"metadata":{`, when the view builds an entry from the record.

A kind with a `conversion` has no storage of its own: Event of `events.k8s.io/v1` is Event of `v1` with other field
names. Reads convert entries of the view, writes convert before they are stored. Validation, patches, apply and tables
work on the version that the client requested.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import orjson

from fairlead.core.errors import BadRequest, TooLarge
from fairlead.core.json import is_too_deep
from fairlead.core.json.slices import decode_stored
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.kind import Catalog, Kind
from fairlead.registry.quota.charged_user import CHARGED_USER
from fairlead.registry.secret_fields import strip_write_only
from fairlead.registry.selectors import SelectorFieldReader
from fairlead.storage.contract import Record
from fairlead.storage.view.view import Entry

MAX_OBJECT_BYTES = 6 * 1024 * 1024
"""Patches may not make an object larger."""
_METADATA_START = b'"metadata":{'
_LAST_APPLIED_MARKER = LAST_APPLIED.encode()
_SERVER_OWNED_MARKER = b'"service.sh/'
"""Occurs in every server-owned object, and possibly in others."""


def encode(obj: Object) -> bytes:
    """The stored form of an object."""
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"]}
    ordered.update(obj)
    metadata = ordered["metadata"]
    annotations = metadata.get("annotations")
    if annotations and CHARGED_USER in annotations:  # first of all, where `charged_user` finds it
        ordered["metadata"] = metadata = {"annotations": None, **metadata}
        metadata["annotations"] = {CHARGED_USER: annotations[CHARGED_USER], **annotations}
    if "resourceVersion" in metadata:
        ordered["metadata"] = stored_metadata = dict(metadata)
        del stored_metadata["resourceVersion"]
    return orjson.dumps(ordered)


def with_resource_version(value: bytes, revision: int) -> bytes:
    """The served form: the stored one with its resourceVersion."""
    at = value.index(_METADATA_START) + len(_METADATA_START)
    return b"".join((value[:at], b'"resourceVersion":"%d",' % revision, value[at:]))


def replace_resource_version(entry: Entry, revision: int) -> bytes:
    """The last state of an object with the revision of its deletion, as in DELETED events."""
    return entry.body.replace(b'"resourceVersion":"%d"' % entry.revision, b'"resourceVersion":"%d"' % revision, 1)


def decode(entry: Entry) -> Object:
    """The object including its write-only fields, for the caller to read or change. Never serve it as it is."""
    obj: Object = decode_stored(entry.full_body or entry.body)
    return obj


def response_body(kind: Kind, body: bytes) -> bytes:
    """The response body of an object: without its write-only fields, also in the last-applied annotation of kubectl."""
    for mark in _field_markers(kind.write_only, kind.may_be_server_owned):
        if mark in body:
            obj = decode_stored(body)
            return orjson.dumps(strip_write_only(obj, kind)) if kind.write_only_paths(obj) else body
    return body


def with_one_time_fields(body: bytes, fields: Mapping[str, str]) -> bytes:
    """A response body with the fields that only this response contains, such as a new access key."""
    if not fields:
        return body
    obj: Object = orjson.loads(body)
    for path, value in fields.items():
        *parents, name = path.split(".")
        parent = obj
        for step in parents:
            parent = parent.setdefault(step, {})
        parent[name] = value
    return orjson.dumps(obj)


@lru_cache
def _field_markers(write_only: tuple[str, ...], may_be_server_owned: bool) -> tuple[bytes, ...]:
    """Markers: the JSON of an object with a write-only field contains at least one of them."""
    server_owned = (_SERVER_OWNED_MARKER,) if may_be_server_owned else ()
    if not write_only:
        return server_owned
    names = dict.fromkeys(path.rpartition(".")[2] for path in write_only)
    return (*(b'"%b":' % name.encode() for name in names), _LAST_APPLIED_MARKER, *server_owned)


def entry_builder(catalog: Catalog) -> Callable[[Record], Entry]:
    """Returns the function with which the view turns records into entries."""
    readers: dict[tuple[str, str], tuple[Kind | None, SelectorFieldReader]] = {}

    def build_entry(record: Record) -> Entry:
        resource = record.key[0], record.key[1]
        known = readers.get(resource)
        if known is None:
            found = catalog.resource(*resource)
            reader = SelectorFieldReader(None) if found is None else found.derive(SelectorFieldReader)
            known = readers[resource] = found, reader
        kind, reader = known
        full_body = with_resource_version(record.value, record.revision)
        body = response_body(kind, full_body) if kind is not None else full_body
        write_only = b"" if body is full_body else full_body
        return Entry(record.key, record.revision, body, None, None, write_only, reader.read)

    return build_entry


def encode_within_limits(kind: Kind, obj: Object) -> bytes:
    """The stored form of an object of the kind, if it is neither too large nor nested too deeply."""
    value = encode(to_stored(kind, obj))
    if len(value) > MAX_OBJECT_BYTES:
        raise TooLarge(f"the object would have {len(value)} bytes; {MAX_OBJECT_BYTES} is the limit")
    if is_too_deep(value):  # including managedFields: clients send the stored object back
        raise BadRequest("the object is nested too deeply; reduce its nesting")
    return value


def to_stored(kind: Kind, obj: Object) -> Object:
    """An object of the kind, converted to the kind that is stored."""
    form = kind.conversion
    if form is None:
        return obj
    return {
        **form.to_stored(obj),
        "apiVersion": form.stored_kind.api_version,
        "kind": form.stored_kind.name,
        "metadata": obj["metadata"],
    }


def convert_body(kind: Kind, body: bytes) -> bytes:
    """The JSON of a stored object, converted to the kind that is served."""
    form = kind.conversion
    if form is None:
        return body
    obj = decode_stored(body)
    types = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": obj["metadata"]}
    return orjson.dumps(types | form.from_stored(obj) | types)


def render_stored(kind: Kind, value: bytes, revision: int) -> bytes:
    """The response body of a stored value. Revision 0 (not stored yet) leaves out the resourceVersion."""
    return convert_body(kind, response_body(kind, with_resource_version(value, revision) if revision else value))


def convert_entry(kind: Kind, entry: Entry) -> Entry:
    """An entry, converted to the kind that is served. Selectors match the stored kind, so they are evaluated before."""
    return entry if kind.conversion is None else entry.with_body(convert_body(kind, entry.body))
