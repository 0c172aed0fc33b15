"""Tokens: direct tokens for the direct endpoints of clusters, with OpenID Connect discovery for their verification, and
tokens of service accounts.
"""

from fairlead.authn.service_accounts import ServiceAccountTokenIssuer, TokenLimits
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DelegationChecks, DirectTokenIssuer, IssuerConfig
from fairlead.authz.scope import is_superset
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.subresources.credentials import DirectTokenHandlers, OidcDiscovery, service_account_handlers


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
        public_endpoints=OidcDiscovery(services.base_url, keys.jwks).public_endpoints(),
    )


def build_service_accounts_feature(services: Services) -> Feature:
    settings = services.settings
    config = services.auth.dynamic_config

    def limits() -> TokenLimits:
        max_ttl = settings.service_account_token_max_ttl
        key_ttl = config.access_key_max_ttl()
        return TokenLimits(min(max_ttl, key_ttl) if key_ttl else max_ttl, settings.service_account_tokens)

    tokens = ServiceAccountTokenIssuer(services.registry, services.api_group, services.base_url, limits)
    return Feature(name="service accounts", handlers=service_account_handlers(tokens))
