"""Who pays for a request: flows, levels, and how many clients are remembered."""

import pytest

from fairlead.core.user import User
from fairlead.server.flow.classify import ClientCache, CostEstimator
from fairlead.server.flow.control import FlowControl
from fairlead.server.flow.levels import ANONYMOUS, INTERACTIVE, SYSTEM
from tests.server.flow.stage_fixture import ADA, AGENT, GET, LIST, Wire, request


async def test_impersonated_users_are_paid_for_by_who_really_asks() -> None:
    wire = Wire()
    flows = {
        wire.clients.for_call(request(GET, User(f"puppet-{number}", impersonator=ADA))).regular_lane.flow
        for number in range(50)
    }
    assert flows == {wire.clients.for_call(request(GET, ADA)).regular_lane.flow}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (User("ada", key="laptop"), User("ada", key="phone"), True),
        (User("ada"), User("ben"), False),
        (User("service:team:red", key="a"), User("service:team:red", key="b"), True),
        (User("system:serviceaccount:n:a"), User("system:serviceaccount:n:b"), True),
        (User("system:serviceaccount:n:a"), User("system:serviceaccount:m:a"), False),
        (AGENT, User("service:agent:west", ("service:agent:west",)), False),
    ],
)
async def test_flows_are_told_apart_by_owner(one: User, other: User, same: bool) -> None:
    clients = Wire().clients
    assert (clients.for_call(request(GET, one)) is clients.for_call(request(GET, other))) == same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7:1", "192.0.2.7:2", True),
        ("192.0.2.7:1", "192.0.2.8:1", False),
        ("[2001:db8::1]:1", "[2001:db8::2]:1", True),
        ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", False),
    ],
)
async def test_strangers_are_told_apart_by_address(one: str, other: str, same: bool) -> None:
    clients = Wire().clients
    clients.for_call(request(GET, None, client=one))
    assert (
        clients.for_call(request(GET, None, client=one)) is clients.for_call(request(GET, None, client=other))
    ) == same


async def test_everybody_has_a_level() -> None:
    clients = Wire().clients
    levels = {
        INTERACTIVE: request(GET, ADA),
        SYSTEM: request(GET, AGENT),
        ANONYMOUS: request(GET, None),
    }
    assert {level: clients.for_call(each).regular_lane.level.config.name for level, each in levels.items()} == {
        level: level for level in levels
    }
    boastful = User("service:agent:east")  # in no such group, so nobody has made it one
    assert (
        clients.for_call(request(GET, boastful)).regular_lane.level.config.name == SYSTEM
    )  # already known as the agent
    assert clients.for_call(request(GET, User("service:agent:x"))).regular_lane.level.config.name == INTERACTIVE


async def test_the_number_of_clients_that_are_remembered_is_bounded() -> None:
    control = FlowControl()
    clients = ClientCache(control.levels, max_clients=100)
    kept = clients.for_call(request(GET, ADA))
    kept.regular_lane.flow.seats_in_use = 1
    for number in range(1000):
        clients.for_call(request(GET, None, client=f"[2001:db8::{number:x}]:1"))
        clients.for_call(request(GET, User(f"user-{number}")))
        clients.for_call(request(GET, User(f"system:serviceaccount:n:{number}")))
    assert len(clients._by_user) + len(clients._by_address) <= 210
    assert clients.for_call(request(GET, ADA)) is kept, "nobody is forgotten who has something under way"


def test_each_term_of_a_selector_adds_to_what_a_list_is_expected_to_cost() -> None:
    costs = CostEstimator(lambda *of: 1_000, lambda *of: 100, lambda accept: (False, False))

    def cost(selector: str) -> float:
        call = request(LIST)
        call.query = {"labelSelector": [selector]} if selector else {}
        return costs.estimate_read(call)

    assert cost("") == cost("a!=b") == 27.0
    assert cost("a!=b,c!=d") == 32.0
    assert cost("a!=b,c!=d,!e") == 37.0
    assert cost("," * 30_000) <= 27.0 + 64 * 5.0
