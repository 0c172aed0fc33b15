"""The newest and the oldest revision, compaction, and replay of old events. Used by EtcdStore.

All revisions here are etcd's. etcd reports its compacted revision only when a compacted one is requested, and other
clients may compact it, too. So we keep the last known value (`compact_revision`) and verify it with a range request
at that revision. If it was compacted, a watch from the start fails and returns the new value.

The oldest revision of the store is the newest of our commits up to `compact_revision`. Between the two there were no
commits of ours, so requests for revisions in between are answered with the state at `compact_revision`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from fairlead.storage.contract import Compacted, Event, Key, Unavailable
from fairlead.storage.etcd.address import Gone, Lost
from fairlead.storage.etcd.client import COMPACT, RANGE, Client
from fairlead.storage.etcd.layout import Layout, Names
from fairlead.storage.etcd.messages import Found, Happening, KeyValue, Notice, compaction, find, watching
from fairlead.storage.watch_feed import EVENT_BYTES

PIECE_BYTES = 8 * 1024 * 1024
"""Each chunk of a replay needs a new watch, which takes up to 100 ms, so chunks are larger than in other stores."""
COMPACT_SECONDS = 60.0
REPLAY_ATTEMPTS = 5


async def transactions(notices: AsyncIterator[Notice]) -> AsyncGenerator[tuple[int, Sequence[Happening]]]:
    """Whole transactions with their revisions, in order; without events, the progress of the watch."""
    torn: list[Happening] = []
    async for notice in notices:
        if notice.created:
            continue
        if not notice.happenings and not torn:
            yield notice.revision, ()
        for happening in notice.happenings:
            if torn and torn[-1].record.modified != happening.record.modified:
                yield torn[0].record.modified, torn
                torn = []
            torn.append(happening)
        if torn and not notice.fragment:
            yield torn[0].record.modified, torn
            torn = []


def events_of(names: Names, happenings: Sequence[Happening], revision: int) -> list[Event]:
    """The events of a transaction for our records. `revision` is ours."""
    return [
        Event(names.key(each.record.key), None if each.deleted else each.record.value, revision)
        for each in happenings
        if each.record.key.startswith(names.data)
    ]


class History:
    def __init__(self, client: Client, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._names = layout.names
        self.floor = layout.base
        """The last known compacted revision; initially the start of the store."""
        self._oldest = layout.base

    async def newest(self) -> int:
        """The revision of the newest commit of any replica. Linearizable."""
        return self.head_of(Found.parse(await self._client.ask(RANGE, find(self._names.head)))).modified

    def head_of(self, found: Found) -> KeyValue:
        """The head record. Raises StoreUnavailable if it is not the one we know, because revisions would start over."""
        if not found.records or found.records[0].created != self._layout.base:
            prefix = self._names.prefix.decode()
            raise Unavailable(
                f"{self._client.address}: the keys under {prefix} were deleted or replaced while the server ran;"
                " restore etcd from a backup if this was a mistake, then restart the servers"
            )
        return found.records[0]

    async def oldest(self) -> int:
        while True:
            try:
                await self.head_at(self.floor)
                return self._oldest
            except Gone:
                await self.learn()

    async def learn(self) -> None:
        """Find out the compacted revision, and update the oldest one."""
        while True:
            floor = await self._compacted()
            try:
                await self._settle(max(floor, self._layout.base))
                return
            except Gone:  # compacted again meanwhile
                continue

    async def compact(self, before: int) -> None:
        """Compact up to `before`, unless that was done already."""
        if before <= await self.oldest():
            return
        try:
            await self._client.ask(COMPACT, compaction(before), COMPACT_SECONDS)
            await self._settle(before)
        except Gone:
            await self.learn()

    async def replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        """Events after `since`, and the revision they reach, at most `upto`. Raises Compacted."""
        reason = ""
        for _ in range(REPLAY_ATTEMPTS):
            try:
                piece = await self._piece(prefix, since, upto)
                # Checked afterwards: compaction silently removes deletions during a watch.
                await self.head_at(since)
                return piece
            except Lost as lost:
                reason = str(lost)
            except Gone:
                await self.learn()
                self.refuse_compacted(since)
                if upto <= self.floor:
                    return (), upto
                since = max(since, self.floor)
        raise Unavailable(reason or f"{self._client.address} was compacted faster than it can be read")

    def refuse_compacted(self, asked: int) -> None:
        if asked < self._oldest:
            raise Compacted(self._layout.ours(asked), self._layout.ours(self._oldest))

    async def _piece(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        events: list[Event] = []
        weight = 0
        request = watching(*self._names.all, since + 1)
        async with (
            aclosing(self._client.watch(request)) as notices,
            aclosing(transactions(notices)) as found,
        ):
            async for revision, happenings in found:
                if revision > upto:
                    break
                for event in events_of(self._names, happenings, self._layout.ours(revision)):
                    if event.key[: len(prefix)] == prefix:
                        events.append(event)
                        weight += EVENT_BYTES + len(event.value or b"")
                if revision == upto or weight > PIECE_BYTES:
                    return events, revision
        return events, upto

    async def head_at(self, revision: int) -> KeyValue:
        """The head record at a revision. Raises RevisionCompacted."""
        return self.head_of(Found.parse(await self._client.ask(RANGE, find(self._names.head, revision=revision))))

    async def _settle(self, floor: int) -> None:
        self._oldest = max(self._oldest, (await self.head_at(floor)).modified)
        self.floor = max(self.floor, floor)

    async def _compacted(self) -> int:
        request = watching(self._names.format, b"", 1)
        for _ in range(REPLAY_ATTEMPTS):
            try:
                async with aclosing(self._client.watch(request)) as notices:
                    async for notice in notices:
                        # This key is written only once, so the history reaches back to the start.
                        if notice.happenings:
                            return self._layout.base
            except Gone as gone:
                return int(gone.args[0])
            except Lost as lost:
                reason = str(lost)
        raise Unavailable(reason)
