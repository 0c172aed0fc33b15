"""The abandon annotation requires permission to update the cluster: abandoned objects count towards no quota."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.instances import check_abandon
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, open_registry

OPS = User("ops")
ABANDON = {"service.sh/abandon": "true"}
both_kinds = pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])


def authorize(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.resource) == ("update", "clusters")
    return Decision((user.name, target.name) == ("ops", "c"))


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_abandon(authorize, GROUP),)) as fixture:
        yield fixture


async def create_instance(
    api: RegistryFixture, kind: str, user: User = ADA, annotations: Object | None = None, **spec: Any
) -> Object:
    metadata = {"annotations": annotations} if annotations else {}
    return await api.submit(kind, api.build_object(kind, "a", metadata=metadata, spec=spec), WriteOptions(user))


@both_kinds
async def test_abandoning_requires_permission_to_update_the_cluster(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, clusterRef={"cluster": "c"})
    with pytest.raises(Forbidden, match='User "ada" may not update the cluster "c"'):
        await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=ABANDON))
    await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=ABANDON), WriteOptions(OPS))
    await api.patch(kind, "a", lambda each: each["spec"].update(displayName="x"))


@both_kinds
@pytest.mark.parametrize("spec", [{"clusterRef": {"cluster": "c"}}, {}, {"clusterRef": {}}])
async def test_the_annotation_cannot_be_set_on_create(api: RegistryFixture, kind: str, spec: Object) -> None:
    """An instance without a cluster may be placed into one later."""
    with pytest.raises(Forbidden):
        await create_instance(api, kind, annotations=ABANDON, **spec)
    await create_instance(api, kind, annotations={"service.sh/abandon": "false"}, **spec)
    with pytest.raises(Forbidden):
        await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=ABANDON))


async def test_an_imported_virtual_cluster_can_be_abandoned_by_its_owner(api: RegistryFixture) -> None:
    await create_instance(api, "VirtualClusterInstance", annotations=ABANDON, config={"secretName": "theirs"})
    await api.patch("VirtualClusterInstance", "a", lambda each: each["spec"].update(displayName="x"))


@pytest.mark.parametrize(
    "change",
    [
        {"config": None, "clusterRef": {"cluster": "c"}},
        {"clusterRef": {"cluster": "c"}},
        {"config": {}},
    ],
    ids=["at once", "set the cluster first", "remove the import first"],
)
async def test_an_abandoned_import_cannot_move_into_a_cluster(api: RegistryFixture, change: Object) -> None:
    """It could be placed into a cluster later, and would be left behind there on deletion."""
    kind = "VirtualClusterInstance"
    await create_instance(api, kind, annotations=ABANDON, config={"secretName": "theirs"})
    with pytest.raises(Forbidden, match="because it leaves objects behind there"):
        await api.patch(kind, "a", lambda each: each["spec"].update(change))
    await api.patch(kind, "a", lambda each: each["metadata"].pop("annotations"))
    await api.patch(kind, "a", lambda each: each["spec"].update(change))
