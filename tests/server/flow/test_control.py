"""Whose turn it is: what runs at once, what waits and for how long, and what is refused. The clock is simulated."""

import asyncio

import pytest

from fairlead.server.flow import control as flow_control
from fairlead.server.flow.classify import CONCURRENCY_LIMIT, QUEUE_FULL, TIMED_OUT
from fairlead.server.flow.control import (
    ITERATION_BUDGET_SECONDS,
    REJECTIONS_PER_ITERATION,
    REQUEST_OVERHEAD_SECONDS,
    SINGLE_CLIENT_AFTER_SECONDS,
    SINGLE_CLIENT_BUDGET_SECONDS,
    UNIT_SECONDS,
    FlowControl,
    build_rejection,
)
from fairlead.server.flow.fair_queue import Flow, QueueLimits, Ticket
from fairlead.server.flow.levels import ANONYMOUS, BULK, INTERACTIVE, SYSTEM, LevelConfig, seats_for_cost

SMALL = QueueLimits(total=4, per_flow=2)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def busy(control: FlowControl) -> None:
    """Uses up this turn. Others are there, too."""
    control.record_client_change("another client")
    control.spend(ITERATION_BUDGET_SECONDS)


async def turn_of_the_loop() -> None:
    await asyncio.sleep(0)


def asked(
    control: FlowControl, level: str, flow: Flow, *, cost: float = 1.0, seats: int = 0, size: int = 0
) -> "asyncio.Future[str] | None":
    return control.admit(control.levels[level], Ticket(flow, cost, seats, size))


def waiting(turns: "list[asyncio.Future[str]]") -> int:
    return sum(not turn.done() for turn in turns)


def queued(control: FlowControl, level: str, flow: Flow, count: int, cost: float = 1.0) -> list[asyncio.Future[str]]:
    turns = [asked(control, level, flow, cost=cost) for _ in range(count)]
    return [turn for turn in turns if turn is not None]


async def drained(control: FlowControl) -> None:
    """Goes on until nothing waits."""
    while any(level.queue.length for level in control.levels.values()):
        await turn_of_the_loop()


async def test_nothing_waits_while_a_turn_has_time() -> None:
    control = FlowControl()
    assert asked(control, INTERACTIVE, Flow("ada")) is None


async def test_a_turn_that_is_used_up_makes_others_wait_for_the_next() -> None:
    control = FlowControl()
    busy(control)
    turn = asked(control, INTERACTIVE, Flow("ada"))
    assert turn is not None
    assert not turn.done()
    await turn
    assert control.levels[INTERACTIVE].queue.length == 0


async def test_a_quiet_user_is_served_before_the_queue_of_a_loud_one_is_drained() -> None:
    control, loud, quiet = FlowControl(), Flow("loud"), Flow("quiet")
    busy(control)
    many = queued(control, INTERACTIVE, loud, 400)
    (one,) = queued(control, INTERACTIVE, quiet, 1)
    await one
    assert waiting(many) > 300
    await drained(control)
    assert waiting(many) == 0


async def test_one_turn_lets_no_more_go_on_than_fits_into_it() -> None:
    control = FlowControl()
    busy(control)
    many = queued(control, INTERACTIVE, Flow("loud"), 400, cost=2.0)
    await turn_of_the_loop()
    fits = ITERATION_BUDGET_SECONDS / (REQUEST_OVERHEAD_SECONDS + 2 * UNIT_SECONDS)
    assert abs(len(many) - waiting(many) - fits) <= 1
    await drained(control)


async def test_turns_are_longer_for_who_is_alone() -> None:
    clock = Clock()
    control = FlowControl(now=clock)
    assert control.budget == SINGLE_CLIENT_BUDGET_SECONDS
    control.record_client_change("another client")
    assert control.budget == ITERATION_BUDGET_SECONDS
    clock.time += SINGLE_CLIENT_AFTER_SECONDS
    control.spend(0.001)
    await asyncio.sleep(0)
    assert control.budget == SINGLE_CLIENT_BUDGET_SECONDS


async def test_levels_share_the_time_while_all_of_them_wait() -> None:
    control = FlowControl()
    busy(control)
    turns = {level: queued(control, level, Flow(level), 90) for level in (SYSTEM, INTERACTIVE, ANONYMOUS)}
    served = 0
    while served < 80:
        await turn_of_the_loop()
        served = sum(len(each) - waiting(each) for each in turns.values())
    counts = {level: len(each) - waiting(each) for level, each in turns.items()}
    assert counts[INTERACTIVE] == pytest.approx(served * 50 / 80, abs=8)
    assert counts[SYSTEM] == pytest.approx(served * 20 / 80, abs=8)
    assert counts[ANONYMOUS] == pytest.approx(served * 10 / 80, abs=8)
    await drained(control)


async def test_an_idle_levels_share_is_lent_and_returned_at_once() -> None:
    control = FlowControl()
    busy(control)
    loud = queued(control, ANONYMOUS, Flow("stranger"), 90)
    while waiting(loud) > 50:
        await turn_of_the_loop()
    (turn,) = queued(control, INTERACTIVE, Flow("ada"), 1)
    await turn
    assert waiting(loud) > 20
    await drained(control)


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (TIMED_OUT, "too busy to start this request within 5 s"),
        (QUEUE_FULL, "too many of your requests are already queued"),
        (CONCURRENCY_LIMIT, "bodies"),
    ],
)
def test_who_is_refused_is_told_why_and_when_to_come_again(why: str, told: str) -> None:
    refused = build_rejection(why)
    assert refused.code == 429
    assert refused.details.retry_after in (1, 2, 3)
    assert told in refused.message
    assert f"retry after {refused.details.retry_after} s" in refused.message


