"""Failed sign-ins have to wait, successes do not, and nobody can be kept out from everywhere for ever."""

from datetime import UTC, datetime

import pytest

from fairlead.authn.login_throttle import NETWORK_BACKOFF, RESET_SECONDS, USER_BACKOFF, LoginThrottle, client_network
from fairlead.core.errors import TooManyRequests

HOME, AWAY = "192.0.2.1:50000", "198.51.100.7:40000"


class Hands:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def throttle(clock: Hands) -> LoginThrottle:
    return LoginThrottle(clock)


def fail(throttle: LoginThrottle, user: str = "alice", client: str = HOME) -> None:
    with throttle.attempt(user, client):
        pass


def succeed(throttle: LoginThrottle, user: str = "alice", client: str = HOME) -> None:
    with throttle.attempt(user, client) as attempt:
        attempt.succeed()


def refused(throttle: LoginThrottle, user: str = "alice", client: str = HOME) -> int:
    """The seconds that an attempt would have to wait, 0 if it may go ahead. It leaves no trace."""
    try:
        with throttle.attempt(user, client):
            raise InterruptedError
    except InterruptedError:
        return 0
    except TooManyRequests as error:
        assert f"wait {error.details.retry_after} s" in error.message
        return error.details.retry_after


def test_a_few_failures_are_free_and_then_each_doubles_the_wait(throttle: LoginThrottle, clock: Hands) -> None:
    for _ in range(USER_BACKOFF.free_failures):
        assert refused(throttle) == 0
        fail(throttle)
    waits = []
    for _ in range(4):
        waits.append(refused(throttle))
        clock.seconds += waits[-1]
        fail(throttle)
    assert waits == [1, 2, 4, 8]


def test_the_wait_ends_to_the_second(throttle: LoginThrottle, clock: Hands) -> None:
    for _ in range(USER_BACKOFF.free_failures + 1):
        clock.seconds += 60
        fail(throttle)
    clock.seconds += 1.5
    assert refused(throttle) == 1
    clock.seconds += 0.5
    assert refused(throttle) == 0


def test_what_is_refused_does_not_make_the_wait_longer(throttle: LoginThrottle, clock: Hands) -> None:
    for _ in range(USER_BACKOFF.free_failures):
        fail(throttle)
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            fail(throttle)
    clock.seconds += 1
    assert refused(throttle) == 0


def test_a_user_waits_a_minute_at_most(throttle: LoginThrottle, clock: Hands) -> None:
    for turn in range(200):
        clock.seconds += USER_BACKOFF.max_seconds
        fail(throttle, client=f"198.51.100.{turn}:1")
    assert refused(throttle, client="203.0.113.1:1") == 60


def test_guesses_at_one_user_from_many_places_count_together(throttle: LoginThrottle) -> None:
    for place in range(USER_BACKOFF.free_failures):
        fail(throttle, client=f"198.51.100.{place}:1")
    assert refused(throttle, client=AWAY) == 1
    assert refused(throttle, "bob", AWAY) == 0


def test_guesses_at_many_users_from_one_place_count_together(throttle: LoginThrottle) -> None:
    for turn in range(NETWORK_BACKOFF.free_failures):
        fail(throttle, f"user{turn}", f"192.0.2.1:{turn}")
    assert refused(throttle, "another") == 1
    assert refused(throttle, "another", AWAY) == 0


def test_an_address_waits_a_quarter_of_an_hour_at_most(throttle: LoginThrottle, clock: Hands) -> None:
    for turn in range(100):
        clock.seconds += NETWORK_BACKOFF.max_seconds
        fail(throttle, f"user{turn}")
    assert refused(throttle, "another") == 900


def test_success_resets_the_user(throttle: LoginThrottle) -> None:
    for _ in range(USER_BACKOFF.free_failures - 1):
        fail(throttle)
    succeed(throttle)
    for _ in range(USER_BACKOFF.free_failures):
        assert refused(throttle) == 0
        fail(throttle)
    assert refused(throttle) == 1


def test_signing_in_oneself_does_not_let_one_guess_on_at_others(throttle: LoginThrottle) -> None:
    for turn in range(NETWORK_BACKOFF.free_failures):
        succeed(throttle, "mallory")
        fail(throttle, f"victim{turn}")
    assert refused(throttle, "victim") == 1


