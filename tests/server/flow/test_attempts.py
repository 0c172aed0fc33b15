"""AttemptThrottle: the backoff after failed logins, per user and per network, and its exceptions."""

from datetime import UTC, datetime

import pytest

from fairlead.core.errors import TooManyRequests
from fairlead.server.flow.attempts import NETWORK_BACKOFF, RESET_SECONDS, USER_BACKOFF, AttemptThrottle, client_network

CLIENT, OTHER_CLIENT = "192.0.2.1:50000", "198.51.100.7:40000"


class FrozenClock:
    """A clock that changes only when a test sets it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def throttle(clock: FrozenClock) -> AttemptThrottle:
    return AttemptThrottle(clock)


async def fail(throttle: AttemptThrottle, user: str = "alice", client: str = CLIENT) -> None:
    async with throttle.attempt(user, client):
        pass


async def succeed(throttle: AttemptThrottle, user: str = "alice", client: str = CLIENT) -> None:
    async with throttle.attempt(user, client) as attempt:
        attempt.succeed()


async def wait_seconds(throttle: AttemptThrottle, user: str = "alice", client: str = CLIENT) -> int:
    """The seconds that an attempt has to wait, or 0. The attempt is not counted."""
    try:
        async with throttle.attempt(user, client):
            raise InterruptedError
    except InterruptedError:
        return 0
    except TooManyRequests as error:
        assert f"wait {error.details.retry_after} s" in error.message
        return error.details.retry_after


async def test_after_some_free_failures_each_failure_doubles_the_wait(
    throttle: AttemptThrottle, clock: FrozenClock
) -> None:
    for _ in range(USER_BACKOFF.free_attempts):
        assert await wait_seconds(throttle) == 0
        await fail(throttle)
    waits = []
    for _ in range(4):
        waits.append(await wait_seconds(throttle))
        clock.seconds += waits[-1]
        await fail(throttle)
    assert waits == [1, 2, 4, 8]


async def test_the_wait_ends_exactly(throttle: AttemptThrottle, clock: FrozenClock) -> None:
    for _ in range(USER_BACKOFF.free_attempts + 1):
        clock.seconds += 60
        await fail(throttle)
    clock.seconds += 1.5
    assert await wait_seconds(throttle) == 1
    clock.seconds += 0.5
    assert await wait_seconds(throttle) == 0


async def test_rejected_attempts_do_not_extend_the_wait(throttle: AttemptThrottle, clock: FrozenClock) -> None:
    for _ in range(USER_BACKOFF.free_attempts):
        await fail(throttle)
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            await fail(throttle)
    clock.seconds += 1
    assert await wait_seconds(throttle) == 0


async def test_the_wait_of_a_user_is_at_most_a_minute(throttle: AttemptThrottle, clock: FrozenClock) -> None:
    for number in range(200):
        clock.seconds += USER_BACKOFF.max_seconds
        await fail(throttle, client=f"198.51.100.{number}:1")
    assert await wait_seconds(throttle, client="203.0.113.1:1") == 60


async def test_failures_of_one_user_from_many_networks_count_together(throttle: AttemptThrottle) -> None:
    for number in range(USER_BACKOFF.free_attempts):
        await fail(throttle, client=f"198.51.100.{number}:1")
    assert await wait_seconds(throttle, client=OTHER_CLIENT) == 1
    assert await wait_seconds(throttle, "bob", OTHER_CLIENT) == 0


async def test_failures_of_many_users_from_one_network_count_together(throttle: AttemptThrottle) -> None:
    for number in range(NETWORK_BACKOFF.free_attempts):
        await fail(throttle, f"user{number}", f"192.0.2.1:{number}")
    assert await wait_seconds(throttle, "another") == 1
    assert await wait_seconds(throttle, "another", OTHER_CLIENT) == 0


async def test_the_wait_of_a_network_is_at_most_fifteen_minutes(throttle: AttemptThrottle, clock: FrozenClock) -> None:
    for number in range(100):
        clock.seconds += NETWORK_BACKOFF.max_seconds
        await fail(throttle, f"user{number}")
    assert await wait_seconds(throttle, "another") == 900


async def test_a_success_resets_the_user(throttle: AttemptThrottle) -> None:
    for _ in range(USER_BACKOFF.free_attempts - 1):
        await fail(throttle)
    await succeed(throttle)
    for _ in range(USER_BACKOFF.free_attempts):
        assert await wait_seconds(throttle) == 0
        await fail(throttle)
    assert await wait_seconds(throttle) == 1


async def test_own_successes_do_not_reset_failures_for_other_users(throttle: AttemptThrottle) -> None:
    for number in range(NETWORK_BACKOFF.free_attempts):
        await succeed(throttle, "mallory")
        await fail(throttle, f"victim{number}")
    assert await wait_seconds(throttle, "victim") == 1


async def test_a_first_success_from_a_network_does_not_reset_its_failures(throttle: AttemptThrottle) -> None:
    for number in range(NETWORK_BACKOFF.free_attempts - 1):
        await fail(throttle, f"victim{number}")
    await succeed(throttle, "mallory")
    await fail(throttle, "victim")
    assert await wait_seconds(throttle, "another") == 1


async def test_successes_alone_cause_no_wait(throttle: AttemptThrottle) -> None:
    for number in range(200):
        await succeed(throttle, f"user{number % 3}")
    assert await wait_seconds(throttle) == 0


async def test_failures_from_elsewhere_do_not_lock_a_user_out_of_a_known_network(
    throttle: AttemptThrottle, clock: FrozenClock
) -> None:
    await succeed(throttle)
    for number in range(50):
        clock.seconds += USER_BACKOFF.max_seconds
        await fail(throttle, client=f"198.51.100.{number}:1")
    assert await wait_seconds(throttle, client="203.0.113.1:1") == 60
    assert await wait_seconds(throttle) == 0
    await succeed(throttle)


async def test_failures_of_other_users_do_not_lock_a_user_out_of_a_known_network(throttle: AttemptThrottle) -> None:
    await succeed(throttle)
    for number in range(NETWORK_BACKOFF.free_attempts):
        await fail(throttle, f"user{number}")
    assert await wait_seconds(throttle, "bob") == 1
    assert await wait_seconds(throttle, "alice") == 0


async def test_failures_from_a_known_network_count_too(throttle: AttemptThrottle) -> None:
    await succeed(throttle)
    for _ in range(USER_BACKOFF.free_attempts):
        await fail(throttle)
    assert await wait_seconds(throttle) == 1
    assert await wait_seconds(throttle, client=OTHER_CLIENT) == 0


async def test_concurrent_attempts_are_all_counted(throttle: AttemptThrottle) -> None:
    """An attempt counts from its start: the last one is rejected before the first ones have a result."""
    attempts = [throttle.attempt("alice", CLIENT) for _ in range(USER_BACKOFF.free_attempts + 1)]
    for attempt in attempts[:-1]:
        await attempt.__aenter__()
    with pytest.raises(TooManyRequests):
        await attempts[-1].__aenter__()


async def test_an_attempt_that_ends_with_an_error_is_not_counted(throttle: AttemptThrottle) -> None:
    for _ in range(USER_BACKOFF.free_attempts * 4):
        with pytest.raises(OSError):
            async with throttle.attempt("alice", CLIENT):
                raise OSError("the disk is full")
    assert await wait_seconds(throttle) == 0


async def test_failures_are_forgotten_after_an_hour(throttle: AttemptThrottle, clock: FrozenClock) -> None:
    for _ in range(USER_BACKOFF.free_attempts + 20):
        clock.seconds += 60
        await fail(throttle)
    clock.seconds += RESET_SECONDS
    for _ in range(USER_BACKOFF.free_attempts):
        assert await wait_seconds(throttle) == 0
        await fail(throttle)
    assert await wait_seconds(throttle) == 1


async def test_the_tables_are_bounded(clock: FrozenClock) -> None:
    small_throttle = AttemptThrottle(clock, max_counters=100)
    for number in range(1000):
        clock.seconds += 1000
        await fail(small_throttle, f"user{number}" * 1000, f"10.0.{number // 250}.{number % 250}:1")
        await succeed(small_throttle, f"good{number}", f"10.1.{number // 250}.{number % 250}:1")
    assert len(small_throttle._counts._counts) <= 100 and len(small_throttle._known_networks) <= 100
    assert max(len(user) for user, _ in small_throttle._counts._counts) <= 253


async def test_the_least_recently_used_counter_is_dropped_first(clock: FrozenClock) -> None:
    small_throttle = AttemptThrottle(clock, max_counters=10)
    for _ in range(USER_BACKOFF.free_attempts):
        await fail(small_throttle, "alice", CLIENT)
    for number in range(20):
        clock.seconds += 0.1
        await fail(small_throttle, f"user{number}", f"198.51.100.{number}:1")
        if number % 3 == 0:
            clock.seconds += 60
            await fail(small_throttle, "alice", CLIENT)
    assert await wait_seconds(small_throttle, "alice", OTHER_CLIENT) > 1


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("192.0.2.1:50000", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:db8:1:2:3:4:5:6]:50000", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.1]:50000", "192.0.2.1"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_a_client_network_is_an_ipv4_address_or_an_ipv6_64_prefix(client: str, network: str) -> None:
    assert client_network(client) == network


def test_the_delay_is_limited_for_very_many_failures() -> None:
    assert USER_BACKOFF.delay(10**9) == USER_BACKOFF.max_seconds