async def test_who_waits_too_long_is_refused() -> None:
    clock = Clock()
    control = FlowControl(0.01, now=clock)
    level = control.levels[BULK]
    holder = Ticket(Flow("holder"), 1.0, seats=level.config.seats)
    assert control.admit(level, holder) is None
    turn = asked(control, BULK, Flow("ada"), seats=1)
    assert turn is not None
    clock.time += 1.0
    assert await turn == TIMED_OUT
    assert level.queue.length == 0


async def test_too_many_waiting_requests_are_refused() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    busy(control)
    flow = Flow("loud")
    turns = queued(control, INTERACTIVE, flow, 3)
    assert await turns[2] == QUEUE_FULL
    assert [await turn for turn in turns[:2]] == ["", ""]


async def test_the_youngest_of_the_longest_queue_makes_room() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, QueueLimits(total=4, per_flow=3)),))
    busy(control)
    loud = queued(control, INTERACTIVE, Flow("loud"), 3)
    others = [queued(control, INTERACTIVE, Flow(name), 1) for name in ("ada", "ben")]
    assert await loud[2] == QUEUE_FULL
    for (turn,) in others:
        assert not await turn
    await asyncio.gather(*loud[:2])


async def test_refusals_are_told_at_a_bounded_pace() -> None:
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    busy(control)
    turns = queued(control, INTERACTIVE, Flow("loud"), 50)[2:]
    await asyncio.sleep(0)
    assert len(turns) - waiting(turns) == REJECTIONS_PER_ITERATION
    await asyncio.gather(*turns, return_exceptions=True)


async def test_refusals_that_nobody_waits_for_any_more_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "MAX_PENDING_REJECTIONS", 1)
    control = FlowControl(level_configs=(LevelConfig(INTERACTIVE, 50, 8, SMALL),))
    busy(control)
    turns = queued(control, INTERACTIVE, Flow("loud"), 4)[2:]
    assert turns[1].done(), "with no room left to wait, the refusal comes at once"
    turns[0].cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    await drained(control)


async def test_bodies_of_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "MAX_QUEUED_BYTES", 1000)
    control = FlowControl()
    busy(control)
    first = asked(control, INTERACTIVE, Flow("ada"), size=800)
    second = asked(control, INTERACTIVE, Flow("ben"), size=800)
    assert first is not None
    assert second is not None
    assert await second == CONCURRENCY_LIMIT
    assert not await first
    busy(control)
    third = asked(control, INTERACTIVE, Flow("ben"), size=800)
    assert third is not None
    await third


async def test_a_request_that_is_over_gives_up_its_place() -> None:
    control = FlowControl()
    busy(control)
    level, ticket = control.levels[INTERACTIVE], Ticket(Flow("ada"), 1.0)
    turn = control.admit(level, ticket)
    assert turn is not None
    turn.cancel()
    control.cancel(level, ticket, turn)
    assert level.queue.length == 0


async def test_a_request_that_ends_right_after_its_turn_came_gives_back_its_seats() -> None:
    control = FlowControl()
    busy(control)
    level, ticket = control.levels[INTERACTIVE], Ticket(Flow("ada"), 1.0, seats=4)
    turn = control.admit(level, ticket)
    assert turn is not None
    await turn
    assert level.seats_in_use == 4
    control.cancel(level, ticket, turn)
    assert (level.seats_in_use, control.seats.in_use, ticket.flow.seats_in_use) == (0, 0, 0)


async def test_one_flow_leaves_as_many_seats_as_it_holds() -> None:
    control, loud, quiet = FlowControl(), Flow("loud"), Flow("quiet")
    level = control.levels[INTERACTIVE]
    while asked(control, INTERACTIVE, loud, seats=4) is None:
        pass
    assert loud.seats_in_use == control.seats.total / 2
    assert level.queue.length == 1
    (turn,) = [asked(control, INTERACTIVE, quiet, seats=4)]
    assert turn is not None
    await turn
    assert quiet.seats_in_use == 4
    assert level.queue.length == 1, "the loud one still waits"


async def test_what_needs_no_seat_passes_what_waits_for_one() -> None:
    control, writer = FlowControl(), Flow("writer")
    while asked(control, INTERACTIVE, writer, seats=4) is None:
        pass
    turn = asked(control, INTERACTIVE, Flow("reader"))
    assert turn is not None
    await turn
    assert control.levels[INTERACTIVE].queue.length == 1


async def test_a_level_gets_its_own_seats_back_however_many_it_has_lent() -> None:
    control = FlowControl()
    for number in range(400):
        asked(control, INTERACTIVE, Flow(str(number)), seats=16)
    assert control.seats.in_use >= control.seats.total
    assert asked(control, SYSTEM, Flow("agent"), seats=4) is None


async def test_a_seat_that_is_given_back_goes_to_who_waits() -> None:
    control = FlowControl()
    level, ticket = control.levels[BULK], Ticket(Flow("ada"), 1.0, seats=1)
    assert control.admit(level, ticket) is None
    second = asked(control, BULK, ticket.flow, seats=1)
    assert second is not None, "one user has one large request at a time"
    another = asked(control, BULK, Flow("ben"), seats=1)
    assert another is not None
    await another
    assert not second.done()
    third = asked(control, BULK, Flow("cyd"), seats=1)
    assert third is not None
    control.release_seats(level, ticket)
    done, _ = await asyncio.wait((second, third), return_when=asyncio.FIRST_COMPLETED)
    assert done


@pytest.mark.parametrize("cost", [1, 16, 100_000])
def test_no_request_holds_more_than_a_small_part_of_its_level(cost: int) -> None:
    priority = LevelConfig(INTERACTIVE, 50, 128)
    assert seats_for_cost(priority, cost) == min(cost, 16)
