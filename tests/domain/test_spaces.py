"""When the namespace of a space may be used."""

import pytest

from fairlead.core.objects import Object
from fairlead.domain.spaces import SPACE_READY, SPACE_SYNCED, is_space_usable


def space(*, synced: str = "", ready: str = "", namespace: str = "n", deleted: bool = False) -> Object:
    pairs = ((SPACE_SYNCED, synced), (SPACE_READY, ready))
    return {
        "metadata": {"name": "s", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})},
        "spec": {"clusterRef": {"cluster": "c", "namespace": namespace}},
        "status": {"conditions": [{"type": type, "status": status} for type, status in pairs if status]},
    }


@pytest.mark.parametrize(
    ("obj", "usable", "usable_if_unreachable"),
    [
        (space(synced="True", ready="True"), True, True),
        (space(synced="True"), True, True),
        (space(synced="Unknown", ready="Unknown"), False, True),
        (space(synced="False", ready="False"), False, False),
        (space(synced="Unknown", ready="False"), False, False),
        (space(), False, False),
        (space(synced="True", namespace=""), False, False),
        (space(synced="True", deleted=True), False, False),
        (space(ready="Unknown", deleted=True), False, False),
        ({"metadata": {}, "spec": {}}, False, False),
    ],
)
def test_a_space_is_usable_once_its_namespace_belongs_to_it(
    obj: Object, usable: bool, usable_if_unreachable: bool
) -> None:
    assert is_space_usable(obj) is usable
    assert is_space_usable(obj, allow_unreachable=True) is usable_if_unreachable
