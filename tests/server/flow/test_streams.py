"""How many long-running requests there may be: by user, and never so many that there is no room for anybody else."""

from contextlib import ExitStack

import pytest

from fairlead.core.errors import TooManyRequests
from fairlead.core.user import User
from fairlead.server.flow.streams import StreamLimiter

ADA, ADMIN, AGENT = User("ada"), User("root", ("system:masters",)), User("service:agent:east")


def fill(streams: StreamLimiter, user: User, stack: ExitStack) -> int:
    """Opens as many as there may be."""
    count = 0
    while True:
        try:
            stack.enter_context(streams.admit(user))
        except TooManyRequests:
            return count
        count += 1


def test_one_user_has_as_many_as_the_limit_says_whatever_keys_and_identities_he_comes_with() -> None:
    streams = StreamLimiter(total=1000, per_user=10)
    with ExitStack() as stack:
        for number in range(10):
            stack.enter_context(streams.admit(User(f"puppet-{number}", impersonator=User("ada", key=str(number)))))
        with pytest.raises(TooManyRequests, match="you have 10 watches and other streams open") as refused:
            streams.require_room(ADA)
        assert refused.value.details.retry_after > 0
        streams.require_room(User("ben"))
    streams.require_room(ADA)


def test_the_service_accounts_of_a_namespace_count_together() -> None:
    streams = StreamLimiter(total=1000, per_user=1)
    with streams.admit(User("system:serviceaccount:n:a")):
        with pytest.raises(TooManyRequests):
            streams.require_room(User("system:serviceaccount:n:b"))
        streams.require_room(User("system:serviceaccount:m:b"))


def test_there_is_always_room_for_another_user() -> None:
    streams = StreamLimiter(total=1000, per_user=1000)
    with ExitStack() as stack:
        opened = [fill(streams, User(f"user-{number}"), stack) for number in range(5)]
        assert opened[0] == 450, "half of what is not reserved"
        assert all(opened)
        streams.require_room(User("newcomer"))


def test_the_last_ones_are_for_administrators_and_components() -> None:
    streams = StreamLimiter(total=100, per_user=100, is_component=lambda user: user is AGENT)
    with ExitStack() as stack:
        for number in range(90):
            stack.enter_context(streams.admit(User(f"user-{number}")))
        with pytest.raises(TooManyRequests, match="90 watches and other streams are open"):
            streams.require_room(ADA)
        with pytest.raises(TooManyRequests):
            streams.require_room(User("root", ("system:masters",), impersonator=ADA))
        streams.require_room(ADMIN)
        streams.require_room(AGENT)
