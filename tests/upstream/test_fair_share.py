"""Tests of `fairlead.upstream.fair_share`: no user gets all slots of a cluster, and streams leave some for requests."""

import pytest

from fairlead.upstream.access import Limits
from fairlead.upstream.errors import ClusterLimitExceeded, UserLimitExceeded
from fairlead.upstream.fair_share import UserLimits, UserSlot


def acquire_requests(user_limits: UserLimits, user: str, count: int, *, is_streaming: bool = False) -> list[UserSlot]:
    return [user_limits.acquire_request(user, is_streaming=is_streaming) for _ in range(count)]


def test_each_user_gets_a_quarter_of_the_slots() -> None:
    user_limits = UserLimits(Limits(max_requests=256))
    slots = acquire_requests(user_limits, "eve", 64)
    with pytest.raises(UserLimitExceeded, match="64 concurrent requests"):
        acquire_requests(user_limits, "eve", 1)
    acquire_requests(user_limits, "ada", 64)
    slots[0].release()
    acquire_requests(user_limits, "eve", 1)


def test_websockets_are_counted_separately() -> None:
    user_limits = UserLimits(Limits(max_requests=8, max_websockets=8))
    acquire_requests(user_limits, "eve", 2)
    slots = [user_limits.acquire_websocket("eve") for _ in range(2)]
    with pytest.raises(UserLimitExceeded, match="2 concurrent WebSockets"):
        user_limits.acquire_websocket("eve")
    slots[0].release()
    user_limits.acquire_websocket("eve")


def test_streams_of_any_number_of_users_leave_a_quarter_for_short_requests() -> None:
    user_limits = UserLimits(Limits(max_requests=16))
    slots = [slot for user in "abc" for slot in acquire_requests(user_limits, user, 4, is_streaming=True)]
    with pytest.raises(ClusterLimitExceeded, match="12 open watches"):
        acquire_requests(user_limits, "d", 1, is_streaming=True)
    acquire_requests(user_limits, "d", 4)
    slots[0].release()
    acquire_requests(user_limits, "e", 1, is_streaming=True)


def test_a_rejected_request_holds_no_slot() -> None:
    user_limits = UserLimits(Limits(max_requests=4))
    for user in "abc":
        acquire_requests(user_limits, user, 1, is_streaming=True)
    for _ in range(3):
        with pytest.raises(ClusterLimitExceeded):
            acquire_requests(user_limits, "d", 1, is_streaming=True)
    acquire_requests(user_limits, "d", 1)


def test_a_slot_is_released_once_and_at_the_end_unless_it_is_transferred() -> None:
    user_limits = UserLimits(Limits(max_requests=8))
    with user_limits.acquire_request("ada", is_streaming=False) as slot:
        pass
    slot.release()
    with user_limits.acquire_request("ada", is_streaming=True) as transferred:
        transferred.transfer()
    acquire_requests(user_limits, "ada", 1)
    with pytest.raises(UserLimitExceeded):
        acquire_requests(user_limits, "ada", 1)
    transferred.release()
    acquire_requests(user_limits, "ada", 1)


def test_each_user_gets_a_slot_even_with_the_smallest_limit() -> None:
    user_limits = UserLimits(Limits(max_requests=1, max_websockets=1))
    acquire_requests(user_limits, "ada", 1, is_streaming=True)
    user_limits.acquire_websocket("ada")
