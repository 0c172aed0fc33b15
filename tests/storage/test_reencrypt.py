"""Resealing in the background, on a clock that the test turns; and what a thief finds on the disk afterwards."""

import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead.core.crypto.encryption import is_encrypted, key_id_of
from fairlead.core.crypto.key_file import EncryptionKeyFile, reencrypted_key_id, remove_key, rotate_key
from fairlead.storage.contract import Key, Store, StoreUnavailable, Write
from fairlead.storage.encrypted import EncryptedStore, iter_all_values, load_keyring
from fairlead.storage.memory import MemoryStore
from fairlead.storage.reencrypt import BATCH_SIZE, POLL_SECONDS, run_reencryption, watch_keys
from fairlead.storage.sqlite import SqliteStore

SECONDS = 300.0
HELD = SECONDS / POLL_SECONDS

Act = Callable[[], Awaitable[None]]


def holds(key: Key, value: bytes) -> bool:
    return key[1] == "secrets"


def key_of(number: int) -> Key:
    return ("", "secrets", "default", f"{number:05}")


class Ended(Exception):
    """The test has seen enough."""


class Place:
    """A store with its keys, and a server's background task for as many steps as a test wants."""

    def __init__(self, store: Store, sealed: EncryptedStore, folder: Path) -> None:
        self.store, self.sealed, self.folder = store, sealed, folder
        self.compacted: list[int] = []

    async def run(self, steps: float, acts: dict[int, Act] | None = None) -> None:
        """Lets the task make its steps; `acts` happen in the pause before the step of that number."""
        now, made = 0.0, 0

        async def pause(seconds: float) -> float:
            nonlocal now, made
            if made >= steps:
                raise Ended
            if acts and made in acts:
                await acts[made]()
            now, made = now + seconds, made + 1
            return now

        keys = EncryptionKeyFile(self.folder)
        keys.read()
        with contextlib.suppress(Ended):
            await run_reencryption(
                self.store, self.sealed, keys, history_seconds=SECONDS, on_compacted=self.compacted.append, sleep=pause
            )

    async def ids(self) -> set[str]:
        """The keys that anything readable is sealed under; "plain" for what is not."""
        found = [value async for _, value in iter_all_values(self.store)]
        return {key_id_of(value) if is_encrypted(value) else "plain" for value in found}

    def rotate(self) -> str:
        return rotate_key(self.folder)[0].id


async def place(store: Store, folder: Path) -> Place:
    return Place(store, EncryptedStore(store, await load_keyring(store, EncryptionKeyFile(folder)), holds), folder)


@pytest.fixture
async def memory(tmp_path: Path) -> Place:
    return await place(MemoryStore(), tmp_path)


async def fill(store: Store, count: int, value: bytes = b"canary") -> None:
    for number in range(count):
        await store.commit([Write(key_of(number), value, 0)])


def files_with(folder: Path, canary: bytes) -> list[str]:
    return [path.name for path in folder.iterdir() if canary in path.read_bytes()]


async def test_plain_credentials_of_an_old_database_are_sealed_and_nothing_else_is(memory: Place) -> None:
    await fill(memory.store, 2 * BATCH_SIZE + 1)
    other: Key = ("", "configmaps", "default", "plain")
    revision = await memory.store.commit([Write(other, b"{}", 0)])
    before = (await memory.sealed.scan(())).records
    await memory.run(1)
    after = (await memory.sealed.scan(())).records
    assert [(record.key, record.value) for record in after] == [(record.key, record.value) for record in before]
    page = await memory.store.scan(())
    assert {key_id_of(record.value) for record in page.records if record.key != other} == {
        memory.sealed.keyring.active_key_id
    }
    (left,) = [record for record in page.records if record.key == other]
    assert (left.value, left.revision) == (b"{}", revision)


async def test_history_that_shows_them_is_forgotten_after_its_time_and_not_before(memory: Place) -> None:
    await fill(memory.store, 3)
    oldest = await memory.store.oldest()
    await memory.run(HELD)
    assert await memory.store.oldest() == oldest
    assert await memory.ids() == {"plain", memory.sealed.keyring.active_key_id}
    assert reencrypted_key_id(memory.folder) == ""


