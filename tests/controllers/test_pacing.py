"""How soon changes are answered: at once, within a budget, and later and later where repairs do not last."""

import asyncio

from fairlead.controllers.instances.resync_rate import (
    BURST,
    EVENT_SECONDS,
    EVENTS,
    GATHER_SECONDS,
    HURRIES,
    HURRY_SECONDS,
    LONGEST,
    PATIENCE,
    QUIET_SECONDS,
    REFILL_SECONDS,
    Pace,
)
from fairlead.storage.contract import Key
from tests.controllers.virtual_time import LoopClock

ONE: Key = ("g", "p", "n", "one")
OTHER: Key = ("g", "p", "n", "other")


async def test_a_few_passes_are_free_and_then_one_comes_after_the_other() -> None:
    pace = Pace(LoopClock())
    free = [GATHER_SECONDS] * BURST
    assert [pace.delay(ONE, "x") for _ in range(BURST + 2)] == [*free, REFILL_SECONDS, 2 * REFILL_SECONDS]
    assert pace.delay(OTHER, "x") == GATHER_SECONDS
    assert pace.delay(ONE, "x", urgent=True) == 0
    await asyncio.sleep(100 * REFILL_SECONDS)
    assert [pace.delay(ONE, "x") for _ in range(BURST + 1)] == [*free, REFILL_SECONDS]


async def test_repairs_in_a_row_wait_longer_each_time_up_to_a_limit() -> None:
    pace = Pace(LoopClock())
    for _ in range(PATIENCE):
        pace.repaired(ONE, ["x"])
        assert pace.delay(ONE, "x", urgent=True) == 0
    delays = []
    for _ in range(20):
        pace.repaired(ONE, ["x"])
        delays.append(pace.delay(ONE, "x", urgent=True))
        await asyncio.sleep(delays[-1])
        assert pace.delay(ONE, "x", urgent=True) == 0
    assert delays[:3] == [2, 4, 8]
    assert delays[-1] == LONGEST


async def test_quiet_ends_a_row_of_repairs() -> None:
    pace = Pace(LoopClock())
    assert [pace.repaired(ONE, ["x"]) for _ in range(PATIENCE + 4)] == list(range(1, PATIENCE + 5))
    await asyncio.sleep(QUIET_SECONDS + 1)
    assert pace.delay(ONE, "x", urgent=True) == 0
    assert pace.repaired(ONE, ["x"]) == 1


async def test_repairs_of_one_object_hold_up_no_other() -> None:
    pace = Pace(LoopClock())
    for number in range(3 * PATIENCE):
        assert pace.repaired(ONE, [f"object-{number}"]) == 1
        pace.repaired(ONE, ["fought"])
    assert pace.repaired(ONE, ["object-0", "fought"]) == 3 * PATIENCE + 1
    assert pace.delay(ONE, "object-0", urgent=True) == 0
    assert pace.delay(ONE, "fought", urgent=True) > 0


async def test_events_about_one_instance_are_bounded() -> None:
    pace = Pace(LoopClock())
    assert [pace.may_tell(ONE) for _ in range(EVENTS + 2)] == [*[True] * EVENTS, False, False]
    assert pace.may_tell(OTHER)
    await asyncio.sleep(EVENT_SECONDS + 1)
    assert [pace.may_tell(ONE), pace.may_tell(ONE)] == [True, False]


async def test_few_passes_in_a_row_are_urgent() -> None:
    pace = Pace(LoopClock())
    assert [pace.may_hurry(ONE) for _ in range(HURRIES + 2)] == [*[True] * HURRIES, False, False]
    assert pace.may_hurry(OTHER)
    await asyncio.sleep(HURRY_SECONDS + 1)
    assert [pace.may_hurry(ONE), pace.may_hurry(ONE)] == [True, False]
