"""An owner or a worker of a store, to be stopped or killed by a test. Not collected by pytest.

child_process.py FOLDER own      serves FOLDER/store.db; prints "ready"
child_process.py FOLDER write    prints "ready", and "<task> <count> <revision>" for each acknowledged commit, forever
child_process.py FOLDER follow   prints "ready", and the revision of each event that it sees, forever

A worker prints "lost <message>" for each call that fails because its owner has ended, and ends.
"""

import asyncio
import mmap
import os
import sys
from pathlib import Path

import uvloop

from fairlead.storage.contract import Store, StoreUnavailable, Write
from fairlead.storage.socket import SharedRevision, SocketStore, serve_store
from fairlead.storage.sqlite import SqliteStore

TASKS = 16


def print_line(line: str) -> None:
    # Unbuffered: a printed line survives the death of this process.
    os.write(1, line.encode() + b"\n")


def open_shared_revision(folder: Path) -> SharedRevision:
    with (folder / "shared").open("r+b") as file:
        return SharedRevision(memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE))[: SharedRevision.SIZE])


async def own(folder: Path) -> None:
    store = await SqliteStore.open(folder / "store.db")
    async with serve_store(store, folder / "store.socket", open_shared_revision(folder)):
        print_line("ready")
        await asyncio.Event().wait()


async def write(store: Store, task: str) -> None:
    """Increments two keys per commit."""
    keys = [("count", task, "one"), ("count", task, "two")]
    revisions = [0, 0]
    count = 0
    while True:
        count += 1
        value = b"%d %s" % (count, bytes(500))
        try:
            revision = await store.commit([Write(key, value, old) for key, old in zip(keys, revisions, strict=True)])
        except StoreUnavailable as error:
            print_line(f"lost {error}")
            return
        print_line(f"{task} {count} {revision}")
        revisions = [revision, revision]


async def follow(store: Store) -> None:
    since = await store.revision()
    print_line("ready")
    try:
        async for batch in store.watch((), since):
            for event in batch:
                print_line(str(event.revision))
    except StoreUnavailable as error:
        print_line(f"lost {error}")


async def main(folder: Path, mode: str) -> None:
    if mode == "own":
        await own(folder)
    store = await SocketStore.connect(folder / "store.socket", open_shared_revision(folder))
    if mode == "follow":
        await follow(store)
        return
    print_line("ready")
    await asyncio.gather(*[write(store, f"{os.getpid()}-{task}") for task in range(TASKS)])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1]), sys.argv[2]))
