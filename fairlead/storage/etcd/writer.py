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

from fairlead.core.waiting import end_tasks
from fairlead.storage.commit import PreparedCommit, find_conflict
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.etcd.address import UnknownOutcome
from fairlead.storage.etcd.client import LEASE, RETRY_TIMEOUT, TXN, EtcdClient
from fairlead.storage.etcd.messages import (
    Layout,
    TxnResponse,
    WatchEvent,
    compare_create_revision,
    compare_mod_revision,
    lease_request,
    op_delete,
    op_put,
    op_range,
    parse_lease_id,
    range_request,
    txn_request,
)

BARRIER_TTL_SECONDS = 3_600
"""The lease of a barrier. Members drop requests in flight after seconds."""
WATCH_ECHO_TIMEOUT = 2.0
"""How long an acknowledged commit may be missing from the watch before the watch is restarted."""


@dataclass(frozen=True, slots=True)
class WriteBarrier:
    """A key that must not exist, and the parts that all transactions bound to it have in common."""

    key: bytes
    compares: Sequence[bytes]
    failure: Sequence[bytes]


class PendingCommit:
    """A pending commit: its barrier, and its outcome from the watch: a revision, or None if it will never be
    committed."""

    __slots__ = ("barrier", "outcome")

    def __init__(self, barrier: WriteBarrier) -> None:
        self.barrier = barrier
        self.outcome: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def resolve(self, revision: int | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(revision)


class EtcdWriter:
    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._keys = layout.keys
        self._session = secrets.token_hex(8)
        self._sequence = count(1)
        self._barrier = self._new_barrier()
        self._barrier_tasks: dict[bytes, asyncio.Task[None]] = {}
        self._pending: dict[bytes, PendingCommit] = {}

    async def commit(self, commit: PreparedCommit) -> int:
        """Commit, and return etcd's revision. Raises RevisionConflict and StoreUnavailable."""
        end = asyncio.get_running_loop().time() + 2 * RETRY_TIMEOUT
        while True:
            id = f"{self._session}-{next(self._sequence)}".encode()
            pending = self._pending[id] = PendingCommit(self._barrier)
            try:
                revision = await self._attempt(commit, id, pending)
            finally:
                del self._pending[id]
            if revision is not None:
                return revision
            if asyncio.get_running_loop().time() > end:
                raise StoreUnavailable(
                    f"{self._client.address} loses its connections; nothing was changed, retry later"
                )

    def on_transaction(self, revision: int, events: Sequence[WatchEvent]) -> None:
        """Handle a transaction, of any client, from the watch."""
        for each in events:
            if each.deleted:
                continue
            if each.record.key == self._keys.head:
                if pending := self._pending.get(each.record.value):
                    pending.resolve(revision)
            elif each.record.key in self._barrier_tasks:
                for pending in self._pending.values():
                    if pending.barrier.key == each.record.key:
                        pending.resolve(None)

    def on_gap(self) -> None:
        """The watch has a gap: pending commits may have been in it."""
        for pending in self._pending.values():
            if not pending.outcome.done():
                pending.outcome.set_exception(self._unknown_outcome("etcd was compacted in the meantime"))
                pending.outcome.exception()  # mark as retrieved: callers that have a response do not await it

    async def close(self) -> None:
        await end_tasks(*self._barrier_tasks.values())

    async def _attempt(self, commit: PreparedCommit, id: bytes, pending: PendingCommit) -> int | None:
        """The revision; None if it was not committed and never will be, because of the barrier."""
        try:
            outcome = TxnResponse.parse(
                await self._client.call(TXN, self._build_transaction(commit, id, pending.barrier))
            )
        except UnknownOutcome as lost:
            return await self._resolve_outcome(pending, lost)
        if outcome.succeeded:
            await self._await_echo(pending)
            return outcome.revision
        self._check_conflict(commit, outcome)
        return None

    def _build_transaction(self, commit: PreparedCommit, id: bytes, barrier: WriteBarrier) -> bytes:
        names, expected = self._keys, self._layout.expected_mod_revision
        changed = [names.packed_record_key(packed) for packed in commit.write_keys]
        checked = [names.packed_record_key(packed) for packed in commit.precondition_keys]
        compares = [*barrier.compares]
        compares += [
            compare_mod_revision(k, expected(c.expected_revision)) for k, c in zip(changed, commit.writes, strict=True)
        ]
        compares += [
            compare_mod_revision(k, expected(c.expected_revision))
            for k, c in zip(checked, commit.preconditions, strict=True)
        ]
        success = [
            op_delete(key) if change.value is None else op_put(key, change.value)
            for key, change in zip(changed, commit.writes, strict=True)
        ]
        success.append(op_put(names.head, id))
        failure = [op_range(range_request(key, keys_only=True)) for key in (*changed, *checked)]
        return txn_request(compares, success, [*barrier.failure, *failure])

    def _check_conflict(self, commit: PreparedCommit, response: TxnResponse) -> None:
        """Raise RevisionConflict if there is one. Otherwise the barrier failed it, and the next attempt has another."""
        fence, head, *others = response.ranges
        actual: dict[bytes, int] = {}
        for packed, found in zip((*commit.write_keys, *commit.precondition_keys), others, strict=True):
            actual[packed] = self._layout.from_etcd_revision(found.records[0].mod_revision) if found.records else 0
        if conflict := find_conflict(commit, actual.__getitem__):
            raise conflict
        if not fence.records:
            raise StoreUnavailable(
                f"{self._client.address}: the keys under {self._keys.prefix.decode()} were deleted or replaced while"
                " the server ran; restart it"
                if not head.records or head.records[0].create_revision != self._layout.base
                else f"{self._client.address} rejects a write without a reason; see its log"
            )

    async def _await_echo(self, pending: PendingCommit) -> None:
        """Wait until the watch has delivered the commit, so that no watch is behind our caller."""
        for _ in range(2):
            if pending.outcome.done() or (await asyncio.wait([pending.outcome], timeout=WATCH_ECHO_TIMEOUT))[0]:
                return
            self._client.restart_watches()

    async def _resolve_outcome(self, pending: PendingCommit, lost: UnknownOutcome) -> int | None:
        try:
            async with asyncio.timeout(RETRY_TIMEOUT):
                await asyncio.shield(self._create_barrier(pending.barrier))
                return await pending.outcome
        except TimeoutError:
            raise self._unknown_outcome(str(lost)) from lost
        except StoreUnavailable as error:
            raise self._unknown_outcome(str(lost)) from error

    def _unknown_outcome(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{reason}; it is unknown whether the write was committed, so check before you repeat it"
        )

    def _create_barrier(self, barrier: WriteBarrier) -> "asyncio.Task[None]":
        """Create the barrier, once for all commits bound to it."""
        if barrier is self._barrier:
            self._barrier = self._new_barrier()
        task = self._barrier_tasks.get(barrier.key)
        if task is None:
            task = asyncio.create_task(self._put_barrier(barrier.key), name="fence off lost commits")
            task.add_done_callback(_consume_exception)
            self._barrier_tasks[barrier.key] = task
        return task

    async def _put_barrier(self, key: bytes) -> None:
        granted = parse_lease_id(await self._client.call_idempotent(LEASE, lease_request(BARRIER_TTL_SECONDS)))
        # Create it only once: a retry after a lost response would deliver it twice.
        await self._client.call_idempotent(
            TXN, txn_request([compare_mod_revision(key, 0)], [op_put(key, b"", granted)])
        )

    def _new_barrier(self) -> WriteBarrier:
        key = self._keys.barrier_key(f"{self._session}-{next(self._sequence)}")
        head = self._keys.head
        return WriteBarrier(
            key,
            [compare_mod_revision(key, 0), compare_create_revision(head, self._layout.base)],
            [op_range(range_request(each, keys_only=True)) for each in (key, head)],
        )


def _consume_exception(task: "asyncio.Task[None]") -> None:
    """Mark the exception as retrieved. Callers that timed out have already reported an unknown outcome."""
    if not task.cancelled():
        task.exception()
