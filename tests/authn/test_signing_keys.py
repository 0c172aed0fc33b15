"""Where signing keys live: made once, changed by everybody alike, and in effect at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from fairlead.authn import signing_keys as module
from fairlead.authn.signing_keys import SECRET_FIELD, SECRET_NAME, SigningKeyStore
from fairlead.core.clock import SystemClock
from fairlead.core.crypto import signing
from fairlead.core.errors import TooManyRequests, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.signing_keys import MAXIMUM, NOW, keys_in_turn, signing_key


@asynccontextmanager
async def a_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RegistryFixture]:
    made = keys_in_turn()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(made))
    async with open_registry() as api:
        yield api


def stored(api: RegistryFixture) -> Object | None:
    return api.see("Secret", SECRET_NAME)


async def ids(store: SigningKeyStore) -> list[str]:
    return [each["kid"] for each in await store.jwks()]


async def test_the_first_key_is_made_when_it_is_needed_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        assert await store.jwks() == [] and stored(api) is None
        keys = await store.active_key(MAXIMUM)
        assert keys.active == signing_key(0)
        assert await store.active_key(MAXIMUM) == keys
        assert await ids(store) == [signing_key(0).id]


async def test_replicas_that_need_the_first_key_at_once_agree_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(3)]
        found = await asyncio.gather(*(each.active_key(MAXIMUM) for each in replicas for _ in range(5)))
        assert len({keys.active.id for keys in found}) == 1


async def test_a_rotation_takes_effect_at_once_on_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        one, other = (SigningKeyStore(api.registry, SYSTEM) for _ in range(2))
        first = (await one.active_key(MAXIMUM)).active.id
        second = (await other.rotate(MAXIMUM)).active.id
        assert (await one.active_key(MAXIMUM)).active.id == second
        assert await ids(one) == await ids(other) == [second, first]


async def test_rotations_at_once_lose_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(2)]
        first = (await replicas[0].active_key(MAXIMUM)).active.id
        rotated = await asyncio.gather(*(each.rotate(MAXIMUM) for each in replicas))
        listed = await ids(replicas[0])
        assert len(listed) == 3
        assert set(listed) == {first, *(keys.active.id for keys in rotated)}


async def test_a_rotation_before_the_first_token_just_makes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        keys = await SigningKeyStore(api.registry, SYSTEM).rotate(MAXIMUM)
        assert (keys.active, keys.retired) == (signing_key(0), ())


async def test_that_tokens_may_live_longer_is_noted_before_one_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        await store.active_key(MAXIMUM)
        assert (await store.active_key(2 * MAXIMUM)).active.longest == 2 * MAXIMUM
        assert (await store.active_key(1)).active.longest == 2 * MAXIMUM


async def test_deleting_the_secret_ends_all_keys_and_the_next_token_has_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        first = (await store.active_key(MAXIMUM)).active.id
        await api.of("Secret").delete(SYSTEM, SECRET_NAME, DeleteOptions(), WriteOptions(CONTROLLER_USER))
        assert await store.jwks() == []
        assert (await store.active_key(MAXIMUM)).active.id != first


async def test_a_secret_with_something_else_in_it_is_not_signed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        await store.active_key(MAXIMUM)

        def spoil(secret: Object) -> None:
            secret["data"] = {SECRET_FIELD: "c3BvaWx0"}

        await api.patch("Secret", SECRET_NAME, spoil, WriteOptions(CONTROLLER_USER))
        for asked in (store.jwks(), store.active_key(1), store.rotate(1)):
            with pytest.raises(Unavailable, match="restore it from a backup, or delete it"):
                await asked


class Moved(SystemClock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)


async def test_rotations_are_limited_by_the_hour_and_no_key_is_made_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        clock = store._clock = Moved()
        await store.active_key(MAXIMUM)
        monkeypatch.setattr(module, "MAX_ROTATIONS_PER_HOUR", 2)
        await store.rotate(MAXIMUM)
        clock.seconds += 600
        await store.rotate(MAXIMUM)
        made = list[None]()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: made.append(None))
        before = await ids(store)
        with pytest.raises(TooManyRequests, match=r"2 times within an hour.*try again in 3000 seconds") as refused:
            await store.rotate(MAXIMUM)
        assert not refused.value.details.retry_after, "a client would sit and wait for it"
        assert not made and await ids(store) == before
        again = keys_in_turn()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(again))
        clock.seconds += 3_001
        await store.rotate(MAXIMUM)
        assert len(await ids(store)) == 4


async def test_earlier_keys_are_bounded_and_none_whose_tokens_live_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read with every look at the Secret, and sent to all who verify tokens."""
    async with a_world(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        clock = store._clock = Moved()
        await store.active_key(MAXIMUM)
        monkeypatch.setattr(module, "MAX_RETIRED_KEYS", 2)
        for _ in range(2):
            clock.seconds += 7_200
            await store.rotate(MAXIMUM)
        before = await ids(store)
        with pytest.raises(
            TooManyRequests, match=rf"2 retired keys are published.*delete the Secret {SYSTEM}/{SECRET_NAME}"
        ):
            await store.rotate(MAXIMUM)
        assert await ids(store) == before
        clock.seconds += MAXIMUM
        again = keys_in_turn()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(again))
        await store.rotate(MAXIMUM)
        assert len(await ids(store)) == 3


async def test_many_rotations_at_once_are_limited_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(3)]
        await replicas[0].active_key(MAXIMUM)
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: signing_key(1))
        monkeypatch.setattr(module, "MAX_ROTATIONS_PER_HOUR", 1)
        outcomes = await asyncio.gather(
            *(each.rotate(MAXIMUM) for each in replicas for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(each, TooManyRequests) for each in outcomes) == 8
