"""The one live watch of this process, through which EtcdStore receives all commits.

It resumes after the last transaction it has delivered, at any member, however often the connection breaks. If etcd
was compacted meanwhile, it checks whether any of our commits were lost, and only then reports a gap.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol

import structlog

from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.etcd.address import FutureRevision, RevisionCompacted, UnknownOutcome
from fairlead.storage.etcd.client import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, EtcdClient
from fairlead.storage.etcd.history import History, iter_transactions
from fairlead.storage.etcd.layout import KeySpace
from fairlead.storage.etcd.messages import KeyValue, WatchEvent, watch_request

log = structlog.get_logger(__name__)


class CommitListener(Protocol):
    def on_transaction(self, revision: int, events: Sequence[WatchEvent]) -> None:
        """One whole transaction. `revision` is etcd's."""

    def on_gap(self, oldest: int) -> None:
        """Transactions up to this revision were compacted before they could be delivered."""


class EtcdFollower:
    def __init__(
        self, client: EtcdClient, keys: KeySpace, history: History, listener: CommitListener, head: KeyValue
    ) -> None:
        self._client = client
        self._keys = keys
        self._history = history
        self._listener = listener
        self._reached = head.mod_revision
        """Where the next connection resumes."""
        self._last_head: KeyValue | None = head
        """The head record of the newest commit that was delivered."""
        self.is_disconnected = False
        """Whether the last attempt to connect failed."""
        self.fatal_error: str | None = None
        """Why this etcd must not be used any more, for operators."""

    async def run(self) -> None:
        """Follow forever, until a fatal error."""
        pause = MIN_BACKOFF_SECONDS
        while self.fatal_error is None:
            before = self._reached
            try:
                await self._check_same_history()
                self.is_disconnected = False
                await self._follow()
            except RevisionCompacted:
                await self._resume_after_compaction()
            except (UnknownOutcome, StoreUnavailable) as error:
                self.is_disconnected = True
                log.warning("the watch of etcd was interrupted; resuming", reason=str(error))
            # If the connection made progress, reconnect immediately.
            pause = MIN_BACKOFF_SECONDS if self._reached > before else min(2 * pause, MAX_BACKOFF_SECONDS)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        request = watch_request(*self._keys.full_range, self._reached + 1)
        async with (
            aclosing(self._client.watch(request)) as notices,
            aclosing(iter_transactions(notices)) as found,
        ):
            async for revision, happenings in found:
                if happenings:
                    self._listener.on_transaction(revision, happenings)
                    heads = [each.record for each in happenings if each.record.key == self._keys.head]
                    self._last_head = heads[0] if heads else self._last_head
                self._reached = max(self._reached, revision)

    async def _check_same_history(self) -> None:
        """Detect an etcd that was restored from a backup: its revisions after the backup would be reused."""
        if self._last_head is None:
            return
        try:
            if await self._history.head_at(self._last_head.mod_revision) == self._last_head:
                return
        except RevisionCompacted:
            return
        except FutureRevision:
            pass
        self.fatal_error = (
            f"{self._client.address} has lost revisions that it had acknowledged; it seems to have been restored"
            " from a backup: restart all servers, and their clients if they do not list again"
        )
        raise StoreUnavailable(self.fatal_error)

    async def _resume_after_compaction(self) -> None:
        try:
            await self._history.refresh_compaction()
            oldest = await self._history.oldest()
        except StoreUnavailable as error:
            log.warning("reading etcd's compacted revision failed; retrying", reason=str(error))
            return
        if oldest > self._reached:
            log.warning("etcd was compacted beyond what this server has read; watchers have to list again")
            self._listener.on_gap(oldest)
            self._last_head = None
        self._reached = max(self._reached, self._history.compact_revision)
