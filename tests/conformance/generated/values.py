"""Random valid parts of objects: a source of choices, fields of a kind, and metadata."""

import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.conformance.generated.kinds import GeneratedKind

Json = Any
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Source:
    """The only source of randomness of a life. The same seed makes the same choices."""

    random: random.Random

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def scalar(self) -> Json:
        return self.pick("one", "two", "", 0, 1, -1, 1.5, 2**40, True, False, None, "ünï", "x" * 300)

    def anything(self, depth: int = 0) -> Json:
        if depth >= _MAX_DEPTH or self.chance(0.6):
            return self.scalar()
        if self.chance(0.5):
            return [self.anything(depth + 1) for _ in range(self.random.randrange(3))]
        return {self.pick("a", "b", "c"): self.anything(depth + 1) for _ in range(self.random.randrange(3))}


def fields_of(source: Source, kind: GeneratedKind) -> Json:
    """Valid fields of an object beside its metadata."""
    if kind.is_built_in:
        chosen = {name: source.pick(*values) for name, values in kind.choices.items() if source.chance(0.5)}
        return deepcopy({**kind.always, **chosen})
    spec = {**deepcopy(kind.always["spec"]), "displayName": source.pick("one", "two", "three")}
    for name, schema in kind.schema["properties"].items():
        if name != "displayName" and source.chance(0.2):
            spec[name] = from_schema(source, schema)
    fields: Json = {"spec": spec}
    if not kind.has_status and source.chance(0.25):
        fields["status"] = {"phase": source.pick("", "x"), "n": source.anything()}
    if kind.has_status and source.chance(0.1):
        fields["status"] = source.pick({}, {"phase": ""}, None, True, {"bogus": 1})
    return fields


def from_schema(source: Source, schema: Json, depth: int = 0) -> Json:
    """A value that is valid as far as the schema says."""
    if schema.get("enum"):
        return source.pick(*schema["enum"])
    match schema.get("type"):
        case "string":
            return _text(source, schema)
        case "integer" | "number":
            return source.pick(1, 2, 7)
        case "boolean":
            return source.pick(True, False)
        case "array":
            items = [from_schema(source, schema["items"], depth + 1) for _ in range(source.random.randrange(3))]
            return items if schema.get("x-kubernetes-list-type", "atomic") == "atomic" else items[:1]
        case "object" if schema.get("additionalProperties"):
            return {
                source.pick("a", "b"): from_schema(source, schema["additionalProperties"], depth + 1)
                for _ in range(source.random.randrange(3))
            }
        case "object":
            return _object(source, schema, depth)
    return source.pick("one", {"a": "b"}, 1)


def _text(source: Source, schema: Json) -> str:
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05Z"
    if schema.get("format") == "byte":
        return str(source.pick("dg==", ""))
    return str(source.pick("one", "two", "a-b"))


def _object(source: Source, schema: Json, depth: int) -> Json:
    required = schema.get("required", ())
    return {
        name: from_schema(source, inner, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (depth < _MAX_DEPTH and source.chance(0.3))
    }


def labels_of(source: Source) -> Json:
    chosen = {
        source.pick("a", "b", "team", "example.com/x"): source.pick("one", "two", "", "v1")
        for _ in range(source.random.randrange(3))
    }
    return {"run": "$run", **chosen}


def metadata_of(source: Source, name: str, namespace: str) -> Json:
    """Valid metadata; mistakes are added by `mistakes.spoil_metadata`."""
    metadata: Json = {"name": name, "labels": labels_of(source)}
    if namespace and source.chance(0.5):
        metadata["namespace"] = namespace
    if source.chance(0.3):
        metadata["annotations"] = {source.pick("a", "example.com/n"): source.pick("v", "", "x" * 50)}
    if source.chance(0.15):
        metadata["finalizers"] = source.pick(
            ["example.com/f"], ["example.com/g"], ["example.com/f", "example.com/g"], ["example.com/f"] * 2
        )
    return metadata
