"""Generates patches of every type, valid and invalid."""

from random import Random
from typing import Any

from tests.requests import bodies, values
from tests.requests.api_resources import Resource

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)

_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_POINTERS = (
    *("", "/", "/metadata", "/metadata/labels", "/metadata/labels/a", "/metadata/name", "/metadata/uid"),
    "/metadata/finalizers",
    *("/metadata/finalizers/-", "/metadata/finalizers/0", "/metadata/managedFields"),
    "/metadata/managedFields/0/fieldsV1",
    *("/spec", "/spec/displayName", "/status", "/status/conditions/-", "/data", "/data/a", "/apiVersion", "/kind"),
    *("/x/y/z", "x"),
    *("/data/~", "/data/~2", "/data/~0~1", "/metadata/annotations/a~1b", "//", "/a" * 400, "/" + "x" * 5000, "/-"),
    *("/0", "/00"),
    *("/metadata/ownerReferences", "/metadata/ownerReferences/0/uid", "/spec/access/0"),
    *("/metadata/creationTimestamp", "/é\x00"),
)  # fmt: skip
_LIST_FIELDS = ("finalizers", "ownerReferences", "conditions", "access", "members", "nope")


def build_patch(random: Random, media_type: str, resource: Resource, example: dict[str, Any]) -> Any:
    """Builds a patch of the type, usually with faults."""
    if media_type == JSON_PATCH:
        return [_build_operation(random) for _ in range(random.choice((0, 1, 1, 1, 2, 5, 40)))]
    obj = bodies.mutate_object(random, example, resource)
    if media_type == STRATEGIC and isinstance(obj, dict):
        return _add_directives(random, obj)
    return obj


def _build_operation(random: Random) -> Any:
    if random.random() < 0.03:
        return values.choose_odd_value(random)
    operation = {
        "op": random.choice(_OPERATIONS),
        "path": random.choice(_POINTERS),
        "value": values.choose_odd_value(random),
    }
    operation["from"] = random.choice(_POINTERS)
    if random.random() < 0.1:
        operation[random.choice(tuple(operation))] = random.choice(("Add", "", "swap", values.choose_odd_value(random)))
    if random.random() < 0.1:
        del operation[random.choice(tuple(operation))]
    return operation


def _add_directives(random: Random, obj: dict[str, Any]) -> dict[str, Any]:
    """Adds patch directives to the object, some of them where they have no meaning."""
    parts = [part for part in (obj, *values.iter_values(obj)) if isinstance(part, dict)]
    for _ in range(random.choice((1, 1, 2, 4))):
        part = random.choice(parts)
        name = random.choice(_LIST_FIELDS)
        key, value = random.choice(
            (
                ("$patch", random.choice(("replace", "delete", "merge", "", "x", 1, None, [], {}))),
                ("$retainKeys", random.choice((["a"], list(part), [], "a", [1], None, [[]]))),
                (
                    f"$setElementOrder/{name}",
                    random.choice(([], ["a"], [{}], [{"uid": "1"}], [{"type": "Ready"}], "x", [None], [[]])),
                ),
                (f"$deleteFromPrimitiveList/{name}", random.choice((["a"], [], [{}], "x", None, [[1]]))),
                (
                    name,
                    random.choice(
                        ([{"$patch": "delete"}], [{"$patch": "replace"}], ["a", {}], [None], [1], [{"uid": None}])
                    ),
                ),
                ("$", values.choose_odd_value(random)),
            )
        )
        part[key] = value
    return obj
