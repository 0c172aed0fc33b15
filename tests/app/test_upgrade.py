"""app/upgrade.py and app/data_migrations.py: what happens to old data at startup, and who has to stop."""

import asyncio
from pathlib import Path

import orjson
import pytest

from fairlead.app import data_migrations, upgrade
from fairlead.app.data_migrations import FORMER_REASONS, MIGRATIONS, mark_default_role, rename_reasons
from fairlead.app.stores import StoreStack
from fairlead.app.upgrade import stop_when_outdated, upgrade_data
from fairlead.authn.bootstrap import PEPPER_FINGERPRINT
from fairlead.controllers.runtime.leader import LeaseTiming
from fairlead.core.crypto.encryption import EncryptionKey, EncryptionKeyFile, Keyring
from fairlead.settings import Settings, StartError
from fairlead.storage import migration as migration_module
from fairlead.storage.backup import BackupReader
from fairlead.storage.contract import Record, Store, StoreUnavailable, Write
from fairlead.storage.data_version import VERSION_KEY, DataVersion, load_version, parse_release, save_version
from fairlead.storage.encrypted import ACTIVE_KEY_FINGERPRINT, EncryptedStore, decrypt_value, publish_active_key
from fairlead.storage.fingerprints import compute_fingerprint, save_fingerprint
from fairlead.storage.memory import MemoryStore
from fairlead.storage.migration import Migration

LEASE_KEY = ("coordination.k8s.io", "leases", "service-system", "fairlead-controllers")
SHARED = "postgres://nowhere/db"


def build_stack(tmp_path: Path) -> StoreStack:
    raw = MemoryStore()
    keyring = Keyring([EncryptionKey("tests", bytes(32))], "tests")
    encrypted = EncryptedStore(raw, keyring, lambda key, value: key[1] == "secrets")
    return StoreStack(raw, encrypted, EncryptionKeyFile(tmp_path))


def build_settings(tmp_path: Path, store: str) -> Settings:
    return Settings(data=tmp_path, store=store)


def add_migration(monkeypatch: pytest.MonkeyPatch, minimum: int, release: str = "9.1.0") -> None:
    """Adds a migration as a later release would, which appends to the data of Secrets."""

    def transform(key: tuple[str, ...], value: bytes) -> bytes | None:
        return value + b" later" if key[1] == "secrets" and not value.endswith(b" later") else None

    later = Migration(len(MIGRATIONS) + 1, release, minimum, "later", transform)
    monkeypatch.setattr(data_migrations, "MIGRATIONS", (*MIGRATIONS, later))


async def fill(stack: StoreStack) -> None:
    await stack.encrypted.commit([Write(("", "secrets", "default", "s"), b"secret", 0)])


async def write_lease(store: Store, holder: str) -> None:
    record = await store.read(LEASE_KEY)
    body = orjson.dumps({"spec": {"holderIdentity": holder}})
    await store.commit([Write(LEASE_KEY, body, record.revision if record else 0)])


async def test_old_data_of_a_single_server_is_backed_up_and_migrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add_migration(monkeypatch, minimum=0)
    stack = build_stack(tmp_path)
    await fill(stack)
    assert await upgrade_data(build_settings(tmp_path, f"sqlite:{tmp_path}/a.db"), stack)
    record = await stack.encrypted.read(("", "secrets", "default", "s"))
    assert record is not None and record.value == b"secret later"
    [path] = (tmp_path / "backups").iterdir()
    with path.open("rb") as file:
        records = dict(BackupReader(file).records())
    assert [key for key in records if key == VERSION_KEY] == []
    key = ("", "secrets", "default", "s")
    assert decrypt_value(stack.encrypted.keyring, key, records[key]) == b"secret"


async def test_the_backup_has_the_version_of_the_data_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stack, settings = build_stack(tmp_path), build_settings(tmp_path, f"sqlite:{tmp_path}/a.db")
    await upgrade_data(settings, stack)
    before = await stack.raw.read(VERSION_KEY)
    add_migration(monkeypatch, minimum=0)
    await upgrade_data(settings, stack)
    [path] = (tmp_path / "backups").iterdir()
    with path.open("rb") as file:
        records = dict(BackupReader(file).records())
    assert before is not None and records == {VERSION_KEY: before.value}


