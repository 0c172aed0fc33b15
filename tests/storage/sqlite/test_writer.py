"""storage/sqlite/writer.py: pending commits are written in one transaction and do not affect each other."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.storage.contract import FIRST_REVISION, Record, RevisionConflict, Write
from fairlead.storage.sqlite import SqliteStore, writer
from tests.storage.sqlite.history import read_history


async def test_a_conflict_in_a_group_affects_no_other_commit(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        # While another connection holds the lock, the writer waits with its first commit and the others queue up.
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(store.commit([Write(("first",), b"x", 0)]))
        await asyncio.sleep(0.05)
        group = [
            asyncio.create_task(store.commit([Write(("k", str(n // 2)), b"%d" % n, 0), Write(("n", str(n)), b"x", 0)]))
            for n in range(200)
        ]
        await asyncio.sleep(0.05)
        other.execute("ROLLBACK")
    revisions = await asyncio.gather(*group, return_exceptions=True)
    assert revisions[0::2] == list(range(await first + 1, await first + 101))
    for number, conflict in enumerate(revisions[1::2]):
        assert isinstance(conflict, RevisionConflict)
        assert (conflict.key, conflict.actual) == (("k", str(number)), revisions[2 * number])
    assert [record.value for record in (await store.scan(("k",))).records] == sorted(
        [b"%d" % n for n in range(0, 200, 2)], key=lambda value: str(int(value) // 2)
    )
    assert len((await store.scan(("n",))).records) == 100
    await store.close()


async def test_commits_of_a_group_see_each_other(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(store.commit([Write(("a",), b"0", 0)]))
        await asyncio.sleep(0.05)
        # Only a test can predict these revisions: each commit expects the one before it.
        start = FIRST_REVISION + 1
        group = [
            asyncio.create_task(store.commit([Write(("a",), b"1", start)])),
            asyncio.create_task(store.commit([Write(("a",), None, start + 1)])),
            asyncio.create_task(store.commit([Write(("a",), b"2", 0)])),
            asyncio.create_task(store.commit([Write(("a",), b"3", start + 3)])),
        ]
        await asyncio.sleep(0.05)
        other.execute("ROLLBACK")
    assert await asyncio.gather(first, *group) == [start, start + 1, start + 2, start + 3, start + 4]
    assert [event.value for event in await read_history(store, FIRST_REVISION)] == [b"0", b"1", None, b"2", b"3"]
    await store.compact(start + 4)
    assert list((await store.scan(())).records) == [Record(("a",), b"3", start + 4)]
    await store.close()


async def test_commits_of_one_event_loop_turn_are_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    commit = writer.SqliteWriter._commit

    def count_and_commit(self: writer.SqliteWriter, group: list[writer.CommitJob]) -> None:
        groups.append(len(group))
        commit(self, group)

    monkeypatch.setattr(writer.SqliteWriter, "_commit", count_and_commit)
    store = await SqliteStore.open(tmp_path / "store.db")
    await asyncio.gather(*(store.commit([Write(("a", str(number)), b"1", 0)]) for number in range(20)))
    await store.close()
    assert groups == [20]


async def test_a_commit_larger_than_one_statement_is_still_one_commit(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    keys = [("k", f"{number:05}") for number in range(1_000)]
    revision = await store.commit([Write(key, b"x", 0) for key in keys])
    page = await store.scan(())
    assert [record.key for record in page.records] == keys
    assert {record.revision for record in page.records} == {revision}
    await store.close()
