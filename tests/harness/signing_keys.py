"""Signing keys, generated once for all tests because that is slow, and tokens with any header and payload."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fairlead.core.crypto.signing import SigningKey, SigningKeys, build_jwks, generate_signing_key
from fairlead.core.objects import Object

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MAXIMUM = 90 * 24 * 3600


@cache
def signing_key(number: int) -> SigningKey:
    """Returns the same key for the same number."""
    return generate_signing_key(NOW, MAXIMUM)


def iterate_keys() -> Iterator[SigningKey]:
    """Returns an iterator over prepared keys."""
    return iter([signing_key(number) for number in range(4)])


def jwks(*keys: SigningKey) -> Object:
    return {"keys": [dict(each) for key in keys for each in _published(key)]}


# Cached, and not checked: that takes longer than signing.


@cache
def _published(key: SigningKey) -> tuple[Object, ...]:
    return tuple(build_jwks(SigningKeys(key), NOW))


@cache
def private_key(key: SigningKey) -> RSAPrivateKey:
    loaded = load_pem_private_key(key.private.encode(), None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(loaded, RSAPrivateKey)
    return loaded


def encode_base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def encode_unsigned(header: Any, payload: Any) -> str:
    parts = (each if isinstance(each, bytes) else orjson.dumps(each) for each in (header, payload))
    return ".".join(map(encode_base64url, parts))


def sign_token(header: Any, payload: Any, key: SigningKey, hashed: HashAlgorithm | None = None) -> str:
    """Returns a token with a valid signature and any header and payload."""
    signed = encode_unsigned(header, payload)
    return f"{signed}.{encode_base64url(private_key(key).sign(signed.encode(), PKCS1v15(), hashed or SHA256()))}"


def sign_token_with_pss(header: Any, payload: Any, key: SigningKey) -> str:
    signed = encode_unsigned(header, payload)
    signature = private_key(key).sign(signed.encode(), PSS(MGF1(SHA256()), 32), SHA256())
    return f"{signed}.{encode_base64url(signature)}"


def sign_token_with_secret(header: Any, payload: Any, secret: bytes) -> str:
    signed = encode_unsigned(header, payload)
    return f"{signed}.{encode_base64url(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
