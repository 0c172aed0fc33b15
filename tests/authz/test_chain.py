"""The chain of authorizers: the first decision counts, and the default is to deny."""

import pytest

from fairlead.authz.authorizer import administrators, first_decision
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import ADMIN_GROUPS, CONTROLLER_USER, User

TARGET = RequestInfo("delete", "/", "management", "g", "v1", "apps", name="one")
ALICE = User("alice", ("system:authenticated",))


def authorizer_with(decision: Decision | None, calls: list[str] | None = None):
    def authorizer(user: User, target: RequestInfo) -> Decision | None:
        if calls is not None:
            calls.append(user.name)
        return decision

    return authorizer


def test_an_empty_chain_denies() -> None:
    assert first_decision([], ALICE, TARGET) == Decision(False)


def test_a_chain_without_a_decision_denies() -> None:
    assert not first_decision([authorizer_with(None), authorizer_with(None)], ALICE, TARGET).allowed


@pytest.mark.parametrize("first", [Decision(True, "yes"), Decision(False, "no")])
def test_the_first_decision_counts_with_its_reason(first: Decision) -> None:
    assert (
        first_decision(
            [authorizer_with(None), authorizer_with(first), authorizer_with(Decision(not first.allowed))], ALICE, TARGET
        )
        is first
    )


def test_authorizers_after_a_decision_are_not_called() -> None:
    calls: list[str] = []
    first_decision([authorizer_with(Decision(False)), authorizer_with(Decision(True), calls)], ALICE, TARGET)
    assert calls == []


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
def test_the_admin_groups_may_do_everything(group: str) -> None:
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
def test_similar_names_are_not_administrators(user: User) -> None:
    assert administrators(user, TARGET) is None
    assert not first_decision([administrators], user, TARGET).allowed


def test_there_are_exactly_two_admin_groups() -> None:
    """Change with care: members of these groups have every permission."""
    assert frozenset({"system:masters", "service:admins"}) == ADMIN_GROUPS
