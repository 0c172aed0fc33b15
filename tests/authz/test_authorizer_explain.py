"""explain lists the authorizers of a chain with their verdicts, and agrees with the decision of the chain."""

import pytest

from fairlead.authz.authorizer import Authorizer, ExplainStep, explain, first_decision, step_name
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User

ADA = User("ada")
GET = RequestInfo("get", "", group="g", resource="apps")


def undecided(user: User, target: RequestInfo) -> Decision | None:
    return None


def trusted_users(user: User, target: RequestInfo) -> Decision | None:
    return Decision(True, "a trusted user")


def within_zone(zone: str) -> Authorizer:
    def decide(user: User, target: RequestInfo) -> Decision | None:
        return Decision(False, f"outside of zone {zone}")

    return decide


class Roles:
    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return Decision(True, "a role")


def test_steps_are_listed_in_order_and_those_after_the_decision_are_not_evaluated() -> None:
    assert explain((undecided, trusted_users, Roles()), ADA, GET) == [
        ExplainStep("undecided", "no opinion"),
        ExplainStep("trusted users", "allow", "a trusted user"),
        ExplainStep("roles", "not evaluated"),
    ]


def test_a_denial_ends_the_evaluation_too() -> None:
    assert explain((within_zone("a"), Roles()), ADA, GET) == [
        ExplainStep("within zone", "deny", "outside of zone a"),
        ExplainStep("roles", "not evaluated"),
    ]


def test_a_request_without_a_decision_is_denied_by_default() -> None:
    *_, last = explain((undecided, undecided), ADA, GET)
    assert (last.step, last.verdict) == ("default", "deny")
    assert last.reason
    assert [step.verdict for step in explain((), ADA, GET)] == ["deny"]


@pytest.mark.parametrize(
    "chain",
    [
        (),
        (undecided,),
        (undecided, trusted_users),
        (within_zone("a"), trusted_users),
        (trusted_users, within_zone("a")),
        (undecided, Roles(), within_zone("a")),
    ],
)
def test_the_steps_agree_with_the_decision_of_the_chain(chain: tuple[Authorizer, ...]) -> None:
    allowed = any(step.verdict == "allow" for step in explain(chain, ADA, GET))
    assert allowed == first_decision(chain, ADA, GET).allowed


def test_steps_are_named_after_the_authorizers() -> None:
    assert step_name(trusted_users) == "trusted users"
    assert step_name(within_zone("x")) == "within zone"
    assert step_name(Roles()) == "roles"
    assert step_name(Roles().__call__) == "roles"
