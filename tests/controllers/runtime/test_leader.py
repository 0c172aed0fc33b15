"""Tests of `fairlead.controllers.runtime.leader` on virtual time: one replica leads, and another one takes over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from fairlead.controllers.runtime.leader import LEASE_NAME, LeaderElector, LeaseTiming, new_identity
from fairlead.core.objects import Object
from fairlead.storage.contract import StoreUnavailable, Write
from fairlead.storage.wrapper import FencedStore, LeadershipLost
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.virtual_time import LoopClock

TIMING = LeaseTiming()
OBJECT = b'{"apiVersion":"v1","kind":"Thing","metadata":{"name":"one"}}'
Term = tuple[str, float, float]


class OffsetClock(LoopClock):
    """A clock whose wall time is off by a configurable offset."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


@dataclass
class Replica:
    """A replica with its own registry on the shared store, and the terms in which it led."""

    name: str
    api: RegistryFixture
    leader: LeaderElector
    clock: OffsetClock
    terms: list[Term] = field(default_factory=list)
    failure: Exception | None = None
    shutdown_seconds: float = 0.0
    """Seconds that its work takes to stop."""
    task: "asyncio.Task[None] | None" = None

    @property
    def is_leading(self) -> bool:
        return bool(self.terms) and self.terms[-1][2] == float("inf")

    def start(self) -> None:
        self.task = asyncio.create_task(self.leader.run(self._work))

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _work(self) -> None:
        start = self.clock.monotonic()
        self.terms.append((self.name, start, float("inf")))
        try:
            while self.failure is None:  # noqa: ASYNC110  # like a controller that polls
                await asyncio.sleep(0.1)
            raise self.failure
        finally:
            await asyncio.sleep(self.shutdown_seconds)
            self.terms[-1] = (self.name, start, self.clock.monotonic())

    def disconnect(self) -> None:
        """From now on, its commits never complete."""
        self.api.store.before = [asyncio.Event().wait] * 1_000

    def reconnect(self) -> None:
        self.api.store.before = []


@dataclass
class Group:
    replicas: list[Replica]

    def start(self) -> None:
        for replica in self.replicas:
            replica.start()

    def leading_names(self) -> list[str]:
        return [replica.name for replica in self.replicas if replica.is_leading]

    async def wait_for_leader(self) -> Replica:
        await eventually(lambda: len(self.leading_names()) == 1)
        return next(replica for replica in self.replicas if replica.is_leading)

    async def wait_for_transitions(self, times: int) -> None:
        await eventually(lambda: len(self.terms()) == times + 1)

    def others(self, replica: Replica) -> list[Replica]:
        return [other for other in self.replicas if other is not replica]

    def lease(self) -> Object:
        lease = self.replicas[0].api.get("Lease", LEASE_NAME)
        assert lease is not None
        return lease

    def terms(self) -> list[Term]:
        return sorted((term for replica in self.replicas for term in replica.terms), key=lambda term: term[1])

    def check_terms_do_not_overlap(self) -> None:
        terms = self.terms()
        for (_, _, end), (_, start, _) in pairwise(terms):
            assert end <= start, terms


@asynccontextmanager
async def open_group(count: int) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_registry())
        registries = [first] + [
            await stack.enter_async_context(open_registry(first.store.inner)) for _ in range(count - 1)
        ]
        replicas = []
        for number, api in enumerate(registries):
            name, clock = f"r{number}", OffsetClock()
            replicas.append(Replica(name, api, LeaderElector(api.resource("Lease"), NAMESPACE, clock, name), clock))
        group = Group(replicas)
        try:
            yield group
        finally:
            for replica in group.replicas:
                await replica.stop()


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    async with open_group(3) as running_group:
        running_group.start()
        yield running_group
        running_group.check_terms_do_not_overlap()


async def test_a_single_replica_leads_at_once() -> None:
    async with open_group(1) as group:
        group.start()
        await group.wait_for_leader()
        assert group.terms()[0][1] < 0.5


