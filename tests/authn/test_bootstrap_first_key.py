"""Tests of `authn/bootstrap.py`: which other access keeps the first key, and that a new one replaces it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import orjson
import pytest

from fairlead.authn.access_keys import ACCESS_KEYS, USERS
from fairlead.authn.bootstrap import ADMIN_KEY, FIRST_KEY_SECONDS, OtherAdminAccess, ensure_admin, reset_admin
from fairlead.authn.principals import TEAMS, PrincipalDirectory
from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, deep_copy
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.key_lifetime import temporary_until
from fairlead.registry.codec import decode
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.login import PASSWORD, LoginFixture, open_login

AS_SERVER = WriteOptions(CONTROLLER_USER, "tests")
FIRST = (GROUP, ACCESS_KEYS, "", ADMIN_KEY)


class FirstKeyFixture:
    def __init__(self, login: LoginFixture) -> None:
        self.login = login
        self.passwords_enabled = True
        view = login.registry.view
        principals = PrincipalDirectory(Informer(view, GROUP, USERS), Informer(view, GROUP, TEAMS))
        self.other_access = OtherAdminAccess(view, GROUP, principals, lambda: self.passwords_enabled)
        self.controller = AccessKeyController(login.registry, GROUP, 3600, lambda key: None, self.other_access)
        self.key = ""

    async def create(self) -> None:
        login = self.login
        self.key = await ensure_admin(login.store, login.registry.view, login.pepper, GROUP, login.clock) or ""

    async def reset(self) -> str:
        login = self.login
        return await reset_admin(login.store, login.registry.view, login.pepper, GROUP, login.clock)

    async def pass_a_day(self) -> None:
        self.login.clock.tick(FIRST_KEY_SECONDS)
        await self.controller.reconcile(FIRST)

    def stored(self) -> Object:
        entry = self.login.registry.resource(GROUP, ACCESS_KEYS).get_cached("", ADMIN_KEY)
        assert entry is not None
        return decode(entry)

    def is_accepted(self, key: str) -> bool:
        try:
            return self.login.keys.authenticate_token(key).is_admin
        except Unauthorized:
            return False

    async def edit_user(self, name: str, **spec: Any) -> None:
        def edit(old: Object) -> Object:
            new = deep_copy(old)
            new["spec"].update(spec)
            return new

        await self.login.registry.resource(GROUP, USERS).modify("", name, edit, AS_SERVER)


@pytest.fixture
async def first() -> AsyncIterator[FirstKeyFixture]:
    async with open_login() as login:
        fixture = FirstKeyFixture(login)
        await fixture.create()
        yield fixture


async def test_the_first_key_works_for_a_day(first: FirstKeyFixture) -> None:
    assert temporary_until(first.stored()) is not None
    first.login.clock.tick(FIRST_KEY_SECONDS - 1)
    wait = await first.controller.reconcile(FIRST)
    assert first.is_accepted(first.key) and wait == 1
    first.login.clock.tick(1)
    await first.controller.reconcile(FIRST)
    assert not first.is_accepted(first.key)


async def test_a_ttl_that_ends_earlier_counts(first: FirstKeyFixture) -> None:
    def shorten(old: Object) -> Object:
        return {**old, "spec": {**old["spec"], "ttl": 60}}

    await first.login.registry.resource(GROUP, ACCESS_KEYS).modify("", ADMIN_KEY, shorten, AS_SERVER)
    first.login.clock.tick(61)
    await first.controller.reconcile(FIRST)
    assert first.stored()["status"]["expired"]


async def test_an_expired_first_key_is_not_deleted(first: FirstKeyFixture) -> None:
    await first.pass_a_day()
    first.login.clock.tick(7200)
    await first.controller.reconcile(FIRST)
    assert first.stored()["status"]["expired"]


async def test_the_first_key_can_create_keys_that_do_not_expire(first: FirstKeyFixture) -> None:
    user = first.login.keys.authenticate_token(first.key)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"name": "mine"}, "spec": {}}
    keys = first.login.registry.resource(GROUP, ACCESS_KEYS)
    created = orjson.loads(await keys.create(body, "", WriteOptions(user, "tests")))
    await first.pass_a_day()
    assert first.is_accepted(created["spec"]["key"]) and first.is_accepted(first.key)


async def test_with_another_way_in_the_first_key_becomes_an_ordinary_one(first: FirstKeyFixture) -> None:
    await first.login.add_key("admin")
    await first.pass_a_day()
    assert first.is_accepted(first.key) and temporary_until(first.stored()) is None
    for name in first.login.key_names():
        if name != ADMIN_KEY:
            await first.login.registry.resource(GROUP, ACCESS_KEYS).delete("", name, DeleteOptions(), AS_SERVER)
    await first.pass_a_day()
    assert first.is_accepted(first.key)


@pytest.mark.parametrize(
    "spec", [{"ttl": 10**7}, {"disabled": True}, {"scope": {"allowServiceCli": True}}, {"type": "Login"}]
)
async def test_a_key_that_is_limited_is_no_other_way_in(first: FirstKeyFixture, spec: Object) -> None:
    await first.login.add_key("admin", **spec)
    await first.pass_a_day()
    assert not first.is_accepted(first.key)


async def test_a_key_of_another_user_counts_if_that_is_an_administrator(first: FirstKeyFixture) -> None:
    await first.login.add_user("eve", password=None)
    await first.login.add_key("eve")
    assert not first.other_access(ADMIN_KEY)
    await first.edit_user("eve", groups=["system:masters"])
    assert first.other_access(ADMIN_KEY)
    await first.edit_user("eve", disabled=True)
    assert not first.other_access(ADMIN_KEY)


async def test_a_password_counts_if_users_can_log_in_with_it(first: FirstKeyFixture) -> None:
    await first.login.passwords.set_password("admin", PASSWORD, CONTROLLER_USER)
    assert first.other_access(ADMIN_KEY)
    first.passwords_enabled = False
    assert not first.other_access(ADMIN_KEY)


async def test_a_key_from_before_this_rule_does_not_expire(first: FirstKeyFixture) -> None:
    def edit(old: Object) -> Object:
        new = deep_copy(old)
        del new["metadata"]["annotations"]
        return new

    await first.login.registry.resource(GROUP, ACCESS_KEYS).modify("", ADMIN_KEY, edit, AS_SERVER)
    await first.pass_a_day()
    assert first.is_accepted(first.key) and "expired" not in (first.stored().get("status") or {})


async def test_a_new_key_replaces_the_first_one_also_after_it_has_expired(first: FirstKeyFixture) -> None:
    for _ in range(2):
        key = await first.reset()
        assert first.is_accepted(key) and not first.is_accepted(first.key)
        until = temporary_until(first.stored())
        assert until is not None and until - first.login.clock.now() <= timedelta(seconds=FIRST_KEY_SECONDS)
        first.key = key
        await first.pass_a_day()
        assert not first.is_accepted(key)


@pytest.mark.parametrize("change", [{"disabled": True}, {"groups": []}, {"groups": ["devs"], "disabled": True}])
async def test_a_new_key_restores_the_administrator(first: FirstKeyFixture, change: Object) -> None:
    await first.edit_user("admin", email="admin@example.com", **change)
    assert not first.is_accepted(first.key)
    assert first.is_accepted(await first.reset())
    user = decode(await first.login.registry.resource(GROUP, USERS).get("", "admin"))
    assert user["spec"]["email"] == "admin@example.com" and "disabled" not in user["spec"]
    assert set(change.get("groups", [])) <= set(user["spec"]["groups"])


async def test_a_new_key_creates_an_administrator_who_was_deleted(first: FirstKeyFixture) -> None:
    await first.login.registry.resource(GROUP, USERS).delete("", "admin", DeleteOptions(), AS_SERVER)
    assert first.is_accepted(await first.reset())
