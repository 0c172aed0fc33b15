"""storage/reencrypt.py: background re-encryption, on a clock controlled by the test, and what is left on the disk."""

import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead.core.crypto.encryption import (
    EncryptionKeyFile,
    is_encrypted,
    key_id_of,
    reencrypted_key_id,
    remove_key,
    rotate_key,
)
from fairlead.storage.contract import Key, Store, StoreUnavailable, Write
from fairlead.storage.encrypted import EncryptedStore, iter_all_values, load_keyring
from fairlead.storage.memory import MemoryStore
from fairlead.storage.reencrypt import BATCH_SIZE, POLL_SECONDS, reload_keys, run_reencryption, watch_keys
from fairlead.storage.sqlite import SqliteStore

HISTORY_SECONDS = 300.0
HISTORY_STEPS = HISTORY_SECONDS / POLL_SECONDS

Action = Callable[[], Awaitable[None]]


def is_credential(key: Key, value: bytes) -> bool:
    return key[1] == "secrets"


def key_of(number: int) -> Key:
    return ("", "secrets", "default", f"{number:05}")


class StopRun(Exception):
    """Ends the background task."""


class ReencryptionFixture:
    """A store with its keys, and the background task for a number of steps."""

    def __init__(self, store: Store, encrypted: EncryptedStore, folder: Path) -> None:
        self.store, self.encrypted, self.folder = store, encrypted, folder
        self.compacted: list[int] = []
        self.keys = EncryptionKeyFile(folder)

    async def run(self, steps: float, actions: dict[int, Action] | None = None) -> None:
        """Runs the task for this many steps; `actions` run in the sleep before the step of that number."""
        now, step = 0.0, 0

        async def sleep(seconds: float) -> float:
            nonlocal now, step
            if step >= steps:
                raise StopRun
            if actions and step in actions:
                await actions[step]()
            now, step = now + seconds, step + 1
            return now

        self.keys.read()
        with contextlib.suppress(StopRun):
            await run_reencryption(
                self.store,
                self.encrypted,
                self.keys,
                history_seconds=HISTORY_SECONDS,
                on_compacted=self.compacted.append,
                sleep=sleep,
            )

    async def key_ids(self) -> set[str]:
        """Returns the ids of the keys of all readable values; "plain" for unencrypted ones."""
        found = [value async for _, value in iter_all_values(self.store)]
        return {key_id_of(value) if is_encrypted(value) else "plain" for value in found}

    def rotate(self) -> str:
        return rotate_key(self.folder)[0].id


async def open_fixture(store: Store, folder: Path) -> ReencryptionFixture:
    return ReencryptionFixture(
        store, EncryptedStore(store, await load_keyring(store, EncryptionKeyFile(folder)), is_credential), folder
    )


@pytest.fixture
async def reencryption(tmp_path: Path) -> ReencryptionFixture:
    return await open_fixture(MemoryStore(), tmp_path)


async def fill(store: Store, count: int, value: bytes = b"canary") -> None:
    for number in range(count):
        await store.commit([Write(key_of(number), value, 0)])


def files_with(folder: Path, canary: bytes) -> list[str]:
    return [path.name for path in folder.iterdir() if canary in path.read_bytes()]


async def test_plain_credentials_of_an_old_database_are_encrypted_and_nothing_else(
    reencryption: ReencryptionFixture,
) -> None:
    await fill(reencryption.store, 2 * BATCH_SIZE + 1)
    other: Key = ("", "configmaps", "default", "plain")
    revision = await reencryption.store.commit([Write(other, b"{}", 0)])
    before = (await reencryption.encrypted.scan(())).records
    await reencryption.run(1)
    after = (await reencryption.encrypted.scan(())).records
    assert [(record.key, record.value) for record in after] == [(record.key, record.value) for record in before]
    page = await reencryption.store.scan(())
    assert {key_id_of(record.value) for record in page.records if record.key != other} == {
        reencryption.encrypted.keyring.active_key_id
    }
    (other_record,) = [record for record in page.records if record.key == other]
    assert (other_record.value, other_record.revision) == (b"{}", revision)


