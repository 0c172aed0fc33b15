"""fairlead.cli.server.backup: `backup`, `restore` and `store copy`, with their output, errors and files."""

import asyncio
import errno
import io
import os
import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead import __version__
from fairlead.app import maintenance
from fairlead.app.data_migrations import MIGRATIONS
from fairlead.cli import make_app
from fairlead.core.files import FileProblem
from fairlead.settings import StartError
from fairlead.storage.backup import verify_file
from fairlead.storage.contract import Key, Write
from fairlead.storage.copy import MAX_BATCH_RECORDS, REVISION_GAP, restore_records
from fairlead.storage.data_version import VERSION_KEY, DataVersion, encode_version
from fairlead.storage.open import open_store
from tests.harness.durable_stores import ADDRESSES

KEY = ("g", "things", "", "a")


def run_fairlead(*arguments: str, stdin: bytes | None = None, **variables: str) -> tuple[int, str]:
    env = {"COLUMNS": "200", "NO_COLOR": "1", **variables}
    result = CliRunner().invoke(make_app(), arguments, input=stdin, env=env)
    return result.exit_code, result.output


def write_record(folder: Path, value: bytes = b"{}", more: int = 0) -> int:
    """Writes one record, and `more` others, to the store of a data folder; returns their revision."""

    async def write() -> int:
        store = await open_store(f"sqlite:{folder}/fairlead.db")
        found = await store.read(KEY)
        try:
            others = [Write((*KEY, str(number)), value, 0) for number in range(more)]
            return await store.commit([Write(KEY, value, found.revision if found else 0), *others])
        finally:
            await store.close()

    folder.mkdir(exist_ok=True)
    return asyncio.run(write())


