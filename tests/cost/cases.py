"""The requests whose cost is measured: every resource that discovery names, with every verb and every shape of body.

Nothing here knows a kind. All shapes are sent to all kinds; which verb a shape comes with changes from kind to kind, so
that over all of them every shape comes with every verb. Most bodies are larger than what is worked on at once, and some
of each shape are as large as a body may be.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from tests.cost.shapes import SHAPES, Object
from tests.security.api_resources import NAMESPACES, Resource, World
from tests.security.expensive_bodies import BODY_LIMIT, JSON, YAML
from tests.security.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC

LARGE, LARGEST = 64 * 1024, BODY_LIMIT - 4096
OFTEN_LARGEST = 23
"""Of so many bodies, one is as large as it may be."""
NAME = "a"
"""Of the objects that are there from the start."""
VERBS = ("create", "update", JSON_PATCH, MERGE, STRATEGIC, APPLY)
FORMS = {
    "JSON": JSON,
    "YAML": YAML,
    "Table": "application/json;as=Table;g=meta.k8s.io;v=v1",
    "metadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "list of metadata": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
}
LONGEST_QUERY = 48 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    method: str
    path: str
    body: bytes = b""
    media_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = False
    """Whether the answer has no end, and its beginning is all that is waited for."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it does the same if it is sent again."""
        return self.method in ("GET", "PATCH") or "dryRun=All" in self.path


def writes(world: World, versions: Mapping[str, str]) -> Iterator[Case]:
    """Every shape to every resource. `versions` are those of the objects that are there, by path."""
    for number, resource in enumerate(each for each in world.resources if "create" in each.verbs):
        place = NAMESPACES[0] if resource.namespaced else ""
        for turn, (shape_name, shape) in enumerate(SHAPES.items()):
            verb = VERBS[(number + turn) % len(VERBS)] if resource.stored else "create"
            size = LARGEST if (number + 3 * turn) % OFTEN_LARGEST == 0 else LARGE
            name = "new" if verb == "create" else NAME
            obj = resource.example(name, place)
            path = f"{resource.collection(place)}/{NAME}"
            if verb == "update":
                obj["metadata"]["resourceVersion"] = versions.get(path, "")
            body = shape(obj, resource.schema, size)
            if len(body) > size // 2:
                is_yaml = verb in ("create", APPLY) and (number + turn) % 4 == 0
                yield _write(f"{resource.plural}: {shape_name}", resource.collection(place), verb, body, is_yaml)


def _write(name: str, collection: str, verb: str, body: bytes, is_yaml: bool) -> Case:
    title = f"{verb} {name}{' as YAML' if is_yaml else ''}"
    if verb == "create":
        return Case(title, "POST", f"{collection}?dryRun=All", body, YAML if is_yaml else JSON)
    path = f"{collection}/{NAME}?dryRun=All"
    if verb == "update":
        return Case(title, "PUT", path, body, JSON)
    if verb == APPLY:
        # A space before the brace: then it is taken for YAML.
        return Case(title, "PATCH", f"{path}&fieldManager=cost&force=1", b" " + body if is_yaml else body, APPLY)
    return Case(title, "PATCH", path, _as_operations(body) if verb == JSON_PATCH else body, verb)


