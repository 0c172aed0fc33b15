"""How soon changes are answered: at once, within a budget, and later and later where repairs do not last."""

import asyncio

from fairlead.controllers.instances.resync_rate import (
    COALESCE_SECONDS,
    EVENT_BURST,
    EVENT_REFILL_SECONDS,
    MAX_IMMEDIATE_REPAIRS,
    MAX_REPAIR_DELAY_SECONDS,
    PASS_BURST,
    PASS_REFILL_SECONDS,
    STREAK_RESET_SECONDS,
    URGENT_BURST,
    URGENT_REFILL_SECONDS,
    ResyncLimiter,
)
from fairlead.storage.contract import Key
from tests.harness.virtual_time import LoopClock

ONE: Key = ("g", "p", "n", "one")
OTHER: Key = ("g", "p", "n", "other")


async def test_a_few_passes_are_free_and_then_one_comes_after_the_other() -> None:
    pace = ResyncLimiter(LoopClock())
    free = [COALESCE_SECONDS] * PASS_BURST
    assert [pace.next_delay(ONE, "x") for _ in range(PASS_BURST + 2)] == [
        *free,
        PASS_REFILL_SECONDS,
        2 * PASS_REFILL_SECONDS,
    ]
    assert pace.next_delay(OTHER, "x") == COALESCE_SECONDS
    assert pace.next_delay(ONE, "x", urgent=True) == 0
    await asyncio.sleep(100 * PASS_REFILL_SECONDS)
    assert [pace.next_delay(ONE, "x") for _ in range(PASS_BURST + 1)] == [*free, PASS_REFILL_SECONDS]


async def test_repairs_in_a_row_wait_longer_each_time_up_to_a_limit() -> None:
    pace = ResyncLimiter(LoopClock())
    for _ in range(MAX_IMMEDIATE_REPAIRS):
        pace.record_repairs(ONE, ["x"])
        assert pace.next_delay(ONE, "x", urgent=True) == 0
    delays = []
    for _ in range(20):
        pace.record_repairs(ONE, ["x"])
        delays.append(pace.next_delay(ONE, "x", urgent=True))
        await asyncio.sleep(delays[-1])
        assert pace.next_delay(ONE, "x", urgent=True) == 0
    assert delays[:3] == [2, 4, 8]
    assert delays[-1] == MAX_REPAIR_DELAY_SECONDS


async def test_quiet_ends_a_row_of_repairs() -> None:
    pace = ResyncLimiter(LoopClock())
    assert [pace.record_repairs(ONE, ["x"]) for _ in range(MAX_IMMEDIATE_REPAIRS + 4)] == list(
        range(1, MAX_IMMEDIATE_REPAIRS + 5)
    )
    await asyncio.sleep(STREAK_RESET_SECONDS + 1)
    assert pace.next_delay(ONE, "x", urgent=True) == 0
    assert pace.record_repairs(ONE, ["x"]) == 1


async def test_repairs_of_one_object_hold_up_no_other() -> None:
    pace = ResyncLimiter(LoopClock())
    for number in range(3 * MAX_IMMEDIATE_REPAIRS):
        assert pace.record_repairs(ONE, [f"object-{number}"]) == 1
        pace.record_repairs(ONE, ["fought"])
    assert pace.record_repairs(ONE, ["object-0", "fought"]) == 3 * MAX_IMMEDIATE_REPAIRS + 1
    assert pace.next_delay(ONE, "object-0", urgent=True) == 0
    assert pace.next_delay(ONE, "fought", urgent=True) > 0


async def test_events_about_one_instance_are_bounded() -> None:
    pace = ResyncLimiter(LoopClock())
    assert [pace.allow_event(ONE) for _ in range(EVENT_BURST + 2)] == [*[True] * EVENT_BURST, False, False]
    assert pace.allow_event(OTHER)
    await asyncio.sleep(EVENT_REFILL_SECONDS + 1)
    assert [pace.allow_event(ONE), pace.allow_event(ONE)] == [True, False]


async def test_few_passes_in_a_row_are_urgent() -> None:
    pace = ResyncLimiter(LoopClock())
    assert [pace.allow_urgent(ONE) for _ in range(URGENT_BURST + 2)] == [*[True] * URGENT_BURST, False, False]
    assert pace.allow_urgent(OTHER)
    await asyncio.sleep(URGENT_REFILL_SECONDS + 1)
    assert [pace.allow_urgent(ONE), pace.allow_urgent(ONE)] == [True, False]
