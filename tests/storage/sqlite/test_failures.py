"""Real trouble, not simulated: full disks, limits, files that cannot be written, files that are not ours.

As root nothing is read-only by its mode, so there the immutable flag of the file system is used, and a small disk is
a tmpfs that only root may mount. Where a machine permits neither, those tests are skipped and say why; the limit on
file sizes works everywhere, so a failing disk is met on every machine.
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


def run(*command: str) -> str:
    """The empty string, or why it did not work."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 else result.stderr.strip() or f"{command[0]} failed"


@pytest.fixture
def freeze() -> Iterator[Callable[[Path], Callable[[], None]]]:
    """Makes a file or folder really unwritable for this user; returns what undoes it."""
    frozen: dict[Path, int] = {}

    def thaw(path: Path) -> None:
        mode = frozen.pop(path, None)
        if mode is not None:
            run("chattr", "-i", str(path))
            path.chmod(mode)

    def make(path: Path) -> Callable[[], None]:
        frozen[path] = path.stat().st_mode
        if os.geteuid() == 0:
            if problem := run("chattr", "+i", str(path)):
                pytest.skip(f"root writes whatever the mode says, and the immutable flag is refused: {problem}")
        else:
            path.chmod(0o555)
        return lambda: thaw(path)

    yield make
    for path in list(frozen):
        thaw(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if problem := run("mount", "-t", "tmpfs", "-o", "size=2m", "fairlead-test", str(folder)):
        pytest.skip(f"a small file system cannot be mounted: {problem}")
    yield folder
    assert run("umount", str(folder)) == ""


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def still_answers(store: SqliteStore, revision: int) -> None:
    """Reads and watches go on while nothing can be written, and nothing half-written shows."""
    assert await store.revision() == revision
    assert await store.read(A) == Record(A, b"good", revision)
    assert [record.key for record in (await store.scan(())).records] == [A]
    assert list(await anext(store.watch((), FIRST_REVISION))) == [Event(A, b"good", revision)]


async def recovers(store: SqliteStore, revision: int) -> None:
    """By itself: nothing is opened again."""
    await store.check_writable()
    later = await store.commit([Write(A, b"better", revision), Write(B, bytes(100_000), 0)])
    assert later > revision
    assert await store.read(A) == Record(A, b"better", later)


async def survives(path: Path, keys: int) -> None:
    store = await SqliteStore.open(path)
    assert len((await store.scan(())).records) == keys
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_full_disk_refuses_commits_and_nothing_else_until_there_is_space(small_disk: Path) -> None:
    path = small_disk / "store.db"
    store = await SqliteStore.open(path)
    good = await store.commit([Write(A, b"good", 0)])
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
    await store.check_writable()
    for _ in range(3):
        # The second key would still conflict if the first one had been half-written.
        changes = [Write(("new", str(number)), bytes(20_000), 0) for number in range(10)]
        with pytest.raises(StoreUnavailable, match="disk is full; free some space"):
            await store.commit(changes)
    with pytest.raises(StoreUnavailable, match=str(path)):
        await store.check_writable()
    with pytest.raises(StoreUnavailable):
        await store.compact(good)
    await still_answers(store, good)
    filler.unlink()
    await recovers(store, good)
    await store.compact(await store.revision())
    await store.close()
    await survives(path, keys=2)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "store.db")
    yield opened
    await opened.close()


async def test_a_failing_disk_refuses_commits_and_nothing_else_until_it_is_well(
    store: SqliteStore, tmp_path: Path
) -> None:
    good = await store.commit([Write(A, b"good", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert len(await anext(watch)) == 1
    with file_size_limit(os.stat(tmp_path / "store.db-wal").st_size):
        results = await asyncio.gather(
            *[store.commit([Write(B, bytes(5_000), 0), Write(("c", str(n)), b"x", 0)]) for n in range(30)],
            return_exceptions=True,
        )
        assert {type(result) for result in results} == {StoreUnavailable}, (
            "not Conflict: the first of them did not happen"
        )
        with pytest.raises(StoreUnavailable, match="disk reports an error"):
            await store.check_writable()
        await still_answers(store, good)
    await recovers(store, good)
    assert [event.key for event in await anext(watch)] == [A, B], "the watch has heard of what happened only"
    await store.close()
    await survives(tmp_path / "store.db", keys=2)


async def test_a_file_that_becomes_read_only_while_it_is_open_refuses_commits_only(
    store: SqliteStore, tmp_path: Path, freeze: Callable[[Path], Callable[[], None]]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("the mode of a file that is already open counts no more, and the immutable flag is root's")
    good = await store.commit([Write(A, b"good", 0)])
    thaw = freeze(tmp_path / "store.db-wal")
    with pytest.raises(StoreUnavailable, match=r"store\.db: the "):
        await store.commit([Write(B, b"x", 0)])
    with pytest.raises(StoreUnavailable):
        await store.check_writable()
    await still_answers(store, good)
    thaw()
    await recovers(store, good)
    await store.close()
    await survives(tmp_path / "store.db", keys=2)


async def test_a_database_that_somebody_else_holds_refuses_commits_until_it_is_let_go(
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
        await still_answers(store, good)
        other.execute("ROLLBACK")
        await recovers(store, good)
        other.execute("BEGIN IMMEDIATE")
        await store.check_writable()  # all was well the last time, so it does not try
        other.execute("ROLLBACK")
    await store.close()


async def test_compaction_that_failed_goes_on_when_it_is_asked_again(store: SqliteStore, tmp_path: Path) -> None:
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


async def refusal(path: Path) -> str:
    """What opening says; and that it leaves nothing locked behind."""
    messages = []
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            await SqliteStore.open(path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    return messages[0]


async def test_a_read_only_file_is_refused_at_once(
    tmp_path: Path, freeze: Callable[[Path], Callable[[], None]]
) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    freeze(path)
    message = await refusal(path)
    assert str(path) in message
    assert "writable" in message


async def test_a_read_only_folder_is_refused_at_once(
    tmp_path: Path, freeze: Callable[[Path], Callable[[], None]]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    freeze(folder)
    assert "its folder writable" in await refusal(folder / "store.db")


async def test_a_missing_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    message = await refusal(tmp_path / "missing" / "store.db")
    assert f"{tmp_path}/missing/store.db: the folder does not exist; create it" in message


async def test_a_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    assert "cannot be opened for writing (Is a directory)" in await refusal(tmp_path / "store.db")


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("shopping list\n" * 1_000)
    assert f"{path}: this is not a database; use another path" in await refusal(path)
    assert path.read_text() == "shopping list\n" * 1_000


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE shopping (item TEXT)")
    before = path.read_bytes()
    assert "another program's database" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    before = path.read_bytes()
    assert "newer version of Fairlead (schema 99, this one knows 1)" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await store.commit([Write(("k", str(number)), bytes(700), 0) for number in range(200)])
    await store.close()
    with path.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xaa" * (os.stat(path).st_size - 4096))
    assert "restore the file from a backup" in await refusal(path)
