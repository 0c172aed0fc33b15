"""LastUsedTracker: records the last use of keys in memory and stores it now and then."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from fairlead.authn.last_used import KeyUse, LastUsedTracker
from fairlead.core.clock import timestamp
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import get_path
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_lifetime import COOLDOWN_LABEL
from fairlead.registry.write_options import WriteOptions
from fairlead.storage.contract import StoreUnavailable
from tests.harness.auth import ADA, ROOT, AuthFixture, open_auth
from tests.harness.virtual_time import EPOCH, on_virtual_time

ADA_WITH_KEY = User("ada", key="k")


@asynccontextmanager
async def run_tracker(auth: AuthFixture) -> AsyncIterator[None]:
    """Runs the task that stores the last use."""
    task = asyncio.create_task(auth.last_used.run(auth.api.resource("OwnedAccessKey")))
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)


def stored_last_use(auth: AuthFixture) -> str | None:
    last = get_path(auth.stored_key("k"), "status.lastActivity")
    assert last is None or isinstance(last, str)
    return last


def timestamp_at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


def count_commits(auth: AuthFixture) -> int:
    return len(auth.api.store.commits)


@on_virtual_time
async def test_a_use_is_stored_soon_after() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        async with run_tracker(auth):
            await asyncio.sleep(100)
            assert stored_last_use(auth) is None
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(2)
            assert stored_last_use(auth) == timestamp_at(100)


@on_virtual_time
async def test_ten_thousand_uses_cause_few_writes() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        async with run_tracker(auth):
            before = count_commits(auth)
            for _ in range(100):
                for _ in range(100):
                    auth.last_used.record_use(ADA_WITH_KEY)
                await asyncio.sleep(2.4)
            assert count_commits(auth) - before <= 5
        assert stored_last_use(auth) == timestamp_at(99 * 2.4)


@on_virtual_time
async def test_recording_a_use_writes_nothing() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        before = count_commits(auth)
        for _ in range(1_000):
            auth.last_used.record_use(ADA_WITH_KEY)
        await asyncio.sleep(0)
        assert count_commits(auth) == before


@on_virtual_time
async def test_the_use_of_a_key_with_sliding_ttl_is_stored_often_enough_for_a_restart() -> None:
    async with open_auth() as auth:
        created = await auth.create_key("k", ttl=900, ttlAfterLastActivity=True)
        async with run_tracker(auth):
            for _ in range(60):
                auth.last_used.record_use(auth.authenticator.authenticate_token(created["spec"]["key"]))
                await asyncio.sleep(60.6)
                assert (stored_last_use(auth) or "") >= timestamp_at(auth.api.clock.monotonic() - 184)
        await asyncio.sleep(901)
        with pytest.raises(Unauthorized):
            auth.authenticator.authenticate_token(created["spec"]["key"])


@on_virtual_time
async def test_a_key_is_written_at_most_once_a_minute() -> None:
    async with open_auth() as auth:
        created = await auth.create_key("k", ttl=5, ttlAfterLastActivity=True)
        async with run_tracker(auth):
            before = count_commits(auth)
            for _ in range(599):
                auth.last_used.record_use(auth.authenticator.authenticate_token(created["spec"]["key"]))
                await asyncio.sleep(1)
            assert 1 <= count_commits(auth) - before <= 10


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({}, {"subject": "service:runner:one"}),
        ({}, {"subject": "service:agent:berlin"}),
        ({"service.sh/export": "argocd"}, {"user": "ada"}),
    ],
    ids=["runner", "agent", "export"],
)
@on_virtual_time
async def test_the_use_of_the_key_of_a_program_is_stored_at_once_and_then_once_an_hour(
    labels: dict[str, str], owner: dict[str, str]
) -> None:
    async with open_auth() as auth:
        await auth.create_labelled_key("k", ROOT, labels, **owner)
        async with run_tracker(auth):
            await asyncio.sleep(100)
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(2)
            assert stored_last_use(auth) == timestamp_at(100)
            before = count_commits(auth)
            for _ in range(6 * 60):
                auth.last_used.record_use(ADA_WITH_KEY)
                await asyncio.sleep(60)
            assert 5 <= count_commits(auth) - before <= 6


@on_virtual_time
async def test_the_cooldown_label_reduces_the_writes() -> None:
    async with open_auth() as auth:
        labels = {COOLDOWN_LABEL: "600"}
        body = auth.api.build_object("OwnedAccessKey", "k", metadata={"labels": labels}, spec={"user": "ada"})
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ROOT, "tests"))
        async with run_tracker(auth):
            before = count_commits(auth)
            for _ in range(1_190):
                auth.last_used.record_use(ADA_WITH_KEY)
                await asyncio.sleep(1)
            assert count_commits(auth) - before == 2


@on_virtual_time
async def test_after_a_restart_keys_keep_their_write_interval() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        auth.last_used.record_use(ADA_WITH_KEY)
        keys = auth.api.resource("OwnedAccessKey")
        await auth.last_used.flush(keys)
        before = count_commits(auth)
        restarted = LastUsedTracker(auth.api.clock)
        await asyncio.sleep(10)
        restarted.record_use(ADA_WITH_KEY)
        await restarted.flush(keys)
        assert count_commits(auth) == before
        await asyncio.sleep(51)
        await restarted.flush(keys)
        assert count_commits(auth) == before + 1


@on_virtual_time
async def test_pending_uses_are_stored_on_shutdown() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        async with run_tracker(auth):
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(5)
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(0)
        assert stored_last_use(auth) == timestamp_at(5)


@on_virtual_time
async def test_setting_the_clock_back_does_not_overwrite_a_later_use() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        keys = auth.api.resource("OwnedAccessKey")
        await auth.update_key_status("k", lastActivity=timestamp_at(5_000))
        auth.last_used.record_use(ADA_WITH_KEY)
        await auth.last_used.flush(keys, everything=True)
        assert stored_last_use(auth) == timestamp_at(5_000)


@on_virtual_time
async def test_a_failed_write_is_retried() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")

        async def fail_commit() -> None:
            raise StoreUnavailable("the disk is full")

        async with run_tracker(auth):
            auth.api.store.before.append(fail_commit)
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(3)
            assert stored_last_use(auth) is None
            await asyncio.sleep(6)
            assert stored_last_use(auth) == timestamp_at(0)


@on_virtual_time
async def test_deleted_keys_are_forgotten() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        async with run_tracker(auth):
            auth.last_used.record_use(ADA_WITH_KEY)
            await asyncio.sleep(5)
            await auth.api.delete("OwnedAccessKey", "k", user=CONTROLLER_USER)
            auth.last_used.record_use(User("ada", key="never-was"))
            await asyncio.sleep(120)
        assert auth.last_used.last_use("k") is None
        assert auth.last_used.last_use("never-was") is None


@on_virtual_time
async def test_a_user_without_a_key_is_not_recorded() -> None:
    async with open_auth() as auth:
        auth.last_used.record_use(ADA)
        assert auth.last_used.last_use("") is None


@on_virtual_time
async def test_several_processes_write_a_key_as_often_as_one() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        keys = auth.api.resource("OwnedAccessKey")
        trackers = [LastUsedTracker(auth.api.clock) for _ in range(4)]
        before = count_commits(auth)
        for _ in range(300):
            for tracker in trackers:
                tracker.record_use(ADA_WITH_KEY)
                await tracker.flush(keys)
            await asyncio.sleep(1)
        assert 4 <= count_commits(auth) - before <= 6


@on_virtual_time
async def test_a_use_on_another_worker_extends_the_life_of_a_key_that_expires_soon() -> None:
    async with open_auth() as auth:
        created = await auth.create_key("k", ttl=5, ttlAfterLastActivity=True)
        keys, other = auth.api.resource("OwnedAccessKey"), LastUsedTracker(auth.api.clock)
        shared: list[Sequence[KeyUse]] = []

        def share(uses: Sequence[KeyUse]) -> None:
            shared.append(uses)
            auth.last_used.merge(uses)

        other.share_with(share)
        for _ in range(30):
            other.record_use(ADA_WITH_KEY)
            await other.flush(keys)
            await other.flush(keys)
            await asyncio.sleep(1)
            auth.authenticator.authenticate_token(created["spec"]["key"])
        assert len(shared) == 30, "only new uses are sent"
        await asyncio.sleep(5)
        with pytest.raises(Unauthorized):
            auth.authenticator.authenticate_token(created["spec"]["key"])


@on_virtual_time
async def test_uses_of_keys_that_do_not_depend_on_them_are_not_shared() -> None:
    async with open_auth() as auth:
        await auth.create_key("k")
        await auth.create_key("long", ttl=100_000, ttlAfterLastActivity=True)
        tracker = LastUsedTracker(auth.api.clock)
        shared: list[KeyUse] = []
        tracker.share_with(shared.extend)
        for name in ("k", "long"):
            tracker.record_use(User("ada", key=name))
        await tracker.flush(auth.api.resource("OwnedAccessKey"))
        assert shared == []


@on_virtual_time
async def test_a_use_that_came_from_another_worker_is_not_sent_back() -> None:
    async with open_auth() as auth:
        await auth.create_key("k", ttl=5, ttlAfterLastActivity=True)
        keys = auth.api.resource("OwnedAccessKey")
        shared: list[Sequence[KeyUse]] = []
        auth.last_used.share_with(shared.append)
        auth.last_used.record_use(ADA_WITH_KEY)
        await auth.last_used.flush(keys)
        assert len(shared) == 1
        await asyncio.sleep(1)
        auth.last_used.merge([("k", auth.api.clock.now().timestamp(), auth.api.clock.monotonic())])
        auth.last_used.merge([("k", 0.0, 0.0)])  # older ones change nothing
        await auth.last_used.flush(keys)
        last = auth.last_used.last_use("k")
        assert len(shared) == 1 and last is not None and last.wall_time == auth.api.clock.now()
