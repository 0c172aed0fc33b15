"""The requests whose cost is measured: every resource of discovery, with every verb and every shape of body.

Nothing here depends on a kind. All shapes are sent to all kinds; the verb of a shape changes from kind to kind, so
that overall every shape is combined with every verb. Most bodies are larger than what is processed in one slice, and
some of each shape have the maximal size.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from tests.requests.api_resources import NAMESPACES, ApiCatalog, Resource
from tests.requests.expensive_bodies import BODY_LIMIT, JSON, YAML
from tests.requests.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.requests.shapes import SHAPES, Object

LARGE, LARGEST = 64 * 1024, BODY_LIMIT - 4096
LARGEST_EVERY = 23
"""One of this many bodies has the maximal size."""
NAME = "a"
"""The name of the objects that exist from the start."""
VERBS = ("create", "update", JSON_PATCH, MERGE, STRATEGIC, APPLY)
FORMS = {
    "JSON": JSON,
    "YAML": YAML,
    "Table": "application/json;as=Table;g=meta.k8s.io;v=v1",
    "metadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "list of metadata": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
}
MAX_QUERY_LENGTH = 48 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    method: str
    path: str
    body: bytes = b""
    media_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_endless: bool = False
    """Whether the response is an endless stream, of which only the beginning is read."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it does the same when it is sent again."""
        return self.method in ("GET", "PATCH") or "dryRun=All" in self.path


def iter_writes(catalog: ApiCatalog, versions: Mapping[str, str]) -> Iterator[Case]:
    """Every shape to every resource. `versions` are the resource versions of existing objects by path."""
    for number, resource in enumerate(each for each in catalog.resources if "create" in each.verbs):
        namespace = NAMESPACES[0] if resource.namespaced else ""
        for shape_number, (shape_name, shape) in enumerate(SHAPES.items()):
            verb = VERBS[(number + shape_number) % len(VERBS)] if resource.is_stored else "create"
            size = LARGEST if (number + 3 * shape_number) % LARGEST_EVERY == 0 else LARGE
            name = "new" if verb == "create" else NAME
            obj = resource.build_example(name, namespace)
            path = f"{resource.collection_path(namespace)}/{NAME}"
            if verb == "update":
                obj["metadata"]["resourceVersion"] = versions.get(path, "")
            body = shape(obj, resource.schema, size)
            if len(body) > size // 2:
                is_yaml = verb in ("create", APPLY) and (number + shape_number) % 4 == 0
                yield _build_write(
                    f"{resource.plural}: {shape_name}", resource.collection_path(namespace), verb, body, is_yaml
                )


def _build_write(name: str, collection: str, verb: str, body: bytes, is_yaml: bool) -> Case:
    title = f"{verb} {name}{' as YAML' if is_yaml else ''}"
    if verb == "create":
        return Case(title, "POST", f"{collection}?dryRun=All", body, YAML if is_yaml else JSON)
    path = f"{collection}/{NAME}?dryRun=All"
    if verb == "update":
        return Case(title, "PUT", path, body, JSON)
    if verb == APPLY:
        # With a space before the brace it is parsed as YAML.
        return Case(title, "PATCH", f"{path}&fieldManager=cost&force=1", b" " + body if is_yaml else body, APPLY)
    return Case(title, "PATCH", path, _build_operations(body) if verb == JSON_PATCH else body, verb)


def _build_operations(body: bytes) -> bytes:
    """Builds a JSON patch that adds every field of the object."""
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


