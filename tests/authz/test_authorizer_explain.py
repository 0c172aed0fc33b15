"""The path of a decision says who was asked, what they said, and that it is what the chain decides."""

import pytest

from fairlead.authz.authorizer import Authorizer, ExplainStep, explain, first_decision, step_name
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User

ADA = User("ada")
GET = RequestInfo("get", "", group="g", resource="apps")


def undecided(user: User, target: RequestInfo) -> Decision | None:
    return None


def good_friends(user: User, target: RequestInfo) -> Decision | None:
    return Decision(True, "a friend")


def within_fences(word: str) -> Authorizer:
    def decide(user: User, target: RequestInfo) -> Decision | None:
        return Decision(False, f"outside of {word}")

    return decide


class Roles:
    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return Decision(True, "a role")


def test_everyone_is_told_in_order_and_nobody_is_asked_after_the_decision() -> None:
    assert explain((undecided, good_friends, Roles()), ADA, GET) == [
        ExplainStep("undecided", "no opinion"),
        ExplainStep("good friends", "allow", "a friend"),
        ExplainStep("roles", "not evaluated"),
    ]


def test_a_denial_ends_the_path_too() -> None:
    assert explain((within_fences("town"), Roles()), ADA, GET) == [
        ExplainStep("within fences", "deny", "outside of town"),
        ExplainStep("roles", "not evaluated"),
    ]


def test_what_nobody_allows_is_denied_in_the_end() -> None:
    *_, last = explain((undecided, undecided), ADA, GET)
    assert (last.step, last.verdict) == ("default", "deny")
    assert last.reason
    assert [step.verdict for step in explain((), ADA, GET)] == ["deny"]


@pytest.mark.parametrize(
    "chain",
    [
        (),
        (undecided,),
        (undecided, good_friends),
        (within_fences("town"), good_friends),
        (good_friends, within_fences("town")),
        (undecided, Roles(), within_fences("town")),
    ],
)
def test_the_path_ends_where_the_chain_does(chain: tuple[Authorizer, ...]) -> None:
    allowed = any(step.verdict == "allow" for step in explain(chain, ADA, GET))
    assert allowed == first_decision(chain, ADA, GET).allowed


def test_authorizers_are_known_by_what_their_source_calls_them() -> None:
    assert step_name(good_friends) == "good friends"
    assert step_name(within_fences("x")) == "within fences"
    assert step_name(Roles()) == "roles"
    assert step_name(Roles().__call__) == "roles"
