"""OidcDiscovery: the public OpenID configuration and keys of the issuer of direct tokens."""

import orjson

from fairlead.core.call import Reply
from fairlead.core.objects import Object
from fairlead.subresources.credentials import CONFIGURATION_PATH, KEYS_PATH, OidcDiscovery
from tests.harness.calls import call

URL = "https://fairlead.example.com"
JWKS: list[Object] = [{"kty": "RSA", "kid": "one"}]


async def published_keys() -> list[Object]:
    return JWKS


async def send_request(path: str) -> Reply:
    return await OidcDiscovery(URL, published_keys).public_endpoints()["get", path](call(path))


async def test_the_configuration_refers_to_the_keys() -> None:
    reply = await send_request(CONFIGURATION_PATH)
    configuration = orjson.loads(reply.body)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert (configuration["issuer"], configuration["jwks_uri"]) == (URL, URL + KEYS_PATH)
    assert configuration["id_token_signing_alg_values_supported"] == ["RS256"]


async def test_the_keys_are_a_standard_jwk_set() -> None:
    reply = await send_request(KEYS_PATH)
    assert (reply.status, reply.content_type) == (200, "application/jwk-set+json")
    assert orjson.loads(reply.body) == {"keys": JWKS}


async def test_both_documents_may_be_cached_for_a_minute() -> None:
    for path in (CONFIGURATION_PATH, KEYS_PATH):
        reply = await send_request(path)
        assert reply.cacheable
        assert dict(reply.headers) == {"cache-control": "public, max-age=60"}
