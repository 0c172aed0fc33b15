"""Single sign-on: the endpoints for browsers and providers, and the controllers of sessions."""

from functools import partial

from fairlead.admission import Phase
from fairlead.admission.sign_in_settings import protect_sign_in_settings
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
from fairlead.features.auth import Auth
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.server.auth.sso import SignOnHandlers
from fairlead.server.metrics.families import sign_on_families
from fairlead.settings import Settings
from fairlead.settings.values import ON
from fairlead.subresources.sign_on_review import SignOnReviews, sign_on_review_handlers


def build_sign_on(
    settings: Settings, registry: Registry, auth: Auth, logins: LoginSessions, base_url: str
) -> SignOnHandlers:
    """The handlers of the endpoints. A part of `Services`, because the logout of other logins uses them as well."""
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


def build_single_sign_on_feature(services: Services) -> Feature:
    auth = services.auth
    group = services.api_group
    reviews = SignOnReviews(auth.sign_on.settings, SignOnUsers(services.registry, group), auth.principals)
    return Feature(
        name="single sign-on",
        handlers=sign_on_review_handlers(group, reviews),
        public_endpoints=services.sign_on.public_endpoints(),
        admission={Phase.AUTHORIZE: (protect_sign_in_settings(group),)},
        controllers=lambda leader: _build_controllers(services, leader),
        metrics=(partial(sign_on_families, auth.sign_on.counters),),
    )


def _build_controllers(services: Services, leader: LeaderServices) -> tuple[Controller, ...]:
    auth = services.auth
    registry = leader.registry
    group = services.api_group
    refresh = RefreshServices(
        settings=auth.sign_on.settings,
        provider=ProviderAccess(ProviderClient(clock=registry.clock), registry),
        sessions=SessionStore(SignOnEncryption(registry, SYSTEM_NAMESPACE)),
        users=SignOnUsers(registry, group),
        logins=LoginSessions(registry, group, auth.dynamic_config.login_key_ttl),
        counters=auth.sign_on.counters,
    )
    return (
        SignOnSessionController(registry, group, SessionRefresher(registry, group, refresh)),
        ConsumedValueController(registry, SYSTEM_NAMESPACE),
    )
