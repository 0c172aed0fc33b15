"""server.flow.streams: limits on open streams, per user and in total."""

from contextlib import AsyncExitStack

import pytest

from fairlead.core.errors import TooManyRequests
from fairlead.core.user import User
from fairlead.server.flow.streams import StreamLimiter

ADA, ADMIN, AGENT = User("ada"), User("root", ("system:masters",)), User("service:agent:east")


async def open_until_rejected(streams: StreamLimiter, user: User, stack: AsyncExitStack) -> int:
    """Opens streams until one is rejected. Returns how many were admitted."""
    count = 0
    while True:
        try:
            await stack.enter_async_context(streams.admit(user))
        except TooManyRequests:
            return count
        count += 1


async def test_the_limit_per_user_covers_all_keys_and_impersonated_identities() -> None:
    streams = StreamLimiter(total=1000, per_user=10)
    async with AsyncExitStack() as stack:
        for number in range(10):
            await stack.enter_async_context(
                streams.admit(User(f"impersonated-{number}", impersonator=User("ada", key=str(number))))
            )
        with pytest.raises(TooManyRequests, match="you have 10 watches and other streams open") as error:
            await streams.require_room(ADA)
        assert error.value.details.retry_after > 0
        await streams.require_room(User("ben"))
    await streams.require_room(ADA)


async def test_the_service_accounts_of_a_namespace_share_one_limit() -> None:
    streams = StreamLimiter(total=1000, per_user=1)
    async with streams.admit(User("system:serviceaccount:n:a")):
        with pytest.raises(TooManyRequests):
            await streams.require_room(User("system:serviceaccount:n:b"))
        await streams.require_room(User("system:serviceaccount:m:b"))


async def test_there_is_always_room_for_another_user() -> None:
    streams = StreamLimiter(total=1000, per_user=1000)
    async with AsyncExitStack() as stack:
        counts = [await open_until_rejected(streams, User(f"user-{number}"), stack) for number in range(5)]
        assert counts[0] == 450, "half of what is not reserved"
        assert all(counts)
        await streams.require_room(User("newcomer"))


async def test_the_last_streams_are_reserved_for_administrators_and_components() -> None:
    streams = StreamLimiter(total=100, per_user=100, is_component=lambda user: user is AGENT)
    async with AsyncExitStack() as stack:
        for number in range(90):
            await stack.enter_async_context(streams.admit(User(f"user-{number}")))
        with pytest.raises(TooManyRequests, match="90 watches and other streams are open"):
            await streams.require_room(ADA)
        with pytest.raises(TooManyRequests):
            await streams.require_room(User("root", ("system:masters",), impersonator=ADA))
        await streams.require_room(ADMIN)
        await streams.require_room(AGENT)
