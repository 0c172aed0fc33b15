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
from tests.harness.auth import ADA, BOB, ROOT, Realm, new_realm

KIND = "OwnedAccessKey"
TICKET = write_locks.lock_key(GROUP, "keys:user:ada")


@asynccontextmanager
async def limited(keys: int = 3, size: int = 1 << 20) -> AsyncIterator[Realm]:
    async with new_realm(rules=(enforce_key_limits(GROUP, KeyLimits(keys, size)),)) as realm:
        yield realm


async def labelled(realm: Realm, name: str, by: User, labels: dict[str, str], **spec: Any) -> Object:
    body = realm.world.body(KIND, name, metadata={"labels": labels}, spec=spec)
    return await realm.world.submit(KIND, body, WriteOptions(by, "tests"))


def padding(size: int) -> dict[str, str]:
    return {f"l{number}": "x" * 60 for number in range(size // 68)}


async def test_the_last_key_that_fits_is_made_and_the_next_is_refused_with_what_to_do() -> None:
    async with limited(3) as realm:
        for name in ("a", "b", "c"):
            await realm.key(name)
        with pytest.raises(Forbidden) as caught:
            await realm.key("d")
        assert caught.value.message == (
            f'ownedaccesskeys.{GROUP} "d" is forbidden: user "ada" has 3 access keys, and the limit is 3; delete '
            "those that are not needed, or have an administrator raise the setting access_keys_per_owner"
        )
        await realm.key("bobs", BOB)
        await realm.world.of(KIND).delete("", "a", DeleteOptions(), WriteOptions(ADA))
        await realm.key("d")


async def test_fifty_at_once_make_exactly_as_many_as_the_limit_allows() -> None:
    async with limited(7) as realm:
        outcomes = await asyncio.gather(*(realm.key(f"k{number}") for number in range(50)), return_exceptions=True)
        assert sum(isinstance(each, dict) for each in outcomes) == 7
        assert {type(each) for each in outcomes} == {dict, Forbidden}
        assert len(realm.world.names(KIND)) == 7


async def test_a_key_that_another_replica_makes_meanwhile_counts() -> None:
    async with limited(1) as realm:
        store = realm.world.store

        async def other_replica() -> None:
            await realm.key("theirs")

        store.before.append(other_replica)
        with pytest.raises(Forbidden):
            await realm.key("ours")
        assert realm.world.names(KIND) == ["theirs"]


async def test_generated_names_and_dry_runs_are_counted_alike() -> None:
    async with limited(2) as realm:
        body = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"generateName": "k-"}, "spec": {}}
        for _ in range(2):
            await realm.world.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, WriteOptions(ADA, "tests"))
        for dry_run in (False, True):
            with pytest.raises(Forbidden):
                writing = WriteOptions(ADA, "tests", dry_run=dry_run)
                await realm.world.submit(KIND, {**body, "metadata": {"generateName": "k-"}}, writing)


async def test_administrators_make_as_many_as_they_like_and_theirs_count_for_the_owner() -> None:
    async with limited(2) as realm:
        for number in range(4):
            await realm.key(f"k{number}", ROOT, user="ada")
        with pytest.raises(Forbidden, match='user "ada" has 4 access keys'):
            await realm.key("mine")


async def test_an_administrators_key_with_a_scope_is_bounded_like_any_other() -> None:
    async with limited(1) as realm:
        rule = {"resources": [{"group": GROUP, "resources": ["ownedaccesskeys"]}]}
        cut = await realm.signed_in("root", scope={"rules": [rule]})
        with pytest.raises(Forbidden, match="the limit is 1;"):
            await realm.key("another", cut, scope={"rules": [rule]})


async def test_a_team_key_is_bounded_too() -> None:
    async with limited(2) as realm:
        await realm.team("core")
        made = await realm.key("core-1", ROOT, team="core")
        team = realm.authenticate.authenticate_token(made["spec"]["key"])
        await realm.key("core-2", team)
        with pytest.raises(Forbidden, match='team "core" has 2 access keys'):
            await realm.key("core-3", team)


async def test_logins_are_counted_apart_and_the_server_is_never_refused_one() -> None:
    async with limited(1) as realm:
        await realm.key("own")
        for number in range(MAX_LOGINS + 1):
            await realm.key(f"login-{number}", CONTROLLER_USER, user="ada", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match=f"has {MAX_LOGINS + 1} logins, and the limit is {MAX_LOGINS}; delete"):
            await realm.key("sly", type=LOGIN_TYPE)


async def test_a_key_does_not_slip_through_by_changing_its_type() -> None:
    async with limited(1) as realm:
        await realm.key("own")
        await realm.key("sly", type=LOGIN_TYPE)
        with pytest.raises(Forbidden, match="has 1 access keys, and the limit is 1;"):
            await realm.set(KIND, "sly", ADA, type="User")


