"""KeyRotator: a new value for a key, and the overlap with the old one."""

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
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, open_auth, project_scope
from tests.harness.virtual_time import on_virtual_time

FIRST_VALUE = "the-first-value-of-this-key"


class RotationFixture:
    """User ada with the key `k`, and a rotator."""

    def __init__(self, auth: AuthFixture) -> None:
        self.auth = auth
        self.rotator = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)

    async def rotate(self, user: User = ADA, overlap: int | None = None) -> str:
        """Rotates the key. Returns the new value."""
        body: Object = {} if overlap is None else {"spec": {"overlapSeconds": overlap}}
        reply: Object = orjson.loads(await self.rotator.rotate(user, "k", body))
        value: str = reply["spec"]["key"]
        return value

    def is_valid(self, value: str) -> bool:
        return self.auth.accepts(value)


@asynccontextmanager
async def open_rotation(**spec: Any) -> AsyncIterator[RotationFixture]:
    async with open_auth() as auth:
        await auth.create_key("k", CONTROLLER_USER, **{"user": "ada", "key": FIRST_VALUE, **spec})
        yield RotationFixture(auth)


@on_virtual_time
async def test_t27_a_rotation_creates_a_random_value_and_ends_the_old_one() -> None:
    async with open_rotation() as keys:
        second = await keys.rotate()
        third = await keys.rotate(overlap=0)
        assert len({FIRST_VALUE, second, third}) == 3
        assert second.startswith("fairlead_") and len(second) > 40
        assert [keys.is_valid(each) for each in (FIRST_VALUE, second, third)] == [False, False, True]


@on_virtual_time
async def test_t27_an_old_value_is_valid_for_the_overlap() -> None:
    async with open_rotation() as keys:
        second = await keys.rotate(overlap=60)
        assert keys.is_valid(FIRST_VALUE) and keys.is_valid(second)
        await asyncio.sleep(59)
        assert keys.is_valid(FIRST_VALUE) and keys.is_valid(second)
        await asyncio.sleep(2)
        assert not keys.is_valid(FIRST_VALUE) and keys.is_valid(second)


@on_virtual_time
async def test_each_old_value_has_its_own_overlap() -> None:
    async with open_rotation() as keys:
        second = await keys.rotate(overlap=100)
        await asyncio.sleep(50)
        third = await keys.rotate(overlap=100)
        assert all(keys.is_valid(each) for each in (FIRST_VALUE, second, third))
        await asyncio.sleep(51)
        assert [keys.is_valid(each) for each in (FIRST_VALUE, second, third)] == [False, True, True]


@on_virtual_time
async def test_t27_a_rotation_without_overlap_ends_all_earlier_values() -> None:
    async with open_rotation() as keys:
        second = await keys.rotate(overlap=100)
        third = await keys.rotate()
        assert [keys.is_valid(each) for each in (FIRST_VALUE, second, third)] == [False, False, True]


@on_virtual_time
async def test_the_number_of_valid_values_is_limited() -> None:
    async with open_rotation() as keys:
        values = [FIRST_VALUE, *[await keys.rotate(overlap=100) for _ in range(MAX_PREVIOUS_VALUES + 2)]]
        assert [keys.is_valid(each) for each in values] == [False] * 2 + [True] * (MAX_PREVIOUS_VALUES + 1)


@on_virtual_time
async def test_a_rotation_changes_nothing_else_and_discloses_no_old_value() -> None:
    async with open_rotation(ttl=500, groups=["ci"]) as keys:
        before = keys.auth.stored_key("k")
        body = await keys.rotator.rotate(ROOT, "k", {"spec": {"overlapSeconds": 60}})
        reply, after = orjson.loads(body), keys.auth.stored_key("k")
        assert PEPPER.digest(FIRST_VALUE).encode() not in body and b'"previous":' not in body
        assert reply["metadata"]["uid"] == before["metadata"]["uid"]
        for obj in (before, after, reply):
            obj["spec"].pop("key")
        assert before["spec"] == after["spec"] == reply["spec"]
        stored = b"".join(record.value for record in (await keys.auth.api.store.scan(())).records)
        assert FIRST_VALUE.encode() not in stored


