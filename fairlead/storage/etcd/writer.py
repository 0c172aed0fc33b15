"""Commits as etcd transactions, and resolving their outcome when the connection breaks.

A transaction whose response is lost may have been executed, may never be, or may still be in flight between members.
So each is bound to a write barrier: a key that must not exist. To resolve the outcome, we create that key, after
which no transaction bound to it can succeed, and follow the watch. If the commit's id arrives before the barrier, it
was committed; otherwise it never will be and can be retried. Other pending transactions fail at the barrier and are
retried as well.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from fairlead.storage.commit import Prepared, find_conflict
from fairlead.storage.contract import Unavailable
from fairlead.storage.etcd.address import Lost
from fairlead.storage.etcd.client import ASK_SECONDS, LEASE, TXN, Client
from fairlead.storage.etcd.layout import Layout
from fairlead.storage.etcd.messages import (
    Happening,
    Outcome,
    find,
    if_created_at,
    if_modified_at,
    lease,
    lease_id,
    op_delete,
    op_find,
    op_put,
    transaction,
)

FENCE_SECONDS = 3_600
"""The lease of a barrier. Members drop requests in flight after seconds."""
HEAR_SECONDS = 2.0
"""How long an acknowledged commit may be missing from the watch before the watch is restarted."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A key that must not exist, and the parts that all transactions bound to it have in common."""

    key: bytes
    compares: Sequence[bytes]
    failure: Sequence[bytes]


class Pending:
    """A pending commit: its barrier, and its outcome from the watch: a revision, or None if it will never be
    committed."""

    __slots__ = ("fence", "heard")

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.heard: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def tell(self, revision: int | None) -> None:
        if not self.heard.done():
            self.heard.set_result(revision)


