"""Tests of `fairlead.controllers.access.access_keys`: expired keys are marked, recorded in an Event, and removed."""

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
from fairlead.core.user import CONTROLLER_USER
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


def timestamp_at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


@asynccontextmanager
async def run_key_controller(retention: float = DAY) -> AsyncIterator[AuthFixture]:
    async with (
        open_auth() as auth,
        running_controllers(auth.api, AccessKeyController(auth.registry, GROUP, retention, auth.last_used.last_use)),
    ):
        yield auth


def list_events(auth: AuthFixture) -> list[tuple[str, str]]:
    decoded = [decode(entry) for entry in auth.api.view.entries("", "events")]
    return sorted((get_path(event, "involvedObject.name"), event["reason"]) for event in decoded)


def expired_at(auth: AuthFixture, name: str = "k") -> Any:
    return get_path(auth.stored_key(name), "status.expired")


async def test_a_login_of_the_command_line_is_deleted_when_the_key_is_gone_that_allowed_it() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("parent")
        login = {"user": "ada", "type": "Login", "parent": "parent", "oidcProvider": {"clientId": "fairlead-cli"}}
        await auth.create_key("cli-ada-1", CONTROLLER_USER, **login)
        await auth.create_key("restored", ROOT, user="ada", parent="gone")  # no login: the field means nothing
        await asyncio.sleep(120)
        assert auth.stored_key("cli-ada-1")
        await auth.registry.resource(GROUP, "ownedaccesskeys").delete(
            "", "parent", DeleteOptions(), WriteOptions(ADA, "tests")
        )
        await asyncio.sleep(120)
        names = [entry.key[3] for entry in auth.api.view.entries(GROUP, "ownedaccesskeys")]
        assert "cli-ada-1" not in names and "restored" in names


async def test_a_key_is_marked_when_it_expires_and_an_event_says_so() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k", ttl=100)
        await asyncio.sleep(99)
        assert expired_at(auth) is None and list_events(auth) == []
        await asyncio.sleep(2)
        assert expired_at(auth) == timestamp_at(100)
        assert list_events(auth) == [("k", "Expired")]


async def test_a_key_that_does_not_expire_is_not_changed() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k")
        before = auth.stored_key("k")
        await asyncio.sleep(DAY)
        assert auth.stored_key("k") == before


async def test_an_expired_key_is_kept_for_a_day_and_then_removed() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k", ttl=100)
        await asyncio.sleep(100 + DAY - 5)
        assert "k" in auth.api.list_names("OwnedAccessKey")
        await asyncio.sleep(10)
        assert auth.api.list_names("OwnedAccessKey") == []
        assert list_events(auth) == [("k", "Expired"), ("k", "Removed")]


@pytest.mark.parametrize("retention", [0, 10])
async def test_the_retention_of_expired_keys_is_configurable(retention: float) -> None:
    async with run_key_controller(retention) as auth:
        await auth.create_key("k", ttl=100)
        await asyncio.sleep(100 + retention + 2)
        assert auth.api.list_names("OwnedAccessKey") == []


async def test_a_key_that_expired_while_the_server_was_down_is_marked_after_the_restart() -> None:
    async with open_auth() as auth:
        await auth.create_key("k", ttl=100)
        await asyncio.sleep(DAY)
        async with running_controllers(
            auth.api, AccessKeyController(auth.registry, GROUP, DAY, auth.last_used.last_use)
        ):
            await eventually(lambda: expired_at(auth))
        assert expired_at(auth) == timestamp_at(DAY)


async def test_a_key_with_a_changed_ttl_expires_at_its_new_time() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k", ttl=1_000)
        await asyncio.sleep(10)
        await auth.update_spec("OwnedAccessKey", "k", ADA, ttl=50)
        await asyncio.sleep(41)
        assert expired_at(auth) == timestamp_at(50)


async def test_a_key_whose_ttl_is_extended_by_a_concurrent_write_is_not_marked() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k", ttl=100)
        await asyncio.sleep(99)

        async def extend_ttl() -> None:
            await auth.update_spec("OwnedAccessKey", "k", ADA, ttl=200)

        auth.api.store.before.append(extend_ttl)
        await asyncio.sleep(50)
        assert expired_at(auth) is None and list_events(auth) == []
        await asyncio.sleep(52)
        assert expired_at(auth) == timestamp_at(200)