def test_a_first_success_at_a_place_does_not_wipe_out_what_was_tried_there(throttle: LoginThrottle) -> None:
    for turn in range(NETWORK_BACKOFF.free_failures - 1):
        fail(throttle, f"victim{turn}")
    succeed(throttle, "mallory")
    fail(throttle, "victim")
    assert refused(throttle, "another") == 1


def test_successes_alone_never_have_to_wait(throttle: LoginThrottle) -> None:
    for turn in range(200):
        succeed(throttle, f"user{turn % 3}")
    assert refused(throttle) == 0


def test_strangers_cannot_keep_a_user_out_where_it_has_signed_in_before(throttle: LoginThrottle, clock: Hands) -> None:
    succeed(throttle)
    for turn in range(50):
        clock.seconds += USER_BACKOFF.max_seconds
        fail(throttle, client=f"198.51.100.{turn}:1")
    assert refused(throttle, client="203.0.113.1:1") == 60
    assert refused(throttle) == 0
    succeed(throttle)


def test_a_neighbour_cannot_keep_a_user_out_where_it_has_signed_in_before(throttle: LoginThrottle) -> None:
    succeed(throttle)
    for turn in range(NETWORK_BACKOFF.free_failures):
        fail(throttle, f"user{turn}")
    assert refused(throttle, "bob") == 1
    assert refused(throttle, "alice") == 0


def test_guesses_from_a_familiar_place_are_counted_too(throttle: LoginThrottle) -> None:
    succeed(throttle)
    for _ in range(USER_BACKOFF.free_failures):
        fail(throttle)
    assert refused(throttle) == 1
    assert refused(throttle, client=AWAY) == 0


def test_guesses_sent_at_once_are_all_counted(throttle: LoginThrottle) -> None:
    """An attempt counts from its beginning: the answers to the first must not be needed to refuse the last."""
    attempts = [throttle.attempt("alice", HOME) for _ in range(USER_BACKOFF.free_failures + 1)]
    for attempt in attempts[:-1]:
        attempt.__enter__()
    with pytest.raises(TooManyRequests):
        attempts[-1].__enter__()


def test_an_attempt_that_breaks_off_is_not_counted(throttle: LoginThrottle) -> None:
    for _ in range(USER_BACKOFF.free_failures * 4):
        with pytest.raises(OSError), throttle.attempt("alice", HOME):
            raise OSError("the disk is full")
    assert refused(throttle) == 0


def test_failures_are_forgotten_after_an_hour_of_rest(throttle: LoginThrottle, clock: Hands) -> None:
    for _ in range(USER_BACKOFF.free_failures + 20):
        clock.seconds += 60
        fail(throttle)
    clock.seconds += RESET_SECONDS
    for _ in range(USER_BACKOFF.free_failures):
        assert refused(throttle) == 0
        fail(throttle)
    assert refused(throttle) == 1


def test_the_tables_do_not_grow_beyond_their_bound(clock: Hands) -> None:
    small = LoginThrottle(clock, max_counters=100)
    for turn in range(1000):
        clock.seconds += 1000
        fail(small, f"user{turn}" * 1000, f"10.0.{turn // 250}.{turn % 250}:1")
        succeed(small, f"good{turn}", f"10.1.{turn // 250}.{turn % 250}:1")
    assert len(small._counts) <= 100 and len(small._known_networks) <= 100
    assert max(len(user) for user, _ in small._counts) <= 253


def test_the_longest_untouched_is_forgotten_first(clock: Hands) -> None:
    small = LoginThrottle(clock, max_counters=10)
    for _ in range(USER_BACKOFF.free_failures):
        fail(small, "alice", HOME)
    for turn in range(20):
        clock.seconds += 0.1
        fail(small, f"user{turn}", f"198.51.100.{turn}:1")
        if turn % 3 == 0:
            clock.seconds += 60
            fail(small, "alice", HOME)
    assert refused(small, "alice", AWAY) > 1


@pytest.mark.parametrize(
    ("client", "place"),
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
def test_a_place_is_an_address_or_the_network_that_its_sender_has_to_himself(client: str, place: str) -> None:
    assert client_network(client) == place


def test_an_enormous_wait_is_still_a_number() -> None:
    assert USER_BACKOFF.delay_seconds(10**9) == USER_BACKOFF.max_seconds
