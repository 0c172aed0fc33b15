"""signin/sso/encryption.py and consumed.py: what several replicas share."""

import asyncio

import orjson
import pytest

from fairlead.core.errors import Unavailable
from fairlead.registry.codec import decode
from fairlead.signin.sso.consumed import ConsumedValues, is_consumed_record, record_expiry
from fairlead.signin.sso.encryption import FORMAT, SignOnEncryption, Undecryptable
from tests.harness.sign_on import SYSTEM, SignOnFixture


async def test_replicas_decrypt_what_others_have_encrypted(sso: SignOnFixture) -> None:
    one, two = SignOnEncryption(sso.registry, SYSTEM), SignOnEncryption(sso.registry, SYSTEM)
    texts = await asyncio.gather(one.encrypt({"a": 1}, "x"), two.encrypt({"a": 2}, "x"))
    assert [await two.decrypt(texts[0], "x"), await one.decrypt(texts[1], "x")] == [{"a": 1}, {"a": 2}]


async def test_a_value_for_another_purpose_does_not_decrypt(sso: SignOnFixture) -> None:
    encryption = SignOnEncryption(sso.registry, SYSTEM)
    text = await encryption.encrypt({"refreshToken": "r"}, "key:login-1")
    with pytest.raises(Undecryptable):
        await encryption.decrypt(text, "key:login-2")


@pytest.mark.parametrize("text", ["", "a", "AAAA", "\u00e4", "x" * 20_000, "AEZMUzEA"])
async def test_a_forged_value_does_not_decrypt(sso: SignOnFixture, text: str) -> None:
    encryption = SignOnEncryption(sso.registry, SYSTEM)
    await encryption.encrypt({}, "x")
    with pytest.raises(Undecryptable):
        await encryption.decrypt(text, "x")


async def test_nothing_decrypts_before_the_keys_exist_or_after_they_were_deleted(sso: SignOnFixture) -> None:
    encryption = SignOnEncryption(sso.registry, SYSTEM)
    with pytest.raises(Undecryptable):
        await encryption.decrypt("AAAA", "x")


async def test_the_keys_are_in_no_response(sso: SignOnFixture) -> None:
    await SignOnEncryption(sso.registry, SYSTEM).encrypt({}, "x")
    entry = sso.registry.resource("", "secrets").get_cached(SYSTEM, FORMAT.secret.name)
    assert entry is not None
    assert "data" not in orjson.loads(entry.body)
    assert "data" in decode(entry)


async def test_keys_that_are_damaged_are_reported(sso: SignOnFixture) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": FORMAT.secret.name, "namespace": SYSTEM}}
    await sso.api.submit("Secret", {**body, "data": {"keys.json": "e30="}})
    with pytest.raises(Unavailable, match="delete it"):
        await SignOnEncryption(sso.registry, SYSTEM).encrypt({}, "x")


async def test_a_value_is_consumed_once_also_at_the_same_time(sso: SignOnFixture) -> None:
    replicas = [ConsumedValues(sso.registry, SYSTEM) for _ in range(4)]
    results = await asyncio.gather(*(each.consume("state", "s", 60) for each in replicas))
    assert sorted(results) == [False, False, False, True]
    assert await replicas[0].consume("logout", "s", 60)


async def test_a_record_says_when_it_can_be_deleted(sso: SignOnFixture) -> None:
    await ConsumedValues(sso.registry, SYSTEM).consume("state", "s", 60)
    entry = next(iter(sso.api.view.entries("coordination.k8s.io", "leases")))
    lease = decode(entry)
    assert is_consumed_record(lease)
    expiry = record_expiry(lease)
    assert expiry is not None
    assert 60 <= (expiry - sso.clock.now()).total_seconds() <= 62
    assert b'"s"' not in entry.body