async def test_history_with_plain_credentials_is_kept_for_the_configured_time(
    reencryption: ReencryptionFixture,
) -> None:
    await fill(reencryption.store, 3)
    oldest = await reencryption.store.oldest()
    await reencryption.run(HISTORY_STEPS)
    assert await reencryption.store.oldest() == oldest
    assert await reencryption.key_ids() == {"plain", reencryption.encrypted.keyring.active_key_id}
    assert reencrypted_key_id(reencryption.folder) == ""


async def test_after_that_time_nothing_is_plain_and_the_key_is_marked_and_logged(
    reencryption: ReencryptionFixture,
) -> None:
    await fill(reencryption.store, 3)
    with capture_logs() as logs:
        await reencryption.run(HISTORY_STEPS + 5)
    active = reencryption.encrypted.keyring.active_key_id
    assert await reencryption.key_ids() == {active}
    assert reencrypted_key_id(reencryption.folder) == active
    assert reencryption.compacted == [await reencryption.store.oldest()]
    assert [(line["key"], line["count"]) for line in logs if line["event"] == "credentials were re-encrypted"] == [
        (active, 3)
    ]


async def test_nothing_is_written_if_everything_is_encrypted(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.encrypted, 3)
    revision = await reencryption.store.revision()
    with capture_logs() as logs:
        await reencryption.run(HISTORY_STEPS + 5)
    assert await reencryption.store.revision() == revision
    assert (reencryption.compacted, logs) == ([], [])
    assert reencrypted_key_id(reencryption.folder) == reencryption.encrypted.keyring.active_key_id


async def test_a_key_rotation_under_a_running_server_is_completed(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.encrypted, 3)
    old = reencryption.encrypted.keyring.active_key_id
    new: list[str] = []

    async def rotate() -> None:
        new.append(reencryption.rotate())

    await reencryption.run(HISTORY_STEPS + 10, {3: rotate})
    assert await reencryption.key_ids() == set(new)
    assert reencrypted_key_id(reencryption.folder) == new[0] != old
    assert [key.id for key in remove_key(reencryption.folder, old)] == new
    assert (await load_keyring(reencryption.store, EncryptionKeyFile(reencryption.folder))).active_key_id == new[0]


async def test_a_key_is_not_marked_while_history_needs_the_old_one(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.encrypted, 1)

    async def rotate() -> None:
        reencryption.rotate()

    await reencryption.run(6, {2: rotate})
    assert len(await reencryption.key_ids()) == 2
    assert reencrypted_key_id(reencryption.folder) == ""


async def test_a_server_stopped_halfway_finishes_after_its_next_start(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.store, 3)
    await reencryption.run(2)
    restarted = await open_fixture(reencryption.store, reencryption.folder)
    with capture_logs() as logs:
        await restarted.run(HISTORY_STEPS + 5)
    assert await restarted.key_ids() == {restarted.encrypted.keyring.active_key_id}
    assert reencrypted_key_id(reencryption.folder) == restarted.encrypted.keyring.active_key_id
    assert logs == []


async def test_restoring_an_older_database_removes_the_mark(reencryption: ReencryptionFixture) -> None:
    await reencryption.run(1)
    assert reencrypted_key_id(reencryption.folder) == reencryption.encrypted.keyring.active_key_id
    await fill(reencryption.store, 1)
    await (await open_fixture(reencryption.store, reencryption.folder)).run(1)
    assert reencrypted_key_id(reencryption.folder) == ""


async def test_a_key_removed_too_early_does_no_harm_while_the_server_runs(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.encrypted, 3)
    old = reencryption.encrypted.keyring.active_key_id

    async def rotate_and_remove() -> None:
        reencryption.rotate()
        remove_key(reencryption.folder, old, force=True)

    await reencryption.run(HISTORY_STEPS + 10, {2: rotate_and_remove})
    keyring = await load_keyring(reencryption.store, EncryptionKeyFile(reencryption.folder))
    assert await reencryption.key_ids() == {keyring.active_key_id}
    assert [key.id for key in keyring.keys] == [keyring.active_key_id]


