"""Direct tokens, for the direct endpoints of clusters, and OpenID Connect discovery for their verification."""

from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DelegationChecks, DirectTokenIssuer, IssuerConfig
from fairlead.authz.scope import is_superset
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.subresources.credentials import DirectTokenHandlers, OidcDiscovery


def build_direct_tokens_feature(services: Services) -> Feature:
    auth = services.auth
    registry = services.registry
    group = services.api_group
    keys = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    config = IssuerConfig(services.base_url, auth.dynamic_config.token_lifetimes)
    issuer = DirectTokenIssuer(registry, group, keys, config, DelegationChecks(is_superset, auth.authorize))
    return Feature(
        name="direct tokens",
        handlers=DirectTokenHandlers(issuer, keys).handlers(group),
        endpoints=OidcDiscovery(services.base_url, keys.jwks).endpoints(),
    )
