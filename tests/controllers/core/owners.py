"""Owners and dependants for the tests of the garbage collector."""

from typing import Any

from fairlead.core.objects import Object
from tests.harness.registry import RegistryFixture


def owner(obj: Object, *, blocking: bool = False) -> Object:
    """A reference to an object as its owner."""
    found = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    found.update(name=obj["metadata"]["name"], uid=obj["metadata"]["uid"])
    return {**found, "blockOwnerDeletion": True} if blocking else found


async def child(
    api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap", blocking: bool = False, **meta: Any
) -> Object:
    """Creates an object that belongs to others."""
    namespace = meta.pop("namespace", "")
    references = [owner(each, blocking=blocking) for each in owners]
    return await api.create(kind, name, namespace, metadata={"ownerReferences": references, **meta})


async def adopt(
    api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap", blocking: bool = False
) -> None:
    """Gives an object these owners instead of those that it has."""
    references = [owner(each, blocking=blocking) for each in owners]
    await api.patch(kind, name, lambda obj: obj["metadata"].update(ownerReferences=references))


async def let_go(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> None:
    """Takes all finalizers off an object."""
    await api.patch(kind, name, lambda obj: obj["metadata"].update(finalizers=[]))


def finalizers(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> list[str]:
    """What still holds an object."""
    seen = api.see(kind, name)
    assert seen is not None, f"{name} is gone"
    return list(seen["metadata"].get("finalizers", ()))


def owners(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> list[str]:
    """The names of an object's owners."""
    seen = api.see(kind, name)
    assert seen is not None, f"{name} is gone"
    return [each["name"] for each in seen["metadata"].get("ownerReferences", ())]


def marked(api: RegistryFixture, name: str, kind: str = "ConfigMap") -> bool:
    """Whether an object is still there, with its deletion under way."""
    seen = api.see(kind, name)
    return seen is not None and "deletionTimestamp" in seen["metadata"]


def ends(api: RegistryFixture) -> list[str]:
    """The names of all that has been removed, in order."""
    return [change.key[3] for changes, _ in api.store.commits for change in changes if change.value is None]
