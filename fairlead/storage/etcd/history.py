"""What etcd still remembers of us: the newest and the oldest revision, compaction, old events. Called by EtcdStore.

All revisions here are etcd's. etcd never says how far it was compacted unless somebody asks for what is gone, and
others may compact it, too. So we keep the last answer (`floor`) and see whether it still holds: a range at that
revision answers. If not, a watch from the beginning is refused with the number.

The oldest revision that we promise is not the floor but the newest commit of ours up to it. Between the two nothing of
ours has happened, so whoever asks for a state or for the events there is given what etcd still has: those at the floor.
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
"""Each piece of a replay costs etcd a new watch, and us up to a tenth of a second: fewer and larger than elsewhere."""
COMPACT_SECONDS = 60.0
REPLAY_ATTEMPTS = 5


async def transactions(notices: AsyncIterator[Notice]) -> AsyncGenerator[tuple[int, Sequence[Happening]]]:
    """Whole transactions with their revisions, in order; and, when nothing happens, how far the watch has come."""
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
    """What a transaction did to our records; `revision` is ours."""
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
        """The last compaction that we know of; the store's beginning before the first."""
        self._oldest = layout.base

    async def newest(self) -> int:
        """The revision of the newest commit by whoever. Linearizable."""
        return self.head_of(Found.parse(await self._client.ask(RANGE, find(self._names.head)))).modified

    def head_of(self, found: Found) -> KeyValue:
        """Unavailable where it is not the head that we know: revisions would begin anew."""
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
        """Somebody has compacted: up to where, and what that means for us."""
        while True:
            floor = await self._compacted()
            try:
                await self._settle(max(floor, self._layout.base))
                return
            except Gone:  # and again meanwhile
                continue

    async def compact(self, before: int) -> None:
        """Up to the state at `before`, if that is news."""
        if before <= await self.oldest():
            return
        try:
            await self._client.ask(COMPACT, compaction(before), COMPACT_SECONDS)
            await self._settle(before)
        except Gone:
            await self.learn()

    async def replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        """Events of the commits after `since`, and the revision reached by them, `upto` at most. Raises Compacted."""
        reason = ""
        for _ in range(REPLAY_ATTEMPTS):
            try:
                piece = await self._piece(prefix, since, upto)
                # Asked afterwards: compaction takes deletions from under a watch without a word.
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
        raise Unavailable(reason or f"{self._client.address} is compacted faster than it can be read")

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
        """Raises Gone where the revision is."""
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
                        # Nothing of ours is written there but once: history reaches back to the beginning.
                        if notice.happenings:
                            return self._layout.base
            except Gone as gone:
                return int(gone.args[0])
            except Lost as lost:
                reason = str(lost)
        raise Unavailable(reason)
