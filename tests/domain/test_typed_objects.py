"""Tests of `fairlead.domain.typed_objects`: what is not set is empty, each property is used, and when a space can be
used."""

import re
from pathlib import Path

import pytest

import fairlead
from fairlead.core.objects import Object
from fairlead.domain import typed_objects
from fairlead.domain.typed_objects import SPACE_READY, SPACE_SYNCED, Cluster, SpaceInstance, TypedObject


def build_space(*, synced: str = "", ready: str = "", namespace: str = "n", deleted: bool = False) -> Object:
    pairs = ((SPACE_SYNCED, synced), (SPACE_READY, ready))
    return {
        "metadata": {"name": "s", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})},
        "spec": {"clusterRef": {"cluster": "c", "namespace": namespace}},
        "status": {"conditions": [{"type": type, "status": status} for type, status in pairs if status]},
    }


@pytest.mark.parametrize(
    ("obj", "usable", "usable_if_unreachable"),
    [
        (build_space(synced="True", ready="True"), True, True),
        (build_space(synced="True"), True, True),
        (build_space(synced="Unknown", ready="Unknown"), False, True),
        (build_space(synced="False", ready="False"), False, False),
        (build_space(synced="Unknown", ready="False"), False, False),
        (build_space(), False, False),
        (build_space(synced="True", namespace=""), False, False),
        (build_space(synced="True", deleted=True), False, False),
        (build_space(ready="Unknown", deleted=True), False, False),
        ({"metadata": {}, "spec": {}}, False, False),
    ],
)
def test_a_space_is_usable_once_its_namespace_belongs_to_it(
    obj: Object, usable: bool, usable_if_unreachable: bool
) -> None:
    assert SpaceInstance(obj).is_usable() is usable
    assert SpaceInstance(obj).is_usable(allow_unreachable=True) is usable_if_unreachable


CLASSES = [each for each in vars(typed_objects).values() if isinstance(each, type) and issubclass(each, TypedObject)]
PROPERTIES = [(each, name) for each in CLASSES for name, value in vars(each).items() if isinstance(value, property)]


@pytest.mark.parametrize("typed", [each for each in CLASSES if each not in (TypedObject, typed_objects.RemoteInstance)])
def test_what_is_not_set_is_empty(typed: type[TypedObject]) -> None:
    bare = typed({"metadata": {"name": "one", "uid": "u"}})
    names = [name for each in typed.__mro__ for name, value in vars(each).items() if isinstance(value, property)]
    found = {name: getattr(bare, name) for name in names}
    missing = {name for name, value in found.items() if value is None}
    assert missing <= {"is_online"}, "None means that a cluster was never probed, and nothing else"
    assert (found["name"], found["key"], found["uid"], found["generation"]) == ("one", ("", "one"), "u", 1)


PROBED: Object = {"conditions": [{"type": "Connected", "status": "False"}]}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, PROBED, False),
        ({"config": {"secretName": "s"}}, {}, True),
        ({"networkPeer": True}, {"online": True, "phase": "Initialized"}, False),
        ({"networkPeer": True}, PROBED, True),
        ({"local": True}, PROBED, False),
    ],
)
def test_a_cluster_that_dials_out_is_reached_once_it_is_probed(spec: Object, status: Object, expected: bool) -> None:
    """Until then, others may report what is in it."""
    assert Cluster({"spec": spec, "status": status}).has_transport is expected


def test_each_property_is_used() -> None:
    package = Path(fairlead.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    read = set(re.findall(r"\.([a-z_]+)\b", text))
    assert [f"{each.__name__}.{name}" for each, name in PROPERTIES if name not in read] == []