def read_record(folder: Path) -> bytes | None:
    async def read() -> bytes | None:
        store = await open_store(f"sqlite:{folder}/fairlead.db")
        found = await store.read(KEY)
        await store.close()
        return found.value if found else None

    return asyncio.run(read())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_record(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def backup(data: Path) -> Path:
    """A backup of the store in `data`."""
    path = data.parent / "it.backup"
    assert run_fairlead("backup", str(path), "--data", str(data))[0] == 0
    return path


def test_backup_prints_a_summary_and_what_to_store_separately(data: Path) -> None:
    path = data.parent / "it.backup"
    code, output = run_fairlead("backup", str(path), "--data", str(data))
    first, second = output.splitlines()
    assert (code, first[:-64]) == (
        0,
        f"{path}: 1 record at revision 1001, {path.stat().st_size} bytes, digest ",
    )
    assert second.startswith("Store separately: encryption.keys, and pepper.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in data.parent.iterdir()) == ["data", "it.backup"]


def test_the_printed_key_file_is_the_one_in_the_data_folder(data: Path) -> None:
    (data / "seal.keys").touch()
    output = run_fairlead("backup", str(data.parent / "it.backup"), "--data", str(data))[1]
    assert output.splitlines()[1].startswith("Store separately: seal.keys, and pepper.key")


def test_backup_without_subcommand_is_backup_create(data: Path, backup: Path) -> None:
    other = data.parent / "other.backup"
    assert run_fairlead("backup", "create", "--data", str(data), str(other))[0] == 0
    assert run_fairlead("backup", "--data", str(data), "--force", str(other))[0] == 0
    assert other.read_bytes().partition(b"\n")[2][:-70] == backup.read_bytes().partition(b"\n")[2][:-70]


def test_an_existing_file_is_replaced_only_with_force(data: Path, backup: Path) -> None:
    content = backup.read_bytes()
    write_record(data, b"newer")
    code, output = run_fairlead("backup", str(backup), "--data", str(data))
    advice = "the file already exists; name another one, or use --force to replace it"
    assert (code, output, backup.read_bytes()) == (1, f"fairlead: {backup}: {advice}\n", content)
    assert run_fairlead("backup", str(backup), "--data", str(data), "--force")[0] == 0
    assert b"newer" in backup.read_bytes()


def test_a_failed_backup_keeps_the_old_file_and_leaves_no_temporary_file(data: Path, backup: Path) -> None:
    content = backup.read_bytes()
    code, output = run_fairlead("backup", str(backup), "--force", "--data", str(data.parent / "nowhere"))
    assert (code, "no such file; pass the server's folder with --data" in output) == (1, True)
    assert backup.read_bytes() == content
    assert sorted(each.name for each in data.parent.iterdir()) == ["data", "it.backup"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    write_record(tmp_path / "data")
    code, output = run_fairlead("backup", str(tmp_path / "none" / "file"), "--data", str(tmp_path / "data"))
    assert (code, f"{tmp_path}/none: no such folder; check the path" in output) == (2, True), output
    code, output = run_fairlead("backup", "verify", str(tmp_path / "none"))
    assert (code, f"{tmp_path}/none: no such file; check the path" in output) == (2, True), output


def test_verify_accepts_a_valid_backup_and_rejects_a_truncated_one(backup: Path) -> None:
    code, output = run_fairlead("backup", "verify", str(backup))
    assert (code, output.startswith(f"{backup}: valid; 1 record of a sqlite store at revision 1001, created 20")) == (
        0,
        True,
    )
    backup.write_bytes(backup.read_bytes()[:-1])
    assert run_fairlead("backup", "verify", str(backup)) == (
        1,
        f"fairlead: {backup}: it is truncated; use another backup\n",
    )


def test_a_restored_store_has_much_higher_revisions(backup: Path) -> None:
    new = backup.parent / "deep" / "new"
    code, output = run_fairlead("restore", str(backup), "--data", str(new))
    begin, end = "restored 1 record of revision 1001; the store is now at revision ", "\n"
    assert (code, output[: len(begin)]) == (0, begin)
    assert int(output[len(begin) :].partition(end)[0]) > 1001 + REVISION_GAP
    assert stat.S_IMODE(new.stat().st_mode) == 0o700
    assert read_record(new) == b"{}"


def test_a_backup_can_be_piped_and_stdout_has_nothing_else(
    data: Path, backup: Path, logging_configurations: list[tuple[str, ...]]
) -> None:
    new = data.parent / "new"
    logging_configurations.clear()
    result = CliRunner().invoke(make_app(), ["backup", "-", "--data", str(data)])
    # Configured logging writes to stderr.
    assert logging_configurations == [("warning", "console")]
    assert result.stdout_bytes.startswith(b"fairlead-backup {")
    assert verify_file(io.BytesIO(result.stdout_bytes)).count == 1
    assert result.stderr.startswith("stdout: 1 record at revision 1001, ")
    assert run_fairlead("restore", "-", "--data", str(new), stdin=backup.read_bytes())[0] == 0
    assert read_record(new) == b"{}"


def test_a_store_with_data_is_replaced_only_with_force(data: Path, backup: Path) -> None:
    revision = write_record(data, b"newer")
    code, output = run_fairlead("restore", str(backup), "--data", str(data))
    source = f"the store to fill: it already contains data, at revision {revision}"
    assert (code, output) == (
        1,
        f"fairlead: {source}; name an empty store, or use --force to replace its content\n",
    )
    assert read_record(data) == b"newer"
    assert write_record(data, b"newest") == revision + 1
    assert run_fairlead("restore", str(backup), "--data", str(data), "--force")[0] == 0
    assert read_record(data) == b"{}"


@pytest.mark.parametrize("pipe", [False, True])
def test_a_damaged_backup_is_not_restored(data: Path, backup: Path, pipe: bool) -> None:
    backup.write_bytes(backup.read_bytes().replace(b"{}", b"[]"))
    stdin = backup.read_bytes() if pipe else None
    code, output = run_fairlead("restore", "-" if pipe else str(backup), "--data", str(data), "--force", stdin=stdin)
    source = "the standard input" if pipe else backup
    assert (code, output) == (1, f"fairlead: {source}: its digest does not match its content; use another backup\n")
    assert read_record(data) == b"{}"


async def interrupt_restore(folder: Path) -> None:
    """Leaves a store with a part of the records of a backup."""

    async def fail_after_a_batch() -> AsyncIterator[tuple[Key, bytes]]:
        for number in range(MAX_BATCH_RECORDS + 1):
            yield ("g", "things", "", f"{number:03}"), b"{}"
        raise InterruptedError

    store = await open_store(f"sqlite:{folder}/fairlead.db")
    with pytest.raises(InterruptedError):
        await restore_records(store, fail_after_a_batch())
    await store.close()


def write_version(folder: Path, value: bytes) -> None:
    async def write() -> None:
        store = await open_store(f"sqlite:{folder}/fairlead.db")
        await store.commit([Write(VERSION_KEY, value, 0)])
        await store.close()

    asyncio.run(write())


KNOWN = len(MIGRATIONS)


@pytest.fixture
def newer(data: Path) -> Path:
    """A backup of data that needs a newer version."""
    path, source = data.parent / "newer.backup", data.parent / "newer"
    write_record(source)
    write_version(source, encode_version(DataVersion(KNOWN + 2, KNOWN + 1, "9.1.0", "9.2.0")))
    assert run_fairlead("backup", str(path), "--data", str(source))[0] == 0
    return path


NEEDS_NEWER = (
    f"its data needs Fairlead 9.1.0 or newer, and this is {__version__}: a newer version has migrated it (data version "
    f"{KNOWN + 2}, this one knows {KNOWN}); install Fairlead 9.1.0 or newer, or "
)


@pytest.mark.parametrize("pipe", [False, True])
def test_a_backup_that_needs_a_newer_version_is_not_restored(data: Path, newer: Path, pipe: bool) -> None:
    write_record(data, b"present")
    before = (data / "fairlead.db").read_bytes()
    source, stdin = ("-", newer.read_bytes()) if pipe else (str(newer), None)
    code, output = run_fairlead("restore", source, "--data", str(data), "--force", stdin=stdin)
    title = "the standard input" if pipe else newer
    assert (code, output) == (1, f"fairlead: {title}: {NEEDS_NEWER}use an older backup\n")
    assert (data / "fairlead.db").read_bytes() == before
    empty = data.parent / "empty"
    assert run_fairlead("restore", source, "--data", str(empty), stdin=stdin)[0] == 1
    assert list(empty.iterdir()) == []


def test_verify_names_the_version_that_a_backup_needs(newer: Path) -> None:
    code, output = run_fairlead("backup", "verify", str(newer))
    assert (code, "A restore requires Fairlead 9.1.0 or newer, encryption.keys" in output) == (0, True)


def test_a_store_that_needs_a_newer_version_is_not_copied(data: Path, newer: Path) -> None:
    target = data.parent / "copied.db"
    code, output = run_fairlead("store", "copy", f"sqlite:{data.parent}/newer/fairlead.db", f"sqlite:{target}")
    assert (code, output) == (
        1,
        f"fairlead: the store to copy from: {NEEDS_NEWER}restore a backup from before the upgrade\n",
    )
    assert not target.exists()


def test_newer_data_that_this_version_can_use_is_restored(data: Path) -> None:
    """As during an upgrade, replicas of the version before can use it."""
    path, new = data.parent / "usable.backup", data.parent / "new"
    version = DataVersion(len(MIGRATIONS) + 1, len(MIGRATIONS), __version__, "9.2.0")
    write_version(data, encode_version(version))
    assert run_fairlead("backup", str(path), "--data", str(data))[0] == 0
    assert run_fairlead("restore", str(path), "--data", str(new))[0] == 0
    assert read_record(new) == b"{}"


def test_an_unreadable_version_of_the_data_is_not_restored(data: Path) -> None:
    path = data.parent / "unreadable.backup"
    write_version(data, b'{"version": "x"}')
    assert run_fairlead("backup", str(path), "--data", str(data))[0] == 0
    code, output = run_fairlead("restore", str(path), "--data", str(data.parent / "new"))
    message = "the record of the data version in it is not readable; use another backup"
    assert (code, output) == (1, f"fairlead: {path}: {message}\n")


def test_a_pipe_is_verified_before_anything_is_written(
    data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content, code in ((backup.read_bytes()[:-1], 1), (backup.read_bytes(), 0)):
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        with open(reader, encoding="utf-8") as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            new = data.parent / f"new-{code}"
            new.mkdir()
            restoring = maintenance.restore_backup("-", f"sqlite:{new}/fairlead.db")
            if code:
                with pytest.raises(FileProblem, match="the standard input: it is truncated"):
                    asyncio.run(restoring)
                assert list(new.iterdir()) == []
            else:
                assert asyncio.run(restoring).stats.count == 1


def test_a_pipe_that_does_not_fit_into_the_temporary_folder_is_an_error_about_it(
    data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(PipeLike(backup.read_bytes()))))
    with pytest.raises(StartError, match=r"cannot copy the backup to .*: No space left on device; set TMPDIR"):
        asyncio.run(maintenance.restore_backup("-", f"sqlite:{data.parent}/new.db"))


class PipeLike(io.BytesIO):
    def seekable(self) -> bool:
        return False


def test_a_redirected_file_is_read_from_its_position(data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (data.parent / "more").open("w+b") as file:
        file.write(b"header\n" + backup.read_bytes())
        file.seek(len(b"header\n"))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        assert asyncio.run(maintenance.restore_backup("-", f"sqlite:{data.parent}/new.db")).stats.count == 1


def test_a_server_does_not_start_on_an_incomplete_restore(data: Path) -> None:
    write_record(data, more=MAX_BATCH_RECORDS)
    backup, new = data.parent / "it.backup", data.parent / "new"
    assert run_fairlead("backup", str(backup), "--data", str(data))[0] == 0
    new.mkdir(mode=0o700)
    asyncio.run(interrupt_restore(new))
    code, output = run_fairlead("serve", "--data", str(new), "--port", "0", "--audit-path", "off")
    assert (code, "the store is incomplete" in output) == (1, True)
    code, output = run_fairlead("restore", str(backup), "--data", str(new))
    assert (code, "restore or copy into it did not finish; name an empty store, or use --force" in output) == (1, True)
    assert run_fairlead("restore", str(backup), "--data", str(new), "--force")[0] == 0
    assert read_record(new) == b"{}"


def test_a_store_can_be_copied_but_not_to_or_from_memory(data: Path) -> None:
    target = f"sqlite:{data.parent}/fairlead.db"
    code, output = run_fairlead("store", "copy", f"sqlite:{data}/fairlead.db", target)
    assert (code, output.startswith("copied 1 record of revision 1001; the store is now at revision 1000001")) == (
        0,
        True,
    )
    assert read_record(data.parent) == b"{}"
    code, output = run_fairlead("store", "copy", target, "memory:")
    assert (code, "an in-memory store is lost when this command ends" in output) == (1, True)
    code, output = run_fairlead("backup", "-", "--store", "memory:")
    assert (code, "can only be read by the server that uses it" in output) == (1, True)


@pytest.mark.parametrize("backend", ADDRESSES)
async def test_copying_a_store_onto_itself_is_rejected_and_loses_nothing(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_store(url)
    await store.commit([Write(KEY, b"kept", 0)])
    await store.close()
    with pytest.raises(StartError):
        await maintenance.copy_store(url, url, force=True, idle_seconds=0)
    store = await open_store(url)
    assert [record.value for record in (await store.scan(())).records] == [b"kept"]
    await store.close()


async def test_a_shared_store_with_active_writers_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    url = await ADDRESSES["postgres"](tmp_path / "store")
    store = await open_store(url)
    restoring = asyncio.create_task(maintenance.restore_backup(str(backup), url, force=True, idle_seconds=1))
    revision = 0
    while not restoring.done():
        revision = await store.commit([Write(KEY, b"theirs", revision)])
        await asyncio.sleep(0.1)
    with pytest.raises(StartError, match="stop all servers"):
        await restoring
    assert (await store.scan(())).records[0].value == b"theirs"
    assert await store.commit([Write(KEY, b"theirs", revision)]) == revision + 1
    await store.close()


def test_an_empty_store_cannot_be_copied(data: Path) -> None:
    code, output = run_fairlead(
        "store", "copy", f"sqlite:{data.parent}/empty.db", f"sqlite:{data}/fairlead.db", "--force"
    )
    assert (code, "there is no database; check the path" in output) == (1, True)
    assert list(data.parent.glob("empty*")) == []
    assert read_record(data) == b"{}"


@pytest.mark.parametrize("backend", ["postgres", "etcd"])
async def test_a_store_that_does_not_exist_is_not_created_in_order_to_read_it(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "typo")
    target = f"sqlite:{tmp_path}/copy.db"
    for _ in range(2):  # the first attempt must not create what the second one finds
        with pytest.raises(StartError, match="there is no store"):
            await maintenance.copy_store(url, target, idle_seconds=0)
        with pytest.raises(StartError, match="there is no store"):
            await maintenance.back_up(url, str(tmp_path / "backup"))
    assert os.listdir(tmp_path) == []
    store = await open_store(url)
    await store.commit([Write(KEY, b"theirs", 0)])
    await store.close()
    assert (await maintenance.copy_store(url, target, idle_seconds=0)).stats.count == 1
