"""Tokens of the server for runners that listen: for one runner, one certificate, one minute and one purpose."""

from datetime import UTC, datetime, timedelta

import jwt
import pytest

from fairlead.core.crypto.link_tokens import (
    LINK_TOKEN_TYPE,
    InvalidLinkToken,
    UnknownLinkKey,
    issue_link_token,
    split_keys,
    verify_link_token,
)
from fairlead.core.crypto.signing import generate_signing_key, sign

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY, OTHER = generate_signing_key(NOW, 60), generate_signing_key(NOW, 60)
PRINT = "a" * 64


def verify(token: str, *, uid: str = "u1", fingerprint: str = PRINT, now: datetime = NOW) -> str:
    return verify_link_token(token, [OTHER.public, KEY.public], uid, fingerprint, now)


def test_a_token_is_valid_for_its_runner_and_certificate_and_each_has_an_id() -> None:
    first, second = (verify(issue_link_token(KEY, "u1", PRINT, NOW)) for _ in range(2))
    assert first != second
    token = issue_link_token(KEY, "u1", PRINT, NOW)
    for moved in (timedelta(seconds=-60), timedelta(seconds=120)):
        verify(token, now=NOW + moved)


def test_a_token_for_another_runner_certificate_or_time_is_rejected() -> None:
    token = issue_link_token(KEY, "u1", PRINT, NOW)
    with pytest.raises(InvalidLinkToken, match="another runner"):
        verify(token, uid="u2")
    with pytest.raises(InvalidLinkToken, match="another certificate"):
        verify(token, fingerprint="b" * 64)
    for moved in (timedelta(seconds=-61), timedelta(seconds=121)):
        with pytest.raises(InvalidLinkToken, match="expired, or is not valid yet"):
            verify(token, now=NOW + moved)


def test_a_token_of_another_key_or_purpose_is_rejected() -> None:
    token = issue_link_token(generate_signing_key(NOW, 60), "u1", PRINT, NOW)
    with pytest.raises(UnknownLinkKey):
        verify(token)
    claims = jwt.decode(issue_link_token(KEY, "u1", PRINT, NOW), options={"verify_signature": False})
    with pytest.raises(InvalidLinkToken, match="another purpose"):
        verify(sign(KEY, claims))
    with pytest.raises(InvalidLinkToken, match="valid for too long"):
        verify(sign(KEY, {**claims, "exp": claims["nbf"] + 3600}, LINK_TOKEN_TYPE))


@pytest.mark.parametrize("missing", ["aud", "nbf", "exp", "jti", "cnf"])
def test_every_claim_is_required(missing: str) -> None:
    claims = jwt.decode(issue_link_token(KEY, "u1", PRINT, NOW), options={"verify_signature": False})
    del claims[missing]
    with pytest.raises(InvalidLinkToken):
        verify(sign(KEY, claims, LINK_TOKEN_TYPE))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "x" * 5000, "é.é.é", "\x00"])
def test_anything_else_is_rejected(text: str) -> None:
    with pytest.raises(InvalidLinkToken):
        verify(text)


def test_a_token_that_is_signed_with_a_public_key_as_secret_is_rejected() -> None:
    claims = jwt.decode(issue_link_token(KEY, "u1", PRINT, NOW), options={"verify_signature": False})
    unsigned = jwt.encode(claims, "", "none", headers={"typ": LINK_TOKEN_TYPE})
    with pytest.raises(InvalidLinkToken):
        verify(unsigned)


def test_keys_are_split() -> None:
    assert split_keys(KEY.public + OTHER.public) == [KEY.public, OTHER.public]
    assert split_keys("") == []
