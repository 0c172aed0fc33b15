"""storage/wrapper.py: rejects writes of a server that lost its lease, and lets the lease holder write."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.storage.contract import Key, RevisionConflict, StoreUnavailable, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.wrapper import Fence, FencedStore, LeadershipLost

LEASE: Key = ("coordination.k8s.io", "leases", "system", "lead")
THING: Key = ("", "things", "", "one")


class FenceSetup:
    """A store with a lease, and the fenced store of the lease holder."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.fence = Fence(LEASE)
        self.fenced = FencedStore(self.store, self.fence)
        self.lease = 0

    async def renew(self, holder: bytes = b"us") -> int:
        """Renews the lease in the store; the caller updates the fence."""
        self.lease = await self.store.commit([Write(LEASE, holder, self.lease)])
        return self.lease

    async def read_thing(self) -> bytes | None:
        record = await self.store.read(THING)
        return record.value if record is not None else None


@pytest.fixture
async def setup() -> AsyncIterator[FenceSetup]:
    setup = FenceSetup()
    setup.fence.update(await setup.renew())
    yield setup
    await setup.store.close()


async def test_the_lease_holder_can_write(setup: FenceSetup) -> None:
    revision = await setup.fenced.commit([Write(THING, b"1", 0)])
    assert await setup.read_thing() == b"1"
    assert await setup.fenced.revision() == revision


async def test_a_server_that_never_had_the_lease_cannot_write_or_compact(setup: FenceSetup) -> None:
    unleased = FencedStore(setup.store, Fence(LEASE))
    with pytest.raises(LeadershipLost):
        await unleased.commit([Write(THING, b"1", 0)])
    with pytest.raises(LeadershipLost):
        await unleased.compact(await setup.store.revision())
    with pytest.raises(LeadershipLost):
        await unleased.purge_deleted()
    assert await setup.read_thing() is None and await setup.store.oldest() < await setup.store.revision()


async def test_a_paused_server_that_lost_the_lease_cannot_write(setup: FenceSetup) -> None:
    """It still considers itself the leader. Its renewal fails, and so do all writes that wait for it."""
    await setup.renew(b"another")
    writing = asyncio.create_task(setup.fenced.commit([Write(THING, b"stale", 0)]))
    await setup.fence.renewal_requested.wait()
    assert not writing.done()
    setup.fence.release()
    with pytest.raises(LeadershipLost, match="no longer the leader"):
        await writing
    assert await setup.read_thing() is None


def test_a_lost_lease_counts_as_store_unavailable() -> None:
    """So that controllers retry."""
    assert issubclass(LeadershipLost, StoreUnavailable)


async def test_a_commit_during_a_renewal_is_retried_after_the_renewal(setup: FenceSetup) -> None:
    renewed = await setup.renew()
    writing = asyncio.create_task(setup.fenced.commit([Write(THING, b"1", 0)]))
    await setup.fence.renewal_requested.wait()
    setup.fence.update(renewed)
    revision = await writing
    assert await setup.read_thing() == b"1"
    assert revision == renewed + 1 == await setup.store.revision()


async def test_a_known_renewal_is_not_requested_again(setup: FenceSetup) -> None:
    before = setup.fence.revision
    setup.fence.update(await setup.renew())
    await setup.fence.wait_newer(before)
    assert not setup.fence.renewal_requested.is_set()


async def test_a_renewal_releases_all_waiting_commits(setup: FenceSetup) -> None:
    renewed = await setup.renew()
    writing = [asyncio.create_task(setup.fenced.commit([Write((*THING[:3], str(n)), b"", 0)])) for n in range(20)]
    await setup.fence.renewal_requested.wait()
    setup.fence.update(renewed)
    assert len(set(await asyncio.gather(*writing))) == 20
    assert not setup.fence.renewal_requested.is_set()


async def test_conflicts_on_other_keys_are_raised_to_the_caller(setup: FenceSetup) -> None:
    with pytest.raises(RevisionConflict) as caught:
        await setup.fenced.commit([Write(THING, b"1", 7)])
    assert caught.value.key == THING
    assert not setup.fence.renewal_requested.is_set()


async def test_the_lease_can_only_be_written_at_the_revision_of_the_holder(setup: FenceSetup) -> None:
    own_revision = setup.fence.revision
    with pytest.raises(RevisionConflict):
        await setup.fenced.commit([Write(LEASE, b"", own_revision - 1)])
    await setup.renew(b"another")
    with pytest.raises(RevisionConflict):
        await setup.fenced.commit([Write(LEASE, None, setup.lease)])
    assert (await setup.store.read(LEASE)) is not None


async def test_reads_need_no_lease(setup: FenceSetup) -> None:
    setup.fence.release()
    assert (await setup.fenced.read(LEASE)) is not None
    assert len((await setup.fenced.scan(())).records) == 1
    assert await setup.fenced.oldest() == await setup.store.oldest()
    await setup.fenced.check_writable()
    batch = await anext(setup.fenced.watch((), await setup.store.oldest()))
    assert [event.key for event in batch] == [LEASE]
