"""Bodies of patches: JSON patches, merge patches, strategic merge patches and applied configurations."""

from typing import Any

from tests.conformance.generated import mistakes
from tests.conformance.generated.kinds import GeneratedKind
from tests.conformance.generated.values import Source, fields_of, metadata_of

Json = Any
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_POINTERS = (
    *("/metadata/labels/a", "/metadata/labels/team", "/metadata/annotations/a", "/metadata/annotations"),
    *("/metadata/annotations/example.com~1n", "/metadata/finalizers", "/metadata/finalizers/0"),
    *("/metadata/finalizers/-", "/metadata/name", "/metadata/uid", "/metadata/resourceVersion", "/metadata/generation"),
    *("/kind", "/apiVersion", "/nope", "/spec/bogus", "/spec", "", "/metadata", "spec", "/spec/~2"),
)


def pointer(source: Source, kind: GeneratedKind) -> str:
    """A JSON pointer to something that objects of the kind may have, or to nothing."""
    if source.chance(0.4):
        return str(source.pick(*_POINTERS))
    at: Json = fields_of(source, kind)
    path = ""
    while isinstance(at, dict | list) and at and (not path or source.chance(0.7)):
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = source.pick(*keys)
        path, at = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}", at[key]
    return f"{path}/-" if isinstance(at, list) and source.chance(0.3) else path


def operations(source: Source, kind: GeneratedKind) -> Json:
    """A JSON patch of one to three operations."""
    if source.chance(0.01):
        return None
    made = []
    for _ in range(source.pick(1, 1, 1, 2, 3)):
        name = source.pick("add", "add", "add", "replace", "replace", "remove", "test", "copy", "move")
        operation = {"op": "nope" if source.chance(0.02) else name, "path": pointer(source, kind)}
        if name in ("copy", "move"):
            operation["from"] = pointer(source, kind)
        elif name != "remove" and not source.chance(0.03):
            operation["value"] = source.pick(
                *("one", "two", "v", source.anything(), [], {}, None, {"a": "b"}, ["example.com/f"])
            )
        made.append(operation)
    return made


def merge_patch(source: Source, kind: GeneratedKind) -> Json:
    """A merge patch: some fields, nulls, some metadata."""
    if source.chance(0.04):
        return source.pick([], "x", 5, {})
    body = fields_of(source, kind) if source.chance(0.6) else {}
    if source.chance(0.5):
        metadata = {name: value for name, value in metadata_of(source, "", "").items() if source.chance(0.5)}
        metadata.pop("name", None)
        metadata["labels"] = {"a": source.pick("x", None, "y"), "run": "$run"}
        body["metadata"] = metadata
        if source.chance(0.15):
            metadata["resourceVersion"] = source.pick("$rv", "1", "x")
        if source.chance(0.1):
            metadata["name"] = source.pick("a-$run", "other")
        if source.chance(0.1):
            mistakes.spoil_metadata(source, metadata)
    if source.chance(0.3):
        _null_something(source, body)
    if source.chance(0.12):
        mistakes.spoil_fields(source, body)
    return body


def strategic_merge_patch(source: Source, kind: GeneratedKind) -> Json:
    """A merge patch with a directive at times."""
    body = merge_patch(source, kind)
    if not isinstance(body, dict) or source.chance(0.6):
        return body
    maps = [value for value in body.values() if isinstance(value, dict)]
    directive = source.pick(
        *({"$patch": "replace"}, {"$patch": "replace"}, {"$patch": "delete"}, {"$patch": "merge"}, {"$patch": "nope"}),
        *({"$retainKeys": ["k"]}, {"$retainKeys": ["metadata", "name"]}),
    )
    (source.pick(*maps) if maps and source.chance(0.7) else body).update(directive)
    if source.chance(0.3) and isinstance(body.get("metadata"), dict):
        body["metadata"]["$deleteFromPrimitiveList/finalizers"] = ["example.com/f"]
    return body


def applied(source: Source, kind: GeneratedKind, namespace: str) -> Json:
    """A configuration to apply, by one of several managers."""
    metadata: Json = {"name": "a-$run", "labels": {"run": "$run"}}
    body = {**kind.type_meta, "metadata": metadata, **fields_of(source, kind)}
    optional: tuple[tuple[float, str, tuple[Json, ...]], ...] = (
        (0.2, "annotations", ({"a": "x"}, {"a": "y"})),
        (0.15, "finalizers", (["example.com/f"], ["example.com/g"])),
        (0.1, "resourceVersion", ("$rv", "1")),
        (0.04, "name", ("other",)),
        (0.04, "managedFields", ([],)),
        (0.3 if namespace else 0, "namespace", (namespace,)),
    )
    for probability, name, values in optional:
        if source.chance(probability):
            metadata[name] = source.pick(*values)
    if source.chance(0.3):
        metadata["labels"][source.pick("a", "b")] = source.pick("x", "y")
    if source.chance(0.1):
        mistakes.spoil_fields(source, body)
    if source.chance(0.03):
        mistakes.spoil_type(source, body)
    return body


def _null_something(source: Source, body: Json) -> None:
    maps = [value for key, value in body.items() if isinstance(value, dict) and value and key != "metadata"]
    at = source.pick(*maps) if maps and source.chance(0.7) else body
    keys = [key for key in at if key != "metadata"]
    at[source.pick(*keys) if keys else source.pick("spec", "data", "status")] = None
