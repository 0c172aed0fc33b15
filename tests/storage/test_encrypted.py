"""storage/encrypted.py: what the inner store contains, and what happens without the right keys.

The contract is tested in `test_contract.py` and others, where this is one of the stores.

"""

from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import (
    MAGIC,
    EncryptionKey,
    EncryptionKeyFile,
    Keyring,
    is_encrypted,
    key_id_of,
    rotate_key,
)
from fairlead.core.files import FileProblem
from fairlead.storage.contract import FIRST_REVISION, Event, Key, Record, Store, StoreUnavailable, Write
from fairlead.storage.encrypted import EncryptedStore, load_keyring, publish_active_key
from fairlead.storage.memory import MemoryStore

KEYRING = Keyring([EncryptionKey("k1", bytes(32))], "/data/encryption.keys")
SECRET: Key = ("", "secrets", "default", "one")
OTHER: Key = ("", "secrets", "default", "two")
PLAIN: Key = ("", "configmaps", "default", "one")


def is_credential(key: Key, value: bytes) -> bool:
    return key[1] == "secrets" and b"canary" in value


@pytest.fixture
def inner() -> Store:
    return MemoryStore()


@pytest.fixture
def encrypted(inner: Store) -> EncryptedStore:
    return EncryptedStore(inner, KEYRING, is_credential)


async def read_raw(store: Store, key: Key) -> bytes:
    record = await store.read(key)
    assert record is not None
    return record.value


async def test_a_credential_is_encrypted_in_the_inner_store_and_plain_to_the_caller(
    inner: Store, encrypted: EncryptedStore
) -> None:
    revision = await encrypted.commit([Write(SECRET, b"canary", 0), Write(PLAIN, b"canary", 0)])
    assert is_encrypted(await read_raw(inner, SECRET))
    assert b"canary" not in await read_raw(inner, SECRET)
    assert await read_raw(inner, PLAIN) == b"canary"
    records = [Record(PLAIN, b"canary", revision), Record(SECRET, b"canary", revision)]
    assert await encrypted.read(SECRET) == records[1]
    assert (await encrypted.scan(())).records == records
    events = [Event(SECRET, b"canary", revision), Event(PLAIN, b"canary", revision)]
    assert await anext(encrypted.watch((), FIRST_REVISION)) == events


async def test_plain_values_are_read_as_they_are_and_encrypted_when_written(
    inner: Store, encrypted: EncryptedStore
) -> None:
    revision = await inner.commit([Write(SECRET, b"canary", 0)])
    assert await encrypted.read(SECRET) == Record(SECRET, b"canary", revision)
    await encrypted.commit([Write(SECRET, b"canary 2", revision)])
    assert is_encrypted(await read_raw(inner, SECRET))


@pytest.mark.parametrize("how", ["read", "scan", "watch"])
async def test_what_a_newer_version_has_encrypted_stays_encrypted(
    inner: Store, encrypted: EncryptedStore, how: str
) -> None:
    """It knows a sensitive field in a kind that has none here."""
    newer = EncryptedStore(inner, KEYRING, lambda key, value: True)
    revision = await newer.commit([Write(PLAIN, b"newer", 0)])
    if how == "read":
        await encrypted.read(PLAIN)
    elif how == "scan":
        await encrypted.scan(())
    else:
        await anext(encrypted.watch((), FIRST_REVISION))
    revision = await encrypted.commit([Write(PLAIN, b"newer, changed", revision)])
    assert is_encrypted(await read_raw(inner, PLAIN))
    moved: Key = (*PLAIN[:3], "moved")
    await encrypted.commit([Write(PLAIN, None, revision), Write(moved, b"newer, changed", 0)])
    assert is_encrypted(await read_raw(inner, moved))
    assert await encrypted.read(moved) == Record(moved, b"newer, changed", await inner.revision())
    await anext(encrypted.watch((), revision))  # with the deletion
    await encrypted.commit([Write(PLAIN, b"plain", 0), Write((*PLAIN[:3], "other"), b"plain", 0)])
    assert not is_encrypted(await read_raw(inner, PLAIN))
    assert not is_encrypted(await read_raw(inner, (*PLAIN[:3], "other")))


async def test_a_plain_value_that_looks_encrypted_is_returned_unchanged(
    inner: Store, encrypted: EncryptedStore
) -> None:
    for value in (MAGIC, MAGIC + b"\x02k1 and more", KEYRING.encrypt(b"x", b"y")):
        record = await encrypted.read(PLAIN)
        await encrypted.commit([Write(PLAIN, value, record.revision if record else 0)])
        read = await encrypted.read(PLAIN)
        assert read is not None
        assert read.value == value


async def test_a_value_copied_to_another_object_cannot_be_decrypted(inner: Store, encrypted: EncryptedStore) -> None:
    await encrypted.commit([Write(SECRET, b"canary", 0)])
    await inner.commit([Write(OTHER, await read_raw(inner, SECRET), 0)])
    with pytest.raises(
        StoreUnavailable, match=r"^secrets/default/two is encrypted with key k1 and cannot be decrypted"
    ):
        await encrypted.read(OTHER)


async def test_parts_of_a_key_cannot_be_joined_to_match_another_key(inner: Store, encrypted: EncryptedStore) -> None:
    await encrypted.commit([Write(("g", "secrets", "ab", "c"), b"canary", 0)])
    value = await read_raw(inner, ("g", "secrets", "ab", "c"))
    for key in (("g", "secrets", "a", "bc"), ("g", "secrets", "ab\x00c", ""), ("g", "secrets", "ab", "", "c")):
        await inner.commit([Write(key, value, 0)])
        with pytest.raises(StoreUnavailable):
            await encrypted.read(key)


