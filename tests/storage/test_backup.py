"""Backups: what is in the file, that no damage to it goes unnoticed, and that it shows one moment of a busy store."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from io import BytesIO
from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import EncryptionKey, Keyring
from fairlead.storage.backup import MAGIC, BackupReader, BackupSummary, CorruptBackup, verify_file, write_backup
from fairlead.storage.commit import pack_key
from fairlead.storage.contract import Key, Record, Store, StoreUnavailable, Write
from fairlead.storage.copy import UNFINISHED_KEY, Snapshot, take_snapshot
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_snapshot, open_store
from tests.harness.durable_stores import DURABLE

MADE = "2026-11-15T10:00:00Z"
RECORDS = {("g", "things", "", "a"): b"{}", ("g", "things", "", "b\0c"): b"\x00\xff any bytes", ("h",): b""}


async def store_with(records: dict[Key, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, value in records.items():
        await store.commit([Write(key, value, 0)])
    return store


async def written(records: dict[Key, bytes]) -> tuple[bytes, BackupSummary]:
    out = BytesIO()
    summary = await write_backup(await take_snapshot(await store_with(records)), MADE, "memory", out)
    return out.getvalue(), summary


async def test_a_backup_holds_all_records_and_says_of_what_it_is() -> None:
    content, summary = await written(RECORDS)
    backup = BackupReader(BytesIO(content))
    assert dict(backup.records()) == RECORDS
    assert backup.summary == summary == verify_file(BytesIO(content))
    assert (summary.count, summary.size_bytes, summary.encryption_key_ids) == (3, len(content), ())
    assert (summary.header.revision, summary.header.made, summary.header.store) == (1_003, MADE, "memory")


async def test_records_are_in_the_order_of_their_keys_whatever_the_order_of_writing() -> None:
    one, _ = await written(RECORDS)
    other, _ = await written(dict(reversed(RECORDS.items())))
    assert one == other


async def test_nothing_deleted_is_in_a_backup() -> None:
    store = await store_with(RECORDS)
    found = await store.read(("h",))
    assert found is not None
    await store.commit([Write(("h",), None, found.revision)])
    out = BytesIO()
    assert (await write_backup(await take_snapshot(store), MADE, "memory", out)).count == 2
    assert ("h",) not in dict(BackupReader(BytesIO(out.getvalue())).records())


async def test_sealed_values_stay_sealed_and_the_keys_that_they_need_are_named() -> None:
    key = ("g", "secrets", "", "s")
    keyring = Keyring([EncryptionKey("2026-01", bytes(32))], "the test")
    sealed = keyring.encrypt(b"canary", pack_key(key))
    content, summary = await written({**RECORDS, key: sealed})
    assert b"canary" not in content
    assert summary.encryption_key_ids == verify_file(BytesIO(content)).encryption_key_ids == ("2026-01",)
    assert keyring.decrypt(dict(BackupReader(BytesIO(content)).records())[key], pack_key(key)) == b"canary"


async def test_a_backup_that_is_cut_off_anywhere_is_noticed() -> None:
    content, _ = await written(RECORDS)
    for length in range(len(content)):
        with pytest.raises(CorruptBackup):
            verify_file(BytesIO(content[:length]))


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
async def test_a_change_of_any_byte_is_noticed(mask: int) -> None:
    content, _ = await written(RECORDS)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= mask
        with pytest.raises(CorruptBackup):
            verify_file(BytesIO(changed))


async def test_what_follows_the_end_is_noticed() -> None:
    content, _ = await written(RECORDS)
    with pytest.raises(CorruptBackup, match="data after its trailer"):
        verify_file(BytesIO(content + b"\n"))


async def test_a_record_that_is_there_twice_is_noticed() -> None:
    async def twice() -> AsyncGenerator[Record]:
        for _ in range(2):
            yield Record(("a",), b"x", 1)

    out = BytesIO()
    await write_backup(Snapshot(1, twice()), MADE, "memory", out)
    with pytest.raises(CorruptBackup, match="not sorted"):
        verify_file(BytesIO(out.getvalue()))


def test_a_backup_of_a_newer_version_is_left_to_that_version() -> None:
    line = MAGIC + b'{"revision":1,"made":"","store":"","version":2}\n'
    with pytest.raises(CorruptBackup, match="newer version"):
        BackupReader(BytesIO(line))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"x" * 10_000, MAGIC + b"[]\n"])
def test_any_other_file_is_no_backup(content: bytes) -> None:
    with pytest.raises(CorruptBackup):
        BackupReader(BytesIO(content))


async def test_a_store_that_holds_only_a_part_is_not_backed_up() -> None:
    with pytest.raises(StoreUnavailable, match="the store is incomplete"):
        await written({**RECORDS, UNFINISHED_KEY: b"{}"})


async def keep_writing(store: Store, writer: int, enough: asyncio.Event) -> None:
    """Each commit changes one key, makes one and removes an older one: a mixture of two moments would show."""
    last, made = 0, [0, 0]
    number = 0
    while not enough.is_set():
        number += 1
        changes = [
            Write(("last", str(writer)), b"%d" % number, last),
            Write(("all", str(writer), str(number)), b"", 0),
        ]
        if number > 2:
            changes.append(Write(("all", str(writer), str(number - 2)), None, made[0]))
        last = await store.commit(changes)
        made = [made[1], last]


@pytest.mark.parametrize("sort", DURABLE)
async def test_a_backup_taken_under_load_is_one_moment_of_the_history(sort: str, tmp_path: Path) -> None:
    url = await DURABLE[sort](tmp_path / "store")
    store = await open_store(url)
    enough = asyncio.Event()
    writers = [asyncio.create_task(keep_writing(store, number, enough)) for number in range(8)]
    revisions = []
    for _ in range(3):
        await asyncio.sleep(0.05)
        out = BytesIO()
        async with open_snapshot(url) as snapshot:
            summary = await write_backup(snapshot, MADE, sort, out)
        then = await store.scan((), at=summary.header.revision)
        assert list(BackupReader(BytesIO(out.getvalue())).records()) == [
            (each.key, each.value) for each in then.records
        ]
        assert summary.count > 8
        revisions.append(summary.header.revision)
    enough.set()
    await asyncio.gather(*writers)
    assert revisions == sorted(set(revisions))
    assert await store.revision() > revisions[-1]
    await store.close()


async def test_a_file_is_read_beside_its_server_and_after_it_was_killed(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/store.db"
    store = await open_store(url)
    revision = await store.commit([Write(("a",), b"1", 0)])
    copy = tmp_path / "copy.db"
    # As a killed server leaves them: with a log beside the file that holds all of it.
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path}/store.db{end}", f"{copy}{end}")
    for address in (url, f"sqlite:{copy}"):
        async with open_snapshot(address) as snapshot:
            assert snapshot.revision == revision
            assert [record async for record in snapshot.records] == [Record(("a",), b"1", revision)]
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store.db", "store.db.lock"]


async def test_looking_for_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such file"):
        async with open_snapshot(f"sqlite:{tmp_path}/nothing.db"):
            pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"x" * 4096, "not a database")])
async def test_a_file_that_is_none_of_ours_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StoreUnavailable, match=message):
        async with open_snapshot(f"sqlite:{tmp_path}/x.db"):
            pass
    assert (tmp_path / "x.db").read_bytes() == content


async def test_what_is_in_the_memory_of_a_server_cannot_be_backed_up() -> None:
    with pytest.raises(ValueError, match="can only be read by the server"):
        async with open_snapshot("memory:"):
            pass
