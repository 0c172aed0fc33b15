"""AgentAuthorizer: an agent reads its own Cluster, its key and configuration, and reports; nothing else."""

from itertools import product

import pytest

from fairlead.authz.component_access import AgentAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use", "impersonate")
SUBRESOURCES = ("", "status", "accesskey", "agentconfig", "agentreport", "other")


def agent_user(name: str, key: str = "") -> User:
    identity = f"service:agent:{name}"
    return User(identity, ("service:agents", identity, *AUTHENTICATED_GROUPS), key=key)


def build_request(verb: str, resource: str, name: str = "", subresource: str = "", namespace: str = "") -> RequestInfo:
    group = "" if resource in ("secrets", "namespaces") else MANAGEMENT_GROUP
    return RequestInfo(verb, "", "management", group, "v1", resource, subresource, namespace, name)


@pytest.fixture
async def authorizer(api: RegistryFixture) -> AgentAuthorizer:
    for name in ("a", "b"):
        await api.create("Cluster", name)
    return AgentAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_an_agent_reads_its_cluster_and_reports(authorizer: AgentAuthorizer) -> None:
    requests = set(product(VERBS, SUBRESOURCES))
    allowed = {
        each for each in requests if authorizer(agent_user("a"), build_request(each[0], "clusters", "a", each[1]))
    }
    assert allowed == {("get", ""), ("get", "accesskey"), ("get", "agentconfig"), ("create", "agentreport")}


async def test_an_agent_may_do_nothing_else(authorizer: AgentAuthorizer) -> None:
    for verb, subresource in product(VERBS, SUBRESOURCES):
        for name, namespace in (("b", ""), ("", ""), ("a", "demo"), ("missing", "")):
            assert authorizer(agent_user("a"), build_request(verb, "clusters", name, subresource, namespace)) is None
        for resource in ("secrets", "namespaces", "users", "ownedaccesskeys", "runners", "spaceinstances"):
            assert authorizer(agent_user("a"), build_request(verb, resource, "a", subresource)) is None
            assert not authorizer.may_see_some(agent_user("a"), build_request(verb, resource))


async def test_an_agent_may_not_use_gateways(authorizer: AgentAuthorizer) -> None:
    request = RequestInfo(
        "get", "", "", MANAGEMENT_GROUP, "v1", "clusters", name="a", gateway=build_request("use", "clusters", "a")
    )
    assert authorizer(agent_user("a"), request) is None


async def test_other_users_are_not_agents(authorizer: AgentAuthorizer) -> None:
    request = build_request("get", "clusters", "a", "accesskey")
    other_users = (
        User("service:agent:a"),
        User("a", ("service:agent:a",)),
        agent_user("gone"),
        User("service:runner:a"),
    )
    for user in other_users:
        assert authorizer(user, request) is None


async def test_the_key_of_a_deleted_cluster_of_that_name_is_not_accepted(
    authorizer: AgentAuthorizer, api: RegistryFixture
) -> None:
    reference = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": "Cluster", "name": "a", "uid": "another"}
    await api.create(
        "OwnedAccessKey", "k", metadata={"ownerReferences": [reference]}, spec={"subject": "service:agent:a"}
    )
    assert authorizer(agent_user("a", "k"), build_request("get", "clusters", "a")) is None
