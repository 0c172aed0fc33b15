"""The namespaces that the server itself relies on cannot be deleted, and all others can."""

import pytest

from fairlead.admission.namespaces import protect_system_namespaces
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change
from tests.harness.registry import ADA, World

RULE = protect_system_namespaces(("default", "service-system"))


def deletion(world: World, kind: str, name: str, verb: str = "delete") -> Change:
    obj: Object = {"metadata": {"name": name}}
    return Change(verb, world.of(kind).kind, ADA, obj, None if verb == "delete" else obj)


async def test_a_namespace_that_must_last_cannot_be_deleted_by_anybody(world: World) -> None:
    for user in (ADA, CONTROLLER_USER):
        change = deletion(world, "Namespace", "default")
        change.user = user
        with pytest.raises(Forbidden, match='namespaces "default" is forbidden: this namespace may not be deleted'):
            await RULE(change, world.registry)


async def test_other_namespaces_and_other_kinds_of_the_same_name_can(world: World) -> None:
    await RULE(deletion(world, "Namespace", "demo"), world.registry)
    await RULE(deletion(world, "Gadget", "default"), world.registry)
    await RULE(deletion(world, "ConfigMap", "default"), world.registry)


async def test_a_namespace_that_must_last_can_be_changed(world: World) -> None:
    await RULE(deletion(world, "Namespace", "default", "update"), world.registry)
