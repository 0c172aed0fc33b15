"""Reading the events of a store since a revision."""

from fairlead.storage.contract import (
    Event,
)
from fairlead.storage.sqlite import SqliteStore


async def read_history(store: SqliteStore, since: int) -> list[Event]:
    events: list[Event] = []
    newest = await store.revision()
    while newest > since and (not events or events[-1].revision < newest):
        async for batch in store.watch((), since):
            events += batch
            if events[-1].revision >= newest:
                break
    return events
