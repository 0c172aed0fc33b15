"""The namespaces that the server itself relies on cannot be deleted, and all others can."""

import pytest

from fairlead.admission.namespaces import protect_system_namespaces
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change
from tests.harness.registry import ADA, RegistryFixture

RULE = protect_system_namespaces(("default", "service-system"))


def deletion(api: RegistryFixture, kind: str, name: str, verb: str = "delete") -> Change:
    obj: Object = {"metadata": {"name": name}}
    return Change(verb, api.of(kind).kind, ADA, obj, None if verb == "delete" else obj)


async def test_a_namespace_that_must_last_cannot_be_deleted_by_anybody(api: RegistryFixture) -> None:
    for user in (ADA, CONTROLLER_USER):
        change = deletion(api, "Namespace", "default")
        change.user = user
        with pytest.raises(Forbidden, match='namespaces "default" is forbidden: this namespace may not be deleted'):
            await RULE(change, api.registry)


async def test_other_namespaces_and_other_kinds_of_the_same_name_can(api: RegistryFixture) -> None:
    await RULE(deletion(api, "Namespace", "demo"), api.registry)
    await RULE(deletion(api, "Gadget", "default"), api.registry)
    await RULE(deletion(api, "ConfigMap", "default"), api.registry)


async def test_a_namespace_that_must_last_can_be_changed(api: RegistryFixture) -> None:
    await RULE(deletion(api, "Namespace", "default", "update"), api.registry)
