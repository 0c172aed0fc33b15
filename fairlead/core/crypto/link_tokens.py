"""Tokens by which the server authenticates to a runner that listens.

A token is a JWT of the keys of direct tokens, with a type and an audience of its own, so neither can take the place of
the other. It is valid for a minute, for one Runner (by its uid) and for one certificate, and runners accept it once. So
a runner cannot use what it was sent to connect to another one.
"""

import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import jwt
import msgspec

from fairlead.core.crypto.signing import ALGORITHM, SigningKey, sign

LINK_TOKEN_TYPE = "runner-link+jwt"
LIFETIME_SECONDS = 60
MAX_SKEW_SECONDS = 60
MAX_TOKEN_LENGTH = 4096
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----\n?", re.DOTALL)
_SIGNATURE_ONLY = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


class InvalidLinkToken(Exception):
    """The token is not valid. The message contains nothing of it."""


class UnknownLinkKey(InvalidLinkToken):
    """None of the keys has signed it. They may be outdated."""


class _Confirmation(msgspec.Struct):
    fingerprint: str = msgspec.field(name="x5t#S256")


class _Claims(msgspec.Struct):
    aud: str
    nbf: int
    exp: int
    jti: str
    cnf: _Confirmation


def issue_link_token(key: SigningKey, runner_uid: str, fingerprint: str, now: datetime) -> str:
    moment = int(now.timestamp())
    claims = {
        "aud": _audience(runner_uid),
        "iat": moment,
        "nbf": moment,
        "exp": moment + LIFETIME_SECONDS,
        "jti": secrets.token_hex(16),
        "cnf": {"x5t#S256": fingerprint},
    }
    return sign(key, claims, LINK_TOKEN_TYPE)


def verify_link_token(token: str, keys: Sequence[str], runner_uid: str, fingerprint: str, now: datetime) -> str:
    """Returns the ID of the token. `keys` are PEM texts. Raises InvalidLinkToken."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidLinkToken("the token is too long")
    claims = _decode(token, keys)
    moment = now.timestamp()
    if claims.aud != _audience(runner_uid):
        raise InvalidLinkToken("the token is for another runner")
    if claims.cnf.fingerprint != fingerprint:
        raise InvalidLinkToken("the token is for another certificate")
    if not claims.nbf - MAX_SKEW_SECONDS <= moment <= claims.exp + MAX_SKEW_SECONDS:
        raise InvalidLinkToken("the token has expired, or is not valid yet; check the clocks")
    if claims.exp - claims.nbf > LIFETIME_SECONDS or not claims.jti:
        raise InvalidLinkToken("the token is valid for too long, or has no ID")
    return claims.jti


def split_keys(pem: str) -> list[str]:
    """The public keys in a PEM text."""
    return _PEM.findall(pem)


def _audience(runner_uid: str) -> str:
    return f"service.sh/runner-link/{runner_uid}"


def _decode(token: str, keys: Sequence[str]) -> _Claims:
    try:
        if jwt.get_unverified_header(token).get("typ") != LINK_TOKEN_TYPE:
            raise InvalidLinkToken("the token has another purpose")
        claims = next((each for key in keys if (each := _verify(token, key)) is not None), None)
        if claims is None:
            raise UnknownLinkKey("the token is not signed with a key of the server")
        return msgspec.convert(claims, _Claims)
    except (jwt.InvalidTokenError, msgspec.ValidationError):
        raise InvalidLinkToken("it is not a token of the server") from None


def _verify(token: str, key: str) -> dict[str, Any] | None:
    try:
        return jwt.decode(token, key, [ALGORITHM], options=_SIGNATURE_ONLY)  # type: ignore[arg-type]
    except jwt.InvalidSignatureError:
        return None
