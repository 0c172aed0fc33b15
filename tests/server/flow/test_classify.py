"""server.flow.classify: the flow and level of a request, the bounded client cache, and cost estimates."""

import pytest

from fairlead.core.user import User
from fairlead.server.flow.classify import ClientCache, CostEstimator
from fairlead.server.flow.control import FlowControl
from fairlead.server.flow.fair_queue import ANONYMOUS, INTERACTIVE, SYSTEM
from tests.server.flow.stage_fixture import ADA, AGENT, GET, LIST, FlowFixture, build_request


async def test_requests_of_impersonated_users_belong_to_the_flow_of_the_impersonator() -> None:
    fixture = FlowFixture()
    flows = {
        fixture.clients.for_call(build_request(GET, User(f"impersonated-{number}", impersonator=ADA))).regular_lane.flow
        for number in range(50)
    }
    assert flows == {fixture.clients.for_call(build_request(GET, ADA)).regular_lane.flow}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (User("ada", key="laptop"), User("ada", key="phone"), True),
        (User("ada"), User("ben"), False),
        (User("service:team:red", key="a"), User("service:team:red", key="b"), True),
        (User("system:serviceaccount:n:a"), User("system:serviceaccount:n:b"), True),
        (User("system:serviceaccount:n:a"), User("system:serviceaccount:m:a"), False),
        (User("system:serviceaccount:n:a"), User("host:system:serviceaccount:n:a"), False),
        (AGENT, User("service:agent:west", ("service:agent:west",)), False),
    ],
)
async def test_each_owner_has_its_own_flow(one: User, other: User, is_same: bool) -> None:
    clients = FlowFixture().clients
    assert (clients.for_call(build_request(GET, one)) is clients.for_call(build_request(GET, other))) == is_same


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.7:1", "192.0.2.7:2", True),
        ("192.0.2.7:1", "192.0.2.8:1", False),
        ("[2001:db8::1]:1", "[2001:db8::2]:1", True),
        ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", False),
    ],
)
async def test_each_address_of_anonymous_clients_has_its_own_flow(one: str, other: str, is_same: bool) -> None:
    clients = FlowFixture().clients
    clients.for_call(build_request(GET, None, client=one))
    assert (
        clients.for_call(build_request(GET, None, client=one))
        is clients.for_call(build_request(GET, None, client=other))
    ) == is_same


async def test_every_client_has_a_level() -> None:
    clients = FlowFixture().clients
    levels = {
        INTERACTIVE: build_request(GET, ADA),
        SYSTEM: build_request(GET, AGENT),
        ANONYMOUS: build_request(GET, None),
    }
    assert {level: clients.for_call(request).regular_lane.level.config.name for level, request in levels.items()} == {
        level: level for level in levels
    }
    impostor = User("service:agent:east")  # not in the group of agents
    assert (
        clients.for_call(build_request(GET, impostor)).regular_lane.level.config.name == SYSTEM
    )  # already known as the agent
    assert clients.for_call(build_request(GET, User("service:agent:x"))).regular_lane.level.config.name == INTERACTIVE


async def test_the_client_cache_is_bounded() -> None:
    control = FlowControl()
    clients = ClientCache(control.levels, max_clients=100)
    active = clients.for_call(build_request(GET, ADA))
    active.regular_lane.flow.seats_in_use = 1
    for number in range(1000):
        clients.for_call(build_request(GET, None, client=f"[2001:db8::{number:x}]:1"))
        clients.for_call(build_request(GET, User(f"user-{number}")))
        clients.for_call(build_request(GET, User(f"system:serviceaccount:n:{number}")))
    assert len(clients._by_user) + len(clients._by_address) <= 210
    assert clients.for_call(build_request(GET, ADA)) is active, "a client with a running request is never evicted"


def test_each_term_of_a_selector_adds_to_the_estimated_cost_of_a_list() -> None:
    costs = CostEstimator(lambda *resource: 1_000, lambda *resource: 100, lambda accept: (False, False))

    def estimate_cost(selector: str) -> float:
        call = build_request(LIST)
        call.query = {"labelSelector": [selector]} if selector else {}
        return costs.estimate_read(call)

    assert estimate_cost("") == estimate_cost("a!=b") == 27.0
    assert estimate_cost("a!=b,c!=d") == 32.0
    assert estimate_cost("a!=b,c!=d,!e") == 37.0
    assert estimate_cost("," * 30_000) <= 27.0 + 64 * 5.0