@pytest.mark.parametrize("operation", ["read", "scan", "watch"])
async def test_a_missing_encryption_key_is_reported_with_object_and_file(
    operation: str, inner: Store, encrypted: EncryptedStore
) -> None:
    await encrypted.commit([Write(SECRET, b"canary", 0)])
    encrypted.keyring = Keyring([EncryptionKey("k2", bytes(32))], "/data/encryption.keys")
    with pytest.raises(StoreUnavailable) as caught:
        if operation == "read":
            await encrypted.read(SECRET)
        elif operation == "scan":
            await encrypted.scan(())
        else:
            await anext(encrypted.watch((), FIRST_REVISION))
    assert str(caught.value) == (
        "secrets/default/one is encrypted with key k1, which is not in /data/encryption.keys; "
        "restore that key from a backup"
    )


async def test_a_new_keyring_is_used_at_once(inner: Store, encrypted: EncryptedStore) -> None:
    revision = await encrypted.commit([Write(SECRET, b"canary", 0)])
    encrypted.keyring = Keyring([EncryptionKey("k2", bytes(32)), *KEYRING.keys], "/data/encryption.keys")
    assert await encrypted.read(SECRET) == Record(SECRET, b"canary", revision)
    await encrypted.commit([Write(SECRET, b"canary", revision)])
    assert key_id_of(await read_raw(inner, SECRET)) == "k2"


async def test_the_first_start_creates_the_encryption_keys(inner: Store, tmp_path: Path) -> None:
    await inner.commit([Write(SECRET, b"canary", 0)])
    first = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    second = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    assert first.keys == second.keys


async def test_a_start_without_the_encryption_keys_is_rejected_with_advice(inner: Store, tmp_path: Path) -> None:
    keyring = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    await EncryptedStore(inner, keyring, is_credential).commit([Write(SECRET, b"canary", 0)])
    (tmp_path / "encryption.keys").unlink()
    with pytest.raises(
        FileProblem, match=r"encryption.keys: missing, and secrets/default/one .* restore it from a backup"
    ):
        await load_keyring(inner, EncryptionKeyFile(tmp_path))
    assert not (tmp_path / "encryption.keys").exists(), "a new file would hide the loss of the old one"


@pytest.mark.parametrize("superseded", [False, True])
async def test_a_start_with_other_keys_is_rejected_even_if_only_history_needs_the_old_ones(
    superseded: bool, inner: Store, tmp_path: Path
) -> None:
    keyring = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    revision = await EncryptedStore(inner, keyring, is_credential).commit([Write(SECRET, b"canary", 0)])
    if superseded:
        await inner.commit([Write(SECRET, None, revision)])
    (tmp_path / "encryption.keys").unlink()
    EncryptionKeyFile(tmp_path).create()
    with pytest.raises(
        StoreUnavailable, match=f"secrets/default/one is encrypted with key {keyring.active_key_id}, which is not in"
    ):
        await load_keyring(inner, EncryptionKeyFile(tmp_path))


async def test_a_start_detects_a_value_that_was_tampered_with(inner: Store, tmp_path: Path) -> None:
    keyring = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    revision = await EncryptedStore(inner, keyring, is_credential).commit([Write(SECRET, b"canary", 0)])
    value = await read_raw(inner, SECRET)
    await inner.commit([Write(SECRET, value[:-1] + bytes([value[-1] ^ 1]), revision)])
    with pytest.raises(StoreUnavailable, match=r"secrets/default/one is .* cannot be decrypted"):
        await load_keyring(inner, EncryptionKeyFile(tmp_path))


async def test_a_start_with_old_and_new_keys_decrypts_all_pages(
    inner: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.encrypted.SCAN_PAGE_SIZE", 3)
    first = EncryptedStore(inner, await load_keyring(inner, EncryptionKeyFile(tmp_path)), is_credential)
    for number in range(10):
        await first.commit([Write(("", "secrets", "", str(number)), b"canary", 0)])
    await inner.compact(await inner.revision())
    rotate_key(tmp_path)
    second = EncryptedStore(inner, await load_keyring(inner, EncryptionKeyFile(tmp_path)), is_credential)
    await second.commit([Write(SECRET, b"canary", 0)])
    assert second.keyring.active_key_id != first.keyring.active_key_id
    assert {record.value for record in (await second.scan(())).records} == {b"canary"}


async def test_the_published_key_must_be_known_to_every_server(inner: Store, tmp_path: Path) -> None:
    first = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    await publish_active_key(inner, first)
    (tmp_path / "other").mkdir()
    with pytest.raises(FileProblem, match=rf"key {first.active_key_id}; copy that file and pepper.key from a"):
        await load_keyring(inner, EncryptionKeyFile(tmp_path / "other"))
    assert not (tmp_path / "other" / "encryption.keys").exists()
    with pytest.raises(FileProblem, match=rf"key {first.active_key_id}, which is missing here"):
        await publish_active_key(inner, KEYRING)
    with pytest.raises(FileProblem, match="which differs here"):
        await publish_active_key(inner, Keyring([EncryptionKey(first.active_key_id, bytes(32))], "here"))


async def test_a_server_that_has_the_published_key_can_publish_a_newer_one(inner: Store, tmp_path: Path) -> None:
    first = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    await publish_active_key(inner, first)
    rotate_key(tmp_path)
    second = await load_keyring(inner, EncryptionKeyFile(tmp_path))
    await publish_active_key(inner, second)
    with pytest.raises(FileProblem, match=second.active_key_id):
        await publish_active_key(inner, first)
