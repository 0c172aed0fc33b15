"""Shares in a cluster: nobody gets all of it, and streams leave something for short requests."""

import pytest

from fairlead.upstream.access import Limits
from fairlead.upstream.errors import ClusterLimitExceeded, UserLimitExceeded
from fairlead.upstream.fair_share import UserLimits, UserSlot


def requests(shares: UserLimits, user: str, count: int, *, is_endless: bool = False) -> list[UserSlot]:
    return [shares.acquire_request(user, is_streaming=is_endless) for _ in range(count)]


def test_one_user_gets_a_quarter_and_others_theirs() -> None:
    shares = UserLimits(Limits(max_requests=256))
    held = requests(shares, "eve", 64)
    with pytest.raises(UserLimitExceeded, match="64 concurrent requests"):
        requests(shares, "eve", 1)
    requests(shares, "ada", 64)
    held[0].release()
    requests(shares, "eve", 1)


def test_sockets_are_counted_apart() -> None:
    shares = UserLimits(Limits(max_requests=8, max_websockets=8))
    requests(shares, "eve", 2)
    held = [shares.acquire_websocket("eve") for _ in range(2)]
    with pytest.raises(UserLimitExceeded, match="2 concurrent WebSockets"):
        shares.acquire_websocket("eve")
    held[0].release()
    shares.acquire_websocket("eve")


def test_streams_of_however_many_users_leave_a_quarter_for_short_requests() -> None:
    shares = UserLimits(Limits(max_requests=16))
    held = [share for user in "abc" for share in requests(shares, user, 4, is_endless=True)]
    with pytest.raises(ClusterLimitExceeded, match="12 open watches"):
        requests(shares, "d", 1, is_endless=True)
    requests(shares, "d", 4)
    held[0].release()
    requests(shares, "e", 1, is_endless=True)


def test_what_was_refused_takes_nothing() -> None:
    shares = UserLimits(Limits(max_requests=4))
    for user in "abc":
        requests(shares, user, 1, is_endless=True)
    for _ in range(3):
        with pytest.raises(ClusterLimitExceeded):
            requests(shares, "d", 1, is_endless=True)
    requests(shares, "d", 1)


def test_a_share_is_given_back_once_and_at_the_end_unless_it_is_kept() -> None:
    shares = UserLimits(Limits(max_requests=8))
    with shares.acquire_request("ada", is_streaming=False) as share:
        pass
    share.release()
    with shares.acquire_request("ada", is_streaming=True) as kept:
        kept.transfer()
    requests(shares, "ada", 1)
    with pytest.raises(UserLimitExceeded):
        requests(shares, "ada", 1)
    kept.release()
    requests(shares, "ada", 1)


def test_however_small_a_limit_is_everybody_gets_something() -> None:
    shares = UserLimits(Limits(max_requests=1, max_websockets=1))
    requests(shares, "ada", 1, is_endless=True)
    shares.acquire_websocket("ada")
