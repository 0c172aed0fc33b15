"""A process of its own that has a database open, to be killed by a test. Run as a program, not collected by pytest.

child_process.py PATH hold     says "open" and waits
child_process.py PATH write    says "open" and then "<task> <count> <revision>" for each commit acknowledged, for ever
child_process.py PATH compact  the same, and compacts all the while
"""

import asyncio
import os
import sys

from fairlead.storage.contract import Store, Write
from fairlead.storage.sqlite import SqliteStore

TASKS = 16


def say(line: str) -> None:
    # Unbuffered: once it is said, killing this process does not unsay it.
    os.write(1, line.encode() + b"\n")


async def write(store: Store, task: int) -> None:
    """Counts up in two keys at once, from wherever an earlier process was killed."""
    keys = [("count", str(task), "one"), ("count", str(task), "two")]
    records = [await store.read(key) for key in keys]
    held = [record.revision if record else 0 for record in records]
    count = int(records[0].value.split()[0]) if records[0] else 0
    while True:
        count += 1
        value = b"%d %s" % (count, bytes(500))
        revision = await store.commit([Write(key, value, old) for key, old in zip(keys, held, strict=True)])
        say(f"{task} {count} {revision}")
        held = [revision, revision]


async def compact(store: Store) -> None:
    while True:
        await store.compact(await store.revision() - 50)
        await asyncio.sleep(0.01)


async def main(path: str, mode: str) -> None:
    store = await SqliteStore.open(path)
    say("open")
    if mode == "hold":
        await asyncio.Event().wait()
    compaction = [compact(store)] if mode == "compact" else []
    await asyncio.gather(*[write(store, task) for task in range(TASKS)], *compaction)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