async def test_a_sliding_key_is_not_marked_while_it_is_used() -> None:
    async with run_key_controller() as auth:
        key = await auth.create_key("k", **SLIDING)
        for _ in range(20):
            auth.last_used.record_use(auth.authenticator.authenticate_token(key["spec"]["key"]))
            await asyncio.sleep(30)
        assert expired_at(auth) is None
        await asyncio.sleep(SLIDING["ttl"] + 3 * COOLDOWN_SECONDS)
        assert expired_at(auth) is not None


async def test_r7_an_expired_key_stays_expired_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_key_controller() as auth:
        key = await auth.create_key("k", ttl=100)
        await asyncio.sleep(101)
        clock = auth.api.clock
        real_now = clock.now
        monkeypatch.setattr(clock, "now", lambda: real_now() - timedelta(hours=1))
        await asyncio.sleep(1)
        # The second authenticator is that of a process without any cached state.
        for authenticator in (auth.authenticator, AuthFixture(auth.api, auth.permissions).authenticator):
            with pytest.raises(Unauthorized):
                authenticator.authenticate_token(key["spec"]["key"])
        await auth.update_spec("OwnedAccessKey", "k", ROOT, ttl=10_000)
        with pytest.raises(Unauthorized):
            auth.authenticator.authenticate_token(key["spec"]["key"])


async def test_r7_a_clock_that_jumps_ahead_expires_keys_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k", ttl=1_800)
        await asyncio.sleep(10)
        clock = auth.api.clock
        real_now = clock.now

        def one_hour_ahead() -> datetime:
            return real_now() + timedelta(hours=1)

        monkeypatch.setattr(clock, "now", one_hour_ahead)
        await asyncio.sleep(61)
        monkeypatch.setattr(clock, "now", real_now)
        assert expired_at(auth) is not None


async def test_r7_a_key_with_an_expiry_in_the_future_is_removed_after_that_time() -> None:
    async with run_key_controller(retention=100) as auth:
        await auth.create_key("k", ttl=100)
        await auth.update_key_status("k", expired=timestamp_at(HOUR))
        await asyncio.sleep(HOUR + 101)
        assert auth.api.list_names("OwnedAccessKey") == []


async def test_values_from_before_a_rotation_are_removed_after_the_overlap() -> None:
    async with run_key_controller() as auth:
        await auth.create_key("k")
        rotator = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)
        await rotator.rotate(ADA, "k", {"spec": {"overlapSeconds": 100}})
        await asyncio.sleep(50)
        await rotator.rotate(ADA, "k", {"spec": {"overlapSeconds": 100}})
        assert len(get_path(auth.stored_key("k"), "status.previous")) == 2
        await asyncio.sleep(52)
        assert len(get_path(auth.stored_key("k"), "status.previous")) == 1
        await asyncio.sleep(50)
        assert get_path(auth.stored_key("k"), "status.previous") == []


async def test_a_key_with_a_finalizer_is_deleted_once() -> None:
    async with run_key_controller(retention=10) as auth:
        body = auth.api.build_object("OwnedAccessKey", "k", metadata={"finalizers": ["x.io/wait"]}, spec={"ttl": 5})
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
        await asyncio.sleep(100)
        assert "deletionTimestamp" in auth.stored_key("k")["metadata"]
        assert list_events(auth) == [("k", "Expired"), ("k", "Removed")]


async def test_t15_the_keys_of_a_user_are_deleted_with_the_user() -> None:
    async with open_auth() as auth, running_controllers(auth.api, GarbageCollector(auth.registry)):
        await auth.create_team("core")
        await auth.create_key("adas")
        await auth.create_key("cores", ROOT, team="core")
        await auth.create_key("machines", ROOT, subject="robot")
        await auth.api.delete("User", "ada", user=ROOT)
        await eventually(lambda: auth.api.list_names("OwnedAccessKey") == ["cores", "machines"])
        await auth.api.delete("Team", "core", user=ROOT)
        await eventually(lambda: auth.api.list_names("OwnedAccessKey") == ["machines"])


async def test_t15_orphaned_keys_do_not_authenticate_a_new_user_with_the_same_name() -> None:
    async with open_auth() as auth, running_controllers(auth.api, GarbageCollector(auth.registry)):
        key: Object = await auth.create_key("adas")
        await asyncio.sleep(5)
        await auth.api.delete("User", "ada", DeleteOptions(propagation="Orphan"), user=ROOT)
        await eventually(lambda: "ada" not in auth.api.list_names("User"))
        await auth.create_user("ada")
        assert auth.api.list_names("OwnedAccessKey") == ["adas"]
        with pytest.raises(Unauthorized):
            auth.authenticator.authenticate_token(key["spec"]["key"])
