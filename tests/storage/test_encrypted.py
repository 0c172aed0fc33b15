"""The sealing store: what lies below it on the disk, and what happens when it does not open.

That it keeps the contract is asked in `test_contract.py` and its neighbours, where it is one of the stores.
"""

from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import MAGIC, EncryptionKey, Keyring, is_encrypted, key_id_of
from fairlead.core.crypto.key_file import EncryptionKeyFile, rotate_key
from fairlead.core.files import FileProblem
from fairlead.storage.contract import FIRST_REVISION, Event, Key, Record, Store, StoreUnavailable, Write
from fairlead.storage.encrypted import EncryptedStore, load_keyring, publish_active_key
from fairlead.storage.memory import MemoryStore

KEYRING = Keyring([EncryptionKey("k1", bytes(32))], "/data/encryption.keys")
SECRET: Key = ("", "secrets", "default", "one")
OTHER: Key = ("", "secrets", "default", "two")
PLAIN: Key = ("", "configmaps", "default", "one")


def holds(key: Key, value: bytes) -> bool:
    return key[1] == "secrets" and b"canary" in value


@pytest.fixture
def below() -> Store:
    return MemoryStore()


@pytest.fixture
def sealed(below: Store) -> EncryptedStore:
    return EncryptedStore(below, KEYRING, holds)


async def raw(store: Store, key: Key) -> bytes:
    record = await store.read(key)
    assert record is not None
    return record.value


async def test_a_credential_is_sealed_below_and_plain_above(below: Store, sealed: EncryptedStore) -> None:
    revision = await sealed.commit([Write(SECRET, b"canary", 0), Write(PLAIN, b"canary", 0)])
    assert is_encrypted(await raw(below, SECRET))
    assert b"canary" not in await raw(below, SECRET)
    assert await raw(below, PLAIN) == b"canary"
    records = [Record(PLAIN, b"canary", revision), Record(SECRET, b"canary", revision)]
    assert await sealed.read(SECRET) == records[1]
    assert (await sealed.scan(())).records == records
    events = [Event(SECRET, b"canary", revision), Event(PLAIN, b"canary", revision)]
    assert await anext(sealed.watch((), FIRST_REVISION)) == events


async def test_values_from_before_sealing_are_read_as_they_are_and_sealed_when_written(
    below: Store, sealed: EncryptedStore
) -> None:
    revision = await below.commit([Write(SECRET, b"canary", 0)])
    assert await sealed.read(SECRET) == Record(SECRET, b"canary", revision)
    await sealed.commit([Write(SECRET, b"canary 2", revision)])
    assert is_encrypted(await raw(below, SECRET))


async def test_a_value_that_only_looks_sealed_comes_back_as_it_was(below: Store, sealed: EncryptedStore) -> None:
    for value in (MAGIC, MAGIC + b"\x02k1 and more", KEYRING.encrypt(b"x", b"y")):
        record = await sealed.read(PLAIN)
        await sealed.commit([Write(PLAIN, value, record.revision if record else 0)])
        read = await sealed.read(PLAIN)
        assert read is not None
        assert read.value == value


async def test_a_value_moved_to_another_object_does_not_open(below: Store, sealed: EncryptedStore) -> None:
    await sealed.commit([Write(SECRET, b"canary", 0)])
    await below.commit([Write(OTHER, await raw(below, SECRET), 0)])
    with pytest.raises(
        StoreUnavailable, match=r"^secrets/default/two is encrypted with key k1 and cannot be decrypted"
    ):
        await sealed.read(OTHER)


async def test_a_key_cannot_be_joined_to_look_like_another(below: Store, sealed: EncryptedStore) -> None:
    await sealed.commit([Write(("g", "secrets", "ab", "c"), b"canary", 0)])
    value = await raw(below, ("g", "secrets", "ab", "c"))
    for key in (("g", "secrets", "a", "bc"), ("g", "secrets", "ab\x00c", ""), ("g", "secrets", "ab", "", "c")):
        await below.commit([Write(key, value, 0)])
        with pytest.raises(StoreUnavailable):
            await sealed.read(key)


@pytest.mark.parametrize("how", ["read", "scan", "watch"])
async def test_a_missing_key_is_told_with_the_object_and_the_place(
    how: str, below: Store, sealed: EncryptedStore
) -> None:
    await sealed.commit([Write(SECRET, b"canary", 0)])
    sealed.keyring = Keyring([EncryptionKey("k2", bytes(32))], "/data/encryption.keys")
    with pytest.raises(StoreUnavailable) as caught:
        if how == "read":
            await sealed.read(SECRET)
        elif how == "scan":
            await sealed.scan(())
        else:
            await anext(sealed.watch((), FIRST_REVISION))
    assert str(caught.value) == (
        "secrets/default/one is encrypted with key k1, which is not in /data/encryption.keys; "
        "restore that key from a backup"
    )


