"""The chain of authenticators: they run in order until one returns a user or rejects the credential."""

import pytest

from fairlead.authn import Authenticator
from fairlead.core.call import Call
from fairlead.core.errors import Unauthorized
from fairlead.core.user import User
from fairlead.server.auth.stages import authenticate
from tests.harness.calls import call

ALICE, BOB = User("alice"), User("bob")


def authenticator_with(user: User | None, calls: list[str] | None = None) -> Authenticator:
    def authenticator(call: Call) -> User | None:
        if calls is not None:
            calls.append("called")
        return user

    return authenticator


def reject_credential(call: Call) -> User | None:
    raise Unauthorized("invalid credential")


@pytest.mark.parametrize(
    "authenticators", [[], [authenticator_with(None)], [authenticator_with(None), authenticator_with(None)]]
)
def test_a_request_that_no_authenticator_accepts_is_unauthorized(authenticators: list[Authenticator]) -> None:
    with pytest.raises(Unauthorized):
        authenticate(authenticators, call())


def test_the_first_user_counts() -> None:
    assert authenticate([authenticator_with(None), authenticator_with(ALICE), authenticator_with(BOB)], call()) is ALICE


def test_authenticators_after_a_user_are_not_called() -> None:
    calls: list[str] = []
    authenticate([authenticator_with(ALICE), authenticator_with(BOB, calls)], call())
    assert calls == []


def test_authenticators_after_an_invalid_credential_are_not_called() -> None:
    calls: list[str] = []
    with pytest.raises(Unauthorized, match="invalid credential"):
        authenticate([reject_credential, authenticator_with(ALICE, calls)], call())
    assert calls == []
