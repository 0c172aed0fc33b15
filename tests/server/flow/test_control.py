"""server.flow.control: which requests run at once, which are queued and for how long, and which are rejected.

The clock is simulated.
"""

import asyncio

import pytest

from fairlead.server.flow import control as flow_control
from fairlead.server.flow.classify import CONCURRENCY_LIMIT, QUEUE_FULL, TIMED_OUT
from fairlead.server.flow.control import (
    ITERATION_BUDGET_SECONDS,
    MIN_RESET_SECONDS,
    REJECTIONS_PER_ITERATION,
    REQUEST_OVERHEAD_SECONDS,
    SINGLE_CLIENT_AFTER_SECONDS,
    SINGLE_CLIENT_BUDGET_SECONDS,
    UNIT_SECONDS,
    FlowControl,
    build_rejection,
)
from fairlead.server.flow.fair_queue import (
    ANONYMOUS,
    BULK,
    INTERACTIVE,
    SYSTEM,
    Flow,
    LevelConfig,
    QueueLimits,
    Ticket,
    seats_for_cost,
)
from tests.server.flow.simulated_clock import FakeClock, use_up_budget

SMALL = QueueLimits(total=4, per_flow=2)


async def run_one_iteration() -> None:
    await asyncio.sleep(0)


def admit(
    control: FlowControl, level: str, flow: Flow, *, cost: float = 1.0, seats: int = 0, size: int = 0
) -> "asyncio.Future[str] | None":
    return control.admit(control.levels[level], Ticket(flow, cost, seats, size))


def count_pending(admissions: "list[asyncio.Future[str]]") -> int:
    return sum(not admission.done() for admission in admissions)


def queue_requests(
    control: FlowControl, level: str, flow: Flow, count: int, cost: float = 1.0
) -> list[asyncio.Future[str]]:
    admissions = [admit(control, level, flow, cost=cost) for _ in range(count)]
    return [admission for admission in admissions if admission is not None]


async def drain(control: FlowControl) -> None:
    """Runs the event loop until nothing is queued."""
    while any(level.queue.length for level in control.levels.values()):
        await run_one_iteration()


async def test_nothing_is_queued_while_the_iteration_has_budget_left() -> None:
    control = FlowControl()
    assert admit(control, INTERACTIVE, Flow("ada")) is None


async def test_a_request_over_the_budget_waits_for_the_next_iteration() -> None:
    control = FlowControl()
    use_up_budget(control)
    admission = admit(control, INTERACTIVE, Flow("ada"))
    assert admission is not None
    assert not admission.done()
    await admission
    assert control.levels[INTERACTIVE].queue.length == 0


async def test_a_light_user_is_served_before_the_queue_of_a_heavy_one_is_drained() -> None:
    control, heavy, light = FlowControl(), Flow("heavy"), Flow("light")
    use_up_budget(control)
    heavy_admissions = queue_requests(control, INTERACTIVE, heavy, 400)
    (light_admission,) = queue_requests(control, INTERACTIVE, light, 1)
    await light_admission
    assert count_pending(heavy_admissions) > 300
    await drain(control)
    assert count_pending(heavy_admissions) == 0


async def test_one_iteration_dispatches_no_more_than_its_budget() -> None:
    control = FlowControl()
    use_up_budget(control)
    heavy_admissions = queue_requests(control, INTERACTIVE, Flow("heavy"), 400, cost=2.0)
    await run_one_iteration()
    expected = ITERATION_BUDGET_SECONDS / (REQUEST_OVERHEAD_SECONDS + 2 * UNIT_SECONDS)
    assert abs(len(heavy_admissions) - count_pending(heavy_admissions) - expected) <= 1
    await drain(control)


async def test_the_budget_is_reset_in_the_iteration_after_enough_of_it_is_spent() -> None:
    control = FlowControl()
    control.spend(MIN_RESET_SECONDS / 2)
    await run_one_iteration()
    assert control.spent == MIN_RESET_SECONDS / 2, "noticing the next iteration would cost more than it is worth"
    control.spend(MIN_RESET_SECONDS / 2)
    await run_one_iteration()
    assert control.spent == 0.0


