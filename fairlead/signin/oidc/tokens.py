"""Verifies tokens of OpenID providers: ID tokens, logout tokens, and subject tokens of a token exchange.

Size and nesting are limited before anything is decoded. The signature is verified by PyJWT with a key that the issuer
publishes, never with one from the token's header, and with an asymmetric algorithm. Times are checked here, against the
caller's clock. No claim is used before the signature is verified, except by `read_unverified_issuer`, for choosing the
issuer that verifies the token.
"""

import base64
import binascii
import hashlib
import hmac
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jwt

from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object
from fairlead.signin.oidc.discovery import KeySet, ProviderClient, VerificationKey
from fairlead.signin.oidc.errors import ProviderError, Reason, TokenRejected
from fairlead.signin.oidc.issuer import ASYMMETRIC_ALGORITHMS, Issuer

MAX_TOKEN_BYTES = 16 * 1024
MAX_DEPTH = 16
MAX_SKEW_SECONDS = 60
MAX_LOGOUT_SECONDS = 3600
"""How far in the future a logout token may expire: its id has to be remembered for that long."""
MAX_SUBJECT_LENGTH = 1_024
MAX_ID_LENGTH = 255
MAX_TIME = 253_402_300_799
"""The end of the year 9999: later times have no timestamp."""
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

__all__ = [
    "Claims",
    "Provider",
    "ProviderError",
    "Reason",
    "TokenRejected",
    "check_reviewed_token",
    "read_unverified_issuer",
    "verify_id_token",
    "verify_logout_token",
    "verify_subject_token",
]

_PARTS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_PLAIN_TYPES = frozenset({"", "jwt", "application/jwt"})
_LOGOUT_TYPES = _PLAIN_TYPES | {"logout+jwt", "application/logout+jwt"}
_KEY_HEADERS = frozenset({"jwk", "x5c"})
_OTHER_USES = {"typ": frozenset({"Bearer", "Refresh", "Offline", "Logout"}), "token_use": frozenset({"access"})}
"""Claims by which some providers mark tokens that are not ID tokens, though their header does not tell."""
_AT_HASHES = {"256": "sha256", "384": "sha384", "512": "sha512"}


@dataclass(frozen=True, slots=True)
class Provider:
    """An issuer, and the client that fetches its keys."""

    client: ProviderClient
    issuer: Issuer


