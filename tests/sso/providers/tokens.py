"""Tokens for tests: right ones, and every forgery that a signature library must reject."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ABSENT: Any = object()
"""The value of a claim that is to be left out."""


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key, and how a provider publishes it."""

    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    algorithm: str
    kid: str
    public: dict[str, Any]

    @property
    def pem(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@cache
def rsa_key(number: int) -> Key:
    """Returns the same key for the same number."""
    private = rsa.generate_private_key(65537, 2048)
    return _publish(private, "RS256", f"rsa-{number}", jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))


@cache
def ec_key(number: int) -> Key:
    private = ec.generate_private_key(ec.SECP256R1())
    return _publish(private, "ES256", f"ec-{number}", jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))


def _publish(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, algorithm: str, kid: str, jwk: str) -> Key:
    public = orjson.loads(jwk) | {"kid": kid, "use": "sig", "alg": algorithm}
    public.pop("key_ops", None)
    return Key(private, algorithm, kid, public)


def edit_claims(claims: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**claims, **changes}.items() if value is not ABSENT}


def sign(claims: Mapping[str, Any], key: Key, **header: Any) -> str:
    """A token with a right signature. `header` changes its header; `ABSENT` removes a field."""
    fields = edit_claims({"alg": key.algorithm, "typ": "JWT", "kid": key.kid}, header)
    return sign_bytes(orjson.dumps(claims), key, fields)


def sign_bytes(payload: bytes, key: Key, header: Mapping[str, Any]) -> str:
    """A token with a right signature over any payload, also one that is not JSON."""
    signed = f"{encode(orjson.dumps(header))}.{encode(payload)}"
    algorithm = jwt.get_algorithm_by_name(key.algorithm)
    return f"{signed}.{encode(algorithm.sign(signed.encode(), key.private))}"


def unsigned(claims: Mapping[str, Any], alg: str = "none", **header: Any) -> str:
    return f"{encode(orjson.dumps({'alg': alg, 'typ': 'JWT', **header}))}.{encode(orjson.dumps(claims))}."


def sign_with_public_key(claims: Mapping[str, Any], key: Key) -> str:
    """HS256 with the published key as the secret: a verifier that believes the header's algorithm accepts it."""
    signed = f"{encode(orjson.dumps({'alg': 'HS256', 'kid': key.kid}))}.{encode(orjson.dumps(claims))}"
    return f"{signed}.{encode(hmac.new(key.pem, signed.encode(), hashlib.sha256).digest())}"


def hash_half(value: str) -> str:
    """`at_hash` of an access token, for algorithms with SHA-256."""
    return encode(hashlib.sha256(value.encode()).digest()[:16])


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
