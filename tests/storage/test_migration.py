"""storage/migration.py: data is migrated once, under a lock, on every store; newer data is refused if necessary."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fairlead.storage import migration as migration_module
from fairlead.storage.contract import Key, Precondition, Store, StoreUnavailable, Write
from fairlead.storage.data_version import (
    VERSION_KEY,
    DataVersion,
    MigrationLock,
    NewerData,
    encode_version,
    load_version,
    parse_release,
    save_version,
)
from fairlead.storage.memory import MemoryStore
from fairlead.storage.migration import Migration, MigrationPlan, migrate_data
from fairlead.storage.wrapper import StoreWrapper

RECORDS = 1_200
"""More than two pages."""


def append_version(version: int, minimum: int, calls: list[int] | None = None) -> Migration:
    """A migration that appends its number to each value, once."""
    mark = b" %d" % version

    def transform(key: Key, value: bytes) -> bytes | None:
        if calls is not None:
            calls.append(version)
        return None if value.endswith(mark) else value + mark

    return Migration(version, f"0.{version}.0", minimum, "tests", transform)


HISTORY = (append_version(1, 0), append_version(2, 1), append_version(3, 2))


@dataclass
class Preparations:
    """Counts what a plan calls, and records the versions."""

    calls: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, found: DataVersion, target: DataVersion) -> None:
        self.calls.append((found.version, target.version))
        await asyncio.sleep(0)


def build_plan(count: int, holder: str = "me") -> MigrationPlan:
    return MigrationPlan(HISTORY[:count], f"0.{count}.0", holder, prepare=Preparations())


async def fill(store: Store, count: int = 3) -> None:
    for start in range(0, count, 100):
        names = range(start, min(count, start + 100))
        await store.commit([Write(("g", "things", "", f"{each:05}"), b"v", 0) for each in names])


async def read_values(store: Store) -> set[bytes]:
    return {record.value for record in (await store.scan(("g",))).records}


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_module, "TAKEOVER_SECONDS", 0.2)
    monkeypatch.setattr(migration_module, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(migration_module, "RENEW_SECONDS", 0.05)


async def test_an_empty_store_has_the_version_of_the_program_that_creates_it(store: Store) -> None:
    plan = build_plan(3)
    assert await migrate_data(store, plan) == DataVersion(3, 2, "0.2.0", "0.3.0")
    assert (await load_version(store))[0] == DataVersion(3, 2, "0.2.0", "0.3.0")
    assert plan.prepare == Preparations()
    revision = await store.revision()
    await migrate_data(store, plan)
    assert await store.revision() == revision


async def test_data_without_a_version_is_migrated_from_the_beginning(store: Store) -> None:
    await fill(store, RECORDS)
    plan = build_plan(2)
    assert await migrate_data(store, plan) == DataVersion(2, 1, "0.1.0", "0.2.0")
    assert await read_values(store) == {b"v 1 2"}
    assert plan.prepare == Preparations([(0, 2)])


async def test_servers_that_start_together_migrate_once(store: Store) -> None:
    await fill(store, 250)
    calls: list[int] = []
    prepare = Preparations()
    history = (append_version(1, 0, calls),)
    plans = [MigrationPlan(history, "0.1.0", f"server {each}", prepare=prepare) for each in range(3)]
    versions = await asyncio.gather(*[migrate_data(store, plan) for plan in plans])
    assert [each.version for each in versions] == [1, 1, 1]
    assert (await load_version(store))[0] == DataVersion(1, 0, "", "0.1.0")
    assert (len(calls), prepare.calls) == (250, [(0, 1)])
    assert await read_values(store) == {b"v 1"}


async def test_the_lock_of_a_server_that_died_is_taken_over(short_times: None, store: Store) -> None:
    await fill(store)
    await store.commit([Write(("g", "things", "", "half"), b"v 1", 0)])
    await save_version(store, DataVersion(migration=MigrationLock(1, "dead")), 0)
    assert await migrate_data(store, build_plan(1)) == DataVersion(1, 0, "", "0.1.0")
    assert await read_values(store) == {b"v 1"}


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (MigrationLock(2, "dead"), [(0, 2)]),
        (MigrationLock(2, "dead", 5, prepared=2), []),
        (MigrationLock(1, "older", 5, prepared=1), [(0, 2)]),
    ],
    ids=["killed while it prepared", "killed later", "of an older release"],
)
async def test_what_a_server_that_died_has_prepared_is_not_prepared_again(
    short_times: None, lock: MigrationLock, expected: list[tuple[int, int]]
) -> None:
    store = MemoryStore()
    await fill(store)
    await save_version(store, DataVersion(migration=lock), 0)
    plan = build_plan(2)
    assert (await migrate_data(store, plan)).version == 2
    assert plan.prepare == Preparations(expected)
    assert await read_values(store) == {b"v 1 2"}


async def test_a_failed_backup_of_partly_migrated_data_does_not_hide_that_it_is(short_times: None) -> None:
    store, lock = MemoryStore(), MigrationLock(1, "older", 5, prepared=1)
    await fill(store)
    await save_version(store, DataVersion(migration=lock), 0)

    async def fail(found: DataVersion, target: DataVersion) -> None:
        assert found.migration == lock
        raise StoreUnavailable("the disk is full")

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await migrate_data(store, MigrationPlan(HISTORY[:2], "0.2.0", "me", prepare=fail))
    found, _ = await load_version(store)
    assert found is not None and found.migration is not None
    assert (found.migration.target, found.migration.prepared) == (2, 1)


async def test_a_record_that_cannot_be_migrated_is_named(short_times: None) -> None:
    """The error has nothing of its value. The lock still says that records may have changed."""
    store = MemoryStore()
    await fill(store)

    def transform(key: Key, value: bytes) -> bytes | None:
        if key[3] == "00001":
            raise ValueError("a password")
        return None

    plan = MigrationPlan((Migration(1, "0.1.0", 0, "tests", transform),), "0.1.0", "me", prepare=Preparations())
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"^g/things/00001 .* data version 1 \(tests\): ValueError;"
        ) as caught:
            await migrate_data(store, plan)
        assert "password" not in str(caught.value)
    assert plan.prepare == Preparations([(0, 1)])


async def test_a_server_that_lost_its_lock_changes_nothing_more(short_times: None) -> None:
    """It was suspended while another one took over, which stands for any number of things between two commits."""
    store, seen = MemoryStore(), list[set[bytes]]()
    await fill(store)

    async def lose_lock(found: DataVersion, target: DataVersion) -> None:
        seen.append(await read_values(store))
        if len(seen) == 1:
            _, revision = await load_version(store)
            await save_version(store, DataVersion(migration=MigrationLock(1, "other")), revision)

    plan = MigrationPlan(HISTORY[:1], "0.1.0", "me", prepare=lose_lock)
    assert (await migrate_data(store, plan)).version == 1
    assert seen == [{b"v"}, {b"v"}]
    assert await read_values(store) == {b"v 1"}


class BusyStore(StoreWrapper):
    """A store in which another replica changes a record just before the first commit of a migration."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.has_changed = False

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        if preconditions and not self.has_changed:
            self.has_changed = True
            revision = writes[0].expected_revision
            await self.inner.commit([Write(writes[0].key, b"changed", revision)])
        return await self.inner.commit(writes, preconditions)