async def test_a_new_store_and_a_shared_one_get_no_backup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await upgrade_data(build_settings(tmp_path, f"sqlite:{tmp_path}/a.db"), build_stack(tmp_path))
    stack = build_stack(tmp_path)
    await fill(stack)
    await upgrade_data(build_settings(tmp_path, SHARED), stack)
    assert not (tmp_path / "backups").exists()


async def test_a_backup_that_cannot_be_written_ends_the_start_with_advice(tmp_path: Path) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    (tmp_path / "backups").write_text("a file")
    with pytest.raises(StartError, match="backups"):
        await upgrade_data(build_settings(tmp_path, f"sqlite:{tmp_path}/a.db"), stack)
    assert await load_version(stack.raw) == (None, 0)


async def test_a_migration_that_fails_again_and_again_writes_one_backup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(migration_module, "TAKEOVER_SECONDS", 0.01)
    stack, settings = build_stack(tmp_path), build_settings(tmp_path, f"sqlite:{tmp_path}/a.db")
    await fill(stack)

    def transform(key: tuple[str, ...], value: bytes) -> bytes | None:
        raise KeyError(key)

    failing = Migration(len(MIGRATIONS) + 1, "9.1.0", 0, "failing", transform)
    monkeypatch.setattr(data_migrations, "MIGRATIONS", (*MIGRATIONS, failing))
    for _ in range(3):
        with pytest.raises(StartError, match=r"secrets/default/s could not be migrated .*\(failing\)"):
            await upgrade_data(settings, stack)
    [first] = (tmp_path / "backups").iterdir()
    assert first.name.startswith("data-0-before-")
    monkeypatch.undo()
    monkeypatch.setattr(migration_module, "TAKEOVER_SECONDS", 0.01)
    add_migration(monkeypatch, minimum=0)
    later = Migration(len(MIGRATIONS) + 2, "9.2.0", 0, "later", lambda key, value: None)
    monkeypatch.setattr(data_migrations, "MIGRATIONS", (*data_migrations.MIGRATIONS, later))
    assert await upgrade_data(settings, stack)
    [second] = {*(tmp_path / "backups").iterdir()} - {first}
    assert second.name.startswith(f"data-{len(MIGRATIONS)}-partly-migrated-before-")


async def test_temporary_files_of_a_killed_server_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    folder = tmp_path / "backups"
    folder.mkdir(mode=0o700)
    (folder / ".data-0-before-0.2.0-2026-11-17T080000Z.backup.abc").write_bytes(b"half")
    (folder / "mine.backup").write_bytes(b"other")
    assert await upgrade_data(build_settings(tmp_path, f"sqlite:{tmp_path}/a.db"), stack)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2 and names[0].startswith("data-0-before-") and names[1] == "mine.backup"


@pytest.mark.parametrize("name", [PEPPER_FINGERPRINT, ACTIVE_KEY_FINGERPRINT])
async def test_a_server_with_other_secrets_migrates_nothing(tmp_path: Path, name: str) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    (tmp_path / "pepper.key").write_bytes(bytes(32))
    await save_fingerprint(stack.raw, name, compute_fingerprint(name, b"of other servers", "other"), 0)
    revision = await stack.raw.revision()
    with pytest.raises(StartError, match="other servers"):
        await upgrade_data(build_settings(tmp_path, SHARED), stack)
    assert await stack.raw.revision() == revision


async def test_the_secrets_of_the_other_servers_are_accepted(tmp_path: Path) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    (tmp_path / "pepper.key").write_bytes(bytes(32))
    fingerprint = compute_fingerprint(PEPPER_FINGERPRINT, bytes(32))
    await save_fingerprint(stack.raw, PEPPER_FINGERPRINT, fingerprint, 0)
    await publish_active_key(stack.raw, stack.encrypted.keyring)
    assert await upgrade_data(build_settings(tmp_path, SHARED), stack)


