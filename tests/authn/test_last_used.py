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
from tests.harness.auth import ADA, ROOT, Realm, new_realm
from tests.harness.virtual_time import EPOCH, virtually

ADAS = User("ada", key="k")


@asynccontextmanager
async def writing(realm: Realm) -> AsyncIterator[None]:
    """With the task that writes at work."""
    task = asyncio.create_task(realm.activity.run(realm.world.of("OwnedAccessKey")))
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)


def written(realm: Realm) -> str | None:
    last = get_path(realm.stored("k"), "status.lastActivity")
    assert last is None or isinstance(last, str)
    return last


def at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


def commits(realm: Realm) -> int:
    return len(realm.world.store.commits)


@virtually
async def test_a_use_is_written_down_soon_after() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        async with writing(realm):
            await asyncio.sleep(100)
            assert written(realm) is None
            realm.activity.record_use(ADAS)
            await asyncio.sleep(2)
            assert written(realm) == at(100)


@virtually
async def test_ten_thousand_uses_are_a_handful_of_writes() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        async with writing(realm):
            before = commits(realm)
            for _ in range(100):
                for _ in range(100):
                    realm.activity.record_use(ADAS)
                await asyncio.sleep(2.4)
            assert commits(realm) - before <= 5
        assert written(realm) == at(99 * 2.4)


@virtually
async def test_noting_a_use_writes_nothing() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        before = commits(realm)
        for _ in range(1_000):
            realm.activity.record_use(ADAS)
        await asyncio.sleep(0)
        assert commits(realm) == before


@virtually
async def test_a_key_that_lives_by_its_use_is_written_often_enough_to_outlive_a_restart() -> None:
    async with new_realm() as realm:
        made = await realm.key("k", ttl=900, ttlAfterLastActivity=True)
        async with writing(realm):
            for _ in range(60):
                realm.activity.record_use(realm.authenticate.authenticate_token(made["spec"]["key"]))
                await asyncio.sleep(60.6)
                assert (written(realm) or "") >= at(realm.world.clock.monotonic() - 184)
        await asyncio.sleep(901)
        with pytest.raises(Unauthorized):
            realm.authenticate.authenticate_token(made["spec"]["key"])


@virtually
async def test_no_key_makes_the_server_write_more_often_than_once_a_minute() -> None:
    async with new_realm() as realm:
        made = await realm.key("k", ttl=5, ttlAfterLastActivity=True)
        async with writing(realm):
            before = commits(realm)
            for _ in range(599):
                realm.activity.record_use(realm.authenticate.authenticate_token(made["spec"]["key"]))
                await asyncio.sleep(1)
            assert 1 <= commits(realm) - before <= 10


@virtually
async def test_an_administrator_can_have_a_key_written_less_often() -> None:
    async with new_realm() as realm:
        labels = {COOLDOWN_LABEL: "600"}
        body = realm.world.body("OwnedAccessKey", "k", metadata={"labels": labels}, spec={"user": "ada"})
        await realm.world.submit("OwnedAccessKey", body, WriteOptions(ROOT, "tests"))
        async with writing(realm):
            before = commits(realm)
            for _ in range(1_190):
                realm.activity.record_use(ADAS)
                await asyncio.sleep(1)
            assert commits(realm) - before == 2


@virtually
async def test_after_a_restart_keys_are_not_all_written_at_once() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        realm.activity.record_use(ADAS)
        keys = realm.world.of("OwnedAccessKey")
        await realm.activity.flush(keys)
        before = commits(realm)
        restarted = LastUsedTracker(realm.world.clock)
        await asyncio.sleep(10)
        restarted.record_use(ADAS)
        await restarted.flush(keys)
        assert commits(realm) == before
        await asyncio.sleep(51)
        await restarted.flush(keys)
        assert commits(realm) == before + 1


@virtually
async def test_what_is_not_written_yet_is_written_when_the_server_stops() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        async with writing(realm):
            realm.activity.record_use(ADAS)
            await asyncio.sleep(5)
            realm.activity.record_use(ADAS)
            await asyncio.sleep(0)
        assert written(realm) == at(5)


@virtually
async def test_a_clock_that_is_set_back_does_not_take_a_later_use_back() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        keys = realm.world.of("OwnedAccessKey")
        await realm.set_status("k", lastActivity=at(5_000))
        realm.activity.record_use(ADAS)
        await realm.activity.flush(keys, everything=True)
        assert written(realm) == at(5_000)


@virtually
async def test_a_store_that_is_away_is_tried_again() -> None:
    async with new_realm() as realm:
        await realm.key("k")

        async def fail() -> None:
            raise StoreUnavailable("the disk is full")

        async with writing(realm):
            realm.world.store.before.append(fail)
            realm.activity.record_use(ADAS)
            await asyncio.sleep(3)
            assert written(realm) is None
            await asyncio.sleep(6)
            assert written(realm) == at(0)


@virtually
async def test_keys_that_are_gone_are_forgotten() -> None:
    async with new_realm() as realm:
        await realm.key("k")
        async with writing(realm):
            realm.activity.record_use(ADAS)
            await asyncio.sleep(5)
            await realm.world.delete("OwnedAccessKey", "k", user=CONTROLLER_USER)
            realm.activity.record_use(User("ada", key="never-was"))
            await asyncio.sleep(120)
        assert realm.activity.last_use("k") is None
        assert realm.activity.last_use("never-was") is None


@virtually
async def test_who_came_without_a_key_leaves_no_trace() -> None:
    async with new_realm() as realm:
        realm.activity.record_use(ADA)
        assert realm.activity.last_use("") is None
