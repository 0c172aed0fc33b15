"""The limits on access keys per owner: their number, their size, and concurrent creates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.admission.access_key_limits import MAX_EXEMPT_BYTES, KeyLimits, enforce_key_limits
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key import LOGIN_TYPE, MAX_LOGINS
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.quota import write_locks
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.storage.view.view import View
from tests.harness.auth import ADA, BOB, ROOT, AuthFixture, open_auth
from tests.harness.registry import open_registry

KIND = "OwnedAccessKey"
LOCK_KEY = write_locks.lock_key(GROUP, "keys:user:ada")


@asynccontextmanager
async def open_auth_with_limits(keys: int = 3, size: int = 1 << 20) -> AsyncIterator[AuthFixture]:
    async with open_auth(rules=(enforce_key_limits(GROUP, KeyLimits(keys, size)),)) as auth:
        yield auth


def large_labels(size: int) -> dict[str, str]:
    return {f"l{number}": "x" * 60 for number in range(size // 68)}


async def test_the_key_over_the_limit_is_rejected_with_advice() -> None:
    async with open_auth_with_limits(3) as auth:
        for name in ("a", "b", "c"):
            await auth.create_key(name)
        with pytest.raises(Forbidden) as error:
            await auth.create_key("d")
        assert error.value.message == (
            f'ownedaccesskeys.{GROUP} "d" is forbidden: user "ada" has 3 access keys, and the limit is 3; delete '
            "those that are not needed, or have an administrator raise the setting access_keys_per_owner"
        )
        await auth.create_key("bobs", BOB)
        await auth.api.resource(KIND).delete("", "a", DeleteOptions(), WriteOptions(ADA))
        await auth.create_key("d")


async def test_fifty_concurrent_creates_stop_exactly_at_the_limit() -> None:
    async with open_auth_with_limits(7) as auth:
        outcomes = await asyncio.gather(
            *(auth.create_key(f"k{number}") for number in range(50)), return_exceptions=True
        )
        assert sum(isinstance(each, dict) for each in outcomes) == 7
        assert {type(each) for each in outcomes} == {dict, Forbidden}
        assert len(auth.api.list_names(KIND)) == 7


async def test_a_key_that_another_replica_creates_concurrently_counts() -> None:
    async with open_auth_with_limits(1) as auth:
        store = auth.api.store

        async def create_on_other_replica() -> None:
            await auth.create_key("theirs")

        store.before.append(create_on_other_replica)
        with pytest.raises(Forbidden):
            await auth.create_key("ours")
        assert auth.api.list_names(KIND) == ["theirs"]


async def test_generated_names_and_dry_runs_count_towards_the_limit() -> None:
    async with open_auth_with_limits(2) as auth:
        body = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"generateName": "k-"}, "spec": {}}
        for _ in range(2):
            await auth.api.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, WriteOptions(ADA, "tests"))
        for dry_run in (False, True):
            with pytest.raises(Forbidden):
                options = WriteOptions(ADA, "tests", dry_run=dry_run)
                await auth.api.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, options)


async def test_administrators_are_exempt_from_the_limit_and_their_keys_count_for_the_owner() -> None:
    async with open_auth_with_limits(2) as auth:
        for number in range(4):
            await auth.create_key(f"k{number}", ROOT, user="ada")
        with pytest.raises(Forbidden, match='user "ada" has 4 access keys'):
            await auth.create_key("mine")


async def test_an_administrator_with_a_scoped_key_is_limited_too() -> None:
    async with open_auth_with_limits(1) as auth:
        rule = {"resources": [{"group": GROUP, "resources": ["ownedaccesskeys"]}]}
        scoped_root = await auth.sign_in("root", scope={"rules": [rule]})
        with pytest.raises(Forbidden, match="the limit is 1;"):
            await auth.create_key("another", scoped_root, scope={"rules": [rule]})


async def test_the_keys_of_a_team_are_limited_too() -> None:
    async with open_auth_with_limits(2) as auth:
        await auth.create_team("core")
        created = await auth.create_key("core-1", ROOT, team="core")
        team = auth.authenticator.authenticate_token(created["spec"]["key"])
        await auth.create_key("core-2", team)
        with pytest.raises(Forbidden, match='team "core" has 2 access keys'):
            await auth.create_key("core-3", team)


async def test_logins_have_a_limit_of_their_own_and_the_server_is_exempt() -> None:
    async with open_auth_with_limits(1) as auth:
        await auth.create_key("own")
        for number in range(MAX_LOGINS + 1):
            await auth.create_key(f"login-{number}", CONTROLLER_USER, user="ada", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match="has 1 access keys, and the limit is 1;"):
            await auth.create_key("another")


async def test_keys_that_are_exported_take_nothing_of_the_limit_of_their_owner_and_have_one_of_their_own() -> None:
    labels = {"service.sh/export": "argocd"}
    async with open_auth_with_limits(2) as auth:
        for number in range(20):
            await auth.create_labelled_key(f"export-{number}", ADA, labels)
        with pytest.raises(Forbidden, match='user "ada" has 20 exported access keys, and the limit is 20; delete'):
            await auth.create_labelled_key("export-20", ADA, labels)
        await auth.create_key("own")
        await auth.create_key("other")
        with pytest.raises(Forbidden, match='user "ada" has 2 access keys, and the limit is 2; delete'):
            await auth.create_key("third")


async def test_the_size_of_exported_keys_is_limited_too() -> None:
    async with open_auth_with_limits(1) as auth:
        labels = {"service.sh/export": "argocd", **large_labels(30_000)}
        with pytest.raises(Forbidden, match=r"the limit is 20480; delete .*, which allows 2 KiB for each"):
            await auth.create_labelled_key("large", ADA, labels)


async def test_the_limit_of_logins_does_not_depend_on_the_other_rules_of_access_keys() -> None:
    """The server issues logins; if another rule allowed users to do so, this one would still bound them."""
    async with open_registry(rules=(enforce_key_limits(GROUP, KeyLimits(1, 1 << 20)),)) as api:
        spec = {"user": "ada", "type": LOGIN_TYPE}
        for number in range(MAX_LOGINS):
            await api.submit(KIND, api.build_object(KIND, f"login-{number}", spec=spec), WriteOptions(ADA, "tests"))
        with pytest.raises(Forbidden) as error:
            await api.submit(KIND, api.build_object(KIND, "another", spec=spec), WriteOptions(ADA, "tests"))
        assert error.value.message == (
            f'ownedaccesskeys.{GROUP} "another" is forbidden: user "ada" has {MAX_LOGINS} logins, and the limit is '
            f"{MAX_LOGINS}; delete those that are not needed"
        )


async def test_changing_the_type_of_a_key_does_not_bypass_the_limit() -> None:
    async with open_auth_with_limits(1) as auth:
        await auth.create_key("own")
        await auth.create_key("login", CONTROLLER_USER, user="ada", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match=r"only the server changes spec\.type"):
            await auth.update_spec(KIND, "login", ADA, type="User")


async def test_expired_keys_are_deleted_to_make_room_oldest_first() -> None:
    async with open_auth_with_limits(2) as auth:
        await auth.create_key("old", ttl=10)
        await auth.create_key("older", ttl=10)
        await auth.update_key_status("old", expired="2026-01-02T00:00:00Z")
        await auth.update_key_status("older", expired="2026-01-01T00:00:00Z")
        await auth.create_key("new")
        assert auth.api.list_names(KIND) == ["new", "old"]
        await auth.create_key("newer")
        assert auth.api.list_names(KIND) == ["new", "newer"]
        with pytest.raises(Forbidden):
            await auth.create_key("newest")


async def test_an_expired_key_with_a_finalizer_stays_and_counts() -> None:
    async with open_auth_with_limits(1) as auth:
        body = auth.api.build_object(KIND, "held", metadata={"finalizers": ["example.com/held"]}, spec={"ttl": 10})
        await auth.api.submit(KIND, body, WriteOptions(ADA, "tests"))
        await auth.update_key_status("held", expired="2026-01-01T00:00:00Z")
        with pytest.raises(Forbidden):
            await auth.create_key("new")
        assert auth.api.list_names(KIND) == ["held"]


async def test_the_total_size_of_all_keys_is_limited() -> None:
    async with open_auth_with_limits(100, 40_000) as auth:
        await auth.create_labelled_key("a", ADA, large_labels(20_000))
        with pytest.raises(Forbidden) as error:
            await auth.create_labelled_key("b", ADA, large_labels(20_000))
        assert "bytes in total, and the limit is 40000; delete those that are not needed" in error.value.message
        assert "raise the setting access_keys_per_owner, which allows 10 KiB for each" in error.value.message
        await auth.create_labelled_key("b", ADA, large_labels(5_000))
        with pytest.raises(Forbidden, match="the limit is 40000"):
            await auth.update_spec(KIND, "b", ADA, description="x" * 40_000)


@pytest.mark.parametrize(("keys", "size"), [(1, 1 << 20), (100, 1 << 20), (1000, 1000 * 10_240)])
def test_the_total_size_follows_from_the_number_of_keys(keys: int, size: int) -> None:
    assert KeyLimits.for_count(keys) == KeyLimits(keys, size)


async def test_an_owner_over_the_limit_can_still_disable_shrink_and_delete_keys() -> None:
    async with open_auth_with_limits(100, 40_000) as auth:
        await auth.create_labelled_key("large", ROOT, large_labels(60_000), user="ada")
        await auth.create_key("small", ROOT, user="ada")
        disabled = await auth.update_spec(KIND, "small", ADA, disabled=True)
        assert disabled["spec"]["disabled"] is True
        with pytest.raises(Forbidden):
            await auth.update_spec(KIND, "small", ADA, description="x" * MAX_EXEMPT_BYTES)

        def shrink(key: Object) -> None:
            key["metadata"]["labels"] = large_labels(50_000)

        await auth.api.patch(KIND, "large", shrink, WriteOptions(ADA, "tests"))
        await auth.api.resource(KIND).delete("", "large", DeleteOptions(), WriteOptions(ADA))


async def test_the_write_lock_is_deleted_with_its_owner() -> None:
    async with open_auth_with_limits() as auth:
        await auth.create_key("k")
        assert auth.api.view.get(LOCK_KEY) is not None
        await auth.api.resource("User").delete("", "ada", DeleteOptions(), WriteOptions(ROOT))
        assert auth.api.view.get(LOCK_KEY) is None


async def test_creating_a_key_does_not_scan_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_auth_with_limits(10) as auth:
        await auth.create_key("first", key="another-value-of-my-own")
        for number in range(30):
            await auth.create_key(f"r{number}", ROOT, user="root")

        def fail_on_scan(*args: object) -> None:
            raise AssertionError("all access keys were scanned")

        monkeypatch.setattr(View, "entries", fail_on_scan)
        await auth.create_key("second", key="a-value-of-my-own-choice")
        with pytest.raises(Invalid, match="this value cannot be used"):
            await auth.create_key("third", key="a-value-of-my-own-choice")
