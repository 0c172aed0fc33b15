"""Rotation: a new value, and an end for the old one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.authn.key_rotation import MAX_PREVIOUS_VALUES, KeyRotator
from fairlead.authz.scope import is_superset
from fairlead.core.errors import Conflict, Forbidden, Invalid, NotFound
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.access.access_key import MAX_OVERLAP_SECONDS
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, open_auth, projects
from tests.harness.virtual_time import on_virtual_time

FIRST = "the-first-value-of-this-key"


class Rotating:
    """Ada with one key, and rotation."""

    def __init__(self, auth: AuthFixture) -> None:
        self.auth = auth
        self.rotation = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)

    async def rotate(self, by: User = ADA, overlap: int | None = None) -> str:
        """The new value."""
        body: Object = {} if overlap is None else {"spec": {"overlapSeconds": overlap}}
        answer: Object = orjson.loads(await self.rotation.rotate(by, "k", body))
        value: str = answer["spec"]["key"]
        return value

    def works(self, value: str) -> bool:
        return self.auth.opens(value)


@asynccontextmanager
async def rotating(**spec: Any) -> AsyncIterator[Rotating]:
    async with open_auth() as auth:
        await auth.key("k", CONTROLLER_USER, **{"user": "ada", "key": FIRST, **spec})
        yield Rotating(auth)


@on_virtual_time
async def test_t27_a_rotated_key_has_a_new_random_value_and_the_old_one_ends_at_once() -> None:
    async with rotating() as keys:
        second = await keys.rotate()
        third = await keys.rotate(overlap=0)
        assert len({FIRST, second, third}) == 3
        assert second.startswith("fairlead_") and len(second) > 40
        assert [keys.works(each) for each in (FIRST, second, third)] == [False, False, True]


@on_virtual_time
async def test_t27_an_old_value_works_beside_the_new_one_for_as_long_as_was_asked() -> None:
    async with rotating() as keys:
        second = await keys.rotate(overlap=60)
        assert keys.works(FIRST) and keys.works(second)
        await asyncio.sleep(59)
        assert keys.works(FIRST) and keys.works(second)
        await asyncio.sleep(2)
        assert not keys.works(FIRST) and keys.works(second)


@on_virtual_time
async def test_rotating_twice_leaves_each_value_its_own_time() -> None:
    async with rotating() as keys:
        second = await keys.rotate(overlap=100)
        await asyncio.sleep(50)
        third = await keys.rotate(overlap=100)
        assert all(keys.works(each) for each in (FIRST, second, third))
        await asyncio.sleep(51)
        assert [keys.works(each) for each in (FIRST, second, third)] == [False, True, True]


@on_virtual_time
async def test_t27_rotating_at_once_ends_all_earlier_values() -> None:
    async with rotating() as keys:
        second = await keys.rotate(overlap=100)
        third = await keys.rotate()
        assert [keys.works(each) for each in (FIRST, second, third)] == [False, False, True]


@on_virtual_time
async def test_no_more_than_a_few_values_work_at_a_time() -> None:
    async with rotating() as keys:
        values = [FIRST, *[await keys.rotate(overlap=100) for _ in range(MAX_PREVIOUS_VALUES + 2)]]
        assert [keys.works(each) for each in values] == [False] * 2 + [True] * (MAX_PREVIOUS_VALUES + 1)


@on_virtual_time
async def test_everything_else_of_the_key_stays_and_nothing_of_its_values_is_told() -> None:
    async with rotating(ttl=500, groups=["ci"]) as keys:
        before = keys.auth.stored("k")
        body = await keys.rotation.rotate(ROOT, "k", {"spec": {"overlapSeconds": 60}})
        answer, after = orjson.loads(body), keys.auth.stored("k")
        assert PEPPER.digest(FIRST).encode() not in body and b'"previous":' not in body
        assert answer["metadata"]["uid"] == before["metadata"]["uid"]
        for obj in (before, after, answer):
            obj["spec"].pop("key")
        assert before["spec"] == after["spec"] == answer["spec"]
        everything = b"".join(record.value for record in (await keys.auth.api.store.scan(())).records)
        assert FIRST.encode() not in everything


@on_virtual_time
async def test_an_overlap_has_its_bounds() -> None:
    async with rotating() as keys:
        with pytest.raises(Invalid, match=f"at most {MAX_OVERLAP_SECONDS} seconds"):
            await keys.rotate(overlap=MAX_OVERLAP_SECONDS + 1)
        assert keys.works(FIRST)
        await keys.rotate(overlap=MAX_OVERLAP_SECONDS)


@on_virtual_time
async def test_what_is_not_there_is_not_rotated() -> None:
    async with rotating() as keys:
        with pytest.raises(NotFound):
            await keys.rotation.rotate(ADA, "nothing", {})


@on_virtual_time
async def test_an_expired_key_gets_no_new_value() -> None:
    async with rotating() as keys:
        await keys.auth.set_status("k", expired="2026-01-02T03:04:05Z")
        with pytest.raises(Conflict, match="has expired"):
            await keys.rotate()


async def forbids(rotation: Awaitable[object], why: str) -> bool:
    with pytest.raises(Forbidden, match=why):
        await rotation
    return True


@on_virtual_time
async def test_t4_only_administrators_rotate_the_keys_of_others() -> None:
    async with rotating() as keys:
        assert await forbids(keys.rotate(BOB), "only administrators")
        assert keys.works(FIRST)
        assert await keys.rotate(ROOT)


@on_virtual_time
async def test_t4_a_key_rotates_none_that_reaches_further_or_lives_longer() -> None:
    async with rotating() as keys:
        scoped = await keys.auth.signed_in("ada", scope=projects("a"))
        ending = await keys.auth.signed_in("ada", ttl=60)
        assert await forbids(keys.rotate(scoped), "exceeds the scope")
        assert await forbids(keys.rotate(ending), "no key outlives")
        assert keys.works(FIRST)


@on_virtual_time
async def test_t4_a_key_that_was_given_further_groups_is_rotated_with_itself_or_by_administrators() -> None:
    async with rotating(groups=["ci"]) as keys:
        assert await forbids(keys.rotate(ADA), "can add groups")
        assert await keys.rotate(keys.auth.authenticate.authenticate_token(FIRST))


@on_virtual_time
async def test_a_key_rotates_itself_whatever_its_scope_and_life() -> None:
    async with rotating(scope=projects("a"), ttl=60) as keys:
        await asyncio.sleep(30)
        assert keys.works(await keys.rotate(keys.auth.authenticate.authenticate_token(FIRST)))


@on_virtual_time
async def test_of_two_who_rotate_at_once_both_get_a_value_and_one_of_them_lasts() -> None:
    async with rotating() as keys:
        values = await asyncio.gather(keys.rotate(), keys.rotate())
        assert sorted(keys.works(each) for each in values) == [False, True]
        assert not keys.works(FIRST)


@on_virtual_time
async def test_with_an_overlap_both_of_their_values_work() -> None:
    async with rotating() as keys:
        values = await asyncio.gather(keys.rotate(overlap=60), keys.rotate(overlap=60))
        assert all(keys.works(each) for each in (FIRST, *values))


@on_virtual_time
async def test_t27_who_ends_the_old_value_at_once_is_not_overruled_by_who_wants_it_to_last() -> None:
    async with rotating() as keys:
        at_once, later = await asyncio.gather(keys.rotate(), keys.rotate(overlap=60))
        assert not keys.works(FIRST)
        assert keys.works(at_once) or keys.works(later)


@on_virtual_time
async def test_t27_nor_if_the_other_was_in_the_middle_of_it() -> None:
    async with rotating() as keys:

        async def at_once() -> None:
            await keys.rotate()

        keys.auth.api.store.before.append(at_once)
        assert keys.works(await keys.rotate(overlap=60))
        assert not keys.works(FIRST)
