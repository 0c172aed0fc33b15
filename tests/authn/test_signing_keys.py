"""SigningKeyStore: signing keys are created on demand, shared by replicas and rotated."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from fairlead.authn import signing_keys
from fairlead.authn.signing_keys import FORMAT, SigningKeyStore
from fairlead.core.crypto import signing
from fairlead.core.errors import TooManyRequests, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.signing_keys import MAXIMUM, NOW, iterate_keys, signing_key


@asynccontextmanager
async def open_registry_with_prepared_keys(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RegistryFixture]:
    keys = iterate_keys()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(keys))
    async with open_registry() as api:
        yield api


def stored_secret(api: RegistryFixture) -> Object | None:
    return api.get("Secret", FORMAT.secret.name)


async def key_ids(store: SigningKeyStore) -> list[str]:
    return [each["kid"] for each in await store.jwks()]


async def test_the_first_key_is_created_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        assert await store.jwks() == [] and stored_secret(api) is None
        keys = await store.active_key(MAXIMUM)
        assert keys.active == signing_key(0)
        assert await store.active_key(MAXIMUM) == keys
        assert await key_ids(store) == [signing_key(0).id]


async def test_replicas_that_need_the_first_key_concurrently_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(3)]
        key_sets = await asyncio.gather(*(each.active_key(MAXIMUM) for each in replicas for _ in range(5)))
        assert len({keys.active.id for keys in key_sets}) == 1


async def test_a_rotation_takes_effect_immediately_on_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        one, other = (SigningKeyStore(api.registry, SYSTEM) for _ in range(2))
        first = (await one.active_key(MAXIMUM)).active.id
        second = (await other.rotate(MAXIMUM)).active.id
        assert (await one.active_key(MAXIMUM)).active.id == second
        assert await key_ids(one) == await key_ids(other) == [second, first]


async def test_concurrent_rotations_lose_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(2)]
        first = (await replicas[0].active_key(MAXIMUM)).active.id
        rotations = await asyncio.gather(*(each.rotate(MAXIMUM) for each in replicas))
        published_ids = await key_ids(replicas[0])
        assert len(published_ids) == 3
        assert set(published_ids) == {first, *(keys.active.id for keys in rotations)}


async def test_a_rotation_before_the_first_token_creates_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        keys = await SigningKeyStore(api.registry, SYSTEM).rotate(MAXIMUM)
        assert (keys.active, keys.retired) == (signing_key(0), ())


async def test_a_longer_maximum_ttl_is_stored_before_a_token_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        await store.active_key(MAXIMUM)
        assert (await store.active_key(2 * MAXIMUM)).active.longest == 2 * MAXIMUM
        assert (await store.active_key(1)).active.longest == 2 * MAXIMUM


async def test_deleting_the_secret_ends_all_keys_and_the_next_token_gets_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        first = (await store.active_key(MAXIMUM)).active.id
        await api.resource("Secret").delete(SYSTEM, FORMAT.secret.name, DeleteOptions(), WriteOptions(CONTROLLER_USER))
        assert await store.jwks() == []
        assert (await store.active_key(MAXIMUM)).active.id != first


async def test_a_secret_with_invalid_data_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        await store.active_key(MAXIMUM)

        def overwrite_data(secret: Object) -> None:
            secret["data"] = {FORMAT.field: "c3BvaWx0"}

        await api.patch("Secret", FORMAT.secret.name, overwrite_data, WriteOptions(CONTROLLER_USER))
        for operation in (store.jwks(), store.active_key(1), store.rotate(1)):
            with pytest.raises(Unavailable, match="restore it from a backup, or delete it"):
                await operation


class FrozenClock:
    """A clock that changes only when a test sets it."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)


async def test_rotations_per_hour_are_limited_before_a_key_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        clock = store._clock = FrozenClock()
        await store.active_key(MAXIMUM)
        monkeypatch.setattr(signing_keys, "MAX_ROTATIONS_PER_HOUR", 2)
        await store.rotate(MAXIMUM)
        clock.seconds += 600
        await store.rotate(MAXIMUM)
        generated = list[None]()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: generated.append(None))
        before = await key_ids(store)
        with pytest.raises(TooManyRequests, match=r"2 times within an hour.*try again in 3000 seconds") as error:
            await store.rotate(MAXIMUM)
        assert not error.value.details.retry_after, "clients would wait for that long"
        assert not generated and await key_ids(store) == before
        more_keys = iterate_keys()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(more_keys))
        clock.seconds += 3_001
        await store.rotate(MAXIMUM)
        assert len(await key_ids(store)) == 4


async def test_retired_keys_are_limited_and_none_with_valid_tokens_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are read with the Secret, and sent to every verifier."""
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        store = SigningKeyStore(api.registry, SYSTEM)
        clock = store._clock = FrozenClock()
        await store.active_key(MAXIMUM)
        monkeypatch.setattr(signing_keys, "MAX_RETIRED_KEYS", 2)
        for _ in range(2):
            clock.seconds += 7_200
            await store.rotate(MAXIMUM)
        before = await key_ids(store)
        with pytest.raises(
            TooManyRequests, match=rf"2 retired keys are published.*delete the Secret {SYSTEM}/{FORMAT.secret.name}"
        ):
            await store.rotate(MAXIMUM)
        assert await key_ids(store) == before
        clock.seconds += MAXIMUM
        more_keys = iterate_keys()
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(more_keys))
        await store.rotate(MAXIMUM)
        assert len(await key_ids(store)) == 3


async def test_concurrent_rotations_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry_with_prepared_keys(monkeypatch) as api:
        replicas = [SigningKeyStore(api.registry, SYSTEM) for _ in range(3)]
        await replicas[0].active_key(MAXIMUM)
        monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: signing_key(1))
        monkeypatch.setattr(signing_keys, "MAX_ROTATIONS_PER_HOUR", 1)
        results = await asyncio.gather(
            *(each.rotate(MAXIMUM) for each in replicas for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(each, TooManyRequests) for each in results) == 8
