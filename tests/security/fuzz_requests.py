"""The generator: a seed and a number make a request. Most of them are nearly right, as those go deepest."""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.security import bodies, headers, patches, paths, protobuf, queries
from tests.security.api_resources import NAMESPACES, Resource, World
from tests.security.raw_http import Ask

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "FOO", "X" * 60)
_POLICIES: tuple[Any, ...] = (
    {"propagationPolicy": "Orphan"},
    {"kind": "Status"},
    {"preconditions": {"uid": "x"}},
    {"dryRun": ["All"]},
    [],
    1,
)
FRESH = 10_000
"""How many new names there are for each that attackers write to."""
# What may really be deleted: the attackers' own. Everything else only as a rehearsal.
_OWN = re.compile(r".*/(namespaces/storm-2/[a-z]+(/[^/]+){0,2}|[a-z]+/(b|storm-1))")

Twist = Callable[[Random, Ask, World], Ask]


def ask(seed: str, number: int, world: World) -> Ask:
    """The same request for the same seed and number, whatever was asked before."""
    random = Random(f"{seed}/{number}")
    made = random.choice(_BEGINNINGS)(random, world)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
        made = random.choice(_TWISTS)(random, made, world)
    return _tamed(made)


def _tamed(ask: Ask) -> Ask:
    if ask.method != "DELETE" or _OWN.fullmatch(ask.path):
        return ask
    return replace(ask, query=("dryRun=All", *(each for each in ask.query if not each.startswith("dryRun"))))


def _fields(world: World, media_type: str = "") -> headers.Fields:
    return (headers.bearer(world.key), *((("Content-Type", media_type),) if media_type else ()))


def _reading(random: Random, world: World) -> Ask:
    resource, namespace, name = _chosen(random, world)
    path = random.choice((resource.collection(namespace), paths.named(random, resource, namespace, name)))
    return Ask(
        random.choice(("GET", "GET", "HEAD")), path, queries.parameters(random, random.randrange(4)), _fields(world)
    )


def _documents(random: Random, world: World) -> Ask:
    return Ask("GET", paths.document(random, world), headers=_fields(world))


def _creating(random: Random, world: World) -> Ask:
    resource, namespace, name = _chosen(random, world)
    body, media_type = _written(random, _changed(random, resource, resource.example(_fresh(random, name), namespace)))
    return Ask("POST", resource.collection(namespace), _options(random), _fields(world, media_type), body)


def _updating(random: Random, world: World) -> Ask:
    resource, namespace, name = _chosen(random, world)
    body, media_type = _written(random, _changed(random, resource, resource.example(name, namespace)))
    path = paths.named(random, resource, namespace, name)
    return Ask("PUT", path, _options(random), _fields(world, media_type), body)


def _patching(random: Random, world: World) -> Ask:
    resource, namespace, name = _chosen(random, world)
    media_type = random.choice(patches.TYPES)
    document = patches.document(random, media_type, resource, resource.example(name, namespace))
    write = bodies.as_yaml if media_type == patches.APPLY and random.random() < 0.5 else bodies.as_json
    query = _ownership(random) if media_type == patches.APPLY else _options(random)
    path = paths.named(random, resource, namespace, name)
    return Ask("PATCH", path, query, _fields(world, media_type), write(random, document))


def _packing(random: Random, world: World) -> Ask:
    kind = random.choice(("ConfigMap", "Secret", "Namespace"))
    resource = next(each for each in world.resources if each.kind == kind)
    fields = _fields(world, protobuf.MEDIA_TYPE)
    return Ask("POST", resource.collection(random.choice(NAMESPACES)), ("dryRun=All",), fields, protobuf.body(random))


def _deleting(random: Random, world: World) -> Ask:
    resource, namespace, name = _chosen(random, world)
    path = random.choice((resource.collection(namespace), paths.named(random, resource, namespace, name)))
    body, media_type = _written(random, random.choice(_POLICIES)) if random.random() < 0.5 else (b"", "")
    return Ask("DELETE", path, queries.parameters(random, random.randrange(2)), _fields(world, media_type), body)


def _ownership(random: Random) -> tuple[str, ...]:
    """Who applies, with force or without."""
    manager = random.choice(("storm", "kubectl", f"manager-{random.randrange(15)}"))
    return (f"fieldManager={manager}", "force=1")[: random.choice((1, 2))]


def _options(random: Random) -> tuple[str, ...]:
    return queries.parameters(random, random.choice((0, 0, 0, 1, 2)))


def _chosen(random: Random, world: World) -> tuple[Resource, str, str]:
    """A resource, and where one of its objects may be."""
    return random.choice(world.resources), random.choice(NAMESPACES), random.choice(paths.NAMES)


def _fresh(random: Random, name: str) -> str:
    return random.choice((name, f"{name}-{random.randrange(FRESH)}"))


def _changed(random: Random, resource: Resource, obj: Any) -> Any:
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        obj = bodies.twisted(random, obj, resource)
    return obj


def _written(random: Random, value: Any) -> tuple[bytes, str]:
    if random.random() < 0.3:
        return bodies.as_yaml(random, value), "application/yaml"
    return bodies.as_json(random, value), random.choice(("application/json", "application/json", ""))


def _twist_method(random: Random, ask: Ask, world: World) -> Ask:
    return replace(ask, method=random.choice(METHODS))


def _twist_path(random: Random, ask: Ask, world: World) -> Ask:
    return replace(ask, path=paths.twisted(random, ask.path))


def _twist_query(random: Random, ask: Ask, world: World) -> Ask:
    added = queries.parameters(random, random.choice((1, 2, 5)))
    return replace(ask, query=(*ask.query, *added * random.choice((1, 1, 2, 30))))


def _twist_headers(random: Random, ask: Ask, world: World) -> Ask:
    return replace(ask, headers=headers.twisted(random, ask.headers, world.key))


def _twist_body(random: Random, ask: Ask, world: World) -> Ask:
    return replace(ask, body=bodies.broken(random, ask.body))


def _twist_framing(random: Random, ask: Ask, world: World) -> Ask:
    return replace(ask, chunked=True)


_BEGINNINGS = (
    _reading,
    _reading,
    _reading,
    _documents,
    *[_creating] * 4,
    _updating,
    *[_patching] * 5,
    _packing,
    _deleting,
)
_TWISTS: tuple[Twist, ...] = (
    _twist_method,
    _twist_path,
    _twist_query,
    _twist_headers,
    _twist_headers,
    _twist_body,
    _twist_framing,
)