def _as_operations(body: bytes) -> bytes:
    """A JSON patch that puts everything into place that the object has."""
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(obj, dict):
        return body
    values = {f"/{name}": value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    values |= {f"/metadata/{name}": value for name, value in obj.get("metadata", {}).items() if name != "name"}
    operations = [{"op": "add", "path": path, "value": value} for path, value in values.items()]
    return orjson.dumps(operations)


def uses(resource: Resource, place: str, obj: Object) -> Iterator[Case]:
    """Whatever can be done with an object that is there and large, up to its end."""
    collection = resource.collection(place)
    path, plural = f"{collection}/{obj['metadata']['name']}", resource.plural
    for form, accept in FORMS.items():
        if form != "list of metadata":
            yield Case(f"get large {plural} as {form}", "GET", path, headers={"Accept": accept})
        if form != "metadata":
            yield Case(f"list large {plural} as {form}", "GET", collection, headers={"Accept": accept})
    yield Case(f"list large {plural} for people", "GET", f"{collection}?pretty=1")
    yield Case(f"watch large {plural}", "GET", f"{collection}?watch=1&resourceVersion=0", goes_on=True)
    small: Object = {"metadata": {"labels": {"changed": "yes"}}}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"changed": "again"}}]
    whole = {"apiVersion": resource.group_version, "kind": resource.kind, **small}
    whole["metadata"] = {**small["metadata"], "name": obj["metadata"]["name"]}
    yield _patch(f"patch large {plural}", path, MERGE, small)
    yield _patch(f"patch large {plural}", path, STRATEGIC, small)
    yield _patch(f"patch large {plural}", path, JSON_PATCH, operations)
    yield _patch(f"patch large {plural}", f"{path}?fieldManager=cost&force=1", APPLY, whole)
    for below in resource.subresources:
        yield _patch(f"patch {below} of large {plural}", f"{path}/{below}", MERGE, {**small, "status": {}})
    yield Case(f"try to delete large {plural}", "DELETE", f"{path}?dryRun=All")
    yield Case(f"delete large {plural}", "DELETE", path)


def _patch(name: str, path: str, media_type: str, body: Any) -> Case:
    return Case(f"{name} ({media_type})", "PATCH", path, orjson.dumps(body), media_type)


def below_objects(world: World) -> Iterator[Case]:
    """Large bodies to everything that stands below an object."""
    for resource in world.resources:
        place = NAMESPACES[0] if resource.namespaced else ""
        for number, below in enumerate(resource.subresources):
            shape = [*SHAPES.values()][number % len(SHAPES)]
            body = shape(resource.example(NAME, place), resource.schema, LARGE)
            path = f"{resource.collection(place)}/{NAME}/{below}?dryRun=All"
            yield Case(f"create {resource.plural}/{below}", "POST", path, body, JSON)
            yield Case(f"update {resource.plural}/{below}", "PUT", path, body, JSON)


def questions(world: World) -> Iterator[Case]:
    """Long selectors, headers and query strings, and what is done at no resource."""
    for resource in world.resources:
        if "list" not in resource.verbs:
            continue
        collection = resource.collection(NAMESPACES[0] if resource.namespaced else "")
        values = ",".join(f"v{number}" for number in range(LONGEST_QUERY // 8))
        terms = ",".join(f"k{number}!=v" for number in range(LONGEST_QUERY // 14))
        for title, selector in (("values", f"k in ({values})"), ("terms", terms)):
            path = f"{collection}?labelSelector={quote(selector[:LONGEST_QUERY], safe=',!=()')}"
            yield Case(f"list {resource.plural} by many {title}", "GET", path)
        yield Case(f"list {resource.plural} by many fields", "GET", f"{collection}?fieldSelector={terms[:40_000]}")
        yield Case(f"try to delete all {resource.plural}", "DELETE", f"{collection}?dryRun=All")
    many = {"Accept": ",".join(f"text/x-{number};q=0.1" for number in range(3_000))}
    yield Case("a long Accept header", "GET", f"{world.resources[0].collection(NAMESPACES[0])}", headers=many)
    login = json.dumps({"username": "x" * 60_000, "password": "y" * 60_000}).encode()
    yield Case("a long password", "POST", "/auth/password/login", login, JSON)
    right = json.dumps({"username": "admin", "password": "wrong-wrong-wrong"}).encode()
    yield Case("a wrong password", "POST", "/auth/password/login", right, JSON)
    for path in ("/metrics", "/healthz", *(f"/kubernetes/management{each}" for each in ("/openapi/v2", "/api"))):
        yield Case(f"read {path}", "GET", path)