async def test_expired_keys_make_room_the_oldest_first() -> None:
    async with limited(2) as realm:
        await realm.key("old", ttl=10)
        await realm.key("older", ttl=10)
        await realm.set_status("old", expired="2026-01-02T00:00:00Z")
        await realm.set_status("older", expired="2026-01-01T00:00:00Z")
        await realm.key("new")
        assert realm.world.names(KIND) == ["new", "old"]
        await realm.key("newer")
        assert realm.world.names(KIND) == ["new", "newer"]
        with pytest.raises(Forbidden):
            await realm.key("newest")


async def test_an_expired_key_that_something_holds_stays_and_counts() -> None:
    async with limited(1) as realm:
        body = realm.world.body(KIND, "held", metadata={"finalizers": ["example.com/held"]}, spec={"ttl": 10})
        await realm.world.submit(KIND, body, WriteOptions(ADA, "tests"))
        await realm.set_status("held", expired="2026-01-01T00:00:00Z")
        with pytest.raises(Forbidden):
            await realm.key("new")
        assert realm.world.names(KIND) == ["held"]


async def test_all_keys_together_are_no_larger_than_the_limit() -> None:
    async with limited(100, 40_000) as realm:
        await labelled(realm, "a", ADA, padding(20_000))
        with pytest.raises(Forbidden) as caught:
            await labelled(realm, "b", ADA, padding(20_000))
        assert "bytes in total, and the limit is 40000; delete those that are not needed" in caught.value.message
        assert "access_key_bytes_per_owner" in caught.value.message
        await labelled(realm, "b", ADA, padding(5_000))
        with pytest.raises(Forbidden, match="the limit is 40000"):
            await realm.set(KIND, "b", ADA, description="x" * 40_000)


async def test_who_has_too_much_can_still_disable_shrink_and_delete() -> None:
    async with limited(100, 40_000) as realm:
        await labelled(realm, "large", ROOT, padding(60_000), user="ada")
        await realm.key("small", ROOT, user="ada")
        disabled = await realm.set(KIND, "small", ADA, disabled=True)
        assert disabled["spec"]["disabled"] is True
        with pytest.raises(Forbidden):
            await realm.set(KIND, "small", ADA, description="x" * MAX_EXEMPT_BYTES)

        def shrink(key: Object) -> None:
            key["metadata"]["labels"] = padding(50_000)

        await realm.world.patch(KIND, "large", shrink, WriteOptions(ADA, "tests"))
        await realm.world.of(KIND).delete("", "large", DeleteOptions(), WriteOptions(ADA))


async def test_only_administrators_say_how_often_the_last_use_is_written() -> None:
    async with limited() as realm:
        with pytest.raises(Forbidden, match=f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"):
            await labelled(realm, "k", ADA, {COOLDOWN_LABEL: "60"})
        await labelled(realm, "k", ROOT, {COOLDOWN_LABEL: "600"}, user="ada")
        await realm.set(KIND, "k", ADA, displayName="as it was")

        def faster(key: Object) -> None:
            key["metadata"]["labels"][COOLDOWN_LABEL] = "61"

        with pytest.raises(Forbidden):
            await realm.world.patch(KIND, "k", faster, WriteOptions(ADA, "tests"))

        def without(key: Object) -> None:
            del key["metadata"]["labels"][COOLDOWN_LABEL]

        await realm.world.patch(KIND, "k", without, WriteOptions(ADA, "tests"))


@pytest.mark.parametrize("value", ["1", "59", "0", "soon", "", "9999999999"])
async def test_nobody_has_the_last_use_written_more_than_once_a_minute(value: str) -> None:
    async with limited() as realm:
        with pytest.raises(Invalid) as caught:
            await labelled(realm, "k", ROOT, {COOLDOWN_LABEL: value}, user="ada")
        (problem,) = caught.value.details.problems
        assert problem.field == f"metadata.labels[{COOLDOWN_LABEL}]" and "between 60 and" in problem.message


async def test_the_ticket_goes_with_its_owner() -> None:
    async with limited() as realm:
        await realm.key("k")
        assert realm.world.view.get(TICKET) is not None
        await realm.world.of("User").delete("", "ada", DeleteOptions(), WriteOptions(ROOT))
        assert realm.world.view.get(TICKET) is None


async def test_counting_never_looks_at_the_keys_of_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited(10) as realm:
        await realm.key("first", key="another-value-of-my-own")
        for number in range(30):
            await realm.key(f"r{number}", ROOT, user="root")

        def scan(*args: object) -> None:
            raise AssertionError("all keys were looked at")

        monkeypatch.setattr(View, "entries", scan)
        await realm.key("second", key="a-value-of-my-own-choice")
        with pytest.raises(Invalid, match="this value cannot be used"):
            await realm.key("third", key="a-value-of-my-own-choice")