class Writer:
    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._names = layout.names
        self._session = secrets.token_hex(8)
        self._numbers = count(1)
        self._fence = self._new_fence()
        self._fencing: dict[bytes, asyncio.Task[None]] = {}
        self._pending: dict[bytes, Pending] = {}

    async def commit(self, commit: Prepared) -> int:
        """Commit, and return etcd's revision. Raises RevisionConflict and StoreUnavailable."""
        end = asyncio.get_running_loop().time() + 2 * ASK_SECONDS
        while True:
            id = f"{self._session}-{next(self._numbers)}".encode()
            pending = self._pending[id] = Pending(self._fence)
            try:
                revision = await self._attempt(commit, id, pending)
            finally:
                del self._pending[id]
            if revision is not None:
                return revision
            if asyncio.get_running_loop().time() > end:
                raise Unavailable(f"{self._client.address} loses its connections; nothing was changed, retry later")

    def happened(self, revision: int, happenings: Sequence[Happening]) -> None:
        """Handle a transaction, of any client, from the watch."""
        for each in happenings:
            if each.deleted:
                continue
            if each.record.key == self._names.head:
                if pending := self._pending.get(each.record.value):
                    pending.tell(revision)
            elif each.record.key in self._fencing:
                for pending in self._pending.values():
                    if pending.fence.key == each.record.key:
                        pending.tell(None)

    def skipped(self) -> None:
        """The watch has a gap: pending commits may have been in it."""
        for pending in self._pending.values():
            if not pending.heard.done():
                pending.heard.set_exception(self._unknown("etcd was compacted in the meantime"))
                pending.heard.exception()  # mark as retrieved: callers that have a response do not await it

    async def close(self) -> None:
        for task in self._fencing.values():
            task.cancel()
        await asyncio.gather(*self._fencing.values(), return_exceptions=True)

    async def _attempt(self, commit: Prepared, id: bytes, pending: Pending) -> int | None:
        """The revision; None if it was not committed and never will be, because of the barrier."""
        try:
            outcome = Outcome.parse(await self._client.call(TXN, self._transaction(commit, id, pending.fence)))
        except Lost as lost:
            return await self._find_out(pending, lost)
        if outcome.succeeded:
            await self._hear(pending)
            return outcome.revision
        self._refuse(commit, outcome)
        return None

    def _transaction(self, commit: Prepared, id: bytes, fence: Fence) -> bytes:
        names, expected = self._names, self._layout.expected
        changed = [names.record(packed) for packed in commit.changed]
        checked = [names.record(packed) for packed in commit.checked]
        compares = [*fence.compares]
        compares += [if_modified_at(k, expected(c.expected)) for k, c in zip(changed, commit.changes, strict=True)]
        compares += [if_modified_at(k, expected(c.expected)) for k, c in zip(checked, commit.checks, strict=True)]
        success = [
            op_delete(key) if change.value is None else op_put(key, change.value)
            for key, change in zip(changed, commit.changes, strict=True)
        ]
        success.append(op_put(names.head, id))
        failure = [op_find(find(key, keys_only=True)) for key in (*changed, *checked)]
        return transaction(compares, success, [*fence.failure, *failure])

    def _refuse(self, commit: Prepared, outcome: Outcome) -> None:
        """Raise RevisionConflict if there is one. Otherwise the barrier failed it, and the next attempt has another."""
        fence, head, *others = outcome.found
        actual: dict[bytes, int] = {}
        for packed, found in zip((*commit.changed, *commit.checked), others, strict=True):
            actual[packed] = self._layout.ours(found.records[0].modified) if found.records else 0
        if conflict := find_conflict(commit, actual.__getitem__):
            raise conflict
        if not fence.records:
            raise Unavailable(
                f"{self._client.address}: the keys under {self._names.prefix.decode()} were deleted or replaced while"
                " the server ran; restart it"
                if not head.records or head.records[0].created != self._layout.base
                else f"{self._client.address} rejects a write without a reason; see its log"
            )

    async def _hear(self, pending: Pending) -> None:
        """Wait until the watch has delivered the commit, so that no watch is behind our caller."""
        for _ in range(2):
            if pending.heard.done() or (await asyncio.wait([pending.heard], timeout=HEAR_SECONDS))[0]:
                return
            self._client.renew_watches()

    async def _find_out(self, pending: Pending, lost: Lost) -> int | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await asyncio.shield(self._raise_fence(pending.fence))
                return await pending.heard
        except TimeoutError:
            raise self._unknown(str(lost)) from lost
        except Unavailable as error:
            raise self._unknown(str(lost)) from error

    def _unknown(self, reason: str) -> Unavailable:
        return Unavailable(f"{reason}; it is unknown whether the write was committed, so check before you repeat it")

    def _raise_fence(self, fence: Fence) -> "asyncio.Task[None]":
        """Create the barrier, once for all commits bound to it."""
        if fence is self._fence:
            self._fence = self._new_fence()
        task = self._fencing.get(fence.key)
        if task is None:
            task = asyncio.create_task(self._put_fence(fence.key), name="fence off lost commits")
            task.add_done_callback(_look_at)
            self._fencing[fence.key] = task
        return task

    async def _put_fence(self, fence: bytes) -> None:
        granted = lease_id(await self._client.ask(LEASE, lease(FENCE_SECONDS)))
        # Create it only once: a retry after a lost response would deliver it twice.
        await self._client.ask(TXN, transaction([if_modified_at(fence, 0)], [op_put(fence, b"", granted)]))

    def _new_fence(self) -> Fence:
        key = self._names.fence(f"{self._session}-{next(self._numbers)}")
        head = self._names.head
        return Fence(
            key,
            [if_modified_at(key, 0), if_created_at(head, self._layout.base)],
            [op_find(find(each, keys_only=True)) for each in (key, head)],
        )


def _look_at(task: "asyncio.Task[None]") -> None:
    """Mark the exception as retrieved. Callers that timed out have already reported an unknown outcome."""
    if not task.cancelled():
        task.exception()
