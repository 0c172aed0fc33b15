"""Iterating over the fields of a kind's schema."""

from collections.abc import Iterator

from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema


def iter_fields(kind: Kind) -> Iterator[tuple[str, Schema]]:
    """Yields every field with its path, through objects, lists and maps."""
    for name, schema in kind.fields.items():
        yield from iter_schemas(name, schema)


def iter_schemas(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from iter_schemas(f"{path}.{name}", inner)
    for inner, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if inner in schema:
            yield from iter_schemas(path + suffix, schema[inner])


def is_declared(kind: Kind, path: str) -> bool:
    return path in {each.replace("[]", "") for each, _ in iter_fields(kind)}
