"""Verification of direct tokens: a valid one is accepted, and every invalid one is rejected (T-41)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE, Claims, InvalidToken, verify
from fairlead.core.crypto.signing import SigningKey, sign
from fairlead.core.objects import Object
from tests.harness.direct_tokens import (
    CLAIMS,
    INVALID_TOKENS,
    ISSUER,
    KEY,
    OTHER_KEY,
    PRIVATE_CLAIMS,
    REMOVED,
    START,
    TOKEN_PARTS,
    VALID_TOKEN,
    change_unused_bits,
    token_with_claims,
    token_with_header,
    token_with_private_claims,
    with_changes,
)
from tests.harness.signing_keys import (
    NOW,
    encode_base64url,
    jwks,
)


def verify_token(token: str, keys: Object | None = None, seconds: float = 0, **options: Any) -> Claims:
    arguments: dict[str, Any] = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "now": NOW + timedelta(seconds=seconds),
        **options,
    }
    return verify(token, jwks(KEY, OTHER_KEY) if keys is None else keys, **arguments)


def test_t41_a_valid_token_yields_its_claims() -> None:
    assert verify_token(VALID_TOKEN) == Claims(
        id="a-token",
        user="ada",
        groups=("service:user:ada",),
        uid="uid-of-ada",
        name="ada",
        kind="User",
        generation=3,
        scope=None,
        clusters={},
        original_requester="",
        issued_at=START,
        expires_at=START + 3600,
    )


def test_t41_unchanged_tokens_of_the_helpers_are_valid() -> None:
    """Otherwise the table of invalid tokens would prove nothing."""
    assert (
        verify_token(token_with_claims())
        == verify_token(token_with_private_claims())
        == verify_token(token_with_header())
        == verify_token(VALID_TOKEN)
    )


@pytest.mark.parametrize("case", INVALID_TOKENS)
def test_t41_an_invalid_token_is_rejected(case: str) -> None:
    with pytest.raises(InvalidToken):
        verify_token(INVALID_TOKENS[case])


def test_t41_there_are_many_invalid_tokens_and_all_differ() -> None:
    assert len(set(INVALID_TOKENS.values())) == len(INVALID_TOKENS) >= 50


def test_t41_each_part_has_exactly_one_encoding() -> None:
    """The last base64 character may have bits that decoders ignore."""
    header, payload, signature = VALID_TOKEN.split(".")
    assert len(signature) % 4 == 0, "a signature of 384 bytes has no such bits; the other parts may"
    for part in (header, payload):
        if len(part) % 4:
            with pytest.raises(InvalidToken, match="three parts"):
                verify_token(VALID_TOKEN.replace(part, change_unused_bits(part)))
    with pytest.raises(InvalidToken, match="three parts"):
        verify_token(f"{header}.{payload}.{change_unused_bits('AA')}")


def test_a_scoped_token_is_valid_for_the_scoped_audience_only() -> None:
    scope = {"clusters": [{"cluster": "berlin"}]}
    private_claims = {
        **PRIVATE_CLAIMS,
        "scope": scope,
        "clusters": {"berlin": "uid-of-berlin"},
        "originalRequester": "root",
    }
    token = token_with_claims(aud=[SCOPED_AUDIENCE], **{"service.sh": private_claims})
    claims = verify_token(token, audience=(AUDIENCE, SCOPED_AUDIENCE))
    assert (claims.scope, claims.clusters, claims.original_requester) == (scope, {"berlin": "uid-of-berlin"}, "root")
    with pytest.raises(InvalidToken, match="another audience"):
        verify_token(token)


def test_clocks_may_differ_by_up_to_a_minute() -> None:
    assert verify_token(VALID_TOKEN, seconds=-60).user == verify_token(VALID_TOKEN, seconds=3659).user == "ada"
    for seconds in (-61, 3660):
        with pytest.raises(InvalidToken):
            verify_token(VALID_TOKEN, seconds=seconds)


def jwks_with(**changes: Any) -> Object:
    (jwk,) = jwks(KEY)["keys"]
    return {"keys": [with_changes(jwk, changes)]}


def jwks_with_short_key() -> Object:
    numbers = generate_private_key(65537, 1024).public_key().public_numbers()
    return jwks_with(n=encode_base64url(numbers.n.to_bytes(128, "big")))


@pytest.mark.parametrize(
    "keys",
    [
        lambda: {},
        lambda: {"keys": None},
        lambda: {"keys": []},
        lambda: {"keys": ["x"]},
        lambda: {"keys": jwks(KEY, KEY)["keys"]},
        lambda: jwks_with(kty="oct", k=encode_base64url(b"secret")),
        lambda: jwks_with(alg="HS256"),
        lambda: jwks_with(alg=REMOVED),
        lambda: jwks_with(use="enc"),
        lambda: jwks_with(n=REMOVED),
        lambda: jwks_with(n="!"),
        lambda: jwks_with(n="AQAB"),
        jwks_with_short_key,
    ],
)
def test_t41_a_token_is_rejected_if_its_key_is_not_published_exactly_once(
    keys: Callable[[], Object],
) -> None:
    with pytest.raises(InvalidToken):
        verify_token(VALID_TOKEN, keys())


def test_an_empty_issuer_is_never_accepted() -> None:
    with pytest.raises(InvalidToken, match="another issuer"):
        verify_token(token_with_claims(iss=""), issuer="")


@pytest.mark.parametrize("case", ["expired", "another issuer", "a changed signature", "a key id with a space"])
def test_an_error_quotes_nothing_of_the_token(case: str) -> None:
    with pytest.raises(InvalidToken) as error:
        verify_token(INVALID_TOKENS[case])
    message = str(error.value)
    assert "ada" not in message and KEY.id not in message and TOKEN_PARTS[0] not in message


def test_both_keys_are_valid_during_a_rotation() -> None:
    def sign_claims(key: SigningKey) -> str:
        return sign(key, CLAIMS)

    assert verify_token(sign_claims(KEY)) == verify_token(sign_claims(OTHER_KEY))
