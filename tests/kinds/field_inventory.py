"""All fields that clients may set, and who reads them. For the tests of these fields and of docs/specification.md."""

import re
from collections.abc import Iterable, Iterator

from fairlead.kinds import KINDS
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN
from fairlead.registry.kind import MANAGEMENT_GROUP, Kind
from fairlead.registry.schema import NO_EFFECT, Schema
from tests.kinds.field_effects import DESCRIPTIVE, READERS

STORED = [kind for kind in KINDS if kind.group == MANAGEMENT_GROUP and kind.persisted]
"""Reviews and the kinds of Kubernetes are left out: their fields mean what they mean in Kubernetes."""
SETTABLE = [*STORED, DIRECT_CLUSTER_ENDPOINT_TOKEN]


def iter_leaves(path: str, properties: dict[str, Schema]) -> Iterator[tuple[str, bool]]:
    """Each field without fields of its own, and whether it has an effect."""
    for name, schema in properties.items():
        here, inner = f"{path}.{name}", schema
        while True:
            if "items" in inner:
                here, inner = f"{here}[]", inner["items"]
            elif isinstance(inner.get("additionalProperties"), dict):
                here, inner = f"{here}{{}}", inner["additionalProperties"]
            else:
                break
        if inner.get("properties"):
            has_effect = NO_EFFECT not in schema
            yield from ((each, has_effect and own) for each, own in iter_leaves(here, inner["properties"]))
        else:
            yield re.sub(r"(\[\]|\{\})+$", "", here), NO_EFFECT not in schema


def without_status(kind: Kind) -> dict[str, Schema]:
    """The fields that clients set. The server writes the status."""
    return {name: schema for name, schema in kind.fields.items() if name != "status"}


def settable_fields(kind: Kind) -> list[tuple[str, bool]]:
    return list(iter_leaves(kind.name, without_status(kind)))


FIELDS = [field for kind in SETTABLE for field in settable_fields(kind)]
EFFECTIVE = [path for path, has_effect in FIELDS if has_effect]


def compile_patterns(text: str) -> dict[str, re.Pattern[str]]:
    return {each: re.compile(re.escape(each).replace(r"\*", ".*")) for each in text.split()}


PATTERNS = {reader: compile_patterns(text) for reader, text in {**READERS, "": DESCRIPTIVE}.items()}


def find_readers(path: str) -> list[str]:
    return [
        reader
        for reader, patterns in PATTERNS.items()
        if any(pattern.fullmatch(path) is not None for pattern in patterns.values())
    ]


def find_unread(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not find_readers(path)]


def describe_effect(path: str) -> str:
    """The effect of a field and all fields in it, for a table."""
    inner = [each for each in FIELDS if each[0] == path or each[0].startswith((f"{path}.", f"{path}["))]
    assert inner, f"{path} is no field"
    found = {_describe_leaf(*each) for each in inner}
    return found.pop() if len(found) == 1 else "partly" if "none" in found else "yes"


def _describe_leaf(path: str, has_effect: bool) -> str:
    if not has_effect:
        return "none"
    acts = any(reader and not reader.startswith("fairlead/console/") for reader in find_readers(path))
    return "yes" if acts else "shown"
