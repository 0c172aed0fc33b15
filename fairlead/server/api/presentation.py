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
from fairlead.core.concurrency import LARGE, LARGE_YAML
from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.table import columns_of, columns_table, partial, row
from fairlead.server.api.content import JSON, YAML, Form, rendered

_END = b"...\n"
"""The document end marker, which the encoder writes after a final string that ends in line breaks."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How to render a response. `include_object` and `now` are for Tables."""

    kind: Kind
    form: Form
    pretty: bool
    include: str
    now: datetime

    @property
    def is_plain(self) -> bool:
        """Whether encoded JSON is sent unchanged."""
        return not self.form.view and not self.pretty and self.form.media_type == JSON

    def is_large(self, size: int) -> bool:
        """Whether JSON of this size should be rendered in a thread."""
        return size > (LARGE_YAML if self.form.media_type == YAML else LARGE)


def present_object(body: bytes, how: Presentation) -> bytes:
    """Renders one object."""
    if how.form.view == "Table":
        obj = orjson.loads(body)
        return present_list([body], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, how)
    if how.form.view == "PartialObjectMetadata":
        body = orjson.dumps(partial(orjson.loads(body)))
    return rendered(body, how.form.media_type, how.pretty)


def present_list(bodies: Sequence[bytes], metadata: Object, how: Presentation) -> bytes:
    """Renders a list of objects."""
    kind, view = how.kind, how.form.view
    objects = map(orjson.loads, bodies)
    if view == "Table":
        head, columns = columns_table(kind, metadata), columns_of(kind)
        return _written(head, "rows", (row(columns, obj, how.include, how.now) for obj in objects), how)
    if view:
        head = {"kind": view, "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return _written(head, "items", map(partial, objects), how)
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
    return _written(head, "items", map(_without_types, objects) if kind.builtin else objects, how)


def _without_types(obj: Object) -> Object:
    """Items of built-in kinds have no apiVersion and kind, as in Kubernetes."""
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _written(head: Object, name: str, entries: Iterable[Object], how: Presentation) -> bytes:
    """Encodes a list: the fields of `head`, and the entries as field `name`."""
    write: Callable[[Object, str, Iterable[Object]], list[bytes]]
    write = _yaml if how.form.media_type == YAML else _pretty if how.pretty else _plain
    return b"".join(write(head, name, entries))


def _plain(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    items = b",".join([orjson.dumps(entry) for entry in entries])
    return [orjson.dumps(head)[:-1], b',"%b":[' % name.encode(), items, b"]}"]


def _pretty(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """Indents the encoded items. That is safe, because JSON strings contain no raw line breaks."""
    items = b",\n    ".join([json.encode_pretty(entry)[:-1].replace(b"\n", b"\n    ") for entry in entries])
    opened = json.encode_pretty(head).removesuffix(b"\n}\n")
    return [opened, b',\n  "%b": [' % name.encode(), b"\n    %b\n  " % items if items else b"", b"]\n}\n"]


def _yaml(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """Keys are sorted, and a list in a mapping is not indented, so items can be encoded separately."""
    items = [yaml.encode([entry]).removesuffix(_END) for entry in entries]
    before = {key: value for key, value in head.items() if key < name}
    after = {key: value for key, value in head.items() if key > name}
    between = [b"%b:\n" % name.encode(), *items] if items else [b"%b: []\n" % name.encode()]
    return [_mapping(before), *between, _mapping(after)]


def _mapping(value: dict[str, Any]) -> bytes:
    return yaml.encode(value).removesuffix(_END) if value else b""
