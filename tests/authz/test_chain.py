"""May you? The first opinion counts, and without one the answer is no."""

import pytest

from fairlead.authz.authorizer import administrators, first_decision
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import ADMIN_GROUPS, CONTROLLER_USER, User

TARGET = RequestInfo("delete", "/", "management", "g", "v1", "apps", name="one")
ALICE = User("alice", ("system:authenticated",))


def says(decision: Decision | None, asked: list[str] | None = None):
    def authorizer(user: User, target: RequestInfo) -> Decision | None:
        if asked is not None:
            asked.append(user.name)
        return decision

    return authorizer


def test_nobody_to_ask_means_no() -> None:
    assert first_decision([], ALICE, TARGET) == Decision(False)


def test_no_opinion_at_all_means_no() -> None:
    assert not first_decision([says(None), says(None)], ALICE, TARGET).allowed


@pytest.mark.parametrize("first", [Decision(True, "yes"), Decision(False, "no")])
def test_the_first_opinion_counts_with_its_reason(first: Decision) -> None:
    assert first_decision([says(None), says(first), says(Decision(not first.allowed))], ALICE, TARGET) is first


def test_those_after_a_decision_are_not_asked() -> None:
    asked: list[str] = []
    first_decision([says(Decision(False)), says(Decision(True), asked)], ALICE, TARGET)
    assert asked == []


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
def test_the_built_in_groups_may_do_everything(group: str) -> None:
    decision = administrators(User("eve", ("other", group)), TARGET)
    assert decision is not None and decision.allowed and decision.reason


def test_the_server_itself_may_do_everything() -> None:
    assert first_decision([administrators], CONTROLLER_USER, TARGET).allowed


@pytest.mark.parametrize(
    "user",
    [
        ALICE,
        User("admin"),
        User("system:masters"),
        User("eve", ("System:Masters", "system:masters ", "masters", "", "service:admin")),
        User("eve", uid="system:masters", key="system:masters"),
    ],
)
def test_whatever_looks_like_one_of_them_is_none(user: User) -> None:
    assert administrators(user, TARGET) is None
    assert not first_decision([administrators], user, TARGET).allowed


def test_nobody_is_an_administrator_by_another_group() -> None:
    """To be changed with care: members of these groups hold every right there is."""
    assert frozenset({"system:masters", "service:admins"}) == ADMIN_GROUPS