async def test_in_the_end_nothing_is_plain_and_that_is_marked_and_told(memory: Place) -> None:
    await fill(memory.store, 3)
    with capture_logs() as logs:
        await memory.run(HELD + 5)
    active = memory.sealed.keyring.active_key_id
    assert await memory.ids() == {active}
    assert reencrypted_key_id(memory.folder) == active
    assert memory.compacted == [await memory.store.oldest()]
    assert [(line["key"], line["count"]) for line in logs if line["event"] == "credentials were re-encrypted"] == [
        (active, 3)
    ]


async def test_where_all_is_well_nothing_is_written(memory: Place) -> None:
    await fill(memory.sealed, 3)
    revision = await memory.store.revision()
    with capture_logs() as logs:
        await memory.run(HELD + 5)
    assert await memory.store.revision() == revision
    assert (memory.compacted, logs) == ([], [])
    assert reencrypted_key_id(memory.folder) == memory.sealed.keyring.active_key_id


async def test_a_rotation_under_a_running_server_is_noticed_and_carried_through(memory: Place) -> None:
    await fill(memory.sealed, 3)
    old = memory.sealed.keyring.active_key_id
    new: list[str] = []

    async def turn() -> None:
        new.append(memory.rotate())

    await memory.run(HELD + 10, {3: turn})
    assert await memory.ids() == set(new)
    assert reencrypted_key_id(memory.folder) == new[0] != old
    assert [key.id for key in remove_key(memory.folder, old)] == new
    assert (await load_keyring(memory.store, EncryptionKeyFile(memory.folder))).active_key_id == new[0]


async def test_a_key_is_not_done_with_while_history_needs_it(memory: Place) -> None:
    await fill(memory.sealed, 1)

    async def turn() -> None:
        memory.rotate()

    await memory.run(6, {2: turn})
    assert len(await memory.ids()) == 2
    assert reencrypted_key_id(memory.folder) == ""


async def test_a_server_stopped_halfway_finishes_after_its_next_start(memory: Place) -> None:
    await fill(memory.store, 3)
    await memory.run(2)
    again = await place(memory.store, memory.folder)
    with capture_logs() as logs:
        await again.run(HELD + 5)
    assert await again.ids() == {again.sealed.keyring.active_key_id}
    assert reencrypted_key_id(memory.folder) == again.sealed.keyring.active_key_id
    assert logs == []


async def test_an_older_database_put_back_takes_the_mark_away(memory: Place) -> None:
    await memory.run(1)
    assert reencrypted_key_id(memory.folder) == memory.sealed.keyring.active_key_id
    await fill(memory.store, 1)
    await (await place(memory.store, memory.folder)).run(1)
    assert reencrypted_key_id(memory.folder) == ""


async def test_a_key_taken_away_too_early_does_no_harm_while_the_server_runs(memory: Place) -> None:
    await fill(memory.sealed, 3)
    old = memory.sealed.keyring.active_key_id

    async def hurry() -> None:
        memory.rotate()
        remove_key(memory.folder, old, force=True)

    await memory.run(HELD + 10, {2: hurry})
    keyring = await load_keyring(memory.store, EncryptionKeyFile(memory.folder))
    assert await memory.ids() == {keyring.active_key_id}
    assert [key.id for key in keyring.keys] == [keyring.active_key_id]


@pytest.mark.parametrize(("content", "told"), [("nonsense", "are invalid"), (None, "are missing")])
async def test_a_spoilt_or_missing_file_is_told_and_the_former_keys_stay(
    content: str | None, told: str, memory: Place
) -> None:
    await fill(memory.sealed, 3)
    before = memory.sealed.keyring

    async def spoil() -> None:
        path = memory.folder / "encryption.keys"
        path.unlink() if content is None else path.write_text(content)

    with capture_logs() as logs:
        await memory.run(10, {2: spoil})
    assert memory.sealed.keyring is before
    assert [line["log_level"] for line in logs] == ["error"], "told once, not at every look"
    assert told in logs[0]["event"]


