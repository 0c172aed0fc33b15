"""Of several replicas one works, always one, and another one soon when it is gone. On virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from fairlead.controllers.runtime.leader import LEASE_NAME, LeaderElector, LeaseTiming, new_identity
from fairlead.core.objects import Object
from fairlead.storage.contract import StoreUnavailable, Write
from fairlead.storage.fenced import FencedStore, LeadershipLost
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.virtual_time import LoopClock

TIMING = LeaseTiming()
THING = b'{"apiVersion":"v1","kind":"Thing","metadata":{"name":"one"}}'
Stint = tuple[str, float, float]


class JumpyClock(LoopClock):
    """Whose wall clock is off by whatever a test says."""

    def __init__(self) -> None:
        self.off = timedelta()

    def now(self) -> datetime:
        return super().now() + self.off


@dataclass
class Replica:
    """A world of its own on the common store, and when it has worked."""

    name: str
    api: RegistryFixture
    leader: LeaderElector
    clock: JumpyClock
    stints: list[Stint] = field(default_factory=list)
    trouble: Exception | None = None
    lingering: float = 0.0
    """Seconds that its work takes to end."""
    task: "asyncio.Task[None] | None" = None

    @property
    def working(self) -> bool:
        return bool(self.stints) and self.stints[-1][2] == float("inf")

    def start(self) -> None:
        self.task = asyncio.create_task(self.leader.run(self._work))

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _work(self) -> None:
        begun = self.clock.monotonic()
        self.stints.append((self.name, begun, float("inf")))
        try:
            while self.trouble is None:  # noqa: ASYNC110  # a controller that looks after something
                await asyncio.sleep(0.1)
            raise self.trouble
        finally:
            await asyncio.sleep(self.lingering)
            self.stints[-1] = (self.name, begun, self.clock.monotonic())

    def cut_off(self) -> None:
        """From now on its commits never arrive."""
        self.api.store.before = [asyncio.Event().wait] * 1_000

    def reconnect(self) -> None:
        self.api.store.before = []


@dataclass
class Group:
    replicas: list[Replica]

    def start(self) -> None:
        for replica in self.replicas:
            replica.start()

    def working(self) -> list[str]:
        return [replica.name for replica in self.replicas if replica.working]

    async def one_works(self) -> Replica:
        await eventually(lambda: len(self.working()) == 1)
        return next(replica for replica in self.replicas if replica.working)

    async def has_changed_hands(self, times: int) -> None:
        await eventually(lambda: len(self.stints()) == times + 1)

    def others(self, replica: Replica) -> list[Replica]:
        return [each for each in self.replicas if each is not replica]

    def lease(self) -> Object:
        found = self.replicas[0].api.see("Lease", LEASE_NAME)
        assert found is not None
        return found

    def stints(self) -> list[Stint]:
        return sorted((stint for replica in self.replicas for stint in replica.stints), key=lambda stint: stint[1])

    def check_one_at_a_time(self) -> None:
        stints = self.stints()
        for (_, _, end), (_, begin, _) in pairwise(stints):
            assert end <= begin, stints


@asynccontextmanager
async def grouped(count: int) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_registry())
        worlds = [first] + [await stack.enter_async_context(open_registry(first.store.inner)) for _ in range(count - 1)]
        replicas = []
        for number, api in enumerate(worlds):
            name, clock = f"r{number}", JumpyClock()
            replicas.append(Replica(name, api, LeaderElector(api.of("Lease"), NAMESPACE, clock, name), clock))
        group = Group(replicas)
        try:
            yield group
        finally:
            for replica in group.replicas:
                await replica.stop()


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    async with grouped(3) as made:
        made.start()
        yield made
        made.check_one_at_a_time()


async def test_a_replica_that_is_alone_works_at_once() -> None:
    async with grouped(1) as group:
        group.start()
        await group.one_works()
        assert group.stints()[0][1] < 0.5


async def test_one_replica_works_for_as_long_as_it_lives(group: Group) -> None:
    leader = await group.one_works()
    await asyncio.sleep(3_600)
    assert group.working() == [leader.name] and len(group.stints()) == 1
    assert group.lease()["spec"]["holderIdentity"] == leader.name
    assert group.lease()["spec"]["leaseTransitions"] == 0
    assert [replica.leader.is_leader for replica in group.replicas].count(True) == 1


async def test_a_replica_that_ends_in_order_hands_over_at_once(group: Group) -> None:
    leader = await group.one_works()
    await asyncio.sleep(5)
    await leader.stop()
    handed_over = leader.clock.monotonic()
    successor = await group.one_works()
    assert successor is not leader
    assert successor.stints[-1][1] - handed_over < 1
    assert group.lease()["spec"]["leaseTransitions"] == 1


async def test_a_server_that_stops_hands_over_before_its_last_requests_are_done(group: Group) -> None:
    """It ends the watches first. Nobody has cancelled anything yet."""
    leader = await group.one_works()
    leader.api.view.end_watches()
    await eventually(lambda: not leader.working)
    successor = await group.one_works()
    assert successor.stints[-1][1] - leader.stints[-1][2] < 1
    assert leader.task is not None
    await asyncio.wait_for(leader.task, 5)


async def test_work_that_takes_a_moment_to_end_is_waited_for_and_then_the_lead_handed_over(group: Group) -> None:
    """Also by a server that is in a hurry, which cancels what is about to end."""
    leader = await group.one_works()
    leader.lingering = 2.0
    leader.api.view.end_watches()
    await asyncio.sleep(0.5)
    await leader.stop()
    await group.has_changed_hands(1)
    assert 0 <= group.stints()[1][1] - leader.stints[-1][2] < 1


async def test_a_replica_that_is_cut_off_stops_before_another_one_begins(group: Group) -> None:
    leader = await group.one_works()
    await asyncio.sleep(7)
    leader.cut_off()
    cut = leader.clock.monotonic()
    await eventually(lambda: not leader.working)
    assert leader.stints[-1][2] - cut <= TIMING.renew_deadline
    successor = await group.one_works()
    assert (
        TIMING.lease_duration - TIMING.renew_interval
        <= successor.stints[-1][1] - cut
        <= TIMING.lease_duration + TIMING.renew_interval
    )
    leader.reconnect()
    await asyncio.sleep(60)
    assert group.working() == [successor.name]


async def test_a_short_trouble_of_the_store_changes_nothing(group: Group) -> None:
    leader = await group.one_works()

    async def refuse() -> None:
        raise StoreUnavailable("the disk is full")

    leader.api.store.before = [refuse] * 4
    await asyncio.sleep(30)
    assert group.working() == [leader.name] and len(group.stints()) == 1


async def test_a_renewal_whose_answer_is_lost_is_still_a_renewal(group: Group) -> None:
    """The lease has moved, and the holder does not know where to. What it writes waits until it does."""
    leader = await group.one_works()
    await leader.api.patch("Lease", LEASE_NAME, lambda lease: lease["spec"].update(renewTime="2026-01-02T03:04:05Z"))
    fenced = FencedStore(leader.api.store, leader.leader.fence)
    asked = leader.clock.monotonic()
    await fenced.commit([Write(("", "things", "", "one"), THING, 0)])
    assert leader.clock.monotonic() - asked < 0.1
    assert group.working() == [leader.name]


async def test_whoever_works_while_the_lease_has_gone_writes_nothing(group: Group) -> None:
    """As a process does that stood still: it has not even noticed that time has passed."""
    leader = await group.one_works()
    fence, successor = leader.leader.fence, group.others(leader)[0]
    fenced = FencedStore(leader.api.store.inner, fence)
    entry = successor.api.of("Lease").get_cached(NAMESPACE, LEASE_NAME)
    assert entry is not None and fence.is_held
    # Straight into the store: nothing in between lets the sleeper's own tasks run.
    taken = entry.body.replace(leader.name.encode(), b"thief")
    stale = asyncio.create_task(fenced.commit([Write(("", "things", "", "one"), THING, 0)]))
    revision = await leader.api.store.inner.commit([Write(fence.key, taken, entry.revision)])
    with pytest.raises(LeadershipLost):
        await stale
    assert await leader.api.store.revision() == revision


@pytest.mark.parametrize("hours", [-1, 1])
async def test_clocks_that_jump_change_nothing(group: Group, hours: int) -> None:
    leader = await group.one_works()
    for replica in group.replicas:
        replica.clock.off = timedelta(hours=hours)
        await asyncio.sleep(20)
    leader.clock.off = timedelta(hours=-2 * hours)
    await asyncio.sleep(20)
    assert group.working() == [leader.name] and len(group.stints()) == 1


def take_away(lease: Object) -> None:
    lease["spec"].update(holderIdentity="somebody", leaseDurationSeconds=30)


async def test_whoever_takes_the_lease_by_hand_stops_the_work_for_as_long_as_it_lasts(group: Group) -> None:
    leader = await group.one_works()
    await leader.api.patch("Lease", LEASE_NAME, take_away)
    taken = leader.clock.monotonic()
    await eventually(lambda: not leader.working)
    assert leader.stints[-1][2] - taken < 1
    await group.one_works()
    assert 30 <= group.stints()[-1][1] - taken < 32


async def test_a_lease_that_is_deleted_is_raced_for_anew(group: Group) -> None:
    leader = await group.one_works()
    await leader.api.delete("Lease", LEASE_NAME)
    await group.has_changed_hands(1)
    await asyncio.sleep(60)
    assert len(group.working()) == 1


async def test_work_that_fails_is_told_and_another_replica_takes_over(group: Group) -> None:
    leader = await group.one_works()
    leader.trouble = RuntimeError("a fault of ours")
    assert leader.task is not None
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await leader.task
    successor = await group.one_works()
    assert successor.stints[-1][1] - leader.stints[-1][2] < 1


async def test_the_lead_goes_round_and_is_never_held_by_two(group: Group) -> None:
    for number in range(30):
        leader = await group.one_works()
        if number % 3:
            leader.cut_off()
            await group.has_changed_hands(number + 1)
            leader.reconnect()
        else:
            await leader.stop()
            await group.has_changed_hands(number + 1)
            leader.start()
    assert len(group.stints()) == 31
    assert {name for name, _, _ in group.stints()} == {"r0", "r1", "r2"}


def test_a_process_is_somebody_else_after_a_restart() -> None:
    assert new_identity() != new_identity()


def test_the_holder_stops_before_others_may_begin() -> None:
    assert TIMING.renew_interval < TIMING.renew_deadline < TIMING.lease_duration
