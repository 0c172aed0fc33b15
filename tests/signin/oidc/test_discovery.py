"""Metadata and keys of providers: caching, rotation, floods of key ids, and providers that are down."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.signin.oidc.discovery import MAX_KEYS, KeySet, ProviderClient
from fairlead.signin.oidc.fetch import Fetcher
from fairlead.signin.oidc.tokens import Provider, ProviderError, Reason, TokenRejected, verify_subject_token
from tests.harness.clock import START, ManualClock
from tests.harness.openid_issuer import (
    KEYS_PATH,
    METADATA_PATH,
    STALL,
    OpenIdIssuer,
    private_key,
    public_jwk,
    run_issuer,
    sign,
)


@pytest.fixture
async def issuer() -> AsyncIterator[OpenIdIssuer]:
    async with run_issuer() as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(clock: ManualClock) -> ProviderClient:
    return ProviderClient(Fetcher(timeout_seconds=4.0), clock)


def _token(issuer: OpenIdIssuer, key: str = "rsa", **header: Any) -> str:
    moment = int(START.timestamp())
    claims = {"iss": issuer.url, "sub": "a", "aud": "b", "iat": moment, "exp": moment + 300}
    return sign(claims, key, header)


async def _verify(client: ProviderClient, issuer: OpenIdIssuer, token: str) -> Reason | None:
    try:
        await verify_subject_token(Provider(client, issuer.issuer()), token, {"b"}, START)
    except (TokenRejected, ProviderError) as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "https://evil.example"}, Reason.ISSUER_MISMATCH),
        ({"issuer": None}, Reason.ISSUER_MISMATCH),
        ({"issuer": ["x"]}, Reason.ISSUER_MISMATCH),
        ({"jwks_uri": "http://127.0.0.1/keys"}, Reason.ISSUER_URL),
        ({"jwks_uri": "file:///etc/passwd"}, Reason.ISSUER_URL),
        ({"jwks_uri": None}, Reason.ISSUER_URL),
        ({"token_endpoint": "http://127.0.0.1/token"}, Reason.ISSUER_URL),
        ({"token_endpoint": 7}, Reason.ISSUER_URL),
        ({"userinfo_endpoint": "javascript:alert(1)"}, Reason.ISSUER_URL),
    ],
)
async def test_metadata_with_another_issuer_or_insecure_urls_is_rejected(
    client: ProviderClient, issuer: OpenIdIssuer, changes: Any, reason: Reason
) -> None:
    issuer.publish_metadata(**changes)
    with pytest.raises(ProviderError) as failed:
        await client.discover(issuer.issuer())
    assert failed.value.reason == reason


async def test_an_issuer_with_a_slash_is_another_one(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    issuer.publish_metadata(issuer=issuer.url + "/")
    with pytest.raises(ProviderError) as failed:
        await client.discover(issuer.issuer())
    assert failed.value.reason == Reason.ISSUER_MISMATCH
    assert (await client.discover(issuer.issuer(url=issuer.url + "/"))).issuer == issuer.url + "/"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://127.0.0.1", "https://127.0.0.1?a=b"])
async def test_an_issuer_must_have_an_https_url(client: ProviderClient, issuer: OpenIdIssuer, url: str) -> None:
    with pytest.raises(ProviderError) as failed:
        await client.discover(issuer.issuer(url=url))
    assert failed.value.reason == Reason.ISSUER_URL


async def test_endpoints_are_optional(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    issuer.publish_metadata(token_endpoint=None, authorization_response_iss_parameter_supported=True)
    metadata = await client.discover(issuer.issuer())
    assert (metadata.token_endpoint, metadata.sends_issuer) == ("", True)


async def test_a_hundred_verifications_fetch_each_document_once(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    token = _token(issuer)
    assert await asyncio.gather(*(_verify(client, issuer, token) for _ in range(100))) == [None] * 100
    assert (issuer.requests[METADATA_PATH], issuer.requests[KEYS_PATH]) == (1, 1)


async def test_a_rotated_key_is_fetched_at_once(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    assert await _verify(client, issuer, _token(issuer)) is None
    issuer.publish_keys(public_jwk("rsa2"), public_jwk("rsa"))
    assert await _verify(client, issuer, _token(issuer, "rsa2")) is None
    assert await _verify(client, issuer, _token(issuer)) is None
    assert issuer.requests[KEYS_PATH] == 2


async def test_a_key_that_was_replaced_under_the_same_id_is_fetched(
    client: ProviderClient, issuer: OpenIdIssuer
) -> None:
    assert await _verify(client, issuer, _token(issuer)) is None
    issuer.publish_keys(public_jwk("rsa2", kid="rsa"))
    assert await _verify(client, issuer, _token(issuer, "rsa2", kid="rsa")) is None
    assert await _verify(client, issuer, _token(issuer)) == Reason.SIGNATURE


async def test_a_removed_key_is_not_used_for_long(
    client: ProviderClient, issuer: OpenIdIssuer, clock: ManualClock
) -> None:
    assert await _verify(client, issuer, _token(issuer)) is None
    issuer.publish_keys(public_jwk("rsa2"))
    clock.tick(601)
    assert await _verify(client, issuer, _token(issuer)) == Reason.UNKNOWN_KEY


async def test_a_flood_of_key_ids_causes_few_requests(
    client: ProviderClient, issuer: OpenIdIssuer, clock: ManualClock
) -> None:
    assert await _verify(client, issuer, _token(issuer)) is None
    for number in range(200):
        assert await _verify(client, issuer, _token(issuer, kid=f"forged-{number}")) == Reason.UNKNOWN_KEY
    assert issuer.requests[KEYS_PATH] == 4
    clock.tick(31)
    issuer.publish_keys(public_jwk("rsa2"))
    assert await _verify(client, issuer, _token(issuer, "rsa2")) is None
    assert issuer.requests[KEYS_PATH] == 5


async def test_a_flood_of_forged_signatures_causes_few_requests(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    for _ in range(100):
        assert await _verify(client, issuer, _token(issuer, "rsa2", kid="rsa")) == Reason.SIGNATURE
    assert issuer.requests[KEYS_PATH] <= 4


@pytest.mark.parametrize(
    "answer",
    [
        (b"oops", 500),
        (b"{}", 200),
        (b'{"keys": []}', 200),
        (b'{"keys": {}}', 200),
        (b'{"keys": [7]}', 200),
        (b" " * 300_000, 200),
        (b"", STALL),
        (b"", 302),
    ],
    ids=lambda answer: str(answer[1]) + str(len(answer[0])),
)
async def test_the_last_good_keys_stay_in_use(
    client: ProviderClient, issuer: OpenIdIssuer, clock: ManualClock, answer: tuple[bytes, int]
) -> None:
    assert await _verify(client, issuer, _token(issuer)) is None
    issuer.publish(KEYS_PATH, answer[0], answer[1])
    assert await _verify(client, issuer, _token(issuer, kid="new")) == Reason.UNKNOWN_KEY
    clock.tick(3 * 3600)
    assert await _verify(client, issuer, _token(issuer)) is None
    clock.tick(22 * 3600)
    assert await _verify(client, issuer, _token(issuer)) is not None


async def test_a_provider_that_is_down_gets_no_request_of_every_login(
    client: ProviderClient, issuer: OpenIdIssuer, clock: ManualClock
) -> None:
    issuer.publish(METADATA_PATH, b"oops", 500)
    for _ in range(20):
        assert await _verify(client, issuer, _token(issuer)) == Reason.PROVIDER_STATUS
    assert issuer.requests[METADATA_PATH] == 1
    issuer.publish_metadata()
    clock.tick(6)
    assert await _verify(client, issuer, _token(issuer)) is None


async def test_a_cancelled_login_does_not_disturb_the_others(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    issuer.publish(KEYS_PATH, b"", STALL)
    first, second = (asyncio.create_task(_verify(client, issuer, _token(issuer))) for _ in range(2))
    await asyncio.sleep(0.2)
    first.cancel()
    assert await second == Reason.PROVIDER_TIMEOUT


async def test_a_key_set_with_thousands_of_keys_is_rejected_quickly(
    client: ProviderClient, issuer: OpenIdIssuer
) -> None:
    tiny = {"kty": "OKP", "crv": "Ed25519", "x": "a"}
    for keys in ([public_jwk()] * 5_000, [tiny] * 5_000, [public_jwk()] * (MAX_KEYS + 1)):
        issuer.publish_keys(*keys)
        started = time.monotonic()
        reason = await _verify(ProviderClient(), issuer, _token(issuer))
        assert reason in (Reason.JWKS_INVALID, Reason.RESPONSE_TOO_LARGE)
        assert time.monotonic() - started < 20


async def test_a_set_of_a_hundred_keys_is_accepted(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    issuer.publish_keys(*(public_jwk(kid=f"k{number}") for number in range(MAX_KEYS - 1)), public_jwk())
    assert await _verify(client, issuer, _token(issuer)) is None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (public_jwk(use="enc"), Reason.UNKNOWN_KEY),
        (public_jwk(use=None), None),
        (public_jwk(alg="RS256"), None),
        (public_jwk(alg="RS512"), Reason.UNKNOWN_KEY),
        (public_jwk(alg="HS256"), Reason.UNKNOWN_KEY),
        (public_jwk(key_ops=["verify"]), None),
        (public_jwk(key_ops=["encrypt"]), Reason.UNKNOWN_KEY),
        (public_jwk(key_ops="verify"), Reason.UNKNOWN_KEY),
        (public_jwk("ec", kid="rsa"), Reason.UNKNOWN_KEY),
        (public_jwk("short", kid="rsa"), Reason.UNUSABLE_KEY),
        (public_jwk(e="A" * 4_096), Reason.UNUSABLE_KEY),
        (public_jwk(e="_" * 40), Reason.UNUSABLE_KEY),
        (public_jwk(n="!"), Reason.UNUSABLE_KEY),
        (public_jwk(n="A" * 4_097), Reason.JWKS_INVALID),
        (public_jwk(n=7), Reason.JWKS_INVALID),
        (public_jwk(kty="oct", k="c2VjcmV0"), Reason.JWKS_INVALID),
        (public_jwk(kty=["RSA"]), Reason.JWKS_INVALID),
        (public_jwk() | {"kid": 7}, Reason.JWKS_INVALID),
    ],
)
async def test_a_key_is_used_only_for_what_it_is_published(
    client: ProviderClient, issuer: OpenIdIssuer, key: Any, reason: Reason | None
) -> None:
    issuer.publish_keys(key)
    assert await _verify(client, issuer, _token(issuer)) == reason


async def test_a_token_without_key_id_needs_the_only_key_of_its_algorithm(
    client: ProviderClient, issuer: OpenIdIssuer
) -> None:
    issuer.publish_keys(public_jwk(), public_jwk("ec"))
    assert await _verify(client, issuer, _token(issuer, kid=None)) is None
    issuer.publish_keys(public_jwk(), public_jwk("rsa2"))
    assert await _verify(ProviderClient(), issuer, _token(issuer, kid=None)) == Reason.UNKNOWN_KEY


async def test_private_parameters_of_a_published_key_are_ignored(client: ProviderClient, issuer: OpenIdIssuer) -> None:
    numbers = private_key().private_numbers()
    issuer.publish_keys(public_jwk(d="AQAB", p="AQAB"))
    assert numbers.public_numbers.e == 65537
    assert await _verify(client, issuer, _token(issuer)) is None


def test_two_keys_with_the_same_id_differ_by_their_algorithm() -> None:
    keys = KeySet.parse({"keys": [public_jwk(kid="a"), public_jwk("ec", kid="a")]})
    assert keys.find("a", "ES256").algorithm == "ES256"
    assert keys.find("a", "RS256").algorithm == "RS256"
    with pytest.raises(TokenRejected):
        KeySet.parse({"keys": [public_jwk(kid="a"), public_jwk("rsa2", kid="a")]}).find("a", "RS256")
