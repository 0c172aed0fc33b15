"""The one live watch of this process, through which EtcdStore receives all commits.

It resumes after the last transaction it has delivered, at any member, however often the connection breaks. If etcd
was compacted meanwhile, it checks whether any of our commits were lost, and only then reports a gap.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol

import structlog

from fairlead.storage.contract import Unavailable
from fairlead.storage.etcd.address import Gone, Lost, NotYet
from fairlead.storage.etcd.client import LONGEST_PAUSE, PAUSE_SECONDS, Client
from fairlead.storage.etcd.history import History, transactions
from fairlead.storage.etcd.layout import Names
from fairlead.storage.etcd.messages import Happening, KeyValue, watching

log = structlog.get_logger(__name__)


class Listener(Protocol):
    def happened(self, revision: int, happenings: Sequence[Happening]) -> None:
        """One whole transaction. `revision` is etcd's."""

    def skipped(self, oldest: int) -> None:
        """Transactions up to this revision were compacted before they could be delivered."""


class Follower:
    def __init__(self, client: Client, names: Names, history: History, listener: Listener, head: KeyValue) -> None:
        self._client = client
        self._names = names
        self._history = history
        self._listener = listener
        self._reached = head.modified
        """Where the next connection resumes."""
        self._told: KeyValue | None = head
        """The head record of the newest commit that was delivered."""
        self.cut_off = False
        """Whether the last attempt to connect failed."""
        self.broken: str | None = None
        """Why this etcd must not be used any more, for operators."""

    async def run(self) -> None:
        """Follow forever, until a fatal error."""
        pause = PAUSE_SECONDS
        while self.broken is None:
            before = self._reached
            try:
                await self._refuse_another_past()
                self.cut_off = False
                await self._follow()
            except Gone:
                await self._go_on_after_compaction()
            except (Lost, Unavailable) as error:
                self.cut_off = True
                log.warning("the watch of etcd was interrupted; resuming", reason=str(error))
            # If the connection made progress, reconnect immediately.
            pause = PAUSE_SECONDS if self._reached > before else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        request = watching(*self._names.all, self._reached + 1)
        async with (
            aclosing(self._client.watch(request)) as notices,
            aclosing(transactions(notices)) as found,
        ):
            async for revision, happenings in found:
                if happenings:
                    self._listener.happened(revision, happenings)
                    heads = [each.record for each in happenings if each.record.key == self._names.head]
                    self._told = heads[0] if heads else self._told
                self._reached = max(self._reached, revision)

    async def _refuse_another_past(self) -> None:
        """Detect an etcd that was restored from a backup: its revisions after the backup would be reused."""
        if self._told is None:
            return
        try:
            if await self._history.head_at(self._told.modified) == self._told:
                return
        except Gone:
            return
        except NotYet:
            pass
        self.broken = (
            f"{self._client.address} has lost revisions that it had acknowledged; it seems to have been restored"
            " from a backup: restart all servers, and their clients if they do not list again"
        )
        raise Unavailable(self.broken)

    async def _go_on_after_compaction(self) -> None:
        try:
            await self._history.learn()
            oldest = await self._history.oldest()
        except Unavailable as error:
            log.warning("reading etcd's compacted revision failed; retrying", reason=str(error))
            return
        if oldest > self._reached:
            log.warning("etcd was compacted beyond what this server has read; watchers have to list again")
            self._listener.skipped(oldest)
            self._told = None
        self._reached = max(self._reached, self._history.floor)
