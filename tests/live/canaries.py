"""Secrets that nobody may ever see again: a unique one in every secret field of every kind."""

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
"""Kinds whose secrets come back to those who may read them."""


_CLASHES = {
    "DevPodWorkspaceInstance": ("templateRef",),
    "SpaceInstance": ("templateRef",),
    "VirtualClusterInstance": ("templateRef",),
    "OwnedAccessKey": ("groups",),
}
"""Fields of the examples that cannot be together with a secret one, or that only confuse here."""


class Canaries:
    """One unique text for each place. Whoever finds one knows where it came from."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def plant(self, place: str) -> str:
        text = f"canary-{secrets.token_hex(12)}"
        self._places[text] = place
        return text

    def add(self, text: str, place: str) -> None:
        """A secret that somebody else made: an access key, say."""
        self._places[text] = place

    def found_in(self, data: bytes) -> list[str]:
        """The places whose secrets are in the data, in whichever spelling."""
        return sorted(place for text, place in self._places.items() if any(each in data for each in spellings(text)))


def spellings(text: str) -> Iterator[bytes]:
    """As it is, in hex, for URLs, and in base64 wherever in a longer text it may begin."""
    plain = text.encode()
    yield plain
    yield plain.hex().encode()
    yield quote(text, safe="").encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # Only the middle is the same whatever stands before and after it.
        yield encoded[4 if shift else 0 : -4]


def planted(kind: Kind, name: str, canaries: Canaries) -> dict[str, Any]:
    """An object of the kind with a canary in each of its secret fields."""
    obj = build_example(kind.name)
    obj["metadata"] = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    for name in _CLASHES.get(kind.name, ()):
        obj["spec"].pop(name, None)
    for path in kind.sensitive:
        _put(obj, path.split("."), path, kind, canaries)
    return obj


def _put(value: Any, steps: Sequence[str], path: str, kind: Kind, canaries: Canaries) -> None:
    step, *rest = steps
    schema = _schema(kind, path, step)
    if not rest:
        value[step] = _secret(schema, f"{kind.plural} {path}", canaries)
        return
    inner = value.setdefault(step, [{}] if schema.get("type") == "array" else {})
    for each in inner if isinstance(inner, list) else [inner]:
        _put(each, rest, path, kind, canaries)


def _secret(schema: Mapping[str, Any], place: str, canaries: Canaries) -> Any:
    """A canary in the shape that the field has."""
    if schema.get("type") == "array":
        return [_secret(schema["items"], place, canaries)]
    if "properties" in schema:
        return {name: _secret(inner, place, canaries) for name, inner in schema["properties"].items()}
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05Z"
    if schema.get("type") == "object":
        return {"k": _secret(schema["additionalProperties"], place, canaries)}
    text = canaries.plant(place)
    return base64.b64encode(text.encode()).decode() if schema.get("format") == "byte" else text


def _schema(kind: Kind, path: str, step: str) -> Mapping[str, Any]:
    """What a step on the way to a field is."""
    schema: Mapping[str, Any] = {"properties": kind.fields}
    for each in path.split("."):
        schema = schema.get("items", schema)["properties"][each]
        if each == step:
            return schema
    raise AssertionError(f"{kind.name} has no {path}")


def misspelt(value: Any) -> Any:
    """The same with every field called a little differently."""
    if isinstance(value, list):
        return [misspelt(each) for each in value]
    return {name.swapcase(): misspelt(each) for name, each in value.items()} if isinstance(value, dict) else value


def wrongly_sent(obj: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Bodies that no server should take, with their media types: the object is in all of them."""
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
        {**misspelt(obj), "kind": obj["kind"]},
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


def wrong_patches(obj: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    text = json.dumps(obj)
    pointers = [{"op": op, "path": "/spec", "value": obj.get("spec", obj)} for op in ("add", "test", "odd")]
    for each in (
        obj,
        {**obj, "kind": "ConfigMap"},
        misspelt(obj),
        [obj],
        pointers,
        [{"Op": "add", "Value": obj}],
        text,
    ):
        for media_type in PATCH_TYPES:
            yield f"application/{media_type}", json.dumps(each).encode()
    for media_type in PATCH_TYPES:
        yield f"application/{media_type}", text[:-3].encode()
