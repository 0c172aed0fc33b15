"""Helpers for tests of the garbage collector: owners and dependents."""

from typing import Any

from fairlead.core.objects import Object
from tests.harness.registry import RegistryFixture


def owner_reference(obj: Object, *, blocking: bool = False) -> Object:
    """An ownerReference to the object."""
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    reference.update(name=obj["metadata"]["name"], uid=obj["metadata"]["uid"])
    return {**reference, "blockOwnerDeletion": True} if blocking else reference


async def create_dependent(
    api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap", blocking: bool = False, **meta: Any
) -> Object:
    """Creates an object with these owners."""
    namespace = meta.pop("namespace", "")
    references = [owner_reference(owner, blocking=blocking) for owner in owners]
    return await api.create(kind, name, namespace, metadata={"ownerReferences": references, **meta})


async def set_owners(
    api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap", blocking: bool = False
) -> None:
    """Replaces the owners of an object."""
    references = [owner_reference(owner, blocking=blocking) for owner in owners]
    await api.patch(kind, name, lambda obj: obj["metadata"].update(ownerReferences=references))


async def remove_finalizers(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> None:
    """Removes all finalizers of an object."""
    await api.patch(kind, name, lambda obj: obj["metadata"].update(finalizers=[]))


def finalizers(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> list[str]:
    """The finalizers of an object."""
    obj = api.get(kind, name)
    assert obj is not None, f"{name} does not exist"
    return list(obj["metadata"].get("finalizers", ()))


def owner_names(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> list[str]:
    """The names of the owners of an object."""
    obj = api.get(kind, name)
    assert obj is not None, f"{name} does not exist"
    return [reference["name"] for reference in obj["metadata"].get("ownerReferences", ())]


def is_being_deleted(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> bool:
    """Whether an object exists and has a deletionTimestamp."""
    obj = api.get(kind, name)
    return obj is not None and "deletionTimestamp" in obj["metadata"]


def removed_names(api: RegistryFixture) -> list[str]:
    """The names of all removed objects, in order."""
    return [change.key[3] for changes, _ in api.store.commits for change in changes if change.value is None]
