"""Keys that direct tokens are signed with: one that is active, and those before it for as long as their tokens live.

Values and pure functions. `authn/signing_keys.py` keeps them in the store, `authn/token_issuer.py` signs with them
and `server/auth/oidc_discovery.py` publishes their public halves. There is one algorithm, RS256, because that is what every
kube-apiserver verifies.
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
TYPE = "JWT"
KEY_BITS = 3072
MARGIN = 300
"""Seconds for which a retired key stays beyond the end of its tokens: a replica may sign with it while another rotates,
and clocks differ."""


class BadKeys(Exception):
    """What should be signing keys cannot be read. The message has nothing of it."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key in use. `longest` is the longest life, in seconds, of a token that may have been signed with it."""

    id: str
    longest: int
    private: str = field(repr=False)

    @property
    def public(self) -> str:
        return _public_pem(_private_key(self.private).public_key())


@dataclass(frozen=True, slots=True)
class RetiredKey:
    """A key that signs no more. Until that second, tokens may be about that were signed with it. `since` is the second
    in which it was retired, or 0 where that was not written down yet."""

    id: str
    until: int
    public: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class SigningKeys:
    active: SigningKey
    retired: tuple[RetiredKey, ...] = ()


_decoder = msgspec.json.Decoder(SigningKeys)


def new_signing_key(now: datetime, longest: int) -> SigningKey:
    """The id begins with the day, because people ask keys for their age, and ends with what only this key has."""
    key = generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    digest = hashlib.sha256(_public_pem(key.public_key()).encode()).hexdigest()
    return SigningKey(f"{now:%Y-%m-%d}-{digest[:16]}", longest, private)


def rotated(keys: SigningKeys, fresh: SigningKey, now: datetime) -> SigningKeys:
    """The fresh key in use, and the one before it retired until its last token has ended."""
    old, moment = keys.active, int(now.timestamp())
    retired = RetiredKey(old.id, moment + old.longest + MARGIN, old.public, moment)
    return SigningKeys(fresh, (retired, *(each for each in keys.retired if each.until > moment)))


def lasting(keys: SigningKeys, longest: int) -> SigningKeys:
    """The same keys, noting that tokens of this life are signed."""
    return replace(keys, active=replace(keys.active, longest=max(longest, keys.active.longest)))


def encode(keys: SigningKeys) -> bytes:
    return msgspec.json.encode(keys)


def decode(content: bytes) -> SigningKeys:
    """Raises BadKeys for anything that is not what `encode` has made."""
    try:
        keys = _decoder.decode(content)
        _private_key(keys.active.private)
        for each in keys.retired:
            _public_key(each.public)
    except (msgspec.DecodeError, ValueError, TypeError, ZeroDivisionError):
        raise BadKeys("these are no signing keys") from None
    return keys


def sign(key: SigningKey, claims: Object) -> str:
    """The claims as a signed token in the compact form."""
    return jwt.encode(claims, _private_key(key.private), ALGORITHM, headers={"kid": key.id, "typ": TYPE})


def published(keys: SigningKeys, now: datetime) -> list[Object]:
    """The public halves of every key whose tokens may be about, the active one first, as a JWKS lists them."""
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
        "n": _number(numbers.n),
        "e": _number(numbers.e),
    }


def _number(value: int) -> str:
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _public_pem(key: RSAPublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@lru_cache(maxsize=4)
def _private_key(pem: str) -> RSAPrivateKey:
    """The last few are kept, because every token needs one.

    The library's own check looks for primes, which takes most of a second and holds up all threads meanwhile. The keys
    are our own and were sealed, so it is enough to see that they are whole.
    """
    key = load_pem_private_key(pem.encode(), password=None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, RSAPrivateKey) or key.key_size < KEY_BITS:
        raise BadKeys(f"signing takes an RSA key of {KEY_BITS} bits")
    if not _is_whole(key.private_numbers()):
        raise BadKeys("the parts of the key do not belong together")
    return key


def _is_whole(numbers: RSAPrivateNumbers) -> bool:
    p, q, public = numbers.p, numbers.q, numbers.public_numbers
    inverts = all(public.e * numbers.d % (prime - 1) == 1 for prime in (p, q))
    parts = numbers.dmp1 == numbers.d % (p - 1) and numbers.dmq1 == numbers.d % (q - 1) and numbers.iqmp * q % p == 1
    return p * q == public.n and inverts and parts


def _public_key(pem: str) -> RSAPublicKey:
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, RSAPublicKey):
        raise BadKeys("signing takes RSA keys")
    return key
