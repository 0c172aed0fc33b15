"""The last use of a key: noted at once, written down now and then, and never in the way of a request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from fairlead.authn.last_used import LastUsedTracker
from fairlead.core.clock import timestamp
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import get_path
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_lifetime import COOLDOWN_LABEL
from fairlead.registry.write_options import WriteOptions
from fairlead.storage.contract import StoreUnavailable
from tests.harness.auth import ADA, ROOT, AuthFixture, open_auth
from tests.harness.virtual_time import EPOCH, on_virtual_time

ADAS = User("ada", key="k")


@asynccontextmanager
async def writing(auth: AuthFixture) -> AsyncIterator[None]:
    """With the task that writes at work."""
    task = asyncio.create_task(auth.activity.run(auth.api.of("OwnedAccessKey")))
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)


def written(auth: AuthFixture) -> str | None:
    last = get_path(auth.stored("k"), "status.lastActivity")
    assert last is None or isinstance(last, str)
    return last


def at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


def commits(auth: AuthFixture) -> int:
    return len(auth.api.store.commits)


@on_virtual_time
async def test_a_use_is_written_down_soon_after() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        async with writing(auth):
            await asyncio.sleep(100)
            assert written(auth) is None
            auth.activity.record_use(ADAS)
            await asyncio.sleep(2)
            assert written(auth) == at(100)


@on_virtual_time
async def test_ten_thousand_uses_are_a_handful_of_writes() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        async with writing(auth):
            before = commits(auth)
            for _ in range(100):
                for _ in range(100):
                    auth.activity.record_use(ADAS)
                await asyncio.sleep(2.4)
            assert commits(auth) - before <= 5
        assert written(auth) == at(99 * 2.4)


@on_virtual_time
async def test_noting_a_use_writes_nothing() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        before = commits(auth)
        for _ in range(1_000):
            auth.activity.record_use(ADAS)
        await asyncio.sleep(0)
        assert commits(auth) == before


@on_virtual_time
async def test_a_key_that_lives_by_its_use_is_written_often_enough_to_outlive_a_restart() -> None:
    async with open_auth() as auth:
        made = await auth.key("k", ttl=900, ttlAfterLastActivity=True)
        async with writing(auth):
            for _ in range(60):
                auth.activity.record_use(auth.authenticate.authenticate_token(made["spec"]["key"]))
                await asyncio.sleep(60.6)
                assert (written(auth) or "") >= at(auth.api.clock.monotonic() - 184)
        await asyncio.sleep(901)
        with pytest.raises(Unauthorized):
            auth.authenticate.authenticate_token(made["spec"]["key"])


@on_virtual_time
async def test_no_key_makes_the_server_write_more_often_than_once_a_minute() -> None:
    async with open_auth() as auth:
        made = await auth.key("k", ttl=5, ttlAfterLastActivity=True)
        async with writing(auth):
            before = commits(auth)
            for _ in range(599):
                auth.activity.record_use(auth.authenticate.authenticate_token(made["spec"]["key"]))
                await asyncio.sleep(1)
            assert 1 <= commits(auth) - before <= 10


@on_virtual_time
async def test_an_administrator_can_have_a_key_written_less_often() -> None:
    async with open_auth() as auth:
        labels = {COOLDOWN_LABEL: "600"}
        body = auth.api.body("OwnedAccessKey", "k", metadata={"labels": labels}, spec={"user": "ada"})
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ROOT, "tests"))
        async with writing(auth):
            before = commits(auth)
            for _ in range(1_190):
                auth.activity.record_use(ADAS)
                await asyncio.sleep(1)
            assert commits(auth) - before == 2


@on_virtual_time
async def test_after_a_restart_keys_are_not_all_written_at_once() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        auth.activity.record_use(ADAS)
        keys = auth.api.of("OwnedAccessKey")
        await auth.activity.flush(keys)
        before = commits(auth)
        restarted = LastUsedTracker(auth.api.clock)
        await asyncio.sleep(10)
        restarted.record_use(ADAS)
        await restarted.flush(keys)
        assert commits(auth) == before
        await asyncio.sleep(51)
        await restarted.flush(keys)
        assert commits(auth) == before + 1


@on_virtual_time
async def test_what_is_not_written_yet_is_written_when_the_server_stops() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        async with writing(auth):
            auth.activity.record_use(ADAS)
            await asyncio.sleep(5)
            auth.activity.record_use(ADAS)
            await asyncio.sleep(0)
        assert written(auth) == at(5)


@on_virtual_time
async def test_a_clock_that_is_set_back_does_not_take_a_later_use_back() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        keys = auth.api.of("OwnedAccessKey")
        await auth.set_status("k", lastActivity=at(5_000))
        auth.activity.record_use(ADAS)
        await auth.activity.flush(keys, everything=True)
        assert written(auth) == at(5_000)


@on_virtual_time
async def test_a_store_that_is_away_is_tried_again() -> None:
    async with open_auth() as auth:
        await auth.key("k")

        async def fail() -> None:
            raise StoreUnavailable("the disk is full")

        async with writing(auth):
            auth.api.store.before.append(fail)
            auth.activity.record_use(ADAS)
            await asyncio.sleep(3)
            assert written(auth) is None
            await asyncio.sleep(6)
            assert written(auth) == at(0)


@on_virtual_time
async def test_keys_that_are_gone_are_forgotten() -> None:
    async with open_auth() as auth:
        await auth.key("k")
        async with writing(auth):
            auth.activity.record_use(ADAS)
            await asyncio.sleep(5)
            await auth.api.delete("OwnedAccessKey", "k", user=CONTROLLER_USER)
            auth.activity.record_use(User("ada", key="never-was"))
            await asyncio.sleep(120)
        assert auth.activity.last_use("k") is None
        assert auth.activity.last_use("never-was") is None


@on_virtual_time
async def test_who_came_without_a_key_leaves_no_trace() -> None:
    async with open_auth() as auth:
        auth.activity.record_use(ADA)
        assert auth.activity.last_use("") is None
