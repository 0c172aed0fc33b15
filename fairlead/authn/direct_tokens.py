"""Verifies direct tokens offline, for the agent in front of a cluster.

`verify` needs only the token, the JWKS and the time. It accepts exactly what `authn/token_issuer.py` issues: one
algorithm, the exact key, issuer and audience, and every claim present with its type. It cannot know whether the user's
token generation has been raised since; callers compare `Claims.generation`.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from fairlead.core.crypto.signing import ALGORITHM, KEY_BITS, TOKEN_TYPE
from fairlead.core.objects import Object

AUDIENCE = "service.sh/direct"
"""Audience of tokens with all permissions of their owner."""
SCOPED_AUDIENCE = "service.sh/direct-scoped"
"""Audience of scoped tokens. Only verifiers that enforce scopes may accept it."""
NO_CLUSTER = "nowhere"
"""Takes the place of a cluster's uid in a token that is for no cluster."""
PRIVATE_CLAIM = "service.sh"
"""The private claim with everything that is not a registered claim."""
PRINCIPAL_KINDS = ("User", "Team", "ServiceAdmin")
MAX_SKEW_SECONDS = 60
"""Maximum clock skew in seconds."""
MAX_TOKEN_LENGTH = 256 * 1024

_JWT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_HEADER_PARAMETERS = frozenset({"alg", "kid", "typ"})
# PyJWT checks only the signature. Times are checked here, against the caller's clock instead of the library's.
_VERIFY_SIGNATURE_ONLY = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


def cluster_audience(uid: str, *, is_scoped: bool) -> str:
    """The audience for one cluster, by the uid of its Cluster object. Scoped tokens have a separate one."""
    return f"{SCOPED_AUDIENCE if is_scoped else AUDIENCE}/{uid}"


class InvalidToken(Exception):
    """The token is not valid. The message is for logs and contains nothing of the token."""


class UnknownKey(InvalidToken):
    """The key id of the token is not in the JWKS, which may be outdated."""


class WrongAudience(InvalidToken):
    """The token is for other clusters than that of the verifier."""


class _PrivateClaim(msgspec.Struct):
    """The private claim of a token."""

    uid: str
    name: str
    kind: str
    gen: int
    scope: Object | None = None
    clusters: dict[str, str] = {}
    originalRequester: str = ""