async def test_a_single_client_has_a_larger_budget() -> None:
    clock = FakeClock()
    control = FlowControl(now=clock)
    assert control.budget == SINGLE_CLIENT_BUDGET_SECONDS
    control.record_client_change("another client")
    assert control.budget == ITERATION_BUDGET_SECONDS
    clock.time += SINGLE_CLIENT_AFTER_SECONDS
    control.spend(0.001)
    await asyncio.sleep(0)
    assert control.budget == SINGLE_CLIENT_BUDGET_SECONDS


async def test_levels_share_the_budget_while_all_of_them_are_queued() -> None:
    control = FlowControl()
    use_up_budget(control)
    admissions = {level: queue_requests(control, level, Flow(level), 90) for level in (SYSTEM, INTERACTIVE, ANONYMOUS)}
    dispatched = 0
    while dispatched < 80:
        await run_one_iteration()
        dispatched = sum(
            len(admissions_of_level) - count_pending(admissions_of_level) for admissions_of_level in admissions.values()
        )
    counts = {
        level: len(admissions_of_level) - count_pending(admissions_of_level)
        for level, admissions_of_level in admissions.items()
    }
    assert counts[INTERACTIVE] == pytest.approx(dispatched * 50 / 80, abs=8)
    assert counts[SYSTEM] == pytest.approx(dispatched * 20 / 80, abs=8)
    assert counts[ANONYMOUS] == pytest.approx(dispatched * 10 / 80, abs=8)
    await drain(control)


async def test_the_share_of_an_idle_level_is_lent_and_returned_at_once() -> None:
    control = FlowControl()
    use_up_budget(control)
    heavy = queue_requests(control, ANONYMOUS, Flow("anonymous"), 90)
    while count_pending(heavy) > 50:
        await run_one_iteration()
    (admission,) = queue_requests(control, INTERACTIVE, Flow("ada"), 1)
    await admission
    assert count_pending(heavy) > 20
    await drain(control)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (TIMED_OUT, "too busy to start this request within 5 s"),
        (QUEUE_FULL, "too many of your requests are already queued"),
        (CONCURRENCY_LIMIT, "bodies"),
    ],
)
def test_a_rejection_has_a_reason_and_a_retry_after(reason: str, message: str) -> None:
    rejection = build_rejection(reason)
    assert rejection.code == 429
    assert rejection.details.retry_after in (1, 2, 3)
    assert message in rejection.message
    assert f"retry after {rejection.details.retry_after} s" in rejection.message


async def test_a_request_that_is_queued_too_long_is_rejected() -> None:
    clock = FakeClock()
    control = FlowControl(0.01, now=clock)
    level = control.levels[BULK]
    running = Ticket(Flow("running"), 1.0, seats=level.config.seats)
    assert control.admit(level, running) is None
    admission = admit(control, BULK, Flow("ada"), seats=1)
    assert admission is not None
    clock.time += 1.0
    assert await admission == TIMED_OUT
    assert level.queue.length == 0


async def test_requests_over_the_queue_limit_are_rejected() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    use_up_budget(control)
    flow = Flow("heavy")
    admissions = queue_requests(control, INTERACTIVE, flow, 3)
    assert await admissions[2] == QUEUE_FULL
    assert [await admission for admission in admissions[:2]] == ["", ""]


async def test_the_newest_request_of_the_longest_queue_is_dropped() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, QueueLimits(total=4, per_flow=3)),))
    use_up_budget(control)
    heavy = queue_requests(control, INTERACTIVE, Flow("heavy"), 3)
    others = [queue_requests(control, INTERACTIVE, Flow(name), 1) for name in ("ada", "ben")]
    assert await heavy[2] == QUEUE_FULL
    for (admission,) in others:
        assert not await admission
    await asyncio.gather(*heavy[:2])


async def test_rejections_are_sent_at_a_bounded_rate() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    use_up_budget(control)
    admissions = queue_requests(control, INTERACTIVE, Flow("heavy"), 50)[2:]
    await asyncio.sleep(0)
    assert len(admissions) - count_pending(admissions) == REJECTIONS_PER_ITERATION
    await asyncio.gather(*admissions, return_exceptions=True)


