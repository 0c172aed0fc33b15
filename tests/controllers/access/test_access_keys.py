"""Keys that have expired: marked for good, told about, and removed when they have been kept long enough."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairlead.authn.key_rotation import KeyRotator
from fairlead.authz.scope import is_superset
from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.clock import timestamp
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, get_path
from fairlead.domain.key_lifetime import COOLDOWN_SECONDS
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, PEPPER, ROOT, AuthFixture, open_auth
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.virtual_time import EPOCH

DAY, HOUR = 86_400.0, 3_600.0
SLIDING: Object = {"ttl": 60, "ttlAfterLastActivity": True}


def at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


@asynccontextmanager
async def ending(retention: float = DAY) -> AsyncIterator[AuthFixture]:
    async with (
        open_auth() as auth,
        running_controllers(auth.api, AccessKeyController(auth.registry, GROUP, retention, auth.activity.last_use)),
    ):
        yield auth


def events(auth: AuthFixture) -> list[tuple[str, str]]:
    decoded = [decode(entry) for entry in auth.api.view.entries("", "events")]
    return sorted((get_path(event, "involvedObject.name"), event["reason"]) for event in decoded)


def expired(auth: AuthFixture, name: str = "k") -> Any:
    return get_path(auth.stored(name), "status.expired")


async def test_a_key_is_marked_when_it_expires_and_an_event_says_so() -> None:
    async with ending() as auth:
        await auth.key("k", ttl=100)
        await asyncio.sleep(99)
        assert expired(auth) is None and events(auth) == []
        await asyncio.sleep(2)
        assert expired(auth) == at(100)
        assert events(auth) == [("k", "Expired")]


async def test_a_key_that_does_not_expire_is_left_alone() -> None:
    async with ending() as auth:
        await auth.key("k")
        before = auth.stored("k")
        await asyncio.sleep(DAY)
        assert auth.stored("k") == before


async def test_an_expired_key_is_kept_for_a_day_and_then_removed() -> None:
    async with ending() as auth:
        await auth.key("k", ttl=100)
        await asyncio.sleep(100 + DAY - 5)
        assert "k" in auth.api.names("OwnedAccessKey")
        await asyncio.sleep(10)
        assert auth.api.names("OwnedAccessKey") == []
        assert events(auth) == [("k", "Expired"), ("k", "Removed")]


@pytest.mark.parametrize("retention", [0, 10])
async def test_how_long_expired_keys_are_kept_can_be_chosen(retention: float) -> None:
    async with ending(retention) as auth:
        await auth.key("k", ttl=100)
        await asyncio.sleep(100 + retention + 2)
        assert auth.api.names("OwnedAccessKey") == []


async def test_a_key_that_expired_while_the_server_was_down_is_marked_when_it_is_back() -> None:
    async with open_auth() as auth:
        await auth.key("k", ttl=100)
        await asyncio.sleep(DAY)
        async with running_controllers(
            auth.api, AccessKeyController(auth.registry, GROUP, DAY, auth.activity.last_use)
        ):
            await eventually(lambda: expired(auth))
        assert expired(auth) == at(DAY)


async def test_a_key_whose_life_is_changed_expires_when_it_says_now() -> None:
    async with ending() as auth:
        await auth.key("k", ttl=1_000)
        await asyncio.sleep(10)
        await auth.set("OwnedAccessKey", "k", ADA, ttl=50)
        await asyncio.sleep(41)
        assert expired(auth) == at(50)


async def test_a_key_that_somebody_gives_more_time_at_the_last_moment_is_not_marked() -> None:
    async with ending() as auth:
        await auth.key("k", ttl=100)
        await asyncio.sleep(99)

        async def be_faster() -> None:
            await auth.set("OwnedAccessKey", "k", ADA, ttl=200)

        auth.api.store.before.append(be_faster)
        await asyncio.sleep(50)
        assert expired(auth) is None and events(auth) == []
        await asyncio.sleep(52)
        assert expired(auth) == at(200)


async def test_a_key_that_lives_by_its_use_is_not_marked_while_it_is_used() -> None:
    async with ending() as auth:
        made = await auth.key("k", **SLIDING)
        for _ in range(20):
            auth.activity.record_use(auth.authenticate.authenticate_token(made["spec"]["key"]))
            await asyncio.sleep(30)
        assert expired(auth) is None
        await asyncio.sleep(SLIDING["ttl"] + 3 * COOLDOWN_SECONDS)
        assert expired(auth) is not None


async def test_r7_an_expired_key_does_not_come_back_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ending() as auth:
        made = await auth.key("k", ttl=100)
        await asyncio.sleep(101)
        clock = auth.api.clock
        real = clock.now
        monkeypatch.setattr(clock, "now", lambda: real() - timedelta(hours=1))
        await asyncio.sleep(1)
        # Another process, which has seen nothing of all this.
        for keys in (auth.authenticate, AuthFixture(auth.api, auth.rights).authenticate):
            with pytest.raises(Unauthorized):
                keys.authenticate_token(made["spec"]["key"])
        await auth.set("OwnedAccessKey", "k", ROOT, ttl=10_000)
        with pytest.raises(Unauthorized):
            auth.authenticate.authenticate_token(made["spec"]["key"])


async def test_r7_a_clock_that_leaps_ahead_for_a_minute_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ending() as auth:
        await auth.key("k", ttl=1_800)
        await asyncio.sleep(10)
        clock = auth.api.clock
        real = clock.now

        def ahead() -> datetime:
            return real() + timedelta(hours=1)

        monkeypatch.setattr(clock, "now", ahead)
        await asyncio.sleep(61)
        monkeypatch.setattr(clock, "now", real)
        assert expired(auth) is not None


async def test_r7_a_key_that_seems_to_have_expired_in_the_future_is_removed_all_the_same() -> None:
    async with ending(retention=100) as auth:
        await auth.key("k", ttl=100)
        await auth.set_status("k", expired=at(HOUR))
        await asyncio.sleep(HOUR + 101)
        assert auth.api.names("OwnedAccessKey") == []


async def test_values_from_before_a_rotation_are_taken_away_when_their_time_is_over() -> None:
    async with ending() as auth:
        await auth.key("k")
        rotation = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)
        await rotation.rotate(ADA, "k", {"spec": {"overlapSeconds": 100}})
        await asyncio.sleep(50)
        await rotation.rotate(ADA, "k", {"spec": {"overlapSeconds": 100}})
        assert len(get_path(auth.stored("k"), "status.previous")) == 2
        await asyncio.sleep(52)
        assert len(get_path(auth.stored("k"), "status.previous")) == 1
        await asyncio.sleep(50)
        assert get_path(auth.stored("k"), "status.previous") == []


async def test_a_key_that_somebody_holds_on_to_is_deleted_once() -> None:
    async with ending(retention=10) as auth:
        body = auth.api.body("OwnedAccessKey", "k", metadata={"finalizers": ["x.io/wait"]}, spec={"ttl": 5})
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
        await asyncio.sleep(100)
        assert "deletionTimestamp" in auth.stored("k")["metadata"]
        assert events(auth) == [("k", "Expired"), ("k", "Removed")]


async def test_t15_the_keys_of_a_user_go_with_the_user() -> None:
    async with open_auth() as auth, running_controllers(auth.api, GarbageCollector(auth.registry)):
        await auth.team("core")
        await auth.key("adas")
        await auth.key("cores", ROOT, team="core")
        await auth.key("machines", ROOT, subject="robot")
        await auth.api.delete("User", "ada", user=ROOT)
        await eventually(lambda: auth.api.names("OwnedAccessKey") == ["cores", "machines"])
        await auth.api.delete("Team", "core", user=ROOT)
        await eventually(lambda: auth.api.names("OwnedAccessKey") == ["machines"])


async def test_t15_keys_that_are_left_behind_on_purpose_stand_for_nobody_who_comes_later() -> None:
    async with open_auth() as auth, running_controllers(auth.api, GarbageCollector(auth.registry)):
        made: Object = await auth.key("adas")
        await asyncio.sleep(5)
        await auth.api.delete("User", "ada", DeleteOptions(propagation="Orphan"), user=ROOT)
        await eventually(lambda: "ada" not in auth.api.names("User"))
        await auth.user("ada")
        assert auth.api.names("OwnedAccessKey") == ["adas"]
        with pytest.raises(Unauthorized):
            auth.authenticate.authenticate_token(made["spec"]["key"])
