"""storage/backup.py: content of backup files, detection of damage, and consistent snapshots of a busy store."""

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
from tests.harness.durable_stores import ADDRESSES

TIMESTAMP = "2026-11-15T10:00:00Z"
RECORDS = {("g", "things", "", "a"): b"{}", ("g", "things", "", "b\0c"): b"\x00\xff any bytes", ("h",): b""}


async def create_store(records: dict[Key, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, value in records.items():
        await store.commit([Write(key, value, 0)])
    return store


async def write_to_bytes(records: dict[Key, bytes]) -> tuple[bytes, BackupSummary]:
    out = BytesIO()
    summary = await write_backup(await take_snapshot(await create_store(records)), TIMESTAMP, "memory", out)
    return out.getvalue(), summary


async def test_a_backup_contains_all_records_and_describes_the_store() -> None:
    content, summary = await write_to_bytes(RECORDS)
    backup = BackupReader(BytesIO(content))
    assert dict(backup.records()) == RECORDS
    assert backup.summary == summary == verify_file(BytesIO(content))
    assert (summary.count, summary.size_bytes, summary.encryption_key_ids) == (3, len(content), ())
    assert (summary.header.revision, summary.header.made, summary.header.store) == (1_003, TIMESTAMP, "memory")


async def test_records_are_sorted_by_key() -> None:
    one, _ = await write_to_bytes(RECORDS)
    other, _ = await write_to_bytes(dict(reversed(RECORDS.items())))
    assert one == other


async def test_deleted_records_are_not_in_a_backup() -> None:
    store = await create_store(RECORDS)
    found = await store.read(("h",))
    assert found is not None
    await store.commit([Write(("h",), None, found.revision)])
    out = BytesIO()
    assert (await write_backup(await take_snapshot(store), TIMESTAMP, "memory", out)).count == 2
    assert ("h",) not in dict(BackupReader(BytesIO(out.getvalue())).records())


async def test_encrypted_values_stay_encrypted_and_their_key_ids_are_listed() -> None:
    key = ("g", "secrets", "", "s")
    keyring = Keyring([EncryptionKey("2026-01", bytes(32))], "the test")
    encrypted = keyring.encrypt(b"canary", pack_key(key))
    content, summary = await write_to_bytes({**RECORDS, key: encrypted})
    assert b"canary" not in content
    assert summary.encryption_key_ids == verify_file(BytesIO(content)).encryption_key_ids == ("2026-01",)
    assert keyring.decrypt(dict(BackupReader(BytesIO(content)).records())[key], pack_key(key)) == b"canary"


async def test_a_truncated_backup_is_detected() -> None:
    content, _ = await write_to_bytes(RECORDS)
    for length in range(len(content)):
        with pytest.raises(CorruptBackup):
            verify_file(BytesIO(content[:length]))


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
async def test_a_change_of_any_byte_is_detected(mask: int) -> None:
    content, _ = await write_to_bytes(RECORDS)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= mask
        with pytest.raises(CorruptBackup):
            verify_file(BytesIO(changed))


async def test_data_after_the_end_is_detected() -> None:
    content, _ = await write_to_bytes(RECORDS)
    with pytest.raises(CorruptBackup, match="data after its trailer"):
        verify_file(BytesIO(content + b"\n"))


async def test_a_duplicate_record_is_detected() -> None:
    async def repeat_record() -> AsyncGenerator[Record]:
        for _ in range(2):
            yield Record(("a",), b"x", 1)

    out = BytesIO()
    await write_backup(Snapshot(1, repeat_record()), TIMESTAMP, "memory", out)
    with pytest.raises(CorruptBackup, match="not sorted"):
        verify_file(BytesIO(out.getvalue()))


def test_a_backup_of_a_newer_version_is_rejected() -> None:
    line = MAGIC + b'{"revision":1,"made":"","store":"","version":2}\n'
    with pytest.raises(CorruptBackup, match="newer version"):
        BackupReader(BytesIO(line))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"x" * 10_000, MAGIC + b"[]\n"])
def test_any_other_file_is_not_a_backup(content: bytes) -> None:
    with pytest.raises(CorruptBackup):
        BackupReader(BytesIO(content))


async def test_an_incomplete_store_cannot_be_backed_up() -> None:
    with pytest.raises(StoreUnavailable, match="the store is incomplete"):
        await write_to_bytes({**RECORDS, UNFINISHED_KEY: b"{}"})


async def keep_writing(store: Store, writer: int, stop: asyncio.Event) -> None:
    """Each commit updates, creates and deletes a key, so that an inconsistent snapshot is found."""
    last, created = 0, [0, 0]
    number = 0
    while not stop.is_set():
        number += 1
        changes = [
            Write(("last", str(writer)), b"%d" % number, last),
            Write(("all", str(writer), str(number)), b"", 0),
        ]
        if number > 2:
            changes.append(Write(("all", str(writer), str(number - 2)), None, created[0]))
        last = await store.commit(changes)
        created = [created[1], last]


@pytest.mark.parametrize("backend", ADDRESSES)
async def test_a_backup_under_load_is_a_consistent_snapshot(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_store(url)
    stop = asyncio.Event()
    writers = [asyncio.create_task(keep_writing(store, number, stop)) for number in range(8)]
    revisions = []
    for _ in range(3):
        before = await store.revision()
        while await store.revision() < before + 10 * len(writers):  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.05)
        out = BytesIO()
        async with open_snapshot(url) as snapshot:
            summary = await write_backup(snapshot, TIMESTAMP, backend, out)
        snapshot_page = await store.scan((), at=summary.header.revision)
        assert list(BackupReader(BytesIO(out.getvalue())).records()) == [
            (each.key, each.value) for each in snapshot_page.records
        ]
        assert summary.count > 8
        revisions.append(summary.header.revision)
    stop.set()
    await asyncio.gather(*writers)
    assert revisions == sorted(set(revisions))
    assert await store.revision() > revisions[-1]
    await store.close()


async def test_a_database_file_can_be_read_beside_its_server_and_after_a_crash(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/store.db"
    store = await open_store(url)
    revision = await store.commit([Write(("a",), b"1", 0)])
    copy = tmp_path / "copy.db"
    # As after a crash: with a write-ahead log that contains all data.
    for suffix in ("", "-wal"):
        shutil.copy(f"{tmp_path}/store.db{suffix}", f"{copy}{suffix}")
    for address in (url, f"sqlite:{copy}"):
        async with open_snapshot(address) as snapshot:
            assert snapshot.revision == revision
            assert [record async for record in snapshot.records] == [Record(("a",), b"1", revision)]
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store.db", "store.db.lock"]


async def test_opening_a_missing_file_does_not_create_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such file"):
        async with open_snapshot(f"sqlite:{tmp_path}/nothing.db"):
            pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"x" * 4096, "not a database")])
async def test_a_file_that_is_no_store_is_rejected_and_not_changed(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StoreUnavailable, match=message):
        async with open_snapshot(f"sqlite:{tmp_path}/x.db"):
            pass
    assert (tmp_path / "x.db").read_bytes() == content


async def test_a_memory_store_cannot_be_backed_up() -> None:
    with pytest.raises(ValueError, match="can only be read by the server"):
        async with open_snapshot("memory:"):
            pass
