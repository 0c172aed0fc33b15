"""ID tokens, logout tokens and subject tokens: what is accepted, and the reason for everything that is not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.tokens import (
    LOGOUT_EVENT,
    Provider,
    Reason,
    TokenRejected,
    read_unverified_issuer,
    verify_id_token,
    verify_logout_token,
    verify_subject_token,
)
from tests.harness.clock import START, ManualClock
from tests.harness.openid_issuer import OpenIdIssuer, access_token_hash, public_jwk, run_issuer, sign
from tests.signin.oidc.forged_tokens import ACCESS_TOKEN, CLIENT, CORPUS, NONCE, Case, genuine_claims


@pytest.fixture
async def issuer() -> AsyncIterator[OpenIdIssuer]:
    async with run_issuer() as running:
        running.publish_keys(public_jwk("rsa"), public_jwk("ec"), public_jwk("ed"))
        yield running


@pytest.fixture
def provider(issuer: OpenIdIssuer) -> Provider:
    return Provider(ProviderClient(clock=ManualClock()), issuer.issuer())


async def _verify(provider: Provider, token: str, **changes: Any):
    expected: dict[str, Any] = {"client_id": CLIENT, "nonce": NONCE, "now": START, "access_token": ACCESS_TOKEN}
    return await verify_id_token(provider, token, **{**expected, **changes})


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
async def test_each_token_of_the_corpus_gets_its_verdict(provider: Provider, case: Case) -> None:
    token = case.token(genuine_claims(provider.issuer.url, START))
    if case.reason is None:
        claims = await _verify(provider, token)
        assert (claims.issuer, claims.subject) == (provider.issuer.url, "248289761001")
        return
    with pytest.raises(TokenRejected) as rejected:
        await _verify(provider, token)
    assert rejected.value.reason == case.reason
    assert "248289761001" not in str(rejected.value)


def test_the_names_in_the_corpus_are_unique() -> None:
    names = [case.name for case in CORPUS]
    assert len(set(names)) == len(names) >= 90


async def test_a_token_from_a_refresh_needs_no_nonce(provider: Provider) -> None:
    claims = genuine_claims(provider.issuer.url, START)
    del claims["nonce"]
    assert (await _verify(provider, sign(claims), nonce=None)).subject == "248289761001"


async def test_the_hash_of_the_access_token_follows_the_algorithm(provider: Provider) -> None:
    claims = {**genuine_claims(provider.issuer.url, START), "at_hash": access_token_hash(ACCESS_TOKEN, "sha512")}
    await _verify(provider, sign(claims, "ed"))
    claims["at_hash"] = access_token_hash(ACCESS_TOKEN, "sha256")
    with pytest.raises(TokenRejected) as rejected:
        await _verify(provider, sign(claims, "ed"))
    assert rejected.value.reason == Reason.WRONG_ACCESS_TOKEN


async def test_algorithms_can_be_restricted_for_an_issuer(issuer: OpenIdIssuer) -> None:
    provider = Provider(ProviderClient(), issuer.issuer(algorithms=("ES256", "HS256")))
    claims = genuine_claims(issuer.url, START)
    await _verify(provider, sign(claims, "ec"))
    for token in (sign(claims), sign(claims, header={"alg": "PS256"})):
        with pytest.raises(TokenRejected) as rejected:
            await _verify(provider, token)
        assert rejected.value.reason == Reason.ALGORITHM


async def test_claims_show_nothing_in_tracebacks_and_logs(provider: Provider) -> None:
    claims = await _verify(provider, sign(genuine_claims(provider.issuer.url, START)))
    assert "248289761001" not in repr(claims)
    assert dict(claims) == genuine_claims(provider.issuer.url, START)


def _logout_claims(provider: Provider, **changes: Any) -> dict[str, Any]:
    claims = genuine_claims(provider.issuer.url, START)
    del claims["nonce"]
    claims |= {"jti": "7", "sid": "s", "events": {LOGOUT_EVENT: {}}, **changes}
    return {name: value for name, value in claims.items() if value is not None}


@pytest.mark.parametrize("kind", ["logout+jwt", "JWT", None, "application/logout+jwt"])
async def test_a_logout_token_names_a_session(provider: Provider, kind: str | None) -> None:
    token = sign(_logout_claims(provider, sub=None), header={"typ": kind})
    claims = await verify_logout_token(provider, token, client_id=CLIENT, now=START)
    assert (claims["sid"], claims.subject, claims.token_id) == ("s", "", "7")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"events": None}, Reason.NOT_A_LOGOUT),
        ({"events": {}}, Reason.NOT_A_LOGOUT),
        ({"events": [LOGOUT_EVENT]}, Reason.NOT_A_LOGOUT),
        ({"events": {LOGOUT_EVENT: True}}, Reason.NOT_A_LOGOUT),
        ({"nonce": "n"}, Reason.NOT_A_LOGOUT),
        ({"jti": None}, Reason.NOT_A_LOGOUT),
        ({"jti": 7}, Reason.NOT_A_LOGOUT),
        ({"jti": "7" * 256}, Reason.NOT_A_LOGOUT),
        ({"sub": None, "sid": None}, Reason.NOT_A_LOGOUT),
        ({"sid": ["s"]}, Reason.NOT_A_LOGOUT),
        ({"sub": 7}, Reason.INVALID_SUBJECT),
        ({"aud": "other"}, Reason.WRONG_AUDIENCE),
        ({"iss": "https://evil.example"}, Reason.WRONG_ISSUER),
        ({"exp": None}, Reason.INVALID_TIME),
        ({"exp": int(START.timestamp()) + 3601}, Reason.INVALID_TIME),
        ({"exp": int(START.timestamp()) - 60}, Reason.EXPIRED),
    ],
)
async def test_a_logout_token_has_an_event_and_an_id(provider: Provider, changes: Any, reason: Reason) -> None:
    with pytest.raises(TokenRejected) as rejected:
        await verify_logout_token(provider, sign(_logout_claims(provider, **changes)), client_id=CLIENT, now=START)
    assert rejected.value.reason == reason


async def test_an_id_token_is_no_logout_token(provider: Provider) -> None:
    token = sign(genuine_claims(provider.issuer.url, START))
    with pytest.raises(TokenRejected) as rejected:
        await verify_logout_token(provider, token, client_id=CLIENT, now=START)
    assert rejected.value.reason == Reason.NOT_A_LOGOUT


@pytest.mark.parametrize(
    ("audience", "reason"),
    [
        ("https://fairlead.example", None),
        (["https://fairlead.example"], None),
        (["https://fairlead.example", "https://other.example"], Reason.WRONG_AUDIENCE),
        ("https://other.example", Reason.WRONG_AUDIENCE),
        ([], Reason.WRONG_AUDIENCE),
        (None, Reason.WRONG_AUDIENCE),
    ],
)
async def test_a_subject_token_is_for_this_installation_alone(
    provider: Provider, audience: Any, reason: Reason | None
) -> None:
    claims = {**genuine_claims(provider.issuer.url, START), "aud": audience}
    token = sign({name: value for name, value in claims.items() if value is not None})
    if reason is None:
        assert (await verify_subject_token(provider, token, {"https://fairlead.example"}, START)).subject
        return
    with pytest.raises(TokenRejected) as rejected:
        await verify_subject_token(provider, token, {"https://fairlead.example"}, START)
    assert rejected.value.reason == reason


async def test_tokens_without_an_id_have_one_by_their_content(provider: Provider) -> None:
    claims = genuine_claims(provider.issuer.url, START)
    tokens = [sign(claims, "ec"), sign(claims, "ec"), sign({**claims, "sub": "b"}, "ec")]
    first, same, other = [(await _verify(provider, token)).token_id for token in tokens]
    assert tokens[0] != tokens[1]
    assert first == same != other


def test_the_issuer_of_an_unverified_token_is_only_read() -> None:
    assert read_unverified_issuer(sign({"iss": "https://a.example"})) == "https://a.example"
    assert read_unverified_issuer(sign({"iss": ["https://a.example"]})) == ""
    with pytest.raises(TokenRejected):
        read_unverified_issuer("a.b")
