"""`fairlead backup`, `restore` and `store copy`: what they say, what they refuse, and what they leave behind."""

import asyncio
import stat
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.app import maintenance
from fairlead.cli import make_app
from fairlead.settings import StartError
from fairlead.storage.backup import verify_file
from fairlead.storage.contract import Write
from fairlead.storage.copy import MAX_BATCH_RECORDS, REVISION_GAP
from fairlead.storage.open import open_store
from tests.harness.durable_stores import DURABLE

KEY = ("g", "things", "", "a")


def fairlead(*arguments: str, given: bytes | None = None, **variables: str) -> tuple[int, str]:
    env = {"COLUMNS": "200", "NO_COLOR": "1", **variables}
    result = CliRunner().invoke(make_app(), arguments, input=given, env=env)
    return result.exit_code, result.output


def put(folder: Path, value: bytes = b"{}", more: int = 0) -> int:
    """One record into the store of a data folder, and some more beside it; their revision."""

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


def value_in(folder: Path) -> bytes | None:
    async def look() -> bytes | None:
        store = await open_store(f"sqlite:{folder}/fairlead.db")
        found = await store.read(KEY)
        await store.close()
        return found.value if found else None

    return asyncio.run(look())


@pytest.fixture(autouse=True)
def logging_set_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """How it was asked for. Not done: the loggers of this process would keep a stream that ends with the command."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr("fairlead.core.log.configure_logging", lambda *how: asked.append(how))
    return asked


@pytest.fixture
def data(tmp_path: Path) -> Path:
    put(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def backup(data: Path) -> Path:
    """Of that folder's store."""
    path = data.parent / "it.backup"
    assert fairlead("backup", str(path), "--data", str(data))[0] == 0
    return path


