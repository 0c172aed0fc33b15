"""Builds single sign-on: the endpoints for browsers and providers, and the controllers of sessions."""

from fairlead.app.admission import SYSTEM_NAMESPACE
from fairlead.app.auth import Auth
from fairlead.authn.login_sessions import LoginSessions
from fairlead.authn.oidc.discovery import ProviderClient
from fairlead.authn.sso.consumed import ConsumedValues
from fairlead.authn.sso.encryption import SignOnEncryption
from fairlead.authn.sso.pending import PendingSignOns
from fairlead.authn.sso.provider_access import ProviderAccess
from fairlead.authn.sso.refresh import RefreshServices, SessionRefresher
from fairlead.authn.sso.service import SignOnService, SignOnServices
from fairlead.authn.sso.sessions import SessionStore
from fairlead.authn.sso.throttle import SignOnThrottle
from fairlead.authn.sso.users import SignOnUsers
from fairlead.controllers.access.sso_consumed import ConsumedValueController
from fairlead.controllers.access.sso_sessions import SignOnSessionController
from fairlead.controllers.runtime.loop import Controller
from fairlead.registry.registry import Registry
from fairlead.server.auth.sso import SignOnHandlers
from fairlead.settings import Settings
from fairlead.settings.values import ON


def build_sign_on(
    settings: Settings, registry: Registry, auth: Auth, logins: LoginSessions, base_url: str
) -> SignOnHandlers:
    encryption = SignOnEncryption(registry, SYSTEM_NAMESPACE)
    services = SignOnServices(
        settings=auth.sign_on.settings,
        provider=ProviderAccess(ProviderClient(clock=registry.clock), registry),
        pending=PendingSignOns(encryption),
        sessions=SessionStore(encryption),
        users=SignOnUsers(registry, settings.api_group),
        logins=logins,
        consumed=ConsumedValues(registry, SYSTEM_NAMESPACE),
        clock=registry.clock,
        base_url=settings.public_url or base_url,
    )
    throttle = SignOnThrottle(registry.clock)
    results = auth.sign_on.counters.sign_ons
    return SignOnHandlers(SignOnService(services), logins, throttle, settings.console == ON, results)


def build_sign_on_controllers(settings: Settings, registry: Registry, auth: Auth) -> tuple[Controller, ...]:
    group = settings.api_group
    services = RefreshServices(
        settings=auth.sign_on.settings,
        provider=ProviderAccess(ProviderClient(clock=registry.clock), registry),
        sessions=SessionStore(SignOnEncryption(registry, SYSTEM_NAMESPACE)),
        users=SignOnUsers(registry, group),
        logins=LoginSessions(registry, group, auth.dynamic_config.login_key_ttl),
        counters=auth.sign_on.counters,
    )
    return (
        SignOnSessionController(registry, group, SessionRefresher(registry, group, services)),
        ConsumedValueController(registry, SYSTEM_NAMESPACE),
    )