async def test_new_keys_count_from_the_moment_they_are_handed_over(below: Store, sealed: EncryptedStore) -> None:
    revision = await sealed.commit([Write(SECRET, b"canary", 0)])
    sealed.keyring = Keyring([EncryptionKey("k2", bytes(32)), *KEYRING.keys], "/data/encryption.keys")
    assert await sealed.read(SECRET) == Record(SECRET, b"canary", revision)
    await sealed.commit([Write(SECRET, b"canary", revision)])
    assert key_id_of(await raw(below, SECRET)) == "k2"


async def test_the_first_start_makes_the_keys(below: Store, tmp_path: Path) -> None:
    await below.commit([Write(SECRET, b"canary", 0)])
    made = await load_keyring(below, EncryptionKeyFile(tmp_path))
    again = await load_keyring(below, EncryptionKeyFile(tmp_path))
    assert made.keys == again.keys


async def test_a_start_without_the_keys_is_refused_with_advice(below: Store, tmp_path: Path) -> None:
    keyring = await load_keyring(below, EncryptionKeyFile(tmp_path))
    await EncryptedStore(below, keyring, holds).commit([Write(SECRET, b"canary", 0)])
    (tmp_path / "encryption.keys").unlink()
    with pytest.raises(
        FileProblem, match=r"encryption.keys: missing, and secrets/default/one .* restore it from a backup"
    ):
        await load_keyring(below, EncryptionKeyFile(tmp_path))
    assert not (tmp_path / "encryption.keys").exists(), "a new file would hide that the old one is missed"


@pytest.mark.parametrize("superseded", [False, True])
async def test_a_start_with_other_keys_is_refused_even_if_only_history_needs_the_old_ones(
    superseded: bool, below: Store, tmp_path: Path
) -> None:
    keyring = await load_keyring(below, EncryptionKeyFile(tmp_path))
    revision = await EncryptedStore(below, keyring, holds).commit([Write(SECRET, b"canary", 0)])
    if superseded:
        await below.commit([Write(SECRET, None, revision)])
    (tmp_path / "encryption.keys").unlink()
    EncryptionKeyFile(tmp_path).create()
    with pytest.raises(
        StoreUnavailable, match=f"secrets/default/one is encrypted with key {keyring.active_key_id}, which is not in"
    ):
        await load_keyring(below, EncryptionKeyFile(tmp_path))


async def test_a_start_finds_a_value_that_was_tampered_with(below: Store, tmp_path: Path) -> None:
    keyring = await load_keyring(below, EncryptionKeyFile(tmp_path))
    revision = await EncryptedStore(below, keyring, holds).commit([Write(SECRET, b"canary", 0)])
    value = await raw(below, SECRET)
    await below.commit([Write(SECRET, value[:-1] + bytes([value[-1] ^ 1]), revision)])
    with pytest.raises(StoreUnavailable, match=r"secrets/default/one is .* cannot be decrypted"):
        await load_keyring(below, EncryptionKeyFile(tmp_path))


async def test_a_start_with_old_and_new_keys_opens_everything_of_many_pages(
    below: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.encrypted.SCAN_PAGE_SIZE", 3)
    first = EncryptedStore(below, await load_keyring(below, EncryptionKeyFile(tmp_path)), holds)
    for number in range(10):
        await first.commit([Write(("", "secrets", "", str(number)), b"canary", 0)])
    await below.compact(await below.revision())
    rotate_key(tmp_path)
    second = EncryptedStore(below, await load_keyring(below, EncryptionKeyFile(tmp_path)), holds)
    await second.commit([Write(SECRET, b"canary", 0)])
    assert second.keyring.active_key_id != first.keyring.active_key_id
    assert {record.value for record in (await second.scan(())).records} == {b"canary"}


async def test_servers_agree_on_a_key_that_all_of_them_have(below: Store, tmp_path: Path) -> None:
    first = await load_keyring(below, EncryptionKeyFile(tmp_path))
    await publish_active_key(below, first)
    (tmp_path / "other").mkdir()
    with pytest.raises(FileProblem, match=rf"key {first.active_key_id}; copy that file"):
        await load_keyring(below, EncryptionKeyFile(tmp_path / "other"))
    assert not (tmp_path / "other" / "encryption.keys").exists()
    with pytest.raises(FileProblem, match=rf"key {first.active_key_id}, which is missing here"):
        await publish_active_key(below, KEYRING)
    with pytest.raises(FileProblem, match="which differs here"):
        await publish_active_key(below, Keyring([EncryptionKey(first.active_key_id, bytes(32))], "here"))


async def test_whoever_knows_the_key_in_use_may_bring_a_newer_one(below: Store, tmp_path: Path) -> None:
    first = await load_keyring(below, EncryptionKeyFile(tmp_path))
    await publish_active_key(below, first)
    rotate_key(tmp_path)
    second = await load_keyring(below, EncryptionKeyFile(tmp_path))
    await publish_active_key(below, second)
    with pytest.raises(FileProblem, match=second.active_key_id):
        await publish_active_key(below, first)
