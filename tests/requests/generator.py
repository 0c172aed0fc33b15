"""Generates requests from a seed and a number. Most are nearly valid, because those reach the most code.

`tests/security` sends some thousands of them as an administrator, `tests/generated` a million as ten identities. The
other modules of this folder are its parts (paths, queries, headers, bodies, patches), the resources that it learns from
the server (`api_resources.py`), large and expensive bodies, and a client that sends anything (`raw_http.py`).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.requests import bodies, headers, patches, paths, protobuf, queries
from tests.requests.api_resources import NAMESPACES, ApiCatalog, Resource
from tests.requests.raw_http import RawRequest

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "FOO", "X" * 60)
_POLICIES: tuple[Any, ...] = (
    {"propagationPolicy": "Orphan"},
    {"kind": "Status"},
    {"preconditions": {"uid": "x"}},
    {"dryRun": ["All"]},
    [],
    1,
)
NAME_COUNT = 10_000
"""How many new names there are for each name that the fuzzer writes to."""
# Objects of the fuzzer, which may really be deleted. Other deletions are dry runs.
_DELETABLE_PATH = re.compile(r".*/(namespaces/fuzz-2/[a-z]+(/[^/]+){0,2}|[a-z]+/(b|fuzz-1))")

Mutation = Callable[[Random, RawRequest, ApiCatalog], RawRequest]


def build_request(seed: str, number: int, catalog: ApiCatalog) -> RawRequest:
    """The same request for the same seed and number, independent of the requests before it."""
    random = Random(f"{seed}/{number}")
    request = random.choice(_BUILDERS)(random, catalog)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
        request = random.choice(_MUTATIONS)(random, request, catalog)
    return _limit_deletion(request)


def _limit_deletion(request: RawRequest) -> RawRequest:
    """Makes other deletions dry runs. As in Kubernetes, the query of a DELETE has no effect if there is a body."""
    if request.method != "DELETE" or _DELETABLE_PATH.fullmatch(request.path):
        return request
    query = ("dryRun=All", *(each for each in request.query if not each.startswith("dryRun")))
    return replace(request, query=query, body=b"", chunked=False)


def _build_headers(catalog: ApiCatalog, media_type: str = "") -> headers.HeaderFields:
    return (headers.build_bearer_header(catalog.key), *((("Content-Type", media_type),) if media_type else ()))


def _build_read(random: Random, catalog: ApiCatalog) -> RawRequest:
    resource, namespace, name = _choose_object(random, catalog)
    path = random.choice(
        (resource.collection_path(namespace), paths.choose_object_path(random, resource, namespace, name))
    )
    return RawRequest(
        random.choice(("GET", "GET", "HEAD")),
        path,
        queries.choose_parameters(random, random.randrange(4)),
        _build_headers(catalog),
    )


def _build_document_read(random: Random, catalog: ApiCatalog) -> RawRequest:
    return RawRequest("GET", paths.choose_document_path(random, catalog), headers=_build_headers(catalog))


def _build_create(random: Random, catalog: ApiCatalog) -> RawRequest:
    resource, namespace, name = _choose_object(random, catalog)
    body, media_type = _encode_body(
        random, _mutate_object(random, resource, resource.build_example(_choose_name(random, name), namespace))
    )
    return RawRequest(
        "POST", resource.collection_path(namespace), _choose_options(random), _build_headers(catalog, media_type), body
    )


def _build_update(random: Random, catalog: ApiCatalog) -> RawRequest:
    resource, namespace, name = _choose_object(random, catalog)
    body, media_type = _encode_body(random, _mutate_object(random, resource, resource.build_example(name, namespace)))
    path = paths.choose_object_path(random, resource, namespace, name)
    return RawRequest("PUT", path, _choose_options(random), _build_headers(catalog, media_type), body)


def _build_patch(random: Random, catalog: ApiCatalog) -> RawRequest:
    resource, namespace, name = _choose_object(random, catalog)
    media_type = random.choice(patches.TYPES)
    document = patches.build_patch(random, media_type, resource, resource.build_example(name, namespace))
    write = bodies.encode_yaml if media_type == patches.APPLY and random.random() < 0.5 else bodies.encode_json
    query = _choose_apply_options(random) if media_type == patches.APPLY else _choose_options(random)
    path = paths.choose_object_path(random, resource, namespace, name)
    return RawRequest("PATCH", path, query, _build_headers(catalog, media_type), write(random, document))


def _build_protobuf_create(random: Random, catalog: ApiCatalog) -> RawRequest:
    kind = random.choice(("ConfigMap", "Secret", "Namespace"))
    resource = next(each for each in catalog.resources if each.kind == kind)
    fields = _build_headers(catalog, protobuf.MEDIA_TYPE)
    return RawRequest(
        "POST",
        resource.collection_path(random.choice(NAMESPACES)),
        ("dryRun=All",),
        fields,
        protobuf.build_body(random),
    )


def _build_delete(random: Random, catalog: ApiCatalog) -> RawRequest:
    resource, namespace, name = _choose_object(random, catalog)
    path = random.choice(
        (resource.collection_path(namespace), paths.choose_object_path(random, resource, namespace, name))
    )
    body, media_type = _encode_body(random, random.choice(_POLICIES)) if random.random() < 0.5 else (b"", "")
    return RawRequest(
        "DELETE",
        path,
        queries.choose_parameters(random, random.randrange(2)),
        _build_headers(catalog, media_type),
        body,
    )


def _choose_apply_options(random: Random) -> tuple[str, ...]:
    """A field manager, with or without force."""
    manager = random.choice(("fuzz", "kubectl", f"manager-{random.randrange(15)}"))
    return (f"fieldManager={manager}", "force=1")[: random.choice((1, 2))]


def _choose_options(random: Random) -> tuple[str, ...]:
    return queries.choose_parameters(random, random.choice((0, 0, 0, 1, 2)))


def _choose_object(random: Random, catalog: ApiCatalog) -> tuple[Resource, str, str]:
    """A resource, and the namespace and name of one of its objects."""
    return random.choice(catalog.resources), random.choice(NAMESPACES), random.choice(paths.NAMES)


def _choose_name(random: Random, name: str) -> str:
    return random.choice((name, f"{name}-{random.randrange(NAME_COUNT)}"))


def _mutate_object(random: Random, resource: Resource, obj: Any) -> Any:
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        obj = bodies.mutate_object(random, obj, resource)
    return obj


def _encode_body(random: Random, value: Any) -> tuple[bytes, str]:
    if random.random() < 0.3:
        return bodies.encode_yaml(random, value), "application/yaml"
    return bodies.encode_json(random, value), random.choice(("application/json", "application/json", ""))


def _mutate_method(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    return replace(request, method=random.choice(METHODS))


def _mutate_path(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    return replace(request, path=paths.mutate_path(random, request.path))


def _mutate_query(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    added = queries.choose_parameters(random, random.choice((1, 2, 5)))
    return replace(request, query=(*request.query, *added * random.choice((1, 1, 2, 30))))


def _mutate_headers(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    return replace(request, headers=headers.mutate_headers(random, request.headers, catalog.key))


def _mutate_body(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    return replace(request, body=bodies.corrupt_body(random, request.body))


def _mutate_framing(random: Random, request: RawRequest, catalog: ApiCatalog) -> RawRequest:
    return replace(request, chunked=True)


_BUILDERS = (
    _build_read,
    _build_read,
    _build_read,
    _build_document_read,
    *[_build_create] * 4,
    _build_update,
    *[_build_patch] * 5,
    _build_protobuf_create,
    _build_delete,
)
_MUTATIONS: tuple[Mutation, ...] = (
    _mutate_method,
    _mutate_path,
    _mutate_query,
    _mutate_headers,
    _mutate_headers,
    _mutate_body,
    _mutate_framing,
)
