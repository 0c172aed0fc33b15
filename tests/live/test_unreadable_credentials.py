"""A server does not start on credentials that it cannot open, and says which and why."""

import asyncio
from pathlib import Path

import pytest

from fairlead.app import run
from fairlead.core.crypto.encryption import Keyring
from fairlead.core.crypto.key_file import EncryptionKeyFile, generate_key, write_keys
from fairlead.settings import Settings, StartError, load
from fairlead.storage.contract import Store, Write
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.open import open_store

SECRET = ("", "secrets", "default", "lost")


async def _once(settings: Settings) -> None:
    """A start, and the end right after."""
    stop = asyncio.Event()
    await run(settings, stop, lambda started: stop.set())


async def _seal_with_a_key_that_is_lost(settings: Settings, folder: Path) -> str:
    """Only the newest state is left of it, and no history."""
    lost = generate_key()
    write_keys(folder / "encryption.keys", [lost])
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
    return lost.id


async def test_a_credential_that_does_not_open_is_named_at_the_start(tmp_path: Path) -> None:
    settings = load({"data": str(tmp_path / "data"), "port": "0"}, {}, {"log_level": "warning"})
    await _once(settings)
    (tmp_path / "lost").mkdir()
    key = await _seal_with_a_key_that_is_lost(settings, tmp_path / "lost")
    with pytest.raises(StartError, match=f"secrets/default/lost is encrypted with key {key}, which is not in"):
        await _once(settings)


async def test_whoever_cannot_open_everything_does_not_tell_others_which_key_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"data": str(tmp_path / "data"), "port": "0"}, {}, {"log_level": "warning"})
    await _once(settings)
    (tmp_path / "lost").mkdir()
    await _seal_with_a_key_that_is_lost(settings, tmp_path / "lost")
    told: list[Keyring] = []

    async def agree(store: Store, keyring: Keyring) -> None:
        told.append(keyring)

    monkeypatch.setattr("fairlead.app.publish_active_key", agree)
    with pytest.raises(StartError):
        await _once(settings)
    assert told == []
