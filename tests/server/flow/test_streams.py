"""server.flow.streams: limits on open streams, per user and in total."""

from contextlib import ExitStack

import pytest

from fairlead.core.errors import TooManyRequests
from fairlead.core.user import User
from fairlead.server.flow.streams import StreamLimiter

ADA, ADMIN, AGENT = User("ada"), User("root", ("system:masters",)), User("service:agent:east")


def open_until_rejected(streams: StreamLimiter, user: User, stack: ExitStack) -> int:
    """Opens streams until one is rejected. Returns how many were admitted."""
    count = 0
    while True:
        try:
            stack.enter_context(streams.admit(user))
        except TooManyRequests:
            return count
        count += 1


def test_the_limit_per_user_covers_all_keys_and_impersonated_identities() -> None:
    streams = StreamLimiter(total=1000, per_user=10)
    with ExitStack() as stack:
        for number in range(10):
            stack.enter_context(
                streams.admit(User(f"impersonated-{number}", impersonator=User("ada", key=str(number))))
            )
        with pytest.raises(TooManyRequests, match="you have 10 watches and other streams open") as error:
            streams.require_room(ADA)
        assert error.value.details.retry_after > 0
        streams.require_room(User("ben"))
    streams.require_room(ADA)


def test_the_service_accounts_of_a_namespace_share_one_limit() -> None:
    streams = StreamLimiter(total=1000, per_user=1)
    with streams.admit(User("system:serviceaccount:n:a")):
        with pytest.raises(TooManyRequests):
            streams.require_room(User("system:serviceaccount:n:b"))
        streams.require_room(User("system:serviceaccount:m:b"))


def test_there_is_always_room_for_another_user() -> None:
    streams = StreamLimiter(total=1000, per_user=1000)
    with ExitStack() as stack:
        counts = [open_until_rejected(streams, User(f"user-{number}"), stack) for number in range(5)]
        assert counts[0] == 450, "half of what is not reserved"
        assert all(counts)
        streams.require_room(User("newcomer"))


def test_the_last_streams_are_reserved_for_administrators_and_components() -> None:
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
