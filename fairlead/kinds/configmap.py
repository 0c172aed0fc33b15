"""ConfigMap of the core group: settings as text or bytes, for people and tools that expect a Kubernetes API."""

from collections.abc import Iterable

from fairlead.core.objects import Object
from fairlead.kinds.keyed_data import (
    BYTES,
    IMMUTABLE,
    SIZE_LIMIT,
    TEXT,
    decoded_size,
    frozen_problems,
    key_problems,
    pieces,
    put,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import mapping


def prepare(change: Change) -> None:
    for field in ("data", "binaryData"):
        put(change.obj, field, pieces(change.obj, field))


def check(change: Change) -> Iterable[Problem]:
    data, binary = change.obj.get("data") or {}, change.obj.get("binaryData") or {}
    yield from key_problems("data", data)
    yield from key_problems("binaryData", binary)
    for key in sorted(data.keys() & binary.keys()):
        yield Problem.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if sum(len(text.encode()) for text in data.values()) + sum(map(decoded_size, binary.values())) > SIZE_LIMIT:
        yield Problem.too_long("data", SIZE_LIMIT)
    yield from frozen_problems(change, "data", "binaryData")


def _count(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


CONFIGMAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    namespaced=True,
    group="",
    fields={
        "data": mapping(
            TEXT, "Settings as text by key. Keys are letters, digits, `-`, `_` and `.`.", most=limits.DATA_KEYS
        ),
        "binaryData": mapping(
            BYTES, "Settings as bytes by key, base64-encoded. Keys as in `data`.", most=limits.DATA_KEYS
        ),
        "immutable": IMMUTABLE,
    },
    description="Settings by key. Not for credentials: those belong into a Secret.",
    short_names=("cm",),
    columns=(Column("Data", _count, description="Number of keys."),),
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=check,
)
