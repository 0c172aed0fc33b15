"""Canaries: a unique secret in every sensitive field of every kind, to find secrets that leak."""

import base64
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fairlead.kinds import KINDS
from fairlead.registry.kind import Kind
from tests.harness.kind_examples import build_example

ALL_SECRET_KINDS = tuple(kind for kind in KINDS if kind.sensitive)
SECRET_KINDS = tuple(kind for kind in ALL_SECRET_KINDS if kind.persisted and "create" in kind.verbs)
READABLE = tuple(kind for kind in SECRET_KINDS if set(kind.sensitive) - set(kind.write_only))
"""Kinds whose secrets can be read by authorized users."""


_CLASHES = {
    "DevPodWorkspaceInstance": ("templateRef",),
    "SpaceInstance": ("templateRef",),
    "VirtualClusterInstance": ("templateRef",),
    "OwnedAccessKey": ("groups",),
}
"""Fields of the examples that conflict with sensitive ones, or are not needed here."""


class Canaries:
    """One unique text for each field, which tells where a leaked secret came from."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}

    def create(self, label: str) -> str:
        text = f"canary-{secrets.token_hex(12)}"
        self._labels[text] = label
        return text

    def add(self, text: str, label: str) -> None:
        """Adds a secret that was generated elsewhere, such as an access key."""
        self._labels[text] = label

    def find_in(self, data: bytes) -> list[str]:
        """Returns the labels of all secrets that are in the data, in any encoding."""
        return sorted(
            label for text, label in self._labels.items() if any(each in data for each in list_encodings(text))
        )


def list_encodings(text: str) -> Iterator[bytes]:
    """Yields the text itself, in hex, URL-encoded, and in base64 at each offset within a longer text."""
    plain = text.encode()
    yield plain
    yield plain.hex().encode()
    yield quote(text, safe="").encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # Only the middle does not depend on the bytes before and after it.
        yield encoded[4 if shift else 0 : -4]


def build_object_with_canaries(kind: Kind, name: str, canaries: Canaries) -> dict[str, Any]:
    """Returns an object of the kind with a canary in each of its sensitive fields."""
    obj = build_example(kind.name)
    obj["metadata"] = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    for name in _CLASHES.get(kind.name, ()):
        obj["spec"].pop(name, None)
    for path in kind.sensitive:
        set_canary(obj, path.split("."), path, kind, canaries)
    return obj


def set_canary(value: Any, steps: Sequence[str], path: str, kind: Kind, canaries: Canaries) -> None:
    step, *rest = steps
    schema = find_schema(kind, path, step)
    if not rest:
        value[step] = build_canary_value(schema, f"{kind.plural} {path}", canaries)
        return
    inner = value.setdefault(step, [{}] if schema.get("type") == "array" else {})
    for each in inner if isinstance(inner, list) else [inner]:
        set_canary(each, rest, path, kind, canaries)


def build_canary_value(schema: Mapping[str, Any], label: str, canaries: Canaries) -> Any:
    """Returns a canary of the field's type."""
    if schema.get("type") == "array":
        return [build_canary_value(schema["items"], label, canaries)]
    if "properties" in schema:
        return {name: build_canary_value(inner, label, canaries) for name, inner in schema["properties"].items()}
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05Z"
    if schema.get("type") == "object":
        return {"k": build_canary_value(schema.get("additionalProperties") or {"type": "string"}, label, canaries)}
    text = canaries.create(label)
    return base64.b64encode(text.encode()).decode() if schema.get("format") == "byte" else text


def find_schema(kind: Kind, path: str, step: str) -> Mapping[str, Any]:
    """Returns the schema of one step of a field's path."""
    schema: Mapping[str, Any] = {"properties": kind.fields}
    for each in path.split("."):
        schema = schema.get("items", schema)["properties"][each]
        if each == step:
            return schema
    raise AssertionError(f"{kind.name} has no {path}")


def misspell_fields(value: Any) -> Any:
    """Returns the value with the case of every field name swapped."""
    if isinstance(value, list):
        return [misspell_fields(each) for each in value]
    return (
        {name.swapcase(): misspell_fields(each) for name, each in value.items()} if isinstance(value, dict) else value
    )


def generate_invalid_bodies(obj: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yields the media type and content of invalid bodies, all of which contain the object."""
    text = json.dumps(obj)
    metadata = obj["metadata"]
    inside = {**metadata, "annotations": {"a": text, "b": json.dumps(text), "c": text.replace('"', "'")}}
    objects: tuple[Any, ...] = (
        {**obj, "kind": "ConfigMap"},
        {**obj, "apiVersion": "example.com/v7"},
        {name: each for name, each in obj.items() if name not in ("kind", "apiVersion")},
        {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata, "unknown": obj},
        {"kind": "List", "apiVersion": "v1", "items": [obj]},
        {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": inside},
        {**misspell_fields(obj), "kind": obj["kind"]},
        {**obj, "spec": json.dumps(obj.get("spec", obj))},
        {**obj, "spec": [obj.get("spec", obj)], "metadata": {"name": "Not A Name"}},
        [obj],
        text,
    )
    for each in objects:
        yield "application/json", json.dumps(each).encode()
        yield "application/yaml", json.dumps(each).encode()
    for broken in (text[:-3], text + "}", f"---\n{text}\n---\n{text}", f"a: &a {text}\nb: *c", f"\t{text}: :"):
        for media_type in (
            "application/json",
            "application/yaml",
            "application/x-www-form-urlencoded",
            "text/plain",
            "",
        ):
            yield media_type, broken.encode()
    yield "application/vnd.kubernetes.protobuf", text.encode()
    yield "application/vnd.kubernetes.protobuf", b"k8s\x00" + text.encode()


PATCH_TYPES = (
    "merge-patch+json",
    "strategic-merge-patch+json",
    "apply-patch+yaml",
    "json-patch+json",
    "odd-patch+json",
)


def generate_invalid_patches(obj: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    text = json.dumps(obj)
    pointers = [{"op": op, "path": "/spec", "value": obj.get("spec", obj)} for op in ("add", "test", "odd")]
    for each in (
        obj,
        {**obj, "kind": "ConfigMap"},
        misspell_fields(obj),
        [obj],
        pointers,
        [{"Op": "add", "Value": obj}],
        text,
    ):
        for media_type in PATCH_TYPES:
            yield f"application/{media_type}", json.dumps(each).encode()
    for media_type in PATCH_TYPES:
        yield f"application/{media_type}", text[:-3].encode()