def test_a_backup_says_what_it_has_and_what_to_keep_beside_it(data: Path) -> None:
    path = data.parent / "it.backup"
    code, output = fairlead("backup", str(path), "--data", str(data))
    first, second = output.splitlines()
    assert (code, first[:-64]) == (
        0,
        f"{path}: 1 record at revision 1001, {path.stat().st_size} bytes, digest ",
    )
    assert second.startswith("Store separately: encryption.keys, and pepper.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in data.parent.iterdir()) == ["data", "it.backup"]


def test_the_key_file_is_called_what_it_is_called_in_the_data_folder(data: Path) -> None:
    (data / "seal.keys").touch()
    output = fairlead("backup", str(data.parent / "it.backup"), "--data", str(data))[1]
    assert output.splitlines()[1].startswith("Store separately: seal.keys, and pepper.key")


def test_the_short_form_is_the_command_that_creates(data: Path, backup: Path) -> None:
    other = data.parent / "other.backup"
    assert fairlead("backup", "create", "--data", str(data), str(other))[0] == 0
    assert fairlead("backup", "--data", str(data), "--force", str(other))[0] == 0
    assert other.read_bytes().partition(b"\n")[2][:-70] == backup.read_bytes().partition(b"\n")[2][:-70]


def test_a_file_that_is_there_is_kept_unless_asked(data: Path, backup: Path) -> None:
    content = backup.read_bytes()
    put(data, b"newer")
    code, output = fairlead("backup", str(backup), "--data", str(data))
    advice = "the file already exists; name another one, or use --force to replace it"
    assert (code, output, backup.read_bytes()) == (1, f"fairlead: {backup}: {advice}\n", content)
    assert fairlead("backup", str(backup), "--data", str(data), "--force")[0] == 0
    assert b"newer" in backup.read_bytes()


def test_a_backup_that_fails_leaves_the_old_one_and_no_draft(data: Path, backup: Path) -> None:
    content = backup.read_bytes()
    code, output = fairlead("backup", str(backup), "--force", "--data", str(data.parent / "nowhere"))
    assert (code, "no such file; pass the server's folder with --data" in output) == (1, True)
    assert backup.read_bytes() == content
    assert sorted(each.name for each in data.parent.iterdir()) == ["data", "it.backup"]


def test_verify_tells_a_sound_backup_from_a_damaged_one(backup: Path) -> None:
    code, output = fairlead("backup", "verify", str(backup))
    assert (code, output.startswith(f"{backup}: valid; 1 record of a sqlite store at revision 1001, created 20")) == (
        0,
        True,
    )
    backup.write_bytes(backup.read_bytes()[:-1])
    assert fairlead("backup", "verify", str(backup)) == (
        1,
        f"fairlead: {backup}: it is truncated; use another backup\n",
    )


def test_a_restored_store_stands_far_above_the_old_one(backup: Path) -> None:
    new = backup.parent / "deep" / "new"
    code, output = fairlead("restore", str(backup), "--data", str(new))
    begin, end = "restored 1 record of revision 1001; the store is now at revision ", "\n"
    assert (code, output[: len(begin)]) == (0, begin)
    assert int(output[len(begin) :].partition(end)[0]) > 1001 + REVISION_GAP
    assert stat.S_IMODE(new.stat().st_mode) == 0o700
    assert value_in(new) == b"{}"


def test_a_backup_goes_through_a_pipe_with_nothing_else_in_it(
    data: Path, backup: Path, logging_set_up: list[tuple[str, ...]]
) -> None:
    new = data.parent / "new"
    logging_set_up.clear()
    made = CliRunner().invoke(make_app(), ["backup", "-", "--data", str(data)])
    # On stderr, whatever happens: that is where logging goes once it is set up.
    assert logging_set_up == [("warning", "console")]
    assert made.stdout_bytes.startswith(b"fairlead-backup {")
    assert verify_file(BytesIO(made.stdout_bytes)).count == 1
    assert made.stderr.startswith("stdout: 1 record at revision 1001, ")
    assert fairlead("restore", "-", "--data", str(new), given=backup.read_bytes())[0] == 0
    assert value_in(new) == b"{}"


def test_a_store_that_holds_something_is_replaced_only_by_force(data: Path, backup: Path) -> None:
    revision = put(data, b"newer")
    code, output = fairlead("restore", str(backup), "--data", str(data))
    what = f"the store to fill: it already contains data, at revision {revision}"
    assert (code, output) == (
        1,
        f"fairlead: {what}; name an empty store, or use --force to replace its content\n",
    )
    assert value_in(data) == b"newer"
    assert put(data, b"newest") == revision + 1
    assert fairlead("restore", str(backup), "--data", str(data), "--force")[0] == 0
    assert value_in(data) == b"{}"


@pytest.mark.parametrize("pipe", [False, True])
def test_a_damaged_backup_never_becomes_a_store(data: Path, backup: Path, pipe: bool) -> None:
    backup.write_bytes(backup.read_bytes().replace(b"{}", b"[]"))
    given = backup.read_bytes() if pipe else None
    code, output = fairlead("restore", "-" if pipe else str(backup), "--data", str(data), "--force", given=given)
    what = "the standard input" if pipe else backup
    assert (code, output) == (1, f"fairlead: {what}: its digest does not match its content; use another backup\n")
    assert value_in(data) == b"{}"


def test_a_server_does_not_start_on_what_was_not_finished(data: Path) -> None:
    put(data, more=MAX_BATCH_RECORDS)
    backup, new = data.parent / "it.backup", data.parent / "new"
    assert fairlead("backup", str(backup), "--data", str(data))[0] == 0
    # Through a pipe, which cannot be looked at beforehand.
    code, output = fairlead("restore", "-", "--data", str(new), given=backup.read_bytes()[:-1])
    assert (code, output) == (1, "fairlead: the standard input: it is truncated; use another backup\n")
    code, output = fairlead("serve", "--data", str(new), "--port", "0", "--audit-path", "off")
    assert (code, "the store is incomplete" in output) == (1, True)
    code, output = fairlead("restore", str(backup), "--data", str(new))
    assert (code, "restore or copy into it did not finish; name an empty store, or use --force" in output) == (1, True)
    assert fairlead("restore", str(backup), "--data", str(new), "--force")[0] == 0
    assert value_in(new) == b"{}"


def test_a_store_is_copied_and_a_backup_of_memory_is_not(data: Path) -> None:
    target = f"sqlite:{data.parent}/fairlead.db"
    code, output = fairlead("store", "copy", f"sqlite:{data}/fairlead.db", target)
    assert (code, output.startswith("copied 1 record of revision 1001; the store is now at revision 1000001")) == (
        0,
        True,
    )
    assert value_in(data.parent) == b"{}"
    code, output = fairlead("store", "copy", target, "memory:")
    assert (code, "an in-memory store is lost when this command ends" in output) == (1, True)
    code, output = fairlead("backup", "-", "--store", "memory:")
    assert (code, "can only be read by the server that uses it" in output) == (1, True)


@pytest.mark.parametrize("sort", DURABLE)
async def test_a_store_that_is_copied_onto_itself_loses_nothing(sort: str, tmp_path: Path) -> None:
    same = await DURABLE[sort](tmp_path / "store")
    store = await open_store(same)
    await store.commit([Write(KEY, b"kept", 0)])
    await store.close()
    with pytest.raises(StartError):
        await maintenance.copy_store(same, same, force=True, idle_seconds=0)
    store = await open_store(same)
    assert [record.value for record in (await store.scan(())).records] == [b"kept"]
    await store.close()


async def test_a_shared_store_that_somebody_writes_to_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    url = await DURABLE["postgres"](tmp_path / "store")
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


def test_an_empty_store_gives_nothing_to_copy(data: Path) -> None:
    code, output = fairlead("store", "copy", f"sqlite:{data.parent}/empty.db", f"sqlite:{data}/fairlead.db", "--force")
    assert (code, "there is nothing to restore" in output) == (1, True)
    assert value_in(data) == b"{}"
