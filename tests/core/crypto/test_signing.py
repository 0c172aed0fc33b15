"""Tests of `core/crypto/signing.py`: rotation and publication of signing keys."""

import time
from dataclasses import replace
from datetime import timedelta

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import (
    KEY_BITS,
    RETIREMENT_MARGIN_SECONDS,
    InvalidSigningKeys,
    SigningKeys,
    build_jwks,
    decode,
    encode,
    rotate,
    sign,
    with_max_ttl,
)
from tests.harness.signing_keys import MAXIMUM, NOW, private_key, signing_key

FIRST, SECOND, THIRD = (signing_key(number) for number in range(3))
KEYS = SigningKeys(FIRST)


def list_ids(keys: SigningKeys, seconds: float = 0) -> list[str]:
    return [each["kid"] for each in build_jwks(keys, NOW + timedelta(seconds=seconds))]


def test_a_signature_is_rs256_by_the_key_that_the_header_names() -> None:
    token = sign(FIRST, {"sub": "ada"})
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": FIRST.id, "typ": "JWT"}
    assert jwt.decode(token, FIRST.public, algorithms=["RS256"]) == {"sub": "ada"}
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, SECOND.public, algorithms=["RS256"])


def test_keys_are_long_enough_and_named_by_day_and_fingerprint() -> None:
    assert private_key(FIRST).key_size == KEY_BITS == 3072
    assert FIRST.id.startswith("2026-01-02-")
    assert len({FIRST.id, SECOND.id, THIRD.id}) == 3


def test_the_private_key_is_in_no_representation() -> None:
    assert "PRIVATE" not in repr(KEYS)
    assert FIRST.private not in f"{KEYS}"


def test_published_keys_are_valid_jwks_without_private_parts() -> None:
    (listed,) = build_jwks(KEYS, NOW)
    assert listed.keys() == {"kty", "use", "alg", "kid", "n", "e"}
    assert jwt.decode(sign(FIRST, {"sub": "ada"}), jwt.PyJWK(listed).key, algorithms=["RS256"])["sub"] == "ada"


def test_a_retired_key_is_published_until_its_last_token_expires() -> None:
    keys = rotate(KEYS, SECOND, NOW)
    assert list_ids(keys) == [SECOND.id, FIRST.id]
    assert list_ids(keys, MAXIMUM) == [SECOND.id, FIRST.id]
    assert list_ids(keys, MAXIMUM + RETIREMENT_MARGIN_SECONDS) == [SECOND.id]


def test_a_key_with_longer_tokens_is_published_longer() -> None:
    keys = rotate(with_max_ttl(KEYS, 2 * MAXIMUM), SECOND, NOW)
    assert list_ids(keys, 2 * MAXIMUM) == [SECOND.id, FIRST.id]
    assert with_max_ttl(KEYS, 1).active.longest == MAXIMUM, "what was once signed is not forgotten"


def test_each_retired_key_has_its_own_expiry_and_expired_keys_are_dropped() -> None:
    keys = rotate(rotate(KEYS, SECOND, NOW), THIRD, NOW + timedelta(days=1))
    assert list_ids(keys) == [THIRD.id, SECOND.id, FIRST.id]
    late = rotate(keys, FIRST, NOW + timedelta(days=365))
    assert [each.id for each in late.retired] == [THIRD.id]


def test_a_retired_key_cannot_sign() -> None:
    assert b"PRIVATE" not in orjson.dumps([each.public for each in rotate(KEYS, SECOND, NOW).retired])
    assert FIRST.private.encode() not in encode(rotate(KEYS, SECOND, NOW))


def test_stored_keys_round_trip() -> None:
    keys = rotate(KEYS, SECOND, NOW)
    assert decode(encode(keys)) == keys


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"active":{}}',
        encode(SigningKeys(replace(FIRST, private="x"))),
        encode(SigningKeys(replace(FIRST, private=FIRST.public))),
        encode(rotate(KEYS, SECOND, NOW)).replace(b"BEGIN PUBLIC", b"BEGIN PUBLISHED"),
    ],
    ids=[
        "nothing",
        "torn",
        "list",
        "empty",
        "empty key",
        "no private key",
        "a public key",
        "a strange retired key",
    ],
)
def test_invalid_content_is_rejected_without_quoting_it(content: bytes) -> None:
    with pytest.raises(InvalidSigningKeys, match="these are not signing keys") as error:
        decode(content)
    assert "BEGIN" not in str(error.value)


def test_reading_a_key_does_not_block_other_threads() -> None:
    """The library's check of the primes takes most of a second, in which no other thread runs."""
    content = encode(KEYS)
    signing._private_key.cache_clear()
    began = time.thread_time()
    decode(content)
    assert time.thread_time() - began < 0.2


@pytest.mark.parametrize("part", ["d", "dmp1", "dmq1", "iqmp"])
def test_a_key_with_inconsistent_parts_is_rejected(part: str) -> None:
    numbers = private_key(FIRST).private_numbers()
    parts = {name: getattr(numbers, name) for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp")}
    parts[part] += 2
    broken = RSAPrivateNumbers(**parts, public_numbers=numbers.public_numbers)
    try:
        key = broken.private_key(unsafe_skip_rsa_key_validation=True)
    except ValueError:
        return  # the library sees to it by itself
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with pytest.raises(InvalidSigningKeys):
        decode(encode(SigningKeys(replace(FIRST, private=pem))))
