"""Tokens of service accounts."""

from fairlead.authn.service_accounts import ServiceAccountTokenIssuer, TokenLimits
from fairlead.features.contract import Feature, Services
from fairlead.subresources.credentials import service_account_handlers


def build_service_accounts_feature(services: Services) -> Feature:
    settings = services.settings
    config = services.auth.dynamic_config

    def limits() -> TokenLimits:
        max_ttl = settings.service_account_token_max_ttl
        key_ttl = config.access_key_max_ttl()
        return TokenLimits(min(max_ttl, key_ttl) if key_ttl else max_ttl, settings.service_account_tokens)

    tokens = ServiceAccountTokenIssuer(services.registry, services.api_group, services.base_url, limits)
    return Feature(name="service accounts", handlers=service_account_handlers(tokens))
