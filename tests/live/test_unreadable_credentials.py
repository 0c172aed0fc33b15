"""A server does not start with credentials that it cannot decrypt, and names them with the reason."""

import asyncio
from pathlib import Path

import pytest

from fairlead.app import run
from fairlead.core.crypto.encryption import EncryptionKeyFile, Keyring, generate_key, write_keys
from fairlead.settings import Settings, StartError, load
from fairlead.storage.contract import Store, Write
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.open import open_store

SECRET = ("", "secrets", "default", "lost")


async def run_once(settings: Settings) -> None:
    """Starts a server and stops it as soon as it is ready."""
    stop = asyncio.Event()
    await run(settings, stop, lambda started: stop.set())


async def write_secret_with_lost_key(settings: Settings, folder: Path) -> str:
    """Writes a secret encrypted with a key that the server does not have, without history; returns the key id."""
    lost_key = generate_key()
    write_keys(folder / "encryption.keys", [lost_key])
    keyring = EncryptionKeyFile(folder).read()
    assert keyring is not None
    store = await open_store(settings.store_url)
    try:
        revision = await EncryptedStore(store, keyring, lambda key, value: True).commit(
            [Write(SECRET, b'{"data":{}}', 0)]
        )
        await store.compact(revision)
    finally:
        await store.close()
    return lost_key.id


async def test_a_credential_that_cannot_be_decrypted_is_named_at_startup(tmp_path: Path) -> None:
    settings = load({"data": str(tmp_path / "data"), "port": "0"}, {}, {"log_level": "warning"})
    await run_once(settings)
    (tmp_path / "lost").mkdir()
    key = await write_secret_with_lost_key(settings, tmp_path / "lost")
    with pytest.raises(StartError, match=f"secrets/default/lost is encrypted with key {key}, which is not in"):
        await run_once(settings)


async def test_a_server_that_cannot_decrypt_everything_does_not_publish_its_active_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"data": str(tmp_path / "data"), "port": "0"}, {}, {"log_level": "warning"})
    await run_once(settings)
    (tmp_path / "lost").mkdir()
    await write_secret_with_lost_key(settings, tmp_path / "lost")
    published: list[Keyring] = []

    async def record_keyring(store: Store, keyring: Keyring) -> None:
        published.append(keyring)

    monkeypatch.setattr("fairlead.app.stores.publish_active_key", record_keyring)
    with pytest.raises(StartError):
        await run_once(settings)
    assert published == []