class _RegisteredClaims(msgspec.Struct):
    """The registered claims. Types are strict: a number in quotes is rejected."""

    iss: str
    aud: list[str]
    sub: str
    iat: int
    nbf: int
    exp: int
    jti: str
    groups: list[str]


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a verified token."""

    id: str
    user: str
    groups: tuple[str, ...]
    uid: str
    name: str
    kind: str
    generation: int
    scope: Object | None
    clusters: Mapping[str, str]
    """The uids of the clusters that the scope names, by name: a later cluster may have the same name."""
    original_requester: str
    issued_at: int
    expires_at: int


def verify(token: str, jwks: Object, *, issuer: str, audience: str | Sequence[str], now: datetime) -> Claims:
    """Returns the claims, or raises InvalidToken. `audience` is what the caller accepts: in front of a cluster, its
    `cluster_audience`. AUDIENCE itself is in every unscoped token, for whichever cluster it is."""
    payload = _verified_payload(token, jwks)
    try:
        standard = msgspec.convert(payload, _RegisteredClaims)
        private = msgspec.convert(payload.get(PRIVATE_CLAIM), _PrivateClaim)
    except msgspec.ValidationError as error:
        raise InvalidToken(f"a claim is missing or not of its type: {error}") from None
    audiences = {audience} if isinstance(audience, str) else set(audience)
    _check_parties(standard, private, issuer, audiences)
    _check_times(standard, now.timestamp())
    return Claims(
        id=standard.jti,
        user=standard.sub,
        groups=tuple(standard.groups),
        uid=private.uid,
        name=private.name,
        kind=private.kind,
        generation=private.gen,
        scope=private.scope,
        clusters=private.clusters,
        original_requester=private.originalRequester,
        issued_at=standard.iat,
        expires_at=standard.exp,
    )


def _verified_payload(token: str, jwks: Object) -> Object:
    """The payload, after verifying its signature with the key that the header names."""
    match = _JWT.fullmatch(token) if len(token) <= MAX_TOKEN_LENGTH else None
    if match is None or not all(map(_is_canonical, match.groups())):
        raise InvalidToken("it is not a JWT: three parts in base64url are required")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise InvalidToken("the header is not a valid JWT header") from None
    key = _find_key(jwks, _key_id(header))
    try:
        payload = jwt.decode(token, key, algorithms=[ALGORITHM], options=_VERIFY_SIGNATURE_ONLY)  # type: ignore[arg-type]
    except jwt.PyJWTError as error:
        raise InvalidToken(f"the signature is invalid ({type(error).__name__})") from None
    return dict(payload)


def _is_canonical(part: str) -> bool:
    """Whether this is the only encoding of its content: decoders ignore surplus bits at the end of the text."""
    try:
        content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return False
    return urlsafe_b64encode(content).rstrip(b"=").decode() == part


def _key_id(header: dict[str, Any]) -> str:
    """The key id. Rejects unknown header parameters: `crit` is not supported, and `jwk` or `jku` would supply keys."""
    if header.get("alg") != ALGORITHM or header.get("typ") != TOKEN_TYPE:
        raise InvalidToken(f"only {TOKEN_TYPE} with {ALGORITHM} is accepted")
    if unknown := sorted(header.keys() - _HEADER_PARAMETERS):
        raise InvalidToken(f"{len(unknown)} header parameters are unknown")
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise InvalidToken("the header names no key")
    return key_id


def _find_key(jwks: Object, key_id: str) -> RSAPublicKey:
    listed = jwks.get("keys")
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    found = [each for each in found if each.get("kid") == key_id]
    if len(found) != 1:
        raise UnknownKey("the key that the header names is not published; fetch the keys again")
    (named,) = found
    if (named.get("kty"), named.get("alg"), named.get("use")) != ("RSA", ALGORITHM, "sig"):
        raise InvalidToken(f"the key that the header names is not for {ALGORITHM} signatures")
    try:
        key = jwt.PyJWK(named, ALGORITHM).key
    except (jwt.PyJWTError, ValueError, TypeError):
        raise InvalidToken("the key that the header names cannot be read") from None
    if not isinstance(key, RSAPublicKey) or key.key_size < KEY_BITS:
        raise InvalidToken("the key that the header names is not an RSA public key, or too short")
    return key


def _check_parties(standard: _RegisteredClaims, private: _PrivateClaim, issuer: str, audiences: set[str]) -> None:
    if not issuer or standard.iss != issuer:
        raise InvalidToken("it is from another issuer")
    meant = SCOPED_AUDIENCE if private.scope is not None else AUDIENCE
    if not all(each == meant or each.startswith(f"{meant}/") for each in standard.aud):
        raise InvalidToken("it is for another audience")
    if audiences.isdisjoint(standard.aud):
        raise WrongAudience("it is for another audience, or for other clusters")
    if not standard.sub or not standard.jti or not private.name:
        raise InvalidToken("it has no subject, id or principal name")
    if private.kind not in PRINCIPAL_KINDS or private.gen < 0 or (not private.uid and private.kind != "ServiceAdmin"):
        raise InvalidToken("it does not identify a valid principal")


def _check_times(standard: _RegisteredClaims, now: float) -> None:
    if not standard.iat <= standard.nbf < standard.exp:
        raise InvalidToken("its times are out of order")
    if standard.nbf > now + MAX_SKEW_SECONDS:
        raise InvalidToken("it is not valid yet")
    if standard.exp <= now - MAX_SKEW_SECONDS:
        raise InvalidToken("it has expired")