@dataclass(frozen=True, slots=True, repr=False)
class Claims(Mapping[str, Any]):
    """The claims of a verified token. Types other than those of the properties are not checked."""

    values_by_name: Mapping[str, Any]
    token_id: str
    """The `jti`, or a digest of the token if it has none: the same for every use of one token."""

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    @property
    def issuer(self) -> str:
        return str(self.values_by_name["iss"])

    @property
    def subject(self) -> str:
        """Empty for a logout token that has only a `sid`."""
        return str(self.values_by_name.get("sub", ""))

    @property
    def expires_at(self) -> float:
        return float(self.values_by_name["exp"])


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A token whose signature is not verified yet."""

    token: str
    header: Object
    payload: bytes

    @property
    def kid(self) -> str | None:
        kid = self.header.get("kid")
        return kid if isinstance(kid, str) else None

    @property
    def algorithm(self) -> str:
        return str(self.header["alg"])


async def verify_id_token(
    provider: Provider, token: str, *, client_id: str, nonce: str | None, now: datetime, access_token: str | None = None
) -> Claims:
    """Verifies an ID token. `nonce` is None only for one from a refresh. `at_hash` is checked with `access_token`.

    Raises TokenRejected or ProviderError.
    """
    parsed, key, claims = await _verify_signature(provider, token, _PLAIN_TYPES)
    _check_issuer(claims, provider.issuer)
    _check_audience(claims, client_id)
    _check_times(claims, now.timestamp())
    _check_subject(claims, required=True)
    if "events" in claims or any(str(claims.get(name)) in values for name, values in _OTHER_USES.items()):
        raise TokenRejected(Reason.TOKEN_TYPE, "the token is not an ID token")
    if nonce is not None and not _is_equal(claims.get("nonce"), nonce):
        raise TokenRejected(Reason.WRONG_NONCE, "the nonce of the ID token is not that of this login")
    if access_token is not None and "at_hash" in claims:
        _check_access_token(claims["at_hash"], access_token, key)
    return Claims(claims, _token_id(claims, parsed))


async def verify_logout_token(provider: Provider, token: str, *, client_id: str, now: datetime) -> Claims:
    """Verifies a logout token (OpenID Connect Back-Channel Logout 1.0). Callers accept each `token_id` once.

    Raises TokenRejected or ProviderError.
    """
    parsed, _, claims = await _verify_signature(provider, token, _LOGOUT_TYPES)
    _check_issuer(claims, provider.issuer)
    _check_audience(claims, client_id)
    _check_times(claims, now.timestamp())
    if claims["exp"] > now.timestamp() + MAX_LOGOUT_SECONDS:
        raise TokenRejected(Reason.INVALID_TIME, "the logout token is valid for too long")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise TokenRejected(Reason.NOT_A_LOGOUT, "the token has no logout event")
    if "nonce" in claims:
        raise TokenRejected(Reason.NOT_A_LOGOUT, "a logout token must not have a nonce")
    if not _is_id(claims.get("jti")):
        raise TokenRejected(Reason.NOT_A_LOGOUT, "a logout token must have an id (jti)")
    if "sid" in claims and not _is_id(claims["sid"]):
        raise TokenRejected(Reason.NOT_A_LOGOUT, "the session id of the logout token is invalid")
    if "sub" not in claims and "sid" not in claims:
        raise TokenRejected(Reason.NOT_A_LOGOUT, "a logout token must name a user or a session")
    _check_subject(claims, required=False)
    return Claims(claims, _token_id(claims, parsed))


async def verify_subject_token(provider: Provider, token: str, audiences: Collection[str], now: datetime) -> Claims:
    """Verifies a token of another system, such as a CI job, for a token exchange.

    All its audiences must be in `audiences`: other recipients of a token could present it here. Raises TokenRejected or
    ProviderError.
    """
    parsed, _, claims = await _verify_signature(provider, token, _PLAIN_TYPES)
    _check_issuer(claims, provider.issuer)
    _check_recipients(claims, audiences)
    _check_times(claims, now.timestamp())
    _check_subject(claims, required=True)
    if "events" in claims:
        raise TokenRejected(Reason.TOKEN_TYPE, "the token reports an event")
    return Claims(claims, _token_id(claims, parsed))


def check_reviewed_token(token: str, audiences: Collection[str], now: datetime) -> Claims:
    """The claims of a token that is verified elsewhere: by the TokenReview of a cluster, which is asked separately.

    Checks all but the signature, the issuer and the algorithm. Raises TokenRejected.
    """
    parsed = _parse(token)
    claims = _parse_claims(parsed.payload)
    _check_recipients(claims, audiences)
    _check_times(claims, now.timestamp())
    _check_subject(claims, required=True)
    return Claims(claims, _token_id(claims, parsed))


def read_unverified_issuer(token: str) -> str:
    """The `iss` of a token that is not verified: only for choosing who verifies it. Raises TokenRejected."""
    issuer = _parse_claims(_parse(token).payload).get("iss")
    return issuer if isinstance(issuer, str) else ""


async def _verify_signature(
    provider: Provider, token: str, types: Collection[str]
) -> tuple[_Parsed, VerificationKey, Object]:
    """Checks header and signature, and returns the claims."""
    parsed = _parse(token)
    _check_header(parsed.header, provider.issuer, types)
    keys = await provider.client.keys(provider.issuer, parsed.kid)
    key = keys.find(parsed.kid, parsed.algorithm)
    if not _is_signed(parsed, key):
        key = await _find_replaced_key(provider, parsed, keys)
    return parsed, key, _parse_claims(parsed.payload)


async def _find_replaced_key(provider: Provider, parsed: _Parsed, before: KeySet) -> VerificationKey:
    """The key, if the provider has replaced it under the same id, and the new one fits the signature."""
    keys = await provider.client.refresh_keys(provider.issuer)
    if keys != before:
        key = keys.find(parsed.kid, parsed.algorithm)
        if _is_signed(parsed, key):
            return key
    raise TokenRejected(Reason.SIGNATURE, "the signature of the token is invalid")


def _is_signed(parsed: _Parsed, key: VerificationKey) -> bool:
    try:
        jwt.api_jws.decode_complete(parsed.token, key.jwk, algorithms=[key.algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True


def _parse(token: str) -> _Parsed:
    """Splits and decodes a token. Nothing is verified yet."""
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRejected(Reason.TOKEN_TOO_LARGE, f"the token is over {MAX_TOKEN_BYTES} bytes")
    match = _PARTS.fullmatch(token)
    if match is None:
        raise TokenRejected(Reason.TOKEN_MALFORMED, "the token is not a signed JWT: three parts in base64url")
    header, payload, _ = (_decode_part(part) for part in match.groups())
    return _Parsed(token, _parse_claims(header), payload)


def _decode_part(part: str) -> bytes:
    """Rejects all encodings of the same content but one: decoders ignore surplus bits at the end."""
    try:
        content = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        content = b""
    if base64.urlsafe_b64encode(content).rstrip(b"=").decode() != part:
        raise TokenRejected(Reason.TOKEN_MALFORMED, "a part of the token is not valid base64url")
    return content


def _parse_claims(data: bytes) -> Object:
    """A JSON object of limited depth, without duplicate names, which other parsers could read differently."""
    if json.nesting_depth(data, MAX_DEPTH) > MAX_DEPTH:
        raise TokenRejected(Reason.TOKEN_TOO_DEEP, f"the token is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.decode(data)
        duplicates = json.find_duplicate_keys(data, value) if isinstance(value, dict) else []
    except (Malformed, ValueError, RecursionError):
        value, duplicates = None, []
    if not isinstance(value, dict):
        raise TokenRejected(Reason.TOKEN_MALFORMED, "a part of the token is not a JSON object")
    if duplicates:
        raise TokenRejected(Reason.TOKEN_MALFORMED, "the token has the same name twice")
    return value


def _check_header(header: Object, issuer: Issuer, types: Collection[str]) -> None:
    algorithm = header.get("alg")
    if algorithm not in ASYMMETRIC_ALGORITHMS or algorithm not in issuer.algorithms:
        raise TokenRejected(Reason.ALGORITHM, "the algorithm of the token is not allowed")
    if "crit" in header or "b64" in header:
        raise TokenRejected(Reason.CRITICAL_HEADER, "the token requires an extension that is not supported")
    if _KEY_HEADERS & header.keys():
        raise TokenRejected(Reason.KEY_IN_HEADER, "the token contains a key; only keys of the provider are used")
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise TokenRejected(Reason.TOKEN_MALFORMED, "the key id of the token is not a string")
    kind = header.get("typ", "")
    if not isinstance(kind, str) or kind.lower() not in types:
        raise TokenRejected(Reason.TOKEN_TYPE, "the token is of another type")


def _check_issuer(claims: Object, issuer: Issuer) -> None:
    if claims.get("iss") != issuer.url:
        raise TokenRejected(Reason.WRONG_ISSUER, "the token is from another issuer")


def _audiences(claims: Object) -> list[str]:
    """The audiences, or an empty list if they are missing or invalid."""
    found = claims.get("aud")
    if isinstance(found, str):
        return [found] if found else []
    valid = isinstance(found, list) and all(isinstance(each, str) and each for each in found)
    return found if isinstance(found, list) and valid else []


def _check_audience(claims: Object, client_id: str) -> None:
    found = _audiences(claims)
    if not client_id or client_id not in found:
        raise TokenRejected(Reason.WRONG_AUDIENCE, "the token is for another client")
    party = claims.get("azp")
    if ("azp" in claims or len(found) > 1) and party != client_id:
        raise TokenRejected(Reason.WRONG_PARTY, "the token was issued to another client")


def _check_recipients(claims: Object, audiences: Collection[str]) -> None:
    found = _audiences(claims)
    if not found or not set(found) <= set(audiences):
        raise TokenRejected(Reason.WRONG_AUDIENCE, "the token is not for this installation alone")


def _check_times(claims: Object, now: float) -> None:
    for name in ("exp", "iat", "nbf"):
        if name in claims and not _is_time(claims[name]):
            raise TokenRejected(Reason.INVALID_TIME, f"{name} of the token is not a valid time")
    if "exp" not in claims or "iat" not in claims:
        raise TokenRejected(Reason.INVALID_TIME, "the token must have exp and iat")
    if claims["exp"] <= now - MAX_SKEW_SECONDS:
        raise TokenRejected(Reason.EXPIRED, "the token has expired")
    if claims.get("nbf", 0) > now + MAX_SKEW_SECONDS:
        raise TokenRejected(Reason.NOT_YET_VALID, "the token is not valid yet")
    if claims["iat"] > now + MAX_SKEW_SECONDS:
        raise TokenRejected(Reason.ISSUED_IN_FUTURE, "the token was issued in the future; check the clocks")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= MAX_TIME


def _check_subject(claims: Object, *, required: bool) -> None:
    if not required and "sub" not in claims:
        return
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not subject.isprintable():
        raise TokenRejected(Reason.INVALID_SUBJECT, "the subject of the token is missing or invalid")


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH


def _is_equal(value: Any, expected: str) -> bool:
    return isinstance(value, str) and hmac.compare_digest(value.encode("utf-8", "replace"), expected.encode())


def _check_access_token(at_hash: Any, access_token: str, key: VerificationKey) -> None:
    """`at_hash` is the left half of the hash of the access token; the algorithm's hash function is used."""
    name = "sha512" if key.curve == "Ed25519" else _AT_HASHES.get(key.algorithm[2:], "")
    if name:
        digest = hashlib.new(name, access_token.encode()).digest()
        expected = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
        if _is_equal(at_hash, expected):
            return
    raise TokenRejected(Reason.WRONG_ACCESS_TOKEN, "the ID token does not belong to the access token")


def _token_id(claims: Object, parsed: _Parsed) -> str:
    """Without the signature, because some algorithms have several valid ones for the same content."""
    jti = claims.get("jti")
    if _is_id(jti):
        return str(jti)
    return "sha256:" + hashlib.sha256(parsed.token.rpartition(".")[0].encode()).hexdigest()