async def test_a_record_that_a_running_replica_changes_is_migrated_with_its_change() -> None:
    store = BusyStore(MemoryStore())
    await fill(store)
    await migrate_data(store, build_plan(1))
    assert await read_values(store) == {b"changed 1", b"v 1"}


async def test_the_lock_is_renewed_during_a_long_backup(short_times: None) -> None:
    store, seen = MemoryStore(), list[int]()
    await fill(store)

    async def prepare(found: DataVersion, target: DataVersion) -> None:
        while len(seen) < 3:  # otherwise the test does not end
            await asyncio.sleep(0.02)
            current, _ = await load_version(store)
            assert current is not None and current.migration is not None
            if current.migration.renewals not in seen:
                seen.append(current.migration.renewals)

    await migrate_data(store, MigrationPlan(HISTORY[:1], "0.1.0", "me", prepare=prepare))
    assert seen == sorted(seen)


@pytest.mark.parametrize("recorded", [None, DataVersion(1, 0, "", "0.1.0")], ids=["no record", "a record"])
async def test_a_failed_backup_ends_the_start_and_changes_nothing(recorded: DataVersion | None) -> None:
    """The lock is released, so that the next start does not wait for it."""
    store = MemoryStore()
    await fill(store)
    if recorded is not None:
        await save_version(store, recorded, 0)

    async def fail(found: DataVersion, target: DataVersion) -> None:
        raise StoreUnavailable("the disk is full")

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await migrate_data(store, MigrationPlan(HISTORY, "0.3.0", "me", prepare=fail))
    assert await read_values(store) == {b"v"}
    assert (await load_version(store))[0] == recorded