async def test_one_replica_leads_as_long_as_it_runs(group: Group) -> None:
    leader = await group.wait_for_leader()
    await asyncio.sleep(3_600)
    assert group.leading_names() == [leader.name] and len(group.terms()) == 1
    assert group.lease()["spec"]["holderIdentity"] == leader.name
    assert group.lease()["spec"]["leaseTransitions"] == 0
    assert [replica.leader.is_leader for replica in group.replicas].count(True) == 1


async def test_a_replica_that_stops_regularly_releases_the_lease_at_once(group: Group) -> None:
    leader = await group.wait_for_leader()
    await asyncio.sleep(5)
    await leader.stop()
    stopped_at = leader.clock.monotonic()
    successor = await group.wait_for_leader()
    assert successor is not leader
    assert successor.terms[-1][1] - stopped_at < 1
    assert group.lease()["spec"]["leaseTransitions"] == 1


async def test_a_stopping_server_releases_the_lease_before_its_last_requests_are_done(group: Group) -> None:
    """It ends the watches first, before any task is cancelled."""
    leader = await group.wait_for_leader()
    with capture_logs() as logs:
        leader.api.view.end_watches()
        await eventually(lambda: not leader.is_leading)
    assert [each["log_level"] for each in logs if "leadership" in each["event"]] == ["info"]  # that is no loss
    successor = await group.wait_for_leader()
    assert successor.terms[-1][1] - leader.terms[-1][2] < 1
    assert leader.task is not None
    await asyncio.wait_for(leader.task, 5)


async def test_the_lease_is_released_after_the_work_has_stopped(group: Group) -> None:
    """Even if the server cancels the task that is about to end."""
    leader = await group.wait_for_leader()
    leader.shutdown_seconds = 2.0
    leader.api.view.end_watches()
    await asyncio.sleep(0.5)
    await leader.stop()
    await group.wait_for_transitions(1)
    assert 0 <= group.terms()[1][1] - leader.terms[-1][2] < 1


async def test_a_disconnected_replica_stops_before_another_one_leads(group: Group) -> None:
    leader = await group.wait_for_leader()
    await asyncio.sleep(7)
    leader.disconnect()
    disconnected_at = leader.clock.monotonic()
    await eventually(lambda: not leader.is_leading)
    assert leader.terms[-1][2] - disconnected_at <= TIMING.renew_deadline
    successor = await group.wait_for_leader()
    assert (
        TIMING.lease_duration - TIMING.renew_interval
        <= successor.terms[-1][1] - disconnected_at
        <= TIMING.lease_duration + TIMING.renew_interval
    )
    leader.reconnect()
    await asyncio.sleep(60)
    assert group.leading_names() == [successor.name]


async def test_a_short_failure_of_the_store_does_not_change_the_leader(group: Group) -> None:
    leader = await group.wait_for_leader()

    async def reject() -> None:
        raise StoreUnavailable("the disk is full")

    leader.api.store.before = [reject] * 4
    await asyncio.sleep(30)
    assert group.leading_names() == [leader.name] and len(group.terms()) == 1


async def test_a_renewal_whose_response_is_lost_is_still_a_renewal(group: Group) -> None:
    """The lease has a new revision that the holder does not know yet. Its writes wait until it does."""
    leader = await group.wait_for_leader()
    renewal = {"renewTime": "2026-01-02T03:04:05.000000Z"}
    await leader.api.patch("Lease", LEASE_NAME, lambda lease: lease["spec"].update(renewal))
    fenced = FencedStore(leader.api.store, leader.leader.fence)
    start = leader.clock.monotonic()
    await fenced.commit([Write(("", "things", "", "one"), OBJECT, 0)])
    assert leader.clock.monotonic() - start < 0.1
    assert group.leading_names() == [leader.name]