@on_virtual_time
async def test_the_overlap_is_limited() -> None:
    async with open_rotation() as keys:
        with pytest.raises(Invalid, match=f"at most {MAX_OVERLAP_SECONDS} seconds"):
            await keys.rotate(overlap=MAX_OVERLAP_SECONDS + 1)
        assert keys.is_valid(FIRST_VALUE)
        await keys.rotate(overlap=MAX_OVERLAP_SECONDS)


@on_virtual_time
async def test_a_missing_key_is_not_found() -> None:
    async with open_rotation() as keys:
        with pytest.raises(NotFound):
            await keys.rotator.rotate(ADA, "nothing", {})


@on_virtual_time
async def test_an_expired_key_cannot_be_rotated() -> None:
    async with open_rotation() as keys:
        await keys.auth.update_key_status("k", expired="2026-01-02T03:04:05Z")
        with pytest.raises(Conflict, match="has expired"):
            await keys.rotate()


async def is_forbidden(rotation: Awaitable[object], message: str) -> bool:
    with pytest.raises(Forbidden, match=message):
        await rotation
    return True


@on_virtual_time
async def test_t4_only_administrators_rotate_the_keys_of_others() -> None:
    async with open_rotation() as keys:
        assert await is_forbidden(keys.rotate(BOB), "only administrators")
        assert keys.is_valid(FIRST_VALUE)
        assert await keys.rotate(ROOT)


@on_virtual_time
async def test_t4_a_key_cannot_rotate_one_with_a_wider_scope_or_a_longer_ttl() -> None:
    async with open_rotation() as keys:
        scoped = await keys.auth.sign_in("ada", scope=project_scope("a"))
        expiring = await keys.auth.sign_in("ada", ttl=60)
        assert await is_forbidden(keys.rotate(scoped), "exceeds the scope")
        assert await is_forbidden(keys.rotate(expiring), "no key outlives")
        assert keys.is_valid(FIRST_VALUE)


@on_virtual_time
async def test_t4_a_key_with_extra_groups_is_rotated_with_itself_or_by_administrators() -> None:
    async with open_rotation(groups=["ci"]) as keys:
        assert await is_forbidden(keys.rotate(ADA), "can add groups")
        assert await keys.rotate(keys.auth.authenticator.authenticate_token(FIRST_VALUE))


@on_virtual_time
async def test_a_key_can_rotate_itself_whatever_its_scope_and_ttl() -> None:
    async with open_rotation(scope=project_scope("a"), ttl=60) as keys:
        await asyncio.sleep(30)
        assert keys.is_valid(await keys.rotate(keys.auth.authenticator.authenticate_token(FIRST_VALUE)))


@on_virtual_time
async def test_of_two_concurrent_rotations_one_value_stays_valid() -> None:
    async with open_rotation() as keys:
        values = await asyncio.gather(keys.rotate(), keys.rotate())
        assert sorted(keys.is_valid(each) for each in values) == [False, True]
        assert not keys.is_valid(FIRST_VALUE)


@on_virtual_time
async def test_with_an_overlap_both_concurrent_values_are_valid() -> None:
    async with open_rotation() as keys:
        values = await asyncio.gather(keys.rotate(overlap=60), keys.rotate(overlap=60))
        assert all(keys.is_valid(each) for each in (FIRST_VALUE, *values))


@on_virtual_time
async def test_t27_a_rotation_without_overlap_wins_over_a_concurrent_one_with_overlap() -> None:
    async with open_rotation() as keys:
        without_overlap, with_overlap = await asyncio.gather(keys.rotate(), keys.rotate(overlap=60))
        assert not keys.is_valid(FIRST_VALUE)
        assert keys.is_valid(without_overlap) or keys.is_valid(with_overlap)


@on_virtual_time
async def test_t27_a_rotation_without_overlap_wins_over_one_already_started() -> None:
    async with open_rotation() as keys:

        async def rotate_first() -> None:
            await keys.rotate()

        keys.auth.api.store.before.append(rotate_first)
        assert keys.is_valid(await keys.rotate(overlap=60))
        assert not keys.is_valid(FIRST_VALUE)