async def test_newer_data_ends_the_start_with_the_release_that_it_needs(tmp_path: Path) -> None:
    stack = build_stack(tmp_path)
    await save_version(stack.raw, DataVersion(7, 6, "9.1.0", "9.2.0"), 0)
    with pytest.raises(StartError, match=r"needs Fairlead 9\.1\.0 or newer.*restore a backup from before the upgrade"):
        await upgrade_data(build_settings(tmp_path, SHARED), stack)


async def test_a_release_knows_whether_a_newer_one_uses_the_data(tmp_path: Path) -> None:
    stack, settings = build_stack(tmp_path), build_settings(tmp_path, SHARED)
    await save_version(stack.raw, DataVersion(len(MIGRATIONS) + 1, 0, "", "9.2.0"), 0)
    assert not await upgrade_data(settings, stack)


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "LeaseTiming", lambda: LeaseTiming(1, 0.01, 0.1, 0.01))
    monkeypatch.setattr(upgrade, "ANNOUNCE_SECONDS", 0.01)


async def test_a_release_that_running_servers_need_cannot_be_skipped(
    monkeypatch: pytest.MonkeyPatch, short_lease: None, tmp_path: Path
) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    add_migration(monkeypatch, minimum=1)  # the running servers know none
    await write_lease(stack.raw, "old")

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.02)
            await write_lease(stack.raw, "old")

    renewing = asyncio.create_task(renew())
    try:
        with pytest.raises(StartError, match=r"servers of an older version .* upgrade them to 0\.2\.0 first, or stop"):
            await upgrade_data(build_settings(tmp_path, SHARED), stack)
    finally:
        renewing.cancel()
    assert await load_version(stack.raw) == (None, 0)


@pytest.mark.parametrize("holder", ["", "dead"], ids=["stopped in order", "killed"])
async def test_a_release_can_be_skipped_when_no_server_runs(
    monkeypatch: pytest.MonkeyPatch, short_lease: None, tmp_path: Path, holder: str
) -> None:
    stack = build_stack(tmp_path)
    await fill(stack)
    await write_lease(stack.raw, holder)
    add_migration(monkeypatch, minimum=1)
    assert await upgrade_data(build_settings(tmp_path, SHARED), stack)


async def test_a_server_that_takes_a_released_lease_is_seen(
    monkeypatch: pytest.MonkeyPatch, short_lease: None, tmp_path: Path
) -> None:
    """The leader has stopped in order just before, and another replica has not taken its lease yet."""
    stack = build_stack(tmp_path)
    await fill(stack)
    await write_lease(stack.raw, "")
    add_migration(monkeypatch, minimum=1)
    read, reads = stack.raw.read, list[tuple[str, ...]]()

    async def take_after_first_read(key: tuple[str, ...]) -> Record | None:
        record = await read(key)
        if record is not None and key == LEASE_KEY and key not in reads:
            reads.append(key)
            await stack.raw.commit([Write(LEASE_KEY, b'{"spec":{"holderIdentity":"other"}}', record.revision)])
        return record

    monkeypatch.setattr(stack.raw, "read", take_after_first_read)
    with pytest.raises(StartError, match="servers of an older version"):
        await upgrade_data(build_settings(tmp_path, SHARED), stack)


async def test_the_next_release_does_not_wait_for_running_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stack, settings = build_stack(tmp_path), build_settings(tmp_path, SHARED)
    await upgrade_data(settings, stack)
    await write_lease(stack.raw, "old")
    monkeypatch.setattr(upgrade, "_is_lease_renewed", None)  # not called
    add_migration(monkeypatch, minimum=0)
    assert await upgrade_data(settings, stack)


async def test_a_server_stops_when_a_newer_one_needs_other_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upgrade, "CHECK_SECONDS", 0.01)
    stack, stop = build_stack(tmp_path), asyncio.Event()
    await upgrade_data(build_settings(tmp_path, SHARED), stack)
    with pytest.raises(StartError, match=r"needs Fairlead 9\.1\.0 or newer"):
        async with stop_when_outdated(build_settings(tmp_path, SHARED), stack.raw, stop):
            await asyncio.sleep(0.05)
            assert not stop.is_set()
            found, revision = await load_version(stack.raw)
            assert found is not None
            await save_version(stack.raw, DataVersion(9, 9, "9.1.0", "9.1.0"), revision)
            await stop.wait()


