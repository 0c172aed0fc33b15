"""Signing keys of direct tokens: one active key, and retired keys for as long as their tokens are valid.

Values and pure functions. `authn/signing_keys.py` stores them, `authn/token_issuer.py` signs with them and
`subresources/credentials.py` publishes the public keys. The only algorithm is RS256, which every kube-apiserver can
verify.
"""

import base64
import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    RSAPublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from fairlead.core.objects import Object

ALGORITHM = "RS256"
TOKEN_TYPE = "JWT"
KEY_BITS = 3072
RETIREMENT_MARGIN_SECONDS = 300
"""How long a retired key is kept after its last token expires: another replica may still sign with it during a
rotation, and clocks differ."""


class InvalidSigningKeys(ValueError):
    """Stored signing keys that cannot be parsed. The message contains nothing of them."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The active key. `longest` is the longest lifetime in seconds of any token that may have been signed with it."""

    id: str
    longest: int
    private: str = field(repr=False)

    @property
    def public(self) -> str:
        return _public_pem(_private_key(self.private).public_key())


@dataclass(frozen=True, slots=True)
class RetiredKey:
    """A retired key. Tokens signed with it may be valid until the Unix time `until`. `since` is when it was retired,
    or 0 for keys from before that was recorded."""

    id: str
    until: int
    public: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class SigningKeys:
    active: SigningKey
    retired: tuple[RetiredKey, ...] = ()


_decoder = msgspec.json.Decoder(SigningKeys)


def generate_signing_key(now: datetime, max_ttl: int) -> SigningKey:
    """Generate a key. Its id starts with the date, so that its age is visible, and ends with a digest of the public
    key."""
    key = generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    digest = hashlib.sha256(_public_pem(key.public_key()).encode()).hexdigest()
    return SigningKey(f"{now:%Y-%m-%d}-{digest[:16]}", max_ttl, private)


def rotate(keys: SigningKeys, new: SigningKey, now: datetime) -> SigningKeys:
    """Make `new` the active key and retire the previous one until its last token has expired."""
    old, moment = keys.active, int(now.timestamp())
    retired = RetiredKey(old.id, moment + old.longest + RETIREMENT_MARGIN_SECONDS, old.public, moment)
    return SigningKeys(new, (retired, *(each for each in keys.retired if each.until > moment)))


def with_max_ttl(keys: SigningKeys, max_ttl: int) -> SigningKeys:
    """The same keys, with the active one marked as signing tokens of this lifetime."""
    return replace(keys, active=replace(keys.active, longest=max(max_ttl, keys.active.longest)))


def encode(keys: SigningKeys) -> bytes:
    return msgspec.json.encode(keys)


def decode(content: bytes) -> SigningKeys:
    """Raises InvalidSigningKeys for anything that `encode` has not produced."""
    try:
        keys = _decoder.decode(content)
        _private_key(keys.active.private)
        for each in keys.retired:
            _public_key(each.public)
    except (msgspec.DecodeError, ValueError, TypeError, ZeroDivisionError):
        raise InvalidSigningKeys("these are not signing keys") from None
    return keys


def sign(key: SigningKey, claims: Object, token_type: str = TOKEN_TYPE) -> str:
    """Sign the claims as a compact JWT."""
    return jwt.encode(claims, _private_key(key.private), ALGORITHM, headers={"kid": key.id, "typ": token_type})


def build_jwks(keys: SigningKeys, now: datetime) -> list[Object]:
    """The public keys of all tokens that may be valid, the active one first, as JWKs."""
    moment = int(now.timestamp())
    found = [(keys.active.id, keys.active.public)]
    found += [(each.id, each.public) for each in keys.retired if each.until > moment]
    return [_jwk(id, _public_key(pem)) for id, pem in found]


def _jwk(id: str, key: RSAPublicKey) -> Object:
    numbers = key.public_numbers()
    return {
        "kty": "RSA",
        "use": "sig",
        "alg": ALGORITHM,
        "kid": id,
        "n": _base64url_integer(numbers.n),
        "e": _base64url_integer(numbers.e),
    }


def _base64url_integer(value: int) -> str:
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _public_pem(key: RSAPublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@lru_cache(maxsize=4)
def _private_key(pem: str) -> RSAPrivateKey:
    """Load a private key. The last few are cached, because signing every token needs one.

    The library's own validation tests for primes, which takes most of a second and blocks all threads. The keys are
    our own and were stored encrypted, so checking that their parts are consistent is enough.
    """
    key = load_pem_private_key(pem.encode(), password=None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, RSAPrivateKey) or key.key_size < KEY_BITS:
        raise InvalidSigningKeys(f"a signing key must be an RSA key of {KEY_BITS} bits")
    if not _is_consistent(key.private_numbers()):
        raise InvalidSigningKeys("the parts of the RSA key are not consistent")
    return key


def _is_consistent(numbers: RSAPrivateNumbers) -> bool:
    p, q, public = numbers.p, numbers.q, numbers.public_numbers
    inverts = all(public.e * numbers.d % (prime - 1) == 1 for prime in (p, q))
    parts = numbers.dmp1 == numbers.d % (p - 1) and numbers.dmq1 == numbers.d % (q - 1) and numbers.iqmp * q % p == 1
    return p * q == public.n and inverts and parts


def _public_key(pem: str) -> RSAPublicKey:
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, RSAPublicKey):
        raise InvalidSigningKeys("a signing key must be an RSA key")
    return key
