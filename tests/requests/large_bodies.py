"""Bodies of nearly the largest size, each expensive in another way: for a parser, a regular expression or a validator.

`tests/generated` mixes them into its requests, and its `beside_large_bodies.py` measures what they cost another
client. A body is built when it is needed: all together they have hundreds of megabytes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT
from tests.requests.expensive_bodies import JSON, PROTOBUF, YAML
from tests.requests.large_json import JSON_TEXTS, MAX_VALUES, OBJECT, SIZE, fill, join
from tests.requests.large_yaml import YAML_TEXTS
from tests.requests.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.requests.protobuf import encode_envelope, encode_field

MAX_OPERATIONS = 10_000

_CREATE, _CHANGE = f"{CONFIGMAPS}?dryRun=All", f"{CONFIGMAPS}/{OBJECT}?dryRun=All"
_APPLY = f"{_CHANGE}&fieldManager=large&force=1"
_MANAGEMENT = f"{MANAGEMENT}/apis/management.service.sh/v1"
_ROLES = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All"


@dataclass(frozen=True, slots=True)
class LargeRequest:
    method: str
    target: str
    media_type: str
    body: bytes


Build = Callable[[], LargeRequest]


def _operations(*operations: Any) -> bytes:
    return json.dumps(operations).encode()


def _value(text: bytes) -> bytes:
    return b'[{"op":"add","path":"/data","value":' + text + b"}]"


JSON_PATCHES: Mapping[str, Callable[[], bytes]] = {
    "additions": lambda: b"[" + join(b'{"op":"add","path":"/data/k%d","value":"v"}', MAX_OPERATIONS) + b"]",
    "additions of long texts": lambda: (
        b"[" + join(b'{"op":"add","path":"/data/k%d","value":"' + b"x" * 200 + b'"}', MAX_OPERATIONS) + b"]"
    ),
    "too many additions": lambda: b"[" + join(b'{"op":"add","path":"/data/k%d","value":"v"}', 30_000) + b"]",
    "a number": lambda: _value(fill(b"9")),
    "a text": lambda: _value(fill(b"x", b'{"a":"', b'"}')),
    "numbers": lambda: _value(fill(b"1,", b"[", b"1]", MAX_VALUES - 10)),
    "tests of a long text": lambda: b"[" + join(b'{"op":"test","path":"/data/large","value":null}', 5_000) + b"]",
    "tests of the whole object": lambda: b"[" + join(b'{"op":"test","path":"","value":null}', 5_000) + b"]",
    "copies": lambda: b"[" + join(b'{"op":"copy","from":"/metadata","path":"/data/k%d"}', MAX_OPERATIONS) + b"]",
    "a path": lambda: _operations({"op": "add", "path": "/" + "x" * SIZE, "value": 1}),
    "a path of slashes": lambda: _operations({"op": "add", "path": "/" * SIZE, "value": 1}),
    "a path of tildes": lambda: _operations({"op": "add", "path": "/" + "~1" * (SIZE // 2), "value": 1}),
    "a path of digits": lambda: _operations({"op": "add", "path": "/data/" + "1" * SIZE, "value": 1}),
    "a long operation": lambda: _operations({"op": "x" * SIZE, "path": "/"}),
    "unknown fields": lambda: b"[{" + join(b'"f%d":1', MAX_VALUES) + b"}]",
    "insertions at the start": lambda: (
        b'[{"op":"add","path":"/metadata/finalizers","value":["a"]},'
        + join(b'{"op":"add","path":"/metadata/finalizers/0","value":"v%d"}', 6_000)
        + b"]"
    ),
    "moves": lambda: (
        b'[{"op":"add","path":"/x","value":{}},' + join(b'{"op":"move","from":"/x","path":"/x"}', 9_000) + b"]"
    ),
}

_STRATEGIC_LIST = b'{"metadata":{"ownerReferences":[' + b"%s" + b"]}}"
STRATEGIC_PATCHES: Mapping[str, Callable[[], bytes]] = {
    "owners by key": lambda: _STRATEGIC_LIST % join(b'{"uid":"%d","name":"a"}', MAX_VALUES // 3),
    "deleted owners": lambda: _STRATEGIC_LIST % join(b'{"uid":"%d","$patch":"delete"}', MAX_VALUES // 3),
    "an order of owners": lambda: (
        b'{"metadata":{"$setElementOrder/ownerReferences":[' + join(b'{"uid":"%d"}', MAX_VALUES // 2) + b"]}}"
    ),
    "deleted finalizers": lambda: (
        b'{"metadata":{"$deleteFromPrimitiveList/finalizers":[' + join(b'"a/%d"', MAX_VALUES) + b"]}}"
    ),
    "an order of finalizers": lambda: (
        b'{"metadata":{"$setElementOrder/finalizers":[' + join(b'"a/%d"', MAX_VALUES) + b"]}}"
    ),
    "kept keys": lambda: b'{"data":{"$retainKeys":[' + join(b'"k%d"', MAX_VALUES) + b"]}}",
    "a number": lambda: fill(b"9", b'{"data":', b"}"),
    "a text": lambda: fill(b"x", b'{"data":{"a":"', b'"}}'),
    "keys": lambda: b'{"data":{' + join(b'"key-%d":"value"', MAX_VALUES) + b"}}",
    "nulls": lambda: b'{"data":{' + join(b'"key-%d":null', MAX_VALUES) + b"}}",
}


def _config_map(*fields: bytes) -> bytes:
    return encode_envelope(b"ConfigMap", encode_field(1, encode_field(1, OBJECT.encode())) + b"".join(fields))


def _entry(key: bytes, value: bytes) -> bytes:
    return encode_field(1, key) + encode_field(2, value)


PROTOBUF_BODIES: Mapping[str, Callable[[], bytes]] = {
    "a text": lambda: _config_map(encode_field(2, _entry(b"a", b"x" * SIZE))),
    "a wide text": lambda: _config_map(encode_field(2, _entry(b"a", "😀".encode() * (SIZE // 4)))),
    "binary data": lambda: _config_map(encode_field(3, _entry(b"a", b"\xff" * SIZE))),
    "entries": lambda: _config_map(*(encode_field(2, _entry(b"key-%d" % n, b"x" * 250)) for n in range(9_900))),
    "too many entries": lambda: _config_map(*(encode_field(2, _entry(b"key-%d" % n, b"v")) for n in range(150_000))),
    "fields of entries": lambda: _config_map(encode_field(2, encode_field(1, b"a") * 9_900) * 99),
    "unknown fields": lambda: _config_map(b"\xf8\x01\x01" * (SIZE // 3)),
    "varints": lambda: _config_map(b"\x20" + b"\xff" * (SIZE // 2)),
    "a wrong text": lambda: _config_map(encode_field(2, _entry(b"a", b"x" * SIZE + b"\xff"))),
}


def _review(name: str, **spec: Any) -> bytes:
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "clusters", "name": "nowhere"}
    return json.dumps(
        {
            "apiVersion": "management.service.sh/v1",
            "kind": name,
            "spec": {"resourceAttributes": attributes, **spec},
        }
    ).encode()


def _scope(rules: int, names: int, **more: Any) -> dict[str, Any]:
    """A scope of rules with distinct names, which together fit into a body."""
    return {
        "rules": [
            {
                "verbs": ["get"],
                "resources": [{"group": "management.service.sh", "resources": ["clusters"]}],
                "resourceNames": [f"name-{rule}-{number}" for number in range(names)],
                **more,
            }
            for rule in range(rules)
        ]
    }


def _batch(scope: Any) -> bytes:
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "clusters"}
    reviews = [{"resourceAttributes": {**attributes, "name": f"n{number}"}} for number in range(200)]
    spec = {"reviews": reviews, "scope": scope}
    body = {"apiVersion": "management.service.sh/v1", "kind": "SelfSubjectAccessReviewBatch", "spec": spec}
    return json.dumps(body).encode()


def _role(rules: int, names: int, resources: int = 1) -> bytes:
    listed = [
        {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": [f"r{number}" for number in range(resources)],
            "resourceNames": [f"name-{rule}-{number}" for number in range(names)],
        }
        for rule in range(rules)
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "large-bodies"}}
    return json.dumps({**head, "rules": listed}).encode()


def _key(scope: Any) -> bytes:
    head = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "large-bodies"}}
    return json.dumps({**head, "spec": {"user": "admin", "scope": scope}}).encode()


_REVIEWS = f"{_MANAGEMENT}/selfsubjectaccessreviews"
_NAMESPACES = {"namespaces": [f"ns-{number}" for number in range(20)]}


def _post(target: str, build: Callable[[], bytes], media_type: str = JSON) -> Build:
    return lambda: LargeRequest("POST", target, media_type, build())


ACCESS: Mapping[str, Build] = {
    "a review of 1,000 rules of 80 names": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(1_000, 80))
    ),
    "a review of 40 rules of 2,000 names": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(40, 2_000))
    ),
    "a review of rules with namespaces": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(1_000, 60, **_NAMESPACES))
    ),
    "a review of projects": _post(
        _REVIEWS,
        lambda: _review("SelfSubjectAccessReview", scope={"projects": [{"project": f"p{n}"} for n in range(1_000)]}),
    ),
    "a review of groups": _post(
        f"{_MANAGEMENT}/subjectaccessreviews",
        lambda: _review("SubjectAccessReview", user="a", groups=[f"g{n}" + "x" * 500 for n in range(5_000)]),
    ),
    "a batch of reviews of a scope": _post(
        f"{_MANAGEMENT}/selfsubjectaccessreviewbatches", lambda: _batch(_scope(1_000, 80))
    ),
    "an access key of 1,000 rules of 80 names": _post(
        f"{_MANAGEMENT}/ownedaccesskeys?dryRun=All", lambda: _key(_scope(1_000, 80))
    ),
    "a role of rules": _post(_ROLES, lambda: _role(5_000, 15)),
    "a role of names": _post(_ROLES, lambda: _role(9, 10_000)),
    "a role of resources": _post(_ROLES, lambda: _role(90, 1, 1_000)),
    "a binding of subjects": _post(
        _ROLES.replace("clusterroles", "clusterrolebindings"),
        lambda: json.dumps(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "large-bodies"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [
                    {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"u{n}" + "x" * 150}
                    for n in range(10_000)
                ],
            }
        ).encode(),
    ),
}
"""What is decided by many rules or names."""


def _write(method: str, target: str, media_type: str, build: Callable[[], bytes]) -> Build:
    return lambda: LargeRequest(method, target, media_type, build())


def _iter_requests() -> Iterator[tuple[str, Build]]:
    for name, text in JSON_TEXTS.items():
        target = _CREATE.replace("configmaps", "secrets") if "Secret" in name else _CREATE
        yield f"JSON: {name}", _write("POST", target, JSON, text)
    for name in ("a text", "keys", "keys and nested values", "annotations", "a manager of many fields"):
        yield f"replace: {name}", _write("PUT", _CHANGE, JSON, JSON_TEXTS[name])
        yield f"merge patch: {name}", _write("PATCH", _CHANGE, MERGE, JSON_TEXTS[name])
        yield f"apply: {name}", _write("PATCH", _APPLY, APPLY, JSON_TEXTS[name])
    for name, text in YAML_TEXTS.items():
        yield f"YAML: {name}", _write("POST", _CREATE, YAML, text)
    for name in ("a plain scalar", "keys", "entries", "JSON"):
        yield f"apply: {name} in YAML", _write("PATCH", _APPLY, APPLY, YAML_TEXTS[name])
    for name, text in JSON_PATCHES.items():
        yield f"JSON patch: {name}", _write("PATCH", _CHANGE, JSON_PATCH, text)
    for name, text in STRATEGIC_PATCHES.items():
        yield f"strategic merge patch: {name}", _write("PATCH", _CHANGE, STRATEGIC, text)
    for name, text in PROTOBUF_BODIES.items():
        yield f"protobuf: {name}", _write("POST", _CREATE, PROTOBUF, text)
    for name, build in ACCESS.items():
        yield f"access: {name}", build


LARGE_REQUESTS: Mapping[str, Build] = dict(_iter_requests())
"""All requests by name. A request is the same each time it is built."""
