"""The issuer of direct tokens: what a verifier finds at the base URL, without signing in."""

import orjson

from fairlead.core.call import Reply
from fairlead.core.objects import Object
from fairlead.server.auth.stages import PUBLIC_ENDPOINTS
from fairlead.subresources.credentials import CONFIGURATION_PATH, KEYS_PATH, OidcDiscovery
from tests.harness.calls import call

URL = "https://fairlead.example.com"
LISTED: list[Object] = [{"kty": "RSA", "kid": "one"}]


async def published() -> list[Object]:
    return LISTED


async def asked(path: str) -> Reply:
    return await OidcDiscovery(URL, published).endpoints()["get", path](call(path))


async def test_the_configuration_leads_to_the_keys() -> None:
    reply = await asked(CONFIGURATION_PATH)
    told = orjson.loads(reply.body)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert (told["issuer"], told["jwks_uri"]) == (URL, URL + KEYS_PATH)
    assert told["id_token_signing_alg_values_supported"] == ["RS256"]


async def test_the_keys_are_a_set_as_the_standard_has_it() -> None:
    reply = await asked(KEYS_PATH)
    assert (reply.status, reply.content_type) == (200, "application/jwk-set+json")
    assert orjson.loads(reply.body) == {"keys": LISTED}


async def test_both_may_be_kept_for_a_short_while() -> None:
    for path in (CONFIGURATION_PATH, KEYS_PATH):
        reply = await asked(path)
        assert reply.cacheable
        assert dict(reply.headers) == {"cache-control": "public, max-age=60"}


def test_anybody_may_read_what_the_issuer_publishes() -> None:
    assert OidcDiscovery(URL, published).endpoints().keys() <= PUBLIC_ENDPOINTS
