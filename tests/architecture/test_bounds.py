"""Whatever a client can send has a bound: every list, map and text in every schema that is published.

A schema that is written without the words of `registry/schema.py`, or with a bound of 0, is noticed here. Free-form
places carry no bound in the schema; `registry/freeform_limits.py` bounds them, as tests/kinds/test_limits.py shows.
"""

from collections.abc import Iterator

import pytest

from fairlead.registry import schema as words
from fairlead.registry.object_metadata import METADATA
from fairlead.registry.schema import Schema
from fairlead.server.discovery import openapi_meta as published
from tests.harness.kind_examples import iter_kinds

SENT = (
    *(published.OBJECT_META, published.OWNER_REFERENCE, published.MANAGED_FIELDS_ENTRY),
    published.DELETE_OPTIONS,
)
"""Shared schemas that clients send. The others are answers: Status and the metadata of lists."""


def published_schemas() -> dict[str, Schema]:
    kinds = {f"{kind.group}/{kind.name}": kind.schema() for kind in iter_kinds()}
    shared = {name: schema for name, schema in published.shared_schemas().items() if name in SENT}
    return kinds | shared | {"metadata as it is validated": METADATA}


def unbounded(schema: Schema, path: str = "") -> Iterator[str]:
    """The paths of everything that could be of any size."""
    match schema.get("type"):
        case "string" if not schema.get("maxLength") and "enum" not in schema:
            yield f"{path}: a text without maxLength"
        case "array" if not schema.get("maxItems"):
            yield f"{path}: a list without maxItems"
        case "object" if "additionalProperties" in schema and not schema.get("maxProperties"):
            yield f"{path}: a map without maxProperties"
    for name, each in schema.get("properties", {}).items():
        yield from unbounded(each, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from unbounded(schema[word], f"{path}[]")


@pytest.mark.parametrize(("name", "schema"), published_schemas().items())
def test_every_list_map_and_text_of_a_published_schema_has_a_bound(name: str, schema: Schema) -> None:
    assert list(unbounded(schema)) == [], name


def test_schemas_of_all_sorts_are_looked_at() -> None:
    names = {kind.name for kind in iter_kinds()}
    assert {"App", "SubjectAccessReview", "TokenRequest", "ClusterAgentReport", "UserProfile", "Event"} <= names
    assert set(SENT) <= published_schemas().keys()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        words.string(max_length=0),
        words.array(words.integer(), max_items=0),
        words.mapping(words.boolean(), max_properties=0),
        {"type": "array", "items": {"type": "integer"}},
        words.array(words.obj(inner=words.mapping({"type": "string", "format": "password"}))),
    ],
)
def test_what_has_no_bound_is_noticed_wherever_it_stands(schema: Schema) -> None:
    assert len(list(unbounded(words.obj(field=schema)))) == 1