async def test_rejections_of_cancelled_requests_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "MAX_PENDING_REJECTIONS", 1)
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    use_up_budget(control)
    admissions = queue_requests(control, INTERACTIVE, Flow("heavy"), 4)[2:]
    assert admissions[1].done(), "with too many pending rejections, it is rejected at once"
    admissions[0].cancel()
    await asyncio.gather(*admissions, return_exceptions=True)
    await drain(control)


async def test_the_total_body_size_of_queued_requests_is_limited() -> None:
    control = FlowControl(max_queued_bytes=1000)
    use_up_budget(control)
    first = admit(control, INTERACTIVE, Flow("ada"), size=800)
    second = admit(control, INTERACTIVE, Flow("ben"), size=800)
    assert first is not None
    assert second is not None
    assert await second == CONCURRENCY_LIMIT
    assert not await first
    use_up_budget(control)
    third = admit(control, INTERACTIVE, Flow("ben"), size=800)
    assert third is not None
    await third


async def test_a_cancelled_request_leaves_the_queue() -> None:
    control = FlowControl()
    use_up_budget(control)
    level, ticket = control.levels[INTERACTIVE], Ticket(Flow("ada"), 1.0)
    admission = control.admit(level, ticket)
    assert admission is not None
    admission.cancel()
    control.cancel(level, ticket, admission)
    assert level.queue.length == 0


async def test_a_request_cancelled_right_after_dispatch_releases_its_seats() -> None:
    control = FlowControl()
    use_up_budget(control)
    level, ticket = control.levels[INTERACTIVE], Ticket(Flow("ada"), 1.0, seats=4)
    admission = control.admit(level, ticket)
    assert admission is not None
    await admission
    assert level.seats_in_use == 4
    control.cancel(level, ticket, admission)
    assert (level.seats_in_use, control.seats.in_use, ticket.flow.seats_in_use) == (0, 0, 0)


async def test_a_flow_leaves_as_many_seats_free_as_it_holds() -> None:
    control, heavy, light = FlowControl(), Flow("heavy"), Flow("light")
    level = control.levels[INTERACTIVE]
    while admit(control, INTERACTIVE, heavy, seats=4) is None:
        pass
    assert heavy.seats_in_use == control.seats.total / 2
    assert level.queue.length == 1
    (admission,) = [admit(control, INTERACTIVE, light, seats=4)]
    assert admission is not None
    await admission
    assert light.seats_in_use == 4
    assert level.queue.length == 1, "the heavy flow still waits"


async def test_a_request_without_seats_overtakes_one_that_waits_for_seats() -> None:
    control, writer = FlowControl(), Flow("writer")
    while admit(control, INTERACTIVE, writer, seats=4) is None:
        pass
    admission = admit(control, INTERACTIVE, Flow("reader"))
    assert admission is not None
    await admission
    assert control.levels[INTERACTIVE].queue.length == 1


async def test_a_level_gets_its_own_seats_however_many_it_has_lent() -> None:
    control = FlowControl()
    for number in range(400):
        admit(control, INTERACTIVE, Flow(str(number)), seats=16)
    assert control.seats.in_use >= control.seats.total
    assert admit(control, SYSTEM, Flow("agent"), seats=4) is None


async def test_a_released_seat_goes_to_a_queued_request() -> None:
    control = FlowControl()
    level, ticket = control.levels[BULK], Ticket(Flow("ada"), 1.0, seats=1)
    assert control.admit(level, ticket) is None
    second = admit(control, BULK, ticket.flow, seats=1)
    assert second is not None, "one user has one large request at a time"
    of_other_user = admit(control, BULK, Flow("ben"), seats=1)
    assert of_other_user is not None
    await of_other_user
    assert not second.done()
    third = admit(control, BULK, Flow("cyd"), seats=1)
    assert third is not None
    control.release_seats(level, ticket)
    done, _ = await asyncio.wait((second, third), return_when=asyncio.FIRST_COMPLETED)
    assert done


@pytest.mark.parametrize("cost", [1, 16, 100_000])
def test_no_request_holds_more_than_a_small_part_of_its_level(cost: int) -> None:
    level = LevelConfig(INTERACTIVE, 50, 128)
    assert seats_for_cost(level, cost) == min(cost, 16)
