"""Objects and lists in the form that was asked for: JSON for people, YAML, Tables, metadata alone.

The verbs call this with finished JSON. It decodes and encodes, which for large answers is done in a thread: nothing
here looks at anything but what it is given. Lists are written entry by entry, because one call for all of them would
keep the event loop waiting, thread or not.
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
"""What YAML writes behind a text that ends in line breaks, where nothing follows any more."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How an answer shall look. `include` and `now` are for Tables."""

    kind: Kind
    form: Form
    pretty: bool
    include: str
    now: datetime

    @property
    def is_plain(self) -> bool:
        """Whether finished JSON is sent as it is."""
        return not self.form.view and not self.pretty and self.form.media_type == JSON

    def is_large(self, size: int) -> bool:
        """Whether so many bytes of JSON are to be presented in a thread."""
        return size > (LARGE_YAML if self.form.media_type == YAML else LARGE)


def present_object(body: bytes, how: Presentation) -> bytes:
    """One object in the form that was asked for."""
    if how.form.view == "Table":
        obj = orjson.loads(body)
        return present_list([body], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, how)
    if how.form.view == "PartialObjectMetadata":
        body = orjson.dumps(partial(orjson.loads(body)))
    return rendered(body, how.form.media_type, how.pretty)


def present_list(bodies: Sequence[bytes], metadata: Object, how: Presentation) -> bytes:
    """A list of objects in the form that was asked for."""
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
    """Items of core kinds do not repeat what the list says."""
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _written(head: Object, name: str, entries: Iterable[Object], how: Presentation) -> bytes:
    """The head with the entries as the last of its fields."""
    write: Callable[[Object, str, Iterable[Object]], list[bytes]]
    write = _yaml if how.form.media_type == YAML else _pretty if how.pretty else _plain
    return b"".join(write(head, name, entries))


def _plain(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    items = b",".join([orjson.dumps(each) for each in entries])
    return [orjson.dumps(head)[:-1], b',"%b":[' % name.encode(), items, b"]}"]


def _pretty(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """In JSON, a line break is never a part of a text: so lines can be moved to the right."""
    items = b",\n    ".join([json.encode_pretty(each)[:-1].replace(b"\n", b"\n    ") for each in entries])
    opened = json.encode_pretty(head).removesuffix(b"\n}\n")
    return [opened, b',\n  "%b": [' % name.encode(), b"\n    %b\n  " % items if items else b"", b"]\n}\n"]


def _yaml(head: Object, name: str, entries: Iterable[Object]) -> list[bytes]:
    """Keys are sorted, and a list in a mapping stands as far to the left as one by itself."""
    items = [yaml.encode([each]).removesuffix(_END) for each in entries]
    before = {key: value for key, value in head.items() if key < name}
    after = {key: value for key, value in head.items() if key > name}
    between = [b"%b:\n" % name.encode(), *items] if items else [b"%b: []\n" % name.encode()]
    return [_mapping(before), *between, _mapping(after)]


def _mapping(value: dict[str, Any]) -> bytes:
    return yaml.encode(value).removesuffix(_END) if value else b""
