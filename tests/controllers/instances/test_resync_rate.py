"""Tests of `fairlead.controllers.instances.resync_rate`: delays of passes and repairs, and limits of Events."""

import asyncio

from fairlead.controllers.instances.resync_rate import (
    COALESCE_SECONDS,
    EVENT_BURST,
    EVENT_REFILL_SECONDS,
    PASS_BURST,
    PASS_REFILL_SECONDS,
    REPAIRS,
    STREAK_RESET_SECONDS,
    URGENT_BURST,
    URGENT_REFILL_SECONDS,
    ResyncLimiter,
)
from fairlead.storage.contract import Key
from tests.harness.virtual_time import LoopClock

ONE: Key = ("g", "p", "n", "one")
OTHER: Key = ("g", "p", "n", "other")


async def test_passes_over_the_burst_are_delayed() -> None:
    limiter = ResyncLimiter(LoopClock())
    burst = [COALESCE_SECONDS] * PASS_BURST
    assert [limiter.next_delay(ONE, "x") for _ in range(PASS_BURST + 2)] == [
        *burst,
        PASS_REFILL_SECONDS,
        2 * PASS_REFILL_SECONDS,
    ]
    assert limiter.next_delay(OTHER, "x") == COALESCE_SECONDS
    assert limiter.next_delay(ONE, "x", urgent=True) == 0
    await asyncio.sleep(100 * PASS_REFILL_SECONDS)
    assert [limiter.next_delay(ONE, "x") for _ in range(PASS_BURST + 1)] == [*burst, PASS_REFILL_SECONDS]


async def test_repeated_repairs_are_delayed_with_backoff_up_to_a_limit() -> None:
    limiter = ResyncLimiter(LoopClock())
    for _ in range(REPAIRS.free_attempts - 1):
        limiter.record_repairs(ONE, ["x"])
        assert limiter.next_delay(ONE, "x", urgent=True) == 0
    delays = []
    for _ in range(20):
        limiter.record_repairs(ONE, ["x"])
        delays.append(limiter.next_delay(ONE, "x", urgent=True))
        await asyncio.sleep(delays[-1])
        assert limiter.next_delay(ONE, "x", urgent=True) == 0
    assert delays[:3] == [2, 4, 8]
    assert delays[-1] == REPAIRS.max_seconds


async def test_the_backoff_of_repairs_is_reset_after_a_quiet_period() -> None:
    limiter = ResyncLimiter(LoopClock())
    assert [limiter.record_repairs(ONE, ["x"]) for _ in range(REPAIRS.free_attempts + 3)] == list(
        range(1, REPAIRS.free_attempts + 4)
    )
    await asyncio.sleep(STREAK_RESET_SECONDS + 1)
    assert limiter.next_delay(ONE, "x", urgent=True) == 0
    assert limiter.record_repairs(ONE, ["x"]) == 1


async def test_repairs_of_one_object_do_not_delay_others() -> None:
    limiter = ResyncLimiter(LoopClock())
    for number in range(3 * REPAIRS.free_attempts):
        assert limiter.record_repairs(ONE, [f"object-{number}"]) == 1
        limiter.record_repairs(ONE, ["contested"])
    assert limiter.record_repairs(ONE, ["object-0", "contested"]) == 3 * REPAIRS.free_attempts + 1
    assert limiter.next_delay(ONE, "object-0", urgent=True) == 0
    assert limiter.next_delay(ONE, "contested", urgent=True) > 0


async def test_events_about_one_instance_are_limited() -> None:
    limiter = ResyncLimiter(LoopClock())
    assert [limiter.allow_event(ONE) for _ in range(EVENT_BURST + 2)] == [*[True] * EVENT_BURST, False, False]
    assert limiter.allow_event(OTHER)
    await asyncio.sleep(EVENT_REFILL_SECONDS + 1)
    assert [limiter.allow_event(ONE), limiter.allow_event(ONE)] == [True, False]


async def test_urgent_passes_are_limited() -> None:
    limiter = ResyncLimiter(LoopClock())
    assert [limiter.allow_urgent(ONE) for _ in range(URGENT_BURST + 2)] == [*[True] * URGENT_BURST, False, False]
    assert limiter.allow_urgent(OTHER)
    await asyncio.sleep(URGENT_REFILL_SECONDS + 1)
    assert [limiter.allow_urgent(ONE), limiter.allow_urgent(ONE)] == [True, False]
