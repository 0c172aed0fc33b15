"""Tests of `fairlead.domain.spaces`: when the namespace of a space can be used."""

import pytest

from fairlead.core.objects import Object
from fairlead.domain.spaces import SPACE_READY, SPACE_SYNCED, is_space_usable


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
    assert is_space_usable(obj) is usable
    assert is_space_usable(obj, allow_unreachable=True) is usable_if_unreachable
