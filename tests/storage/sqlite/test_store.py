"""storage/sqlite/store.py: crashes, restarts, one process at a time, and file size. The contract has its own tests.

Failures of disk and file are in `test_failures.py`.

"""

import asyncio
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fairlead.storage import watch_feed
from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Record,
    RevisionConflict,
    StoreUnavailable,
    Write,
)
from fairlead.storage.sqlite import SqliteStore, writer
from fairlead.storage.sqlite import store as sqlite_store
from tests.storage.sqlite.history import read_history

ROOT = Path(__file__).resolve().parents[3]
CHILD = Path(__file__).with_name("child_process.py")


@contextmanager
def running_child(path: Path, mode: str) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, str(CHILD), str(path), mode]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()


def kill_while_writing(path: Path, mode: str, seconds: float) -> list[tuple[int, int, int]]:
    """Returns the commits acknowledged to the child before it was killed: (task, count, revision)."""
    with running_child(path, mode) as process:
        # The pipe is read afterwards only; when it is full the child blocks and is killed in that state.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        assert process.stdout is not None
        lines = process.stdout.read().decode().split("\n")
    # The last piece is empty or an incomplete line.
    acknowledged = [line.split() for line in lines[:-1]]
    return [(int(task), int(count), int(revision)) for task, count, revision in acknowledged]


@pytest.mark.parametrize("mode", ["write", "compact"])
async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "store.db"
    rng = random.Random(mode)
    newest = FIRST_REVISION
    total = 0
    for _ in range(5):
        acknowledged = await asyncio.to_thread(kill_while_writing, path, mode, rng.uniform(0.02, 0.3))
        total += len(acknowledged)
        assert all(revision > newest for _, _, revision in acknowledged), (
            "revisions continue after those before the crash"
        )
        store = await SqliteStore.open(path)
        newest = await store.revision()
        events = await read_history(store, await store.oldest())
        assert [event.revision for event in events] == sorted(event.revision for event in events)
        assert len({(event.key, event.revision) for event in events}) == len(events)
        values = {(event.key, event.revision): event.value for event in events}
        oldest = await store.oldest()
        for task, count, revision in acknowledged:
            if revision > oldest:
                assert values[("count", str(task), "one"), revision] == b"%d %s" % (count, bytes(500))
        for task, count, revision in {task: (task, count, revision) for task, count, revision in acknowledged}.values():
            one, two = await store.read(("count", str(task), "one")), await store.read(("count", str(task), "two"))
            assert one and two and one.revision == two.revision >= revision, "both keys of a commit or neither"
            assert int(one.value.split()[0]) >= count
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert total > 0


async def test_all_data_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    first = await store.commit([Write(("a",), b"1", 0), Write(("b",), b"1", 0)])
    second = await store.commit([Write(("a",), b"2", first), Write(("b",), None, first)])
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["store.db", "store.db.lock"], "the write-ahead log is merged into the file"
    store = await SqliteStore.open(tmp_path / "store.db")
    assert await store.revision() == second
    assert await store.oldest() == FIRST_REVISION
    assert await store.read(("a",)) == Record(("a",), b"2", second)
    assert len((await store.scan((), at=first)).records) == 2
    assert len(await read_history(store, FIRST_REVISION)) == 4
    with pytest.raises(RevisionConflict):
        await store.commit([Write(("b",), b"3", first)])
    assert await store.commit([Write(("b",), b"3", 0), Write(("a",), b"3", second)]) > second
    await store.close()


