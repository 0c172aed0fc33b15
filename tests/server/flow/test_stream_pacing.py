"""server.flow.streams: streams take turns, chunk by chunk, however many of them a user has opened."""

import asyncio
from collections import Counter

import pytest

from fairlead.core.user import User
from fairlead.server.api import query_options
from fairlead.server.api.watch import WatchRequest, WatchService
from fairlead.server.flow import streams as pacing
from fairlead.server.flow.classify import ClientCache
from fairlead.server.flow.control import ITERATION_BUDGET_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import BULK, INTERACTIVE, LEVEL_CONFIGS, LevelConfig, QueueLimits, Ticket
from fairlead.server.flow.streams import Pace, Pacer, StreamLimiter
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry
from tests.server.api.watch_streams import LIMITS
from tests.server.flow.simulated_clock import FakeClock, use_up_budget

ADA, BEN = User("ada"), User("ben")
CHUNK_SECONDS = 0.001


class PacedServer:
    """A server on a simulated clock, where each chunk takes a millisecond."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.control = FlowControl(now=self.clock)
        self.clients = ClientCache(self.control.levels)
        self.pacer = Pacer(self.control, self.clients)
        self.sent: Counter[str] = Counter()
        self.control.record_client_change("another client")

    async def stream(self, user: User, chunks: int) -> None:
        pace = self.pacer.pace_for(user)
        for _ in range(chunks):
            await pace.wait_for_slot()
            self.clock.time += CHUNK_SECONDS
            self.sent[user.name] += 1
            pace.release_slot()
            await asyncio.sleep(0)

    async def wait_for_chunks(self, chunks: int) -> None:
        """Runs the event loop until the streams of ada have sent that many chunks."""
        for _ in range(100 * chunks):
            if self.sent["ada"] >= chunks:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"only {self.sent} chunks were sent")


async def test_a_stream_alone_does_not_wait() -> None:
    server = PacedServer()
    pace = server.pacer.pace_for(ADA)
    waiting = pace.wait_for_slot()
    with pytest.raises(StopIteration):
        waiting.send(None)  # it finishes in its first step
    pace.release_slot()


async def test_only_a_few_streams_of_a_user_run_in_one_iteration() -> None:
    server = PacedServer()
    streams = [asyncio.ensure_future(server.stream(ADA, 5)) for _ in range(100)]
    most = sent = 0
    while not all(stream.done() for stream in streams):
        await asyncio.sleep(0)
        most, sent = max(most, server.sent["ada"] - sent), server.sent["ada"]
    assert server.sent["ada"] == 500
    assert most <= ITERATION_BUDGET_SECONDS / CHUNK_SECONDS


async def test_a_user_with_one_stream_gets_as_much_as_one_with_a_hundred() -> None:
    server = PacedServer()
    heavy = [asyncio.ensure_future(server.stream(ADA, 100)) for _ in range(100)]
    await server.wait_for_chunks(50)
    before = server.sent["ada"]
    await server.stream(BEN, 50)
    assert server.sent["ada"] - before <= 75
    for stream in heavy:
        stream.cancel()
    await asyncio.gather(*heavy, return_exceptions=True)


async def test_a_small_request_of_another_user_does_not_wait_for_streams() -> None:
    server = PacedServer()
    streams = [asyncio.ensure_future(server.stream(ADA, 20)) for _ in range(50)]
    await server.wait_for_chunks(20)
    before, level = server.sent["ada"], server.control.levels[INTERACTIVE]
    admission = server.control.admit(level, Ticket(server.clients.for_user(BEN).regular_lane.flow, 1.0))
    if admission is not None:
        await admission
    assert server.sent["ada"] - before <= 4
    await asyncio.gather(*streams)


async def test_the_time_of_chunks_is_charged_to_the_user_or_the_impersonator() -> None:
    server = PacedServer()
    flow = server.clients.for_user(ADA).bulk_lane.flow
    await server.stream(ADA, 1)
    before = flow.virtual_time
    await server.stream(User("eve", impersonator=ADA), 3)
    assert flow.virtual_time - before >= 3 * CHUNK_SECONDS / 50e-6


async def test_a_stream_cancelled_while_it_waits_leaves_the_queue() -> None:
    server = PacedServer()
    use_up_budget(server.control)
    waiting = server.pacer.pace_for(ADA).wait_for_slot()
    waiting.send(None)  # its first step: it waits now
    assert server.control.levels[BULK].queue.length == 1
    with pytest.raises(asyncio.CancelledError):
        waiting.throw(asyncio.CancelledError())
    assert server.control.levels[BULK].queue.length == 0
    await asyncio.wait_for(server.stream(ADA, 2), 40)
    assert server.sent["ada"] == 2


async def test_a_stream_continues_after_the_queue_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLOT_RETRY_SECONDS", 0.0)
    limits = QueueLimits(total=1, per_flow=1)
    control = FlowControl(
        level_configs=[LevelConfig(config.name, config.share, config.seats, limits) for config in LEVEL_CONFIGS]
    )
    clients = ClientCache(control.levels)
    use_up_budget(control)
    other = control.admit(control.levels[BULK], Ticket(clients.for_user(BEN).bulk_lane.flow, 1.0))
    assert other is not None
    await asyncio.wait_for(Pacer(control, clients).pace_for(ADA).wait_for_slot(), 40)
    assert other.done()


class _CountingPace:
    """Counts slots, and checks that each one is released before the next."""

    def __init__(self) -> None:
        self.slots = 0
        self.is_held = False

    async def wait_for_slot(self) -> None:
        assert not self.is_held
        self.slots, self.is_held = self.slots + 1, True

    def release_slot(self) -> None:
        self.is_held = False


class _FixedPacer(Pacer):
    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def pace_for(self, user: User) -> Pace:
        return self._pace


async def read_first_chunk(api: RegistryFixture, pacer: Pacer, view: str, created_later: str = "") -> bytes:
    """The first chunk of a watch; with `created_later`, the first one after an object of that name was created."""
    gadgets = api.resource("Gadget")
    query = query_options.watch_query(call(), gadgets.kind)
    watches = WatchService(LIMITS, api.clock, StreamLimiter(100, 10), pacer)
    stream = await watches.open(WatchRequest(gadgets, "", query, view), ADA)
    chunk = await anext(stream)
    if created_later:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await api.create("Gadget", created_later)
        chunk = await waiting
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
    return chunk


async def test_a_watch_takes_a_slot_for_the_initial_events_and_for_each_table() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "first")
        for view, slots in (("", 1), ("Table", 2)):
            pace = _CountingPace()
            assert b"first" in await read_first_chunk(api, _FixedPacer(pace), view)
            assert pace.slots == 1 and not pace.is_held
            pace = _CountingPace()
            assert f"later{slots}".encode() in await read_first_chunk(api, _FixedPacer(pace), view, f"later{slots}")
            assert pace.slots == slots and not pace.is_held
