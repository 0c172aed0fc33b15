"""Who are you? In order, until one says yes or "mine, but invalid"."""

import pytest

from fairlead.authn import Authenticator
from fairlead.core.call import Call
from fairlead.core.errors import Unauthorized
from fairlead.core.user import User
from fairlead.server.auth.stages import authenticate
from tests.harness.calls import call

ALICE, BOB = User("alice"), User("bob")


def says(user: User | None, asked: list[str] | None = None) -> Authenticator:
    def authenticator(call: Call) -> User | None:
        if asked is not None:
            asked.append("asked")
        return user

    return authenticator


def invalid(call: Call) -> User | None:
    raise Unauthorized("mine, but invalid")


@pytest.mark.parametrize("authenticators", [[], [says(None)], [says(None), says(None)]])
def test_no_error_is_not_authenticated(authenticators: list[Authenticator]) -> None:
    with pytest.raises(Unauthorized):
        authenticate(authenticators, call())


def test_the_first_yes_counts() -> None:
    assert authenticate([says(None), says(ALICE), says(BOB)], call()) is ALICE


def test_those_after_a_yes_are_not_asked() -> None:
    asked: list[str] = []
    authenticate([says(ALICE), says(BOB, asked)], call())
    assert asked == []


def test_a_credential_that_is_invalid_is_not_shown_to_the_next() -> None:
    asked: list[str] = []
    with pytest.raises(Unauthorized, match="mine, but invalid"):
        authenticate([invalid, says(ALICE, asked)], call())
    assert asked == []
