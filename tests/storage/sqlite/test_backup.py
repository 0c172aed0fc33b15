"""The SQLite backup of `docs/storage.md`, taken while the server writes."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from fairlead.storage.contract import Write
from fairlead.storage.sqlite import SqliteStore


def back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")


async def test_a_backup_under_load_is_a_consistent_snapshot(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        revision, number = 0, 0
        while not stop.is_set():
            number += 1
            changes = [Write(("last", str(writer)), b"%d" % number, revision)]
            revision = await store.commit([*changes, Write(("all", str(writer), str(number)), bytes(500), 0)])

    writers = [asyncio.create_task(write(number)) for number in range(16)]
    copies = [tmp_path / f"copy-{number}.db" for number in range(3)]
    for copy in copies:
        before = await store.revision()
        while await store.revision() == before:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.02)
        await asyncio.to_thread(back_up, tmp_path / "store.db", copy)
    stop.set()
    await asyncio.gather(*writers)
    for copy in copies:
        restored = await SqliteStore.open(copy)
        snapshot = await store.scan((), at=await restored.revision())
        assert len(snapshot.records) > 0
        assert await restored.scan(()) == snapshot
        assert await restored.commit([Write(("new",), b"x", 0)]) > snapshot.revision
        await restored.close()
    await store.close()
