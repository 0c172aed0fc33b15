"""How many access keys people may make for themselves, how large, and that races change nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.admission.access_key_limits import MAX_EXEMPT_BYTES, KeyLimits, enforce_key_limits
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_lifetime import COOLDOWN_LABEL
from fairlead.kinds.access.access_key_usage import LOGIN_TYPE, MAX_LOGINS
from fairlead.registry import write_locks
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.storage.view.view import View
from tests.harness.auth import ADA, BOB, ROOT, AuthFixture, open_auth

KIND = "OwnedAccessKey"
TICKET = write_locks.lock_key(GROUP, "keys:user:ada")


@asynccontextmanager
async def limited(keys: int = 3, size: int = 1 << 20) -> AsyncIterator[AuthFixture]:
    async with open_auth(rules=(enforce_key_limits(GROUP, KeyLimits(keys, size)),)) as auth:
        yield auth


async def labelled(auth: AuthFixture, name: str, by: User, labels: dict[str, str], **spec: Any) -> Object:
    body = auth.api.body(KIND, name, metadata={"labels": labels}, spec=spec)
    return await auth.api.submit(KIND, body, WriteOptions(by, "tests"))


def padding(size: int) -> dict[str, str]:
    return {f"l{number}": "x" * 60 for number in range(size // 68)}


async def test_the_last_key_that_fits_is_made_and_the_next_is_refused_with_what_to_do() -> None:
    async with limited(3) as auth:
        for name in ("a", "b", "c"):
            await auth.key(name)
        with pytest.raises(Forbidden) as caught:
            await auth.key("d")
        assert caught.value.message == (
            f'ownedaccesskeys.{GROUP} "d" is forbidden: user "ada" has 3 access keys, and the limit is 3; delete '
            "those that are not needed, or have an administrator raise the setting access_keys_per_owner"
        )
        await auth.key("bobs", BOB)
        await auth.api.of(KIND).delete("", "a", DeleteOptions(), WriteOptions(ADA))
        await auth.key("d")


async def test_fifty_at_once_make_exactly_as_many_as_the_limit_allows() -> None:
    async with limited(7) as auth:
        outcomes = await asyncio.gather(*(auth.key(f"k{number}") for number in range(50)), return_exceptions=True)
        assert sum(isinstance(each, dict) for each in outcomes) == 7
        assert {type(each) for each in outcomes} == {dict, Forbidden}
        assert len(auth.api.names(KIND)) == 7


async def test_a_key_that_another_replica_makes_meanwhile_counts() -> None:
    async with limited(1) as auth:
        store = auth.api.store

        async def other_replica() -> None:
            await auth.key("theirs")

        store.before.append(other_replica)
        with pytest.raises(Forbidden):
            await auth.key("ours")
        assert auth.api.names(KIND) == ["theirs"]


async def test_generated_names_and_dry_runs_are_counted_alike() -> None:
    async with limited(2) as auth:
        body = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"generateName": "k-"}, "spec": {}}
        for _ in range(2):
            await auth.api.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, WriteOptions(ADA, "tests"))
        for dry_run in (False, True):
            with pytest.raises(Forbidden):
                writing = WriteOptions(ADA, "tests", dry_run=dry_run)
                await auth.api.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, writing)


async def test_administrators_make_as_many_as_they_like_and_theirs_count_for_the_owner() -> None:
    async with limited(2) as auth:
        for number in range(4):
            await auth.key(f"k{number}", ROOT, user="ada")
        with pytest.raises(Forbidden, match='user "ada" has 4 access keys'):
            await auth.key("mine")


async def test_an_administrators_key_with_a_scope_is_bounded_like_any_other() -> None:
    async with limited(1) as auth:
        rule = {"resources": [{"group": GROUP, "resources": ["ownedaccesskeys"]}]}
        cut = await auth.signed_in("root", scope={"rules": [rule]})
        with pytest.raises(Forbidden, match="the limit is 1;"):
            await auth.key("another", cut, scope={"rules": [rule]})


async def test_a_team_key_is_bounded_too() -> None:
    async with limited(2) as auth:
        await auth.team("core")
        made = await auth.key("core-1", ROOT, team="core")
        team = auth.authenticate.authenticate_token(made["spec"]["key"])
        await auth.key("core-2", team)
        with pytest.raises(Forbidden, match='team "core" has 2 access keys'):
            await auth.key("core-3", team)


async def test_logins_are_counted_apart_and_the_server_is_never_refused_one() -> None:
    async with limited(1) as auth:
        await auth.key("own")
        for number in range(MAX_LOGINS + 1):
            await auth.key(f"login-{number}", CONTROLLER_USER, user="ada", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match=f"has {MAX_LOGINS + 1} logins, and the limit is {MAX_LOGINS}; delete"):
            await auth.key("sly", type=LOGIN_TYPE)


async def test_a_key_does_not_slip_through_by_changing_its_type() -> None:
    async with limited(1) as auth:
        await auth.key("own")
        await auth.key("sly", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match="has 1 access keys, and the limit is 1;"):
            await auth.set(KIND, "sly", ADA, type="User")


async def test_expired_keys_make_room_the_oldest_first() -> None:
    async with limited(2) as auth:
        await auth.key("old", ttl=10)
        await auth.key("older", ttl=10)
        await auth.set_status("old", expired="2026-01-02T00:00:00Z")
        await auth.set_status("older", expired="2026-01-01T00:00:00Z")
        await auth.key("new")
        assert auth.api.names(KIND) == ["new", "old"]
        await auth.key("newer")
        assert auth.api.names(KIND) == ["new", "newer"]
        with pytest.raises(Forbidden):
            await auth.key("newest")


async def test_an_expired_key_that_something_holds_stays_and_counts() -> None:
    async with limited(1) as auth:
        body = auth.api.body(KIND, "held", metadata={"finalizers": ["example.com/held"]}, spec={"ttl": 10})
        await auth.api.submit(KIND, body, WriteOptions(ADA, "tests"))
        await auth.set_status("held", expired="2026-01-01T00:00:00Z")
        with pytest.raises(Forbidden):
            await auth.key("new")
        assert auth.api.names(KIND) == ["held"]


async def test_all_keys_together_are_no_larger_than_the_limit() -> None:
    async with limited(100, 40_000) as auth:
        await labelled(auth, "a", ADA, padding(20_000))
        with pytest.raises(Forbidden) as caught:
            await labelled(auth, "b", ADA, padding(20_000))
        assert "bytes in total, and the limit is 40000; delete those that are not needed" in caught.value.message
        assert "access_key_bytes_per_owner" in caught.value.message
        await labelled(auth, "b", ADA, padding(5_000))
        with pytest.raises(Forbidden, match="the limit is 40000"):
            await auth.set(KIND, "b", ADA, description="x" * 40_000)


async def test_who_has_too_much_can_still_disable_shrink_and_delete() -> None:
    async with limited(100, 40_000) as auth:
        await labelled(auth, "large", ROOT, padding(60_000), user="ada")
        await auth.key("small", ROOT, user="ada")
        disabled = await auth.set(KIND, "small", ADA, disabled=True)
        assert disabled["spec"]["disabled"] is True
        with pytest.raises(Forbidden):
            await auth.set(KIND, "small", ADA, description="x" * MAX_EXEMPT_BYTES)

        def shrink(key: Object) -> None:
            key["metadata"]["labels"] = padding(50_000)

        await auth.api.patch(KIND, "large", shrink, WriteOptions(ADA, "tests"))
        await auth.api.of(KIND).delete("", "large", DeleteOptions(), WriteOptions(ADA))


async def test_only_administrators_say_how_often_the_last_use_is_written() -> None:
    async with limited() as auth:
        with pytest.raises(Forbidden, match=f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"):
            await labelled(auth, "k", ADA, {COOLDOWN_LABEL: "60"})
        await labelled(auth, "k", ROOT, {COOLDOWN_LABEL: "600"}, user="ada")
        await auth.set(KIND, "k", ADA, displayName="as it was")

        def faster(key: Object) -> None:
            key["metadata"]["labels"][COOLDOWN_LABEL] = "61"

        with pytest.raises(Forbidden):
            await auth.api.patch(KIND, "k", faster, WriteOptions(ADA, "tests"))

        def without(key: Object) -> None:
            del key["metadata"]["labels"][COOLDOWN_LABEL]

        await auth.api.patch(KIND, "k", without, WriteOptions(ADA, "tests"))


@pytest.mark.parametrize("value", ["1", "59", "0", "soon", "", "9999999999"])
async def test_nobody_has_the_last_use_written_more_than_once_a_minute(value: str) -> None:
    async with limited() as auth:
        with pytest.raises(Invalid) as caught:
            await labelled(auth, "k", ROOT, {COOLDOWN_LABEL: value}, user="ada")
        (problem,) = caught.value.details.problems
        assert problem.field == f"metadata.labels[{COOLDOWN_LABEL}]" and "between 60 and" in problem.message


async def test_the_ticket_goes_with_its_owner() -> None:
    async with limited() as auth:
        await auth.key("k")
        assert auth.api.view.get(TICKET) is not None
        await auth.api.of("User").delete("", "ada", DeleteOptions(), WriteOptions(ROOT))
        assert auth.api.view.get(TICKET) is None


async def test_counting_never_looks_at_the_keys_of_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited(10) as auth:
        await auth.key("first", key="another-value-of-my-own")
        for number in range(30):
            await auth.key(f"r{number}", ROOT, user="root")

        def scan(*args: object) -> None:
            raise AssertionError("all keys were looked at")

        monkeypatch.setattr(View, "entries", scan)
        await auth.key("second", key="a-value-of-my-own-choice")
        with pytest.raises(Invalid, match="this value cannot be used"):
            await auth.key("third", key="a-value-of-my-own-choice")
