"""storage/sqlite: full disks, file size limits, read-only files, and files of other programs.

Root ignores file modes, so as root the tests use the immutable flag of the file system. The small disk is a tmpfs,
which only root can mount. Where neither is possible these tests are skipped with the reason; the file size limit works
everywhere, so every machine tests a failing disk.

"""

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fairlead.storage.contract import FIRST_REVISION, Event, Record, StoreUnavailable, Write
from fairlead.storage.sqlite import SqliteStore, database

A, B = ("a",), ("b",)


def run_command(*command: str) -> str:
    """Returns an empty string, or the reason for the failure."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 else result.stderr.strip() or f"{command[0]} failed"


@pytest.fixture
def make_read_only() -> Iterator[Callable[[Path], Callable[[], None]]]:
    """Makes a file or folder unwritable for this user; returns a function that undoes it."""
    modes: dict[Path, int] = {}

    def restore(path: Path) -> None:
        mode = modes.pop(path, None)
        if mode is not None:
            run_command("chattr", "-i", str(path))
            path.chmod(mode)

    def protect(path: Path) -> Callable[[], None]:
        modes[path] = path.stat().st_mode
        if os.geteuid() == 0:
            if problem := run_command("chattr", "+i", str(path)):
                pytest.skip(f"root ignores file modes, and the immutable flag cannot be set: {problem}")
        else:
            path.chmod(0o555)
        return lambda: restore(path)

    yield protect
    for path in list(modes):
        restore(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if problem := run_command("mount", "-t", "tmpfs", "-o", "size=2m", "fairlead-test", str(folder)):
        pytest.skip(f"a small file system cannot be mounted: {problem}")
    yield folder
    assert run_command("umount", str(folder)) == ""


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def check_reads(store: SqliteStore, revision: int) -> None:
    """Reads and watches still work, and no partial commit is visible."""
    assert await store.revision() == revision
    assert await store.read(A) == Record(A, b"good", revision)
    assert [record.key for record in (await store.scan(())).records] == [A]
    assert list(await anext(store.watch((), FIRST_REVISION))) == [Event(A, b"good", revision)]


async def check_recovery(store: SqliteStore, revision: int) -> None:
    """Writes work again without reopening the store."""
    await store.check_writable()
    later = await store.commit([Write(A, b"better", revision), Write(B, bytes(100_000), 0)])
    assert later > revision
    assert await store.read(A) == Record(A, b"better", later)


async def check_reopen(path: Path, keys: int) -> None:
    store = await SqliteStore.open(path)
    assert len((await store.scan(())).records) == keys
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_full_disk_rejects_only_commits_until_there_is_space(small_disk: Path) -> None:
    path = small_disk / "store.db"
    store = await SqliteStore.open(path)
    good = await store.commit([Write(A, b"good", 0)])
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
    await store.check_writable()
    for _ in range(3):
        # The second key would conflict if part of the first commit had been written.
        changes = [Write(("new", str(number)), bytes(20_000), 0) for number in range(10)]
        with pytest.raises(StoreUnavailable, match="disk is full; free some space"):
            await store.commit(changes)
    with pytest.raises(StoreUnavailable, match=str(path)):
        await store.check_writable()
    with pytest.raises(StoreUnavailable):
        await store.compact(good)
    await check_reads(store, good)
    filler.unlink()
    await check_recovery(store, good)
    await store.compact(await store.revision())
    await store.close()
    await check_reopen(path, keys=2)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "store.db")
    yield store
    await store.close()


async def test_a_failing_disk_rejects_only_commits_until_it_recovers(store: SqliteStore, tmp_path: Path) -> None:
    good = await store.commit([Write(A, b"good", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert len(await anext(watch)) == 1
    with file_size_limit(os.stat(tmp_path / "store.db-wal").st_size):
        results = await asyncio.gather(
            *[store.commit([Write(B, bytes(5_000), 0), Write(("c", str(n)), b"x", 0)]) for n in range(30)],
            return_exceptions=True,
        )
        assert {type(result) for result in results} == {StoreUnavailable}, (
            "not RevisionConflict: the first of them was not committed"
        )
        with pytest.raises(StoreUnavailable, match="disk reports an error"):
            await store.check_writable()
        await check_reads(store, good)
    await check_recovery(store, good)
    assert [event.key for event in await anext(watch)] == [A, B], "the watch got committed events only"
    await store.close()
    await check_reopen(tmp_path / "store.db", keys=2)


async def test_an_open_file_that_becomes_read_only_rejects_only_commits(
    store: SqliteStore, tmp_path: Path, make_read_only: Callable[[Path], Callable[[], None]]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("the mode of an open file has no effect, and only root can set the immutable flag")
    good = await store.commit([Write(A, b"good", 0)])
    restore = make_read_only(tmp_path / "store.db-wal")
    with pytest.raises(StoreUnavailable, match=r"store\.db: the "):
        await store.commit([Write(B, b"x", 0)])
    with pytest.raises(StoreUnavailable):
        await store.check_writable()
    await check_reads(store, good)
    restore()
    await check_recovery(store, good)
    await store.close()
    await check_reopen(tmp_path / "store.db", keys=2)


async def test_a_database_locked_by_another_program_rejects_commits_until_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.05)
    store = await SqliteStore.open(tmp_path / "store.db")
    good = await store.commit([Write(A, b"good", 0)])
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another program holds the database"):
            await store.commit([Write(B, b"x", 0)])
        with pytest.raises(StoreUnavailable):
            await store.check_writable()
        await check_reads(store, good)
        other.execute("ROLLBACK")
        await check_recovery(store, good)
        other.execute("BEGIN IMMEDIATE")
        await store.check_writable()  # the last write succeeded, so no write is tried
        other.execute("ROLLBACK")
    await store.close()


async def test_a_failed_compaction_can_be_repeated(store: SqliteStore, tmp_path: Path) -> None:
    revision = 0
    for _ in range(100):
        revision = await store.commit([Write(A, b"good", revision)])
    with file_size_limit(os.stat(tmp_path / "store.db-wal").st_size):
        with pytest.raises(StoreUnavailable):
            await store.compact(revision)
        assert await store.oldest() == FIRST_REVISION
    await store.compact(revision)
    assert await store.oldest() == revision
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (1,)


async def expect_open_error(path: Path) -> str:
    """Returns the error of opening the file; checks that no lock is left behind."""
    messages = []
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            await SqliteStore.open(path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    return messages[0]


async def test_a_read_only_file_is_rejected_at_the_start(
    tmp_path: Path, make_read_only: Callable[[Path], Callable[[], None]]
) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    make_read_only(path)
    message = await expect_open_error(path)
    assert str(path) in message
    assert "writable" in message


async def test_a_read_only_folder_is_rejected_at_the_start(
    tmp_path: Path, make_read_only: Callable[[Path], Callable[[], None]]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make_read_only(folder)
    assert "its folder writable" in await expect_open_error(folder / "store.db")


async def test_a_missing_folder_is_rejected_with_advice(tmp_path: Path) -> None:
    message = await expect_open_error(tmp_path / "missing" / "store.db")
    assert f"{tmp_path}/missing/store.db: the folder does not exist; create it" in message


async def test_a_folder_instead_of_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    assert "cannot be opened for writing (Is a directory)" in await expect_open_error(tmp_path / "store.db")


async def test_a_file_that_is_no_database_is_rejected_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("shopping list\n" * 1_000)
    assert f"{path}: this is not a database; use another path" in await expect_open_error(path)
    assert path.read_text() == "shopping list\n" * 1_000


async def test_a_database_of_another_program_is_rejected_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE shopping (item TEXT)")
    before = path.read_bytes()
    assert "another program's database" in await expect_open_error(path)
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_rejected_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
        connection.execute("UPDATE meta SET value = '9.1.0' WHERE name = 'release'")
    before = path.read_bytes()
    message = "newer version of Fairlead (layout 99, this one knows 1); install Fairlead 9.1.0 or newer"
    assert message in await expect_open_error(path)
    assert path.read_bytes() == before


async def test_a_damaged_file_is_rejected_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await store.commit([Write(("k", str(number)), bytes(700), 0) for number in range(200)])
    await store.close()
    with path.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xaa" * (os.stat(path).st_size - 4096))
    assert "restore the file from a backup" in await expect_open_error(path)
