"""Leaving something behind in a cluster takes the right to change the cluster: it counts towards no quota any more."""

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
MARK = {"service.sh/abandon": "true"}
both = pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])


def may(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.resource) == ("update", "clusters")
    return Decision((user.name, target.name) == ("ops", "c"))


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_abandon(may, GROUP),)) as made:
        yield made


async def make(api: RegistryFixture, kind: str, by: User = ADA, mark: Object | None = None, **spec: Any) -> Object:
    described = {"annotations": mark} if mark else {}
    return await api.submit(kind, api.body(kind, "a", metadata=described, spec=spec), WriteOptions(by))


@both
async def test_it_takes_the_right_to_change_the_cluster(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, clusterRef={"cluster": "c"})
    with pytest.raises(Forbidden, match='User "ada" may not update the cluster "c"'):
        await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=MARK))
    await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=MARK), WriteOptions(OPS))
    await api.patch(kind, "a", lambda each: each["spec"].update(displayName="x"))


@both
@pytest.mark.parametrize("spec", [{"clusterRef": {"cluster": "c"}}, {}, {"clusterRef": {}}])
async def test_it_cannot_be_said_beforehand(api: RegistryFixture, kind: str, spec: Object) -> None:
    """What is in no cluster yet may be put into one later."""
    with pytest.raises(Forbidden):
        await make(api, kind, mark=MARK, **spec)
    await make(api, kind, mark={"service.sh/abandon": "false"}, **spec)
    with pytest.raises(Forbidden):
        await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=MARK))


async def test_what_is_imported_is_its_owners_own(api: RegistryFixture) -> None:
    await make(api, "VirtualClusterInstance", mark=MARK, config={"secretName": "theirs"})
    await api.patch("VirtualClusterInstance", "a", lambda each: each["spec"].update(displayName="x"))


@pytest.mark.parametrize(
    "change",
    [
        {"config": None, "clusterRef": {"cluster": "c"}},
        {"clusterRef": {"cluster": "c"}},
        {"config": {}},
    ],
    ids=["at once", "the cluster first", "the import first"],
)
async def test_what_was_imported_is_not_abandoned_beforehand(api: RegistryFixture, change: Object) -> None:
    """It can be put into a cluster afterwards, and would be left behind there on its deletion."""
    kind = "VirtualClusterInstance"
    await make(api, kind, mark=MARK, config={"secretName": "theirs"})
    with pytest.raises(Forbidden, match="because it leaves objects behind there"):
        await api.patch(kind, "a", lambda each: each["spec"].update(change))
    await api.patch(kind, "a", lambda each: each["metadata"].pop("annotations"))
    await api.patch(kind, "a", lambda each: each["spec"].update(change))
