"""Streams take turns: one piece of a user's streams at a time, however many are open, and others in between."""

import asyncio
from collections import Counter

import pytest

from fairlead.core.user import User
from fairlead.server.api import query_options
from fairlead.server.api.watch import WatchRequest, WatchService
from fairlead.server.flow import streams as pacing
from fairlead.server.flow.classify import ClientCache
from fairlead.server.flow.control import ITERATION_BUDGET_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import QueueLimits, Ticket
from fairlead.server.flow.levels import BULK, INTERACTIVE, LEVEL_CONFIGS, LevelConfig
from fairlead.server.flow.streams import Pace, Pacer, StreamLimiter
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry
from tests.server.api.test_watch import LIMITS
from tests.server.flow.test_control import Clock, busy

ADA, BEN = User("ada"), User("ben")
PIECE_SECONDS = 0.001


class Shared:
    """A server on a simulated clock, on which each piece takes a millisecond."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.control = FlowControl(now=self.clock)
        self.clients = ClientCache(self.control.levels)
        self.pacer = Pacer(self.control, self.clients)
        self.made: Counter[str] = Counter()
        self.control.record_client_change("another client")

    async def stream(self, user: User, pieces: int) -> None:
        pace = self.pacer.pace_for(user)
        for _ in range(pieces):
            await pace.wait_for_slot()
            self.clock.time += PIECE_SECONDS
            self.made[user.name] += 1
            pace.release_slot()
            await asyncio.sleep(0)

    async def has_made(self, pieces: int) -> None:
        """Goes on until streams of ada have made so many."""
        for _ in range(100 * pieces):
            if self.made["ada"] >= pieces:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"only {self.made} pieces were made")


async def test_a_stream_alone_does_not_wait() -> None:
    shared = Shared()
    pace = shared.pacer.pace_for(ADA)
    waiting = pace.wait_for_slot()
    with pytest.raises(StopIteration):
        waiting.send(None)  # done in its first step
    pace.release_slot()


async def test_of_many_streams_of_a_user_few_go_on_in_one_turn_of_the_loop() -> None:
    shared = Shared()
    streams = [asyncio.ensure_future(shared.stream(ADA, 5)) for _ in range(100)]
    most = made = 0
    while not all(stream.done() for stream in streams):
        await asyncio.sleep(0)
        most, made = max(most, shared.made["ada"] - made), shared.made["ada"]
    assert shared.made["ada"] == 500
    assert most <= ITERATION_BUDGET_SECONDS / PIECE_SECONDS


async def test_who_opens_one_stream_gets_as_much_as_who_opens_a_hundred() -> None:
    shared = Shared()
    loud = [asyncio.ensure_future(shared.stream(ADA, 100)) for _ in range(100)]
    await shared.has_made(50)
    before = shared.made["ada"]
    await shared.stream(BEN, 50)
    assert shared.made["ada"] - before <= 75
    for stream in loud:
        stream.cancel()
    await asyncio.gather(*loud, return_exceptions=True)


async def test_a_small_request_of_another_does_not_wait_for_the_pieces_of_streams() -> None:
    shared = Shared()
    streams = [asyncio.ensure_future(shared.stream(ADA, 20)) for _ in range(50)]
    await shared.has_made(20)
    before, level = shared.made["ada"], shared.control.levels[INTERACTIVE]
    turn = shared.control.admit(level, Ticket(shared.clients.for_user(BEN).regular_lane.flow, 1.0))
    if turn is not None:
        await turn
    assert shared.made["ada"] - before <= 4
    await asyncio.gather(*streams)


async def test_what_pieces_took_is_charged_and_impersonated_users_pay_together() -> None:
    shared = Shared()
    flow = shared.clients.for_user(ADA).bulk_lane.flow
    await shared.stream(ADA, 1)
    before = flow.virtual_time
    await shared.stream(User("eve", impersonator=ADA), 3)
    assert flow.virtual_time - before >= 3 * PIECE_SECONDS / 50e-6


async def test_a_stream_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    shared = Shared()
    busy(shared.control)
    waiting = shared.pacer.pace_for(ADA).wait_for_slot()
    waiting.send(None)  # its first step: it waits now
    assert shared.control.levels[BULK].queue.length == 1
    with pytest.raises(asyncio.CancelledError):
        waiting.throw(asyncio.CancelledError())
    assert shared.control.levels[BULK].queue.length == 0
    await asyncio.wait_for(shared.stream(ADA, 2), 5)
    assert shared.made["ada"] == 2


async def test_a_stream_goes_on_after_the_queue_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLOT_RETRY_SECONDS", 0.0)
    limits = QueueLimits(total=1, per_flow=1)
    control = FlowControl(
        level_configs=[LevelConfig(each.name, each.share, each.seats, limits) for each in LEVEL_CONFIGS]
    )
    clients = ClientCache(control.levels)
    busy(control)
    other = control.admit(control.levels[BULK], Ticket(clients.for_user(BEN).bulk_lane.flow, 1.0))
    assert other is not None
    await asyncio.wait_for(Pacer(control, clients).pace_for(ADA).wait_for_slot(), 5)
    assert other.done()


class _Counted:
    """A pace that notes how often a turn was asked for, and that each one is ended before the next."""

    def __init__(self) -> None:
        self.turns = 0
        self.is_open = False

    async def wait_for_slot(self) -> None:
        assert not self.is_open
        self.turns, self.is_open = self.turns + 1, True

    def release_slot(self) -> None:
        self.is_open = False


class _Pacer(Pacer):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def pace_for(self, user: User) -> Pace:
        return self._pace


async def first_chunk(api: RegistryFixture, pacer: Pacer, view: str, queue_after: str = "") -> bytes:
    """The first of a watch; with a name, the first after this was made."""
    gadgets = api.of("Gadget")
    asked = query_options.watch_query(call(), gadgets.kind)
    watches = WatchService(LIMITS, api.clock, StreamLimiter(100, 10), pacer)
    stream = await watches.open(WatchRequest(gadgets, "", asked, view), ADA)
    chunk = await anext(stream)
    if queue_after:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await api.create("Gadget", queue_after)
        chunk = await waiting
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
    return chunk


async def test_a_watch_takes_a_turn_for_what_exists_and_for_each_table_it_makes() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "first")
        for view, turns in (("", 1), ("Table", 2)):
            pace = _Counted()
            assert b"first" in await first_chunk(api, _Pacer(pace), view)
            assert pace.turns == 1 and not pace.is_open
            pace = _Counted()
            assert f"later{turns}".encode() in await first_chunk(api, _Pacer(pace), view, f"later{turns}")
            assert pace.turns == turns and not pace.is_open
