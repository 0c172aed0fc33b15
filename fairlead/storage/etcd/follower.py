"""The one live watch of this process. Started by EtcdStore, which hears of every commit through it.

It goes on after the last transaction it has told of, at whichever member answers, however often the connection breaks.
When etcd has been compacted meanwhile it finds out whether anything of ours was lost by that; only then it skips.
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
        """One whole transaction; `revision` is etcd's."""

    def skipped(self, oldest: int) -> None:
        """What happened up to this revision was compacted before it could be told of."""


class Follower:
    def __init__(self, client: Client, names: Names, history: History, listener: Listener, head: KeyValue) -> None:
        self._client = client
        self._names = names
        self._history = history
        self._listener = listener
        self._reached = head.modified
        """Where the next connection goes on."""
        self._told: KeyValue | None = head
        """The head as the newest commit that the listener knows has left it."""
        self.cut_off = False
        """Whether the last attempt to connect has failed."""
        self.broken: str | None = None
        """Why this etcd must not be used any longer, for people."""

    async def run(self) -> None:
        """For ever, unless it is broken."""
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
                log.warning("the watch of etcd broke off; going on where it stood", reason=str(error))
            # A connection that brought something was good: its successor is tried at once.
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
        """An etcd restored from a backup counts anew from there: what it would tell us is not what came next."""
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
            f"{self._client.address} has forgotten revisions that it had confirmed; it seems to have been restored"
            " from a backup: restart all servers, and their clients if they do not list again"
        )
        raise Unavailable(self.broken)

    async def _go_on_after_compaction(self) -> None:
        try:
            await self._history.learn()
            oldest = await self._history.oldest()
        except Unavailable as error:
            log.warning("etcd was compacted and cannot say up to where; asking again", reason=str(error))
            return
        if oldest > self._reached:
            log.warning("etcd was compacted beyond what this server has seen; watchers have to list again")
            self._listener.skipped(oldest)
            self._told = None
        self._reached = max(self._reached, self._history.floor)