def iter_operations(resource: Resource, namespace: str, obj: Object) -> Iterator[Case]:
    """All operations on an existing large object, including its deletion."""
    collection = resource.collection_path(namespace)
    path, plural = f"{collection}/{obj['metadata']['name']}", resource.plural
    for form, accept in FORMS.items():
        if form != "list of metadata":
            yield Case(f"get large {plural} as {form}", "GET", path, headers={"Accept": accept})
        if form != "metadata":
            yield Case(f"list large {plural} as {form}", "GET", collection, headers={"Accept": accept})
    yield Case(f"list large {plural} with pretty=1", "GET", f"{collection}?pretty=1")
    yield Case(f"watch large {plural}", "GET", f"{collection}?watch=1&resourceVersion=0", is_endless=True)
    small: Object = {"metadata": {"labels": {"changed": "yes"}}}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"changed": "again"}}]
    apply_patch = {"apiVersion": resource.group_version, "kind": resource.kind, **small}
    apply_patch["metadata"] = {**small["metadata"], "name": obj["metadata"]["name"]}
    yield _build_patch(f"patch large {plural}", path, MERGE, small)
    yield _build_patch(f"patch large {plural}", path, STRATEGIC, small)
    yield _build_patch(f"patch large {plural}", path, JSON_PATCH, operations)
    yield _build_patch(f"patch large {plural}", f"{path}?fieldManager=cost&force=1", APPLY, apply_patch)
    for subresource in resource.subresources:
        yield _build_patch(
            f"patch {subresource} of large {plural}", f"{path}/{subresource}", MERGE, {**small, "status": {}}
        )
    yield Case(f"try to delete large {plural}", "DELETE", f"{path}?dryRun=All")
    yield Case(f"delete large {plural}", "DELETE", path)


def _build_patch(name: str, path: str, media_type: str, body: Any) -> Case:
    return Case(f"{name} ({media_type})", "PATCH", path, orjson.dumps(body), media_type)


def iter_subresource_writes(catalog: ApiCatalog) -> Iterator[Case]:
    """Large bodies to every subresource."""
    for resource in catalog.resources:
        namespace = NAMESPACES[0] if resource.namespaced else ""
        for number, subresource in enumerate(resource.subresources):
            shape = [*SHAPES.values()][number % len(SHAPES)]
            body = shape(resource.build_example(NAME, namespace), resource.schema, LARGE)
            path = f"{resource.collection_path(namespace)}/{NAME}/{subresource}?dryRun=All"
            yield Case(f"create {resource.plural}/{subresource}", "POST", path, body, JSON)
            yield Case(f"update {resource.plural}/{subresource}", "PUT", path, body, JSON)


def iter_other_requests(catalog: ApiCatalog) -> Iterator[Case]:
    """Long selectors, headers and query strings, and requests outside of resources."""
    for resource in catalog.resources:
        if "list" not in resource.verbs:
            continue
        collection = resource.collection_path(NAMESPACES[0] if resource.namespaced else "")
        values = ",".join(f"v{number}" for number in range(MAX_QUERY_LENGTH // 8))
        terms = ",".join(f"k{number}!=v" for number in range(MAX_QUERY_LENGTH // 14))
        for title, selector in (("values", f"k in ({values})"), ("terms", terms)):
            path = f"{collection}?labelSelector={quote(selector[:MAX_QUERY_LENGTH], safe=',!=()')}"
            yield Case(f"list {resource.plural} by many {title}", "GET", path)
        yield Case(f"list {resource.plural} by many fields", "GET", f"{collection}?fieldSelector={terms[:40_000]}")
        yield Case(f"try to delete all {resource.plural}", "DELETE", f"{collection}?dryRun=All")
    accept_headers = {"Accept": ",".join(f"text/x-{number};q=0.1" for number in range(3_000))}
    yield Case(
        "a long Accept header", "GET", f"{catalog.resources[0].collection_path(NAMESPACES[0])}", headers=accept_headers
    )
    login = json.dumps({"username": "x" * 60_000, "password": "y" * 60_000}).encode()
    yield Case("a long password", "POST", "/auth/password/login", login, JSON)
    credentials = json.dumps({"username": "admin", "password": "wrong-wrong-wrong"}).encode()
    yield Case("a wrong password", "POST", "/auth/password/login", credentials, JSON)
    for path in ("/metrics", "/healthz", *(f"/kubernetes/management{each}" for each in ("/openapi/v2", "/api"))):
        yield Case(f"read {path}", "GET", path)