async def test_no_error_ends_the_check_for_newer_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(upgrade, "CHECK_SECONDS", 0.01)
    stack, stop = build_stack(tmp_path), asyncio.Event()
    errors: list[Exception] = [StoreUnavailable("gone"), RuntimeError("a bug"), OSError("a socket")]

    async def fail_first(store: Store) -> tuple[DataVersion | None, int]:
        if errors:
            raise errors.pop()
        return DataVersion(9, 9, "9.1.0", "9.1.0"), 1

    monkeypatch.setattr(upgrade, "load_version", fail_first)
    with pytest.raises(StartError, match=r"needs Fairlead 9\.1\.0 or newer"):
        async with stop_when_outdated(build_settings(tmp_path, SHARED), stack.raw, stop):
            await asyncio.wait_for(stop.wait(), 40)
    assert not errors


async def test_a_server_that_stops_by_itself_reports_nothing(tmp_path: Path) -> None:
    stack, stop = build_stack(tmp_path), asyncio.Event()
    async with stop_when_outdated(build_settings(tmp_path, SHARED), stack.raw, stop):
        pass
    assert not stop.is_set()


def test_versions_are_consecutive_and_releases_ascend() -> None:
    assert [each.version for each in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    releases = [parse_release(each.release) for each in MIGRATIONS]
    assert releases == sorted(releases)


def test_no_migration_locks_out_the_release_before() -> None:
    """Replicas are upgraded one after the other: those of the release before must be able to use the data."""
    for migration in MIGRATIONS:
        before = [
            each.version
            for each in MIGRATIONS
            if each.release != migration.release and each.version < migration.version
        ]
        assert migration.minimum_version <= max(before, default=0), migration


STATUS = {"reason": "Refused", "conditions": [{"type": "Ready", "reason": "Busy"}, {"type": "Other", "reason": "Fine"}]}


def test_former_reasons_are_renamed_once() -> None:
    key = ("management.service.sh", "clusters", "", "a")
    value = orjson.dumps({"metadata": {"name": "a"}, "spec": {"reason": "Busy"}, "status": STATUS})
    new = rename_reasons(key, value)
    assert new is not None
    assert orjson.loads(new) == {
        "metadata": {"name": "a"},
        "spec": {"reason": "Busy"},
        "status": {
            "reason": FORMER_REASONS["Refused"],
            "conditions": [{"type": "Ready", "reason": FORMER_REASONS["Busy"]}, {"type": "Other", "reason": "Fine"}],
        },
    }
    assert rename_reasons(key, new) is None
    assert rename_reasons(("", "configmaps", "default", "a"), value) is None


@pytest.mark.parametrize(
    "status", [None, [], "reason", {"reason": 1, "conditions": {"reason": "Busy"}}, {"conditions": ["reason"]}]
)
def test_a_status_of_another_form_stays(status: object) -> None:
    value = orjson.dumps({"status": status, "reason": "Busy"})
    assert rename_reasons(("g", "clusters", "", "a"), value) is None


def test_default_roles_of_the_first_release_are_marked_once() -> None:
    key = ("rbac.authorization.k8s.io", "clusterroles", "", "edit")
    value = orjson.dumps({"metadata": {"name": "edit", "annotations": {"a": "b"}}, "rules": []})
    marked = MIGRATIONS[0].transform(key, value)
    assert marked is not None
    annotations = {"a": "b", "service.sh/offered-rules": "0.1"}
    assert orjson.loads(marked) == {"metadata": {"name": "edit", "annotations": annotations}, "rules": []}
    assert mark_default_role(key, marked) is None
    updated = orjson.dumps({"metadata": {"name": "edit", "annotations": {"service.sh/default-rules": "0"}}})
    assert mark_default_role(key, updated) is None
    for other in (("", "configmaps", "", "edit"), (*key[:3], "mine"), (*key[:3], "system:auditor")):
        assert mark_default_role(other, value) is None


def test_no_new_name_is_also_a_former_one() -> None:
    assert not {*FORMER_REASONS} & {*FORMER_REASONS.values()}
