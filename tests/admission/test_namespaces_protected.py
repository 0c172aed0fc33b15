"""System namespaces cannot be deleted; all others can."""

import pytest

from fairlead.admission.namespaces import protect_system_namespaces
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change
from tests.harness.registry import ADA, RegistryFixture

RULE = protect_system_namespaces(("default", "service-system"))


def build_change(api: RegistryFixture, kind: str, name: str, verb: str = "delete") -> Change:
    obj: Object = {"metadata": {"name": name}}
    return Change(verb, api.resource(kind).kind, ADA, obj, None if verb == "delete" else obj)


async def test_a_system_namespace_cannot_be_deleted(api: RegistryFixture) -> None:
    for user in (ADA, CONTROLLER_USER):
        change = build_change(api, "Namespace", "default")
        change.user = user
        with pytest.raises(Forbidden, match='namespaces "default" is forbidden: this namespace may not be deleted'):
            await RULE(change, api.registry)


async def test_other_namespaces_and_kinds_of_the_same_name_can_be_deleted(api: RegistryFixture) -> None:
    await RULE(build_change(api, "Namespace", "demo"), api.registry)
    await RULE(build_change(api, "Gadget", "default"), api.registry)
    await RULE(build_change(api, "ConfigMap", "default"), api.registry)


async def test_a_system_namespace_can_be_updated(api: RegistryFixture) -> None:
    await RULE(build_change(api, "Namespace", "default", "update"), api.registry)
