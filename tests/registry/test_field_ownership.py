"""registry/resource.py: owners after writes of /status, and of what cannot be tracked."""

import pytest

from fairlead.core.objects import Object
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture
from tests.registry.test_resource_apply import owned_paths

STATUS = WriteOptions(ADA, "s", subresource="status")


async def test_a_write_of_the_status_owns_the_metadata_that_it_sends(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"x": "y", "kept": "1"}})

    def edit(obj: Object) -> None:
        obj["status"] = {"phase": "Ready"}
        obj["spec"] = {"size": 9}
        obj["metadata"]["labels"] = {"x": "z", "kept": "1"}

    updated = await api.patch("Gadget", "a", edit, STATUS)
    assert updated["metadata"]["labels"] == {"x": "y", "kept": "1"}, "only the owner is another one"
    owners = owned_paths(updated)
    assert owners.pop("s") == ["f:metadata/f:labels/f:x", "f:status", "f:status/f:phase"]
    assert [paths for paths in owners.values() if "f:metadata/f:labels/f:x" in paths] == []


async def test_a_write_of_the_status_takes_away_owners_of_metadata_that_it_omits(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"x": "y"}})

    def edit(obj: Object) -> None:
        obj["status"] = {"phase": "Ready"}
        del obj["metadata"]["labels"]

    updated = await api.patch("Gadget", "a", edit, STATUS)
    assert updated["metadata"]["labels"] == {"x": "y"}
    assert [path for paths in owned_paths(updated).values() for path in paths if "labels" in path] == []


@pytest.mark.parametrize("status", [True, 5, []])
async def test_a_new_object_is_untracked_if_its_status_is_of_the_wrong_type(
    api: RegistryFixture, status: object
) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1}, status=status)
    assert "managedFields" not in created["metadata"]
    assert "status" not in created