async def test_a_value_written_meanwhile_is_left_to_its_writer(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(memory.store, 3)
    commit = memory.store.commit

    async def late(changes: list[Write]) -> int:
        monkeypatch.setattr(memory.store, "commit", commit)
        (change,) = changes
        await memory.sealed.commit([Write(change.key, b"newer", change.expected_revision)])
        return await commit(changes)

    monkeypatch.setattr(memory.store, "commit", late)
    await memory.run(HELD + 5)
    values = [record.value for record in (await memory.sealed.scan(())).records]
    assert values == [b"newer", b"canary", b"canary"]
    assert await memory.ids() == {memory.sealed.keyring.active_key_id}


async def test_a_store_that_is_away_for_a_while_is_resealed_afterwards(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(memory.store, 3)
    scan = memory.store.scan

    async def away(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("disk full")

    async def back() -> None:
        monkeypatch.setattr(memory.store, "scan", scan)

    monkeypatch.setattr(memory.store, "scan", away)
    with capture_logs() as logs:
        await memory.run(HELD + 10, {3: back})
    assert [line["reason"] for line in logs if line["log_level"] == "warning"] == ["disk full"] * 3
    assert await memory.ids() == {memory.sealed.keyring.active_key_id}


async def test_one_value_that_does_not_open_keeps_the_others_from_nothing(memory: Place) -> None:
    await fill(memory.sealed, 3)
    record = await memory.store.read(key_of(1))
    assert record is not None
    spoilt = record.value[:-1] + bytes([record.value[-1] ^ 1])
    await memory.store.commit([Write(record.key, spoilt, record.revision)])

    async def turn() -> None:
        memory.rotate()

    with capture_logs() as logs:
        await memory.run(5, {2: turn})
    active = memory.sealed.keyring.active_key_id
    page = await memory.store.scan(())
    assert [key_id_of(each.value) == active for each in page.records] == [True, False, True]
    (problem,) = [line for line in logs if line["log_level"] == "error"]
    assert problem["reason"].startswith("secrets/default/00001 is encrypted with key ")
    assert reencrypted_key_id(memory.folder) == ""


async def test_a_disk_that_cannot_be_scrubbed_is_tried_again_and_not_marked_before(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(memory.sealed, 1)
    tried: list[str] = []

    async def scrub() -> None:
        tried.append(reencrypted_key_id(memory.folder))
        if len(tried) == 1:
            raise StoreUnavailable("disk full")

    monkeypatch.setattr(memory.store, "purge_deleted", scrub)
    await memory.run(HELD)
    assert (tried, reencrypted_key_id(memory.folder)) == ([""], "")
    await memory.run(HELD)
    assert (tried, reencrypted_key_id(memory.folder)) == (["", ""], memory.sealed.keyring.active_key_id)


async def test_a_disk_is_scrubbed_once_and_not_at_every_start(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await memory.run(1)

    async def never() -> None:
        pytest.fail("nothing has been sealed anew since")

    monkeypatch.setattr(memory.store, "purge_deleted", never)
    await (await place(memory.store, memory.folder)).run(HELD + 5)


async def test_a_stolen_disk_shows_no_credential_that_was_once_plain(tmp_path: Path) -> None:
    """Small values between others that stay: SQLite moves rows about, and leaves copies of them behind."""
    store = await SqliteStore.open(tmp_path / "store.db")
    chance = random.Random(3)
    plain: dict[Key, bytes] = {}
    for number in range(1_000):
        key = key_of(number) if chance.random() < 0.5 else ("", "configmaps", "default", str(number))
        plain[key] = (b"canary" if key[1] == "secrets" else b"{}    ") * chance.choice([6, 10, 20, 50, 100])
        await store.commit([Write(key, plain[key], 0)])
    assert files_with(tmp_path, b"canary")
    here = await place(store, tmp_path)
    await here.run(HELD + 5)
    assert {record.key: record.value for record in (await here.sealed.scan(())).records} == plain
    assert files_with(tmp_path, b"canary") == [], "while the server runs"
    await store.close()
    assert files_with(tmp_path, b"canary") == [], "after it has stopped"


async def test_a_server_that_does_not_lead_takes_in_new_keys_and_leaves_the_work_to_the_leader(tmp_path: Path) -> None:
    here = await place(MemoryStore(), tmp_path)
    await here.store.commit([Write(key_of(1), b"canary", 0)])
    revision, keys, steps = await here.store.revision(), EncryptionKeyFile(tmp_path), iter((False, True, False))
    keys.read()
    leading = False

    async def pause(seconds: float) -> float:
        nonlocal leading
        leading = next(steps)
        rotate_key(tmp_path)
        return seconds

    seen = []

    def is_leading() -> bool:
        seen.append(here.sealed.keyring.active_key_id)
        return leading

    with contextlib.suppress(RuntimeError):  # the steps are over
        await watch_keys(here.sealed, keys, is_leader=is_leading, sleep=pause)
    assert seen[0] != seen[1] == seen[2] != here.sealed.keyring.active_key_id
    assert await here.store.revision() == revision