@pytest.mark.parametrize(("content", "message"), [("nonsense", "are invalid"), (None, "are missing")])
async def test_an_invalid_or_missing_key_file_is_logged_and_the_old_keys_stay(
    content: str | None, message: str, reencryption: ReencryptionFixture
) -> None:
    await fill(reencryption.encrypted, 3)
    before = reencryption.encrypted.keyring

    async def damage_file() -> None:
        path = reencryption.folder / "encryption.keys"
        path.unlink() if content is None else path.write_text(content)

    with capture_logs() as logs:
        await reencryption.run(10, {2: damage_file})
    assert reencryption.encrypted.keyring is before
    assert [line["log_level"] for line in logs] == ["error"], "logged once, not at every poll"
    assert message in logs[0]["event"]


async def test_a_value_written_concurrently_is_not_overwritten(
    reencryption: ReencryptionFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(reencryption.store, 3)
    commit = reencryption.store.commit

    async def write_concurrently(changes: list[Write]) -> int:
        monkeypatch.setattr(reencryption.store, "commit", commit)
        (change,) = changes
        await reencryption.encrypted.commit([Write(change.key, b"newer", change.expected_revision)])
        return await commit(changes)

    monkeypatch.setattr(reencryption.store, "commit", write_concurrently)
    await reencryption.run(HISTORY_STEPS + 5)
    values = [record.value for record in (await reencryption.encrypted.scan(())).records]
    assert values == [b"newer", b"canary", b"canary"]
    assert await reencryption.key_ids() == {reencryption.encrypted.keyring.active_key_id}


async def test_a_store_that_was_unavailable_is_re_encrypted_afterwards(
    reencryption: ReencryptionFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(reencryption.store, 3)
    scan = reencryption.store.scan

    async def fail(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("disk full")

    async def recover() -> None:
        monkeypatch.setattr(reencryption.store, "scan", scan)

    monkeypatch.setattr(reencryption.store, "scan", fail)
    with capture_logs() as logs:
        await reencryption.run(HISTORY_STEPS + 10, {3: recover})
    assert [line["reason"] for line in logs if line["log_level"] == "warning"] == ["disk full"] * 3
    assert await reencryption.key_ids() == {reencryption.encrypted.keyring.active_key_id}


async def test_one_undecryptable_value_does_not_block_the_others(reencryption: ReencryptionFixture) -> None:
    await fill(reencryption.encrypted, 3)
    record = await reencryption.store.read(key_of(1))
    assert record is not None
    damaged = record.value[:-1] + bytes([record.value[-1] ^ 1])
    await reencryption.store.commit([Write(record.key, damaged, record.revision)])

    async def rotate() -> None:
        reencryption.rotate()

    with capture_logs() as logs:
        await reencryption.run(5, {2: rotate})
    active = reencryption.encrypted.keyring.active_key_id
    page = await reencryption.store.scan(())
    assert [key_id_of(each.value) == active for each in page.records] == [True, False, True]
    (problem,) = [line for line in logs if line["log_level"] == "error"]
    assert problem["reason"].startswith("secrets/default/00001 is encrypted with key ")
    assert reencrypted_key_id(reencryption.folder) == ""


async def test_a_failed_purge_is_retried_and_the_key_marked_afterwards(
    reencryption: ReencryptionFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(reencryption.encrypted, 1)
    marks: list[str] = []

    async def purge() -> None:
        marks.append(reencrypted_key_id(reencryption.folder))
        if len(marks) == 1:
            raise StoreUnavailable("disk full")

    monkeypatch.setattr(reencryption.store, "purge_deleted", purge)
    await reencryption.run(HISTORY_STEPS)
    assert (marks, reencrypted_key_id(reencryption.folder)) == ([""], "")
    await reencryption.run(HISTORY_STEPS)
    assert (marks, reencrypted_key_id(reencryption.folder)) == (["", ""], reencryption.encrypted.keyring.active_key_id)


async def test_the_disk_is_purged_once_and_not_at_every_start(
    reencryption: ReencryptionFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reencryption.run(1)

    async def fail() -> None:
        pytest.fail("nothing has been re-encrypted since")

    monkeypatch.setattr(reencryption.store, "purge_deleted", fail)
    await (await open_fixture(reencryption.store, reencryption.folder)).run(HISTORY_STEPS + 5)


async def test_the_disk_contains_no_credential_that_was_once_plain(tmp_path: Path) -> None:
    """Small values between others that stay: SQLite moves rows and leaves copies of them behind."""
    store = await SqliteStore.open(tmp_path / "store.db")
    rng = random.Random(3)
    plain: dict[Key, bytes] = {}
    for number in range(1_000):
        key = key_of(number) if rng.random() < 0.5 else ("", "configmaps", "default", str(number))
        plain[key] = (b"canary" if key[1] == "secrets" else b"{}    ") * rng.choice([6, 10, 20, 50, 100])
        await store.commit([Write(key, plain[key], 0)])
    assert files_with(tmp_path, b"canary")
    fixture = await open_fixture(store, tmp_path)
    await fixture.run(HISTORY_STEPS + 5)
    assert {record.key: record.value for record in (await fixture.encrypted.scan(())).records} == plain
    assert files_with(tmp_path, b"canary") == [], "while the server runs"
    await store.close()
    assert files_with(tmp_path, b"canary") == [], "after it has stopped"


async def test_a_server_that_is_not_the_leader_loads_new_keys_without_re_encrypting(tmp_path: Path) -> None:
    fixture = await open_fixture(MemoryStore(), tmp_path)
    await fixture.store.commit([Write(key_of(1), b"canary", 0)])
    revision, keys, steps = await fixture.store.revision(), EncryptionKeyFile(tmp_path), iter((False, True, False))
    keys.read()
    leading = False

    async def sleep(seconds: float) -> float:
        nonlocal leading
        leading = next(steps)
        rotate_key(tmp_path)
        return seconds

    seen = []

    def is_leading() -> bool:
        seen.append(fixture.encrypted.keyring.active_key_id)
        return leading

    with contextlib.suppress(RuntimeError):  # there are no more steps
        await watch_keys(fixture.encrypted, keys, is_leader=is_leading, sleep=sleep)
    assert seen[0] != seen[1] == seen[2] != fixture.encrypted.keyring.active_key_id
    assert await fixture.store.revision() == revision


async def test_a_key_that_another_process_uses_first_is_loaded_when_it_is_needed(tmp_path: Path) -> None:
    """Processes that share a folder find a new key at different times."""
    first = await open_fixture(MemoryStore(), tmp_path)
    second = await open_fixture(first.store, tmp_path)
    second.keys.read()
    second.encrypted.reload_keys = lambda: reload_keys(second.encrypted, second.keys)
    first.rotate()
    first.encrypted.keyring = EncryptionKeyFile(tmp_path).read() or first.encrypted.keyring
    await first.encrypted.commit([Write(key_of(1), b"canary", 0)])
    assert (await second.encrypted.scan(())).records[0].value == b"canary"
    batch = await anext(aiter(second.encrypted.watch((), await second.store.oldest())))
    assert [event.value for event in batch] == [b"canary"]


async def test_values_are_re_encrypted_also_if_the_new_key_was_loaded_for_a_read(
    reencryption: ReencryptionFixture,
) -> None:
    await reencryption.encrypted.commit([Write(key_of(1), b"canary", 0)])

    async def load_for_a_read() -> None:
        active = reencryption.rotate()
        assert reload_keys(reencryption.encrypted, reencryption.keys)
        assert reencryption.encrypted.keyring.active_key_id == active

    await reencryption.run(HISTORY_STEPS + 10, {3: load_for_a_read})
    assert await reencryption.key_ids() == {reencryption.encrypted.keyring.active_key_id}