async def test_revisions_continue_although_the_newest_record_was_compacted(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    created = await store.commit([Write(("a",), b"1", 0)])
    deleted = await store.commit([Write(("a",), None, created)])
    await store.compact(deleted)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (0,)
    store = await SqliteStore.open(tmp_path / "store.db")
    assert await store.revision() == await store.oldest() == deleted
    assert await store.commit([Write(("a",), b"1", 0)]) > deleted
    await store.close()


async def test_an_interrupted_compaction_is_finished_by_the_next_one(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    revision = 0
    for _ in range(200):
        revision = await store.commit([Write(("a",), b"x", revision)])
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        # The state after a crash between recording a compaction and deleting rows.
        connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (revision,))
    store = await SqliteStore.open(tmp_path / "store.db")
    assert await store.oldest() == revision
    await store.compact(revision)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (1,)


async def test_closing_does_not_wait_for_a_long_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SWEEP_ROWS", 1)
    store = await SqliteStore.open(tmp_path / "store.db")
    revision = await store.commit([Write(("a", str(number)), b"x", 0) for number in range(5_000)])
    compaction = asyncio.create_task(store.compact(revision))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await compaction


@contextmanager
def delayed_query(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Makes a query function wait for the event before it runs."""
    query, go = getattr(sqlite_store, name), threading.Event()

    def wait(*arguments: object) -> object:
        go.wait()
        return query(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, name, wait)
        try:
            yield go
        finally:
            go.set()


async def rewrite_and_compact(store: SqliteStore, revision: int) -> int:
    newest = await store.commit([Write(("a",), b"new", revision), Write(("b",), b"new", revision)])
    await store.compact(newest)
    return newest


async def test_current_reads_are_repeated_when_overtaken_by_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    revision = await store.commit([Write(("a",), b"old", 0), Write(("b",), b"old", 0)])
    with delayed_query(monkeypatch, "scan_records") as go_scan, delayed_query(monkeypatch, "read_record") as go_read:
        scan, read = asyncio.create_task(store.scan(())), asyncio.create_task(store.read(("a",)))
        await asyncio.sleep(0)
        newest = await rewrite_and_compact(store, revision)
        go_scan.set()
        go_read.set()
        assert (await scan).records == [Record(("a",), b"new", newest), Record(("b",), b"new", newest)]
        assert (await scan).revision == newest
        assert await read == Record(("a",), b"new", newest)
    await store.close()


async def test_a_scan_at_an_old_revision_raises_compacted_when_overtaken_by_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    revision = await store.commit([Write(("a",), b"old", 0), Write(("b",), b"old", 0)])
    with delayed_query(monkeypatch, "scan_records") as go:
        scan = asyncio.create_task(store.scan((), at=revision))
        await asyncio.sleep(0)
        await rewrite_and_compact(store, revision)
        go.set()
        with pytest.raises(Compacted):
            await scan
    await store.close()


async def test_a_replay_raises_compacted_when_overtaken_by_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    revision = await store.commit([Write(("a",), b"old", 0), Write(("b",), b"old", 0)])
    with delayed_query(monkeypatch, "replay_events") as go:
        replay = asyncio.ensure_future(anext(store.watch((), FIRST_REVISION)))
        await asyncio.sleep(0)
        await rewrite_and_compact(store, revision)
        go.set()
        with pytest.raises(Compacted):
            await replay
    await store.close()


async def test_a_watch_that_replays_while_the_store_closes_gets_all_events_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_feed, "CHUNK_BYTES", 100)
    store = await SqliteStore.open(tmp_path / "store.db")
    for number in range(20):
        await store.commit([Write(("k", str(number)), b"x", 0)])
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        # The writer waits for another connection with a last commit, and close() waits for the writer.
        other.execute("BEGIN IMMEDIATE")
        last = asyncio.create_task(store.commit([Write(("last",), b"x", 0)]))
        await asyncio.sleep(0)
        closed = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        watch = store.watch((), FIRST_REVISION)
        revisions = [event.revision for _ in range(20) for event in await anext(watch)]
        other.execute("ROLLBACK")
    revisions += [event.revision async for batch in watch for event in batch]
    await closed
    assert revisions == list(range(FIRST_REVISION + 1, await last + 1))


async def test_a_second_process_is_rejected_with_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running_child(path, "hold") as holder:
        with pytest.raises(StoreUnavailable) as caught:
            await SqliteStore.open(path)
        assert str(path) in str(caught.value)
        assert f"process {holder.pid}" in str(caught.value)
    store = await SqliteStore.open(path)
    await store.close()


async def test_a_second_store_in_the_same_process_is_rejected_also_by_symlink(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    store = await SqliteStore.open(tmp_path / "store.db")
    for name in ("store.db", "link.db"):
        with pytest.raises(StoreUnavailable, match=f"process {os.getpid()}"):
            await SqliteStore.open(tmp_path / name)
    assert await store.commit([Write(("a",), b"x", 0)]) > FIRST_REVISION
    await store.close()


async def test_the_files_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    await store.commit([Write(("a",), b"x", 0)])
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db.lock"], 0o600)
    await store.close()


async def test_the_write_ahead_log_is_synced_before_a_commit_is_acknowledged(tmp_path: Path) -> None:
    """A test cannot cut the power, but it can check the settings."""
    store = await SqliteStore.open(tmp_path / "store.db")
    connection = store._database.connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
    await store.close()


async def test_compaction_bounds_the_table_and_the_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    revisions = dict.fromkeys([("k", str(number)) for number in range(50)], 0)
    sizes: list[int] = []
    for _ in range(20):
        for _ in range(10):
            revision = await store.commit([Write(key, bytes(700), old) for key, old in revisions.items()])
            revisions = dict.fromkeys(revisions, revision)
        await store.compact(revision)
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            assert connection.execute("SELECT count(*) FROM log").fetchone() == (50,)
            sizes.append(connection.execute("PRAGMA page_count").fetchone()[0])
    assert max(sizes[2:]) <= sizes[1] * 1.1, f"space is reused: {sizes}"
    await store.close()


async def test_a_file_that_grew_too_large_shrinks_again(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    keys = [("k", str(number)) for number in range(30)]
    revision = await store.commit([Write(key, os.urandom(1024 * 1024), 0) for key in keys])
    revision = await store.commit([Write(key, None, revision) for key in keys])
    await store.compact(revision)
    await store.close()
    free_bytes = (writer.MIN_FREE_PAGES + writer.VACUUM_PAGES) * 4096
    assert os.stat(tmp_path / "store.db").st_size < 2 * free_bytes < 30 * 1024 * 1024


async def test_an_exception_in_the_writer_fails_all_pending_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    errors: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: errors.append(arguments.exc_type))
    monkeypatch.setattr(writer.CommitBatch, "add", fail)
    results = await asyncio.gather(
        *[store.commit([Write(("k", str(number)), b"x", 0)]) for number in range(5)], return_exceptions=True
    )
    assert all(isinstance(result, StoreUnavailable) for result in results)
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await store.check_writable()
    await store.close()
    assert errors == [ZeroDivisionError], "the exception is reported, too"
