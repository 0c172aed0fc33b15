"""Direct tokens are verified here, without asking the server: for whoever stands before a cluster.

`verify` needs the token, the published keys and the time, and nothing else. It takes what `authn/token_issuer.py`
makes and not a bit more: one algorithm, the exact key, issuer and audience, every claim there and of its type. A
verifier that was kind to odd tokens would be the one that a forger looks for. What it cannot know is whether the user's
token generation has risen since; `Claims.generation` is there to be compared.
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

from fairlead.core.crypto.signing import ALGORITHM, KEY_BITS, TYPE
from fairlead.core.objects import Object

AUDIENCE = "service.sh/direct"
"""Of tokens with all the rights of their owner."""
SCOPED_AUDIENCE = "service.sh/direct-scoped"
"""Of tokens that are cut down to a scope. Only who enforces scopes may accept this audience."""
NOWHERE = "nowhere"
"""In place of a uid: a token that is for no cluster at all says so."""
PRIVATE = "service.sh"
"""The claim with everything that is not in the standards."""
KINDS = ("User", "Team", "ServiceAdmin")
MAX_SKEW = 60
"""Seconds by which clocks may differ."""
LONGEST = 256 * 1024

_PARTS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_HEADER = frozenset({"alg", "kid", "typ"})
# The times are checked here, against the clock that is handed in; the library has one of its own.
_SIGNATURE_ALONE = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


def cluster_audience(uid: str, *, is_scoped: bool) -> str:
    """The audience that a cluster is, by the uid of its Cluster: other ones for tokens with a scope, as above."""
    return f"{SCOPED_AUDIENCE if is_scoped else AUDIENCE}/{uid}"


class InvalidToken(Exception):
    """The token is not to be trusted. The message says why, for a log; it has nothing of the token in it."""


class UnknownKey(InvalidToken):
    """The key that the token names is not among those that are known. There may be a new one."""


class OtherCluster(InvalidToken):
    """The token is for clusters, and the caller is none of them."""


class _Private(msgspec.Struct):
    """The private claim as it stands in a token."""

    uid: str
    name: str
    kind: str
    gen: int
    scope: Object | None = None
    clusters: dict[str, str] = {}
    originalRequester: str = ""


class _Standard(msgspec.Struct):
    """The other claims. Types are exact: a number in quotes is no number."""

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
    """What a token says that has been verified."""

    id: str
    user: str
    groups: tuple[str, ...]
    uid: str
    name: str
    kind: str
    generation: int
    scope: Object | None
    clusters: Mapping[str, str]
    """The uids of clusters that the scope names: the name alone could be another cluster's by now."""
    original_requester: str
    issued: int
    expires: int


def verify(
    token: str, jwks: Object, *, issuer: str, audience: str | Sequence[str], now: datetime, skew: int = MAX_SKEW
) -> Claims:
    """What the token says, or InvalidToken. `audience` is the one that the caller is, or all of them: who stands before
    a cluster is `cluster_audience` of it. AUDIENCE itself is in every token without a scope, whichever cluster it is
    for."""
    payload = _signed(token, jwks)
    try:
        standard = msgspec.convert(payload, _Standard)
        private = msgspec.convert(payload.get(PRIVATE), _Private)
    except msgspec.ValidationError as error:
        raise InvalidToken(f"a claim is missing or not of its type: {error}") from None
    audiences = {audience} if isinstance(audience, str) else set(audience)
    _check_parties(standard, private, issuer, audiences)
    _check_times(standard, now.timestamp(), min(skew, MAX_SKEW))
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
        issued=standard.iat,
        expires=standard.exp,
    )


def _signed(token: str, jwks: Object) -> Object:
    """The payload, once its signature has been found to be of the key that the header names."""
    match = _PARTS.fullmatch(token) if len(token) <= LONGEST else None
    if match is None or not all(map(_is_canonical, match.groups())):
        raise InvalidToken("this is no token: three parts in base64url belong there")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise InvalidToken("the header is no JSON object of a token") from None
    key = _key(jwks, _key_id(header))
    try:
        payload = jwt.decode(token, key, algorithms=[ALGORITHM], options=_SIGNATURE_ALONE)  # type: ignore[arg-type]
    except jwt.PyJWTError as error:
        raise InvalidToken(f"the signature does not hold ({type(error).__name__})") from None
    return dict(payload)


def _is_canonical(part: str) -> bool:
    """One way to write each token: decoders overlook the last bits of a text that is no whole number of bytes."""
    try:
        content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return False
    return urlsafe_b64encode(content).rstrip(b"=").decode() == part


def _key_id(header: dict[str, Any]) -> str:
    """No header but ours: `crit` is nothing that we understand, and `jwk` or `jku` would bring keys along."""
    if header.get("alg") != ALGORITHM or header.get("typ") != TYPE:
        raise InvalidToken(f"only {TYPE} with {ALGORITHM} is accepted")
    if unknown := sorted(header.keys() - _HEADER):
        raise InvalidToken(f"{len(unknown)} header parameters are not known here")
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise InvalidToken("the header names no key")
    return key_id


def _key(jwks: Object, key_id: str) -> RSAPublicKey:
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
        raise InvalidToken("the key that the header names is no public key, or too short")
    return key


def _check_parties(standard: _Standard, private: _Private, issuer: str, audiences: set[str]) -> None:
    if not issuer or standard.iss != issuer:
        raise InvalidToken("it is from another issuer")
    meant = SCOPED_AUDIENCE if private.scope is not None else AUDIENCE
    if not all(each == meant or each.startswith(f"{meant}/") for each in standard.aud):
        raise InvalidToken("it is for another audience")
    if audiences.isdisjoint(standard.aud):
        raise OtherCluster("it is for another audience, or for other clusters")
    if not standard.sub or not standard.jti or not private.name:
        raise InvalidToken("it does not say whose it is")
    if private.kind not in KINDS or private.gen < 0 or (not private.uid and private.kind != "ServiceAdmin"):
        raise InvalidToken("it stands for nobody that there could be")


def _check_times(standard: _Standard, now: float, skew: int) -> None:
    if not standard.iat <= standard.nbf < standard.exp:
        raise InvalidToken("its times are out of order")
    if standard.nbf > now + skew:
        raise InvalidToken("it is not valid yet")
    if standard.exp <= now - skew:
        raise InvalidToken("it has expired")
