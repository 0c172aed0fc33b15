"""A program that opens a database, to be killed by a test. Not collected by pytest.

child_process.py PATH hold     prints "open" and waits
child_process.py PATH write    prints "open" and then "<task> <count> <revision>" for each acknowledged commit, forever
child_process.py PATH compact  the same, with continuous compaction

"""

import asyncio
import os
import sys

from fairlead.storage.contract import Store, Write
from fairlead.storage.sqlite import SqliteStore

TASKS = 16


def print_line(line: str) -> None:
    # Unbuffered: a printed line survives the death of this process.
    os.write(1, line.encode() + b"\n")


async def write(store: Store, task: int) -> None:
    """Increments two keys per commit, starting where an earlier process was killed."""
    keys = [("count", str(task), "one"), ("count", str(task), "two")]
    records = [await store.read(key) for key in keys]
    revisions = [record.revision if record else 0 for record in records]
    count = int(records[0].value.split()[0]) if records[0] else 0
    while True:
        count += 1
        value = b"%d %s" % (count, bytes(500))
        revision = await store.commit([Write(key, value, old) for key, old in zip(keys, revisions, strict=True)])
        print_line(f"{task} {count} {revision}")
        revisions = [revision, revision]


async def compact(store: Store) -> None:
    while True:
        await store.compact(await store.revision() - 50)
        await asyncio.sleep(0.01)


async def main(path: str, mode: str) -> None:
    store = await SqliteStore.open(path)
    print_line("open")
    if mode == "hold":
        await asyncio.Event().wait()
    compaction = [compact(store)] if mode == "compact" else []
    await asyncio.gather(*[write(store, task) for task in range(TASKS)], *compaction)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