async def test_a_leader_that_lost_the_lease_cannot_write(group: Group) -> None:
    """Like a process that was suspended: it has not noticed that time has passed."""
    leader = await group.wait_for_leader()
    fence, successor = leader.leader.fence, group.others(leader)[0]
    fenced = FencedStore(leader.api.store.inner, fence)
    entry = successor.api.resource("Lease").get_cached(NAMESPACE, LEASE_NAME)
    assert entry is not None and fence.is_held
    # Directly into the store, so that no task of the former leader runs in between.
    stolen = entry.body.replace(leader.name.encode(), b"thief")
    stale = asyncio.create_task(fenced.commit([Write(("", "things", "", "one"), OBJECT, 0)]))
    revision = await leader.api.store.inner.commit([Write(fence.key, stolen, entry.revision)])
    with pytest.raises(LeadershipLost):
        await stale
    assert await leader.api.store.revision() == revision


@pytest.mark.parametrize("hours", [-1, 1])
async def test_clock_jumps_do_not_change_the_leader(group: Group, hours: int) -> None:
    leader = await group.wait_for_leader()
    for replica in group.replicas:
        replica.clock.offset = timedelta(hours=hours)
        await asyncio.sleep(20)
    leader.clock.offset = timedelta(hours=-2 * hours)
    await asyncio.sleep(20)
    assert group.leading_names() == [leader.name] and len(group.terms()) == 1


def steal_lease(lease: Object) -> None:
    lease["spec"].update(holderIdentity="another", leaseDurationSeconds=30)


async def test_a_lease_taken_manually_stops_the_leader_until_it_expires(group: Group) -> None:
    leader = await group.wait_for_leader()
    await leader.api.patch("Lease", LEASE_NAME, steal_lease)
    stolen_at = leader.clock.monotonic()
    await eventually(lambda: not leader.is_leading)
    assert leader.terms[-1][2] - stolen_at < 1
    await group.wait_for_leader()
    assert 30 <= group.terms()[-1][1] - stolen_at < 32


async def test_only_the_holder_that_is_known_to_have_ended_is_ignored() -> None:
    async with open_group(2) as group:
        first, second = group.replicas
        first.start()
        await group.wait_for_leader()
        first.disconnect()
        await first.stop()
        assert group.lease()["spec"]["holderIdentity"] == first.name
        await eventually(lambda: second.api.get("Lease", LEASE_NAME))
        ended_at = second.clock.monotonic()
        second.leader.ignore_holder()
        second.start()
        await group.wait_for_leader()
        assert second.terms[-1][1] - ended_at < 1
        await second.api.patch("Lease", LEASE_NAME, steal_lease)
        stolen_at = second.clock.monotonic()
        await eventually(lambda: len(second.terms) == 2)
        assert second.terms[-1][1] - stolen_at >= 30


async def test_a_deleted_lease_leads_to_a_new_election(group: Group) -> None:
    leader = await group.wait_for_leader()
    await leader.api.delete("Lease", LEASE_NAME)
    await group.wait_for_transitions(1)
    await asyncio.sleep(60)
    assert len(group.leading_names()) == 1


async def test_an_exception_in_the_work_is_raised_and_another_replica_takes_over(group: Group) -> None:
    leader = await group.wait_for_leader()
    leader.failure = RuntimeError("a failure")
    assert leader.task is not None
    with pytest.raises(RuntimeError, match="a failure"):
        await leader.task
    successor = await group.wait_for_leader()
    assert successor.terms[-1][1] - leader.terms[-1][2] < 1


async def test_the_lease_changes_between_replicas_and_is_never_held_by_two(group: Group) -> None:
    for number in range(30):
        leader = await group.wait_for_leader()
        if number % 3:
            leader.disconnect()
            await group.wait_for_transitions(number + 1)
            leader.reconnect()
        else:
            await leader.stop()
            await group.wait_for_transitions(number + 1)
            leader.start()
    assert len(group.terms()) == 31
    assert {name for name, _, _ in group.terms()} == {"r0", "r1", "r2"}


def test_a_process_has_a_new_identity_after_a_restart() -> None:
    assert new_identity() != new_identity()


def test_the_renew_deadline_is_shorter_than_the_lease_duration() -> None:
    assert TIMING.renew_interval < TIMING.renew_deadline < TIMING.lease_duration