@pytest.mark.parametrize("program", range(4))
@pytest.mark.parametrize("data", range(4))
async def test_every_pair_of_versions(data: int, program: int) -> None:
    """Older data is migrated step by step, however many releases are skipped. Newer data is used as long as it may be:
    each release of these can use the data of the one after it."""
    store = MemoryStore()
    await fill(store)
    if data:
        await migrate_data(store, build_plan(data))
    if data - program > 1:
        needed = rf"needs Fairlead 0\.{data - 1}\.0 or newer, and this is 0\.{program}\.0"
        with pytest.raises(NewerData, match=needed):
            await migrate_data(store, build_plan(program))
    else:
        version = await migrate_data(store, build_plan(program))
        assert version.version == max(data, program)
        assert version.release == (f"0.{max(data, program)}.0" if data or program else "")
    expected = "v" + "".join(f" {each}" for each in range(1, max(data, program if data - program <= 1 else 0) + 1))
    assert await read_values(store) == {expected.encode()}


async def test_older_programs_are_kept_out_before_the_first_record_changes() -> None:
    store, seen = MemoryStore(), list[DataVersion | None]()
    await fill(store)

    async def prepare(found: DataVersion, target: DataVersion) -> None:
        seen.append((await load_version(store))[0])

    await migrate_data(store, MigrationPlan(HISTORY, "0.3.0", "me", prepare=prepare))
    assert seen == [DataVersion(0, 2, "0.2.0", "", MigrationLock(3, "me"))]
    with pytest.raises(NewerData):
        await migrate_data(store, build_plan(1))


async def test_a_check_can_refuse_before_anything_is_changed() -> None:
    store = MemoryStore()
    await fill(store)
    revision = await store.revision()

    async def refuse(found: DataVersion, target: DataVersion) -> None:
        raise StoreUnavailable(f"not from {found.version} to {target.minimum_release}")

    with pytest.raises(StoreUnavailable, match=r"not from 0 to 0\.2\.0"):
        await migrate_data(store, MigrationPlan(HISTORY, "0.3.0", "me", check=refuse))
    assert await store.revision() == revision


async def test_a_newer_release_without_migrations_is_recorded() -> None:
    store = MemoryStore()
    await migrate_data(store, build_plan(1))
    newer, older = MigrationPlan(HISTORY[:1], "0.1.5", "me"), build_plan(1)
    assert (await migrate_data(store, newer)).release == "0.1.5"
    assert (await migrate_data(store, older)).release == "0.1.5"


async def test_a_replica_that_needs_no_migration_does_not_wait_for_one() -> None:
    """During an upgrade, an older replica that restarts uses the data while a newer one migrates it."""
    store = MemoryStore()
    current = DataVersion(1, 0, "", "0.1.0", MigrationLock(2, "newer"))
    await save_version(store, current, 0)
    assert await migrate_data(store, build_plan(1)) == current


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"version": "1"}', b"\xff"])
async def test_an_unreadable_record_is_an_error_with_advice(value: bytes) -> None:
    store = MemoryStore()
    await store.commit([Write(VERSION_KEY, value, 0)])
    with pytest.raises(StoreUnavailable, match=r"not readable .* restore a backup"):
        await migrate_data(store, build_plan(1))


async def test_fields_of_later_versions_in_the_record_are_ignored() -> None:
    store = MemoryStore()
    value = encode_version(DataVersion(1, 0, "", "0.1.0"))[:-1] + b',"later":{"a":1}}'
    await store.commit([Write(VERSION_KEY, value, 0)])
    assert await migrate_data(store, build_plan(1)) == DataVersion(1, 0, "", "0.1.0")


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("0.2.0", (0, 2, 0)),
        ("1.10", (1, 10, 0)),
        ("0.3.0rc1", (0, 3, 0)),
        ("0.3.0.dev1+a.b", (0, 3, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_releases_are_compared_by_their_numbers(release: str, numbers: tuple[int, ...]) -> None:
    assert parse_release(release) == numbers
