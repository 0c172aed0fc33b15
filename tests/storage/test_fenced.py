"""A fence lets nobody write who has lost the lease, whether he knows it or not, and gets out of the holder's way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.storage.contract import Key, RevisionConflict, StoreUnavailable, Write
from fairlead.storage.fenced import Fence, FencedStore, LeadershipLost
from fairlead.storage.memory import MemoryStore

LEASE: Key = ("coordination.k8s.io", "leases", "system", "lead")
THING: Key = ("", "things", "", "one")


class Setting:
    """A store, the lease in it, and the fenced store of somebody who holds it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.fence = Fence(LEASE)
        self.fenced = FencedStore(self.store, self.fence)
        self.lease = 0

    async def renew(self, holder: bytes = b"us") -> int:
        """Moves the lease in the store; the fence is told by whoever calls."""
        self.lease = await self.store.commit([Write(LEASE, holder, self.lease)])
        return self.lease

    async def thing(self) -> bytes | None:
        record = await self.store.read(THING)
        return record.value if record is not None else None


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    made = Setting()
    made.fence.update(await made.renew())
    yield made
    await made.store.close()


async def test_the_holder_writes(setting: Setting) -> None:
    revision = await setting.fenced.commit([Write(THING, b"1", 0)])
    assert await setting.thing() == b"1"
    assert await setting.fenced.revision() == revision


async def test_whoever_never_had_the_lease_writes_and_forgets_nothing(setting: Setting) -> None:
    never = FencedStore(setting.store, Fence(LEASE))
    with pytest.raises(LeadershipLost):
        await never.commit([Write(THING, b"1", 0)])
    with pytest.raises(LeadershipLost):
        await never.compact(await setting.store.revision())
    with pytest.raises(LeadershipLost):
        await never.purge_deleted()
    assert await setting.thing() is None and await setting.store.oldest() < await setting.store.revision()


async def test_a_sleeper_who_wakes_up_writes_nothing_and_learns_why(setting: Setting) -> None:
    """He still believes that he leads. His renewal finds out, and then so does everybody who waits for it."""
    await setting.renew(b"another")
    writing = asyncio.create_task(setting.fenced.commit([Write(THING, b"stale", 0)]))
    await setting.fence.renewal_requested.wait()
    assert not writing.done()
    setting.fence.release()
    with pytest.raises(LeadershipLost, match="no longer the leader"):
        await writing
    assert await setting.thing() is None


def test_a_lost_lead_is_something_that_passes() -> None:
    """So that it becomes an answer that controllers know how to live with."""
    assert issubclass(LeadershipLost, StoreUnavailable)


async def test_a_commit_that_crosses_our_own_renewal_is_made_once_the_renewal_is_known(setting: Setting) -> None:
    renewed = await setting.renew()
    writing = asyncio.create_task(setting.fenced.commit([Write(THING, b"1", 0)]))
    await setting.fence.renewal_requested.wait()
    setting.fence.update(renewed)
    revision = await writing
    assert await setting.thing() == b"1"
    assert revision == renewed + 1 == await setting.store.revision()


async def test_a_renewal_that_is_known_already_is_not_asked_for_again(setting: Setting) -> None:
    before = setting.fence.revision
    setting.fence.update(await setting.renew())
    await setting.fence.wait_newer(before)
    assert not setting.fence.renewal_requested.is_set()


async def test_a_renewal_settles_all_doubts(setting: Setting) -> None:
    renewed = await setting.renew()
    writing = [asyncio.create_task(setting.fenced.commit([Write((*THING[:3], str(n)), b"", 0)])) for n in range(20)]
    await setting.fence.renewal_requested.wait()
    setting.fence.update(renewed)
    assert len(set(await asyncio.gather(*writing))) == 20
    assert not setting.fence.renewal_requested.is_set()


async def test_other_conflicts_are_the_callers(setting: Setting) -> None:
    with pytest.raises(RevisionConflict) as caught:
        await setting.fenced.commit([Write(THING, b"1", 7)])
    assert caught.value.key == THING
    assert not setting.fence.renewal_requested.is_set()


async def test_the_lease_itself_is_written_where_the_holder_has_it_and_nowhere_else(setting: Setting) -> None:
    ours = setting.fence.revision
    with pytest.raises(RevisionConflict):
        await setting.fenced.commit([Write(LEASE, b"", ours - 1)])
    await setting.renew(b"another")
    with pytest.raises(RevisionConflict):
        await setting.fenced.commit([Write(LEASE, None, setting.lease)])
    assert (await setting.store.read(LEASE)) is not None


async def test_reads_are_anybodys(setting: Setting) -> None:
    setting.fence.release()
    assert (await setting.fenced.read(LEASE)) is not None
    assert len((await setting.fenced.scan(())).records) == 1
    assert await setting.fenced.oldest() == await setting.store.oldest()
    await setting.fenced.check_writable()
    batch = await anext(setting.fenced.watch((), await setting.store.oldest()))
    assert [event.key for event in batch] == [LEASE]
