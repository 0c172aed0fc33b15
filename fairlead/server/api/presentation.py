"""Renders objects and lists in the negotiated representation: pretty JSON, YAML, Table or PartialObjectMetadata.

The verbs call this with encoded JSON, in a thread if it is large; so nothing here may access shared state. Lists are
encoded item by item: one call for the whole list would hold the GIL, and block the event loop even from a thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from fairlead.core import json, yaml
from fairlead.core.concurrency import LARGE_JSON_BYTES, LARGE_YAML_BYTES
from fairlead.core.json.slices import decode_stored
from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.table import (
    empty_table,
    partial_metadata_without_owners,
    partial_object_metadata,
    render_row,
    table_columns,
)
from fairlead.server.api.content import JSON, YAML, Representation, render

_YAML_DOCUMENT_END = b"...\n"
"""The document end marker, which the encoder writes after a final string that ends in line breaks."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How to render a response. `include_object` and `now` are for Tables, `hides_owners` for metadata."""

    kind: Kind
    representation: Representation
    pretty: bool
    include_object: str
    now: datetime
    hides_owners: bool = False

    @property
    def convert_metadata(self) -> Callable[[Object], Object]:
        return partial_metadata_without_owners if self.hides_owners else partial_object_metadata

    @property
    def is_raw_json(self) -> bool:
        """Whether encoded JSON is sent unchanged."""
        return not self.representation.as_kind and not self.pretty and self.representation.media_type == JSON

    @property
    def inline_size(self) -> int:
        """More JSON than this is rendered in a thread."""
        return LARGE_YAML_BYTES if self.representation.media_type == YAML else LARGE_JSON_BYTES


def render_object(body: bytes, presentation: Presentation) -> bytes:
    """Renders one object."""
    if presentation.representation.as_kind == "Table":
        obj = decode_stored(body)
        return render_list([body], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, presentation)
    if presentation.representation.as_kind == "PartialObjectMetadata":
        body = orjson.dumps(presentation.convert_metadata(decode_stored(body)))
    return render(body, presentation.representation.media_type, presentation.pretty)


def render_list(bodies: Sequence[bytes], metadata: Object, presentation: Presentation) -> bytes:
    """Renders a list of objects."""
    kind, as_kind = presentation.kind, presentation.representation.as_kind
    objects = map(decode_stored, bodies)
    if as_kind == "Table":
        head = empty_table(kind, metadata)
        columns = table_columns(kind)
        return _write_list(
            head,
            "rows",
            (render_row(columns, obj, presentation.include_object, presentation.now) for obj in objects),
            presentation,
        )
    if as_kind:
        head = {"kind": as_kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        if not bodies:  # null, as in Kubernetes
            return render(
                orjson.dumps({**head, "items": None}), presentation.representation.media_type, presentation.pretty
            )
        return _write_list(head, "items", map(presentation.convert_metadata, objects), presentation)
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
    return _write_list(head, "items", map(_without_type_meta, objects) if kind.builtin else objects, presentation)


def _without_type_meta(obj: Object) -> Object:
    """Items of built-in kinds have no apiVersion and kind, as in Kubernetes."""
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _write_list(head: Object, name: str, entries: Iterable[Object], presentation: Presentation) -> bytes:
    """Encodes a list: the fields of `head`, and the entries as field `name`."""
    write: Callable[[Object, str, Iterable[Object]], list[bytes]]
    write = (
        _write_yaml
        if presentation.representation.media_type == YAML
        else _write_pretty_json
        if presentation.pretty
        else _write_compact_json
    )
    return b"".join(write(head, name, entries))


def _write_compact_json(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    items = b",".join([orjson.dumps(entry) for entry in entries])
    return [orjson.dumps(head)[:-1], b',"%b":[' % name.encode(), items, b"]}"]


def _write_pretty_json(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """Indents the encoded items. That is safe, because JSON strings contain no raw line breaks."""
    items = b",\n    ".join([json.encode_pretty(entry)[:-1].replace(b"\n", b"\n    ") for entry in entries])
    opened = json.encode_pretty(head).removesuffix(b"\n}\n")
    return [opened, b',\n  "%b": [' % name.encode(), b"\n    %b\n  " % items if items else b"", b"]\n}\n"]


def _write_yaml(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """Keys are sorted, and a list in a mapping is not indented, so items can be encoded separately."""
    items = [yaml.encode([entry]).removesuffix(_YAML_DOCUMENT_END) for entry in entries]
    before = {key: value for key, value in head.items() if key < name}
    after = {key: value for key, value in head.items() if key > name}
    between = [b"%b:\n" % name.encode(), *items] if items else [b"%b: []\n" % name.encode()]
    return [_write_yaml_mapping(before), *between, _write_yaml_mapping(after)]


def _write_yaml_mapping(value: dict[str, Any]) -> bytes:
    return yaml.encode(value).removesuffix(_YAML_DOCUMENT_END) if value else b""
