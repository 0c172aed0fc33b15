"""What the agents of clusters may do: three things about their own Cluster, read it, and nothing else."""

from itertools import product

import pytest

from fairlead.authz.component_access import AgentAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use", "impersonate")
PARTS = ("", "status", "accesskey", "agentconfig", "agentreport", "other")


def agent_of(name: str, key: str = "") -> User:
    identity = f"service:agent:{name}"
    return User(identity, ("service:agents", identity, *AUTHENTICATED_GROUPS), key=key)


def target(verb: str, resource: str, name: str = "", subresource: str = "", namespace: str = "") -> RequestInfo:
    group = "" if resource in ("secrets", "namespaces") else MANAGEMENT_GROUP
    return RequestInfo(verb, "", "management", group, "v1", resource, subresource, namespace, name)


@pytest.fixture
async def agents(api: RegistryFixture) -> AgentAuthorizer:
    for name in ("a", "b"):
        await api.create("Cluster", name)
    return AgentAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_an_agent_reads_its_cluster_and_reports(agents: AgentAuthorizer) -> None:
    asked = set(product(VERBS, PARTS))
    allowed = {each for each in asked if agents(agent_of("a"), target(each[0], "clusters", "a", each[1]))}
    assert allowed == {("get", ""), ("get", "accesskey"), ("get", "agentconfig"), ("create", "agentreport")}


async def test_an_agent_may_nothing_else(agents: AgentAuthorizer) -> None:
    for verb, part in product(VERBS, PARTS):
        for name, namespace in (("b", ""), ("", ""), ("a", "demo"), ("missing", "")):
            assert agents(agent_of("a"), target(verb, "clusters", name, part, namespace)) is None
        for resource in ("secrets", "namespaces", "users", "ownedaccesskeys", "runners", "spaceinstances"):
            assert agents(agent_of("a"), target(verb, resource, "a", part)) is None
            assert not agents.may_see_some(agent_of("a"), target(verb, resource))


async def test_an_agent_does_not_go_through_gateways(agents: AgentAuthorizer) -> None:
    through = RequestInfo(
        "get", "", "", MANAGEMENT_GROUP, "v1", "clusters", name="a", gateway=target("use", "clusters", "a")
    )
    assert agents(agent_of("a"), through) is None


async def test_nobody_else_is_taken_for_an_agent(agents: AgentAuthorizer) -> None:
    asked = target("get", "clusters", "a", "accesskey")
    nobody = (User("service:agent:a"), User("a", ("service:agent:a",)), agent_of("gone"), User("service:runner:a"))
    for user in nobody:
        assert agents(user, asked) is None


async def test_the_key_of_an_earlier_cluster_of_that_name_is_none(
    agents: AgentAuthorizer, api: RegistryFixture
) -> None:
    reference = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": "Cluster", "name": "a", "uid": "another"}
    await api.create(
        "OwnedAccessKey", "k", metadata={"ownerReferences": [reference]}, spec={"subject": "service:agent:a"}
    )
    assert agents(agent_of("a", "k"), target("get", "clusters", "a")) is None
