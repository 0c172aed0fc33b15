"""OpenID Connect discovery for the issuer of direct tokens: the configuration document and the JWKS.

Both are public and below the platform root; `server/api/routing.py` calls the handlers by verb and path. A
kube-apiserver with the base URL as its `--oidc-issuer-url` finds everything else here.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import orjson

from fairlead.core.call import Call, Reply
from fairlead.core.objects import Object

CONFIGURATION_PATH, KEYS_PATH = "/.well-known/openid-configuration", "/openid/v1/jwks"
CACHE_CONTROL = "public, max-age=60"
"""Short: verifiers fetch the keys again when they see an unknown key, and must not get a stale response for long."""

Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class OidcDiscovery:
    """The handlers. `url` is the base URL, `keys` returns the public keys as JWKs."""

    issuer_url: str
    public_keys: Callable[[], Awaitable[list[Object]]]

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        """Handlers by verb and path below the platform root."""
        return {("get", CONFIGURATION_PATH): self.get_configuration, ("get", KEYS_PATH): self.get_jwks}

    async def get_configuration(self, call: Call) -> Reply:
        return _json_reply(
            {
                "issuer": self.issuer_url,
                "jwks_uri": self.issuer_url + KEYS_PATH,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            },
            "application/json",
        )

    async def get_jwks(self, call: Call) -> Reply:
        return _json_reply({"keys": await self.public_keys()}, "application/jwk-set+json")


def _json_reply(value: Object, content_type: str) -> Reply:
    return Reply(200, orjson.dumps(value), content_type, [("cache-control", CACHE_CONTROL)], cacheable=True)
