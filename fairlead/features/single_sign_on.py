"""Single sign-on: the endpoints for browsers and providers, and the controllers of sessions."""

from functools import partial

from fairlead.admission import Phase
from fairlead.admission.sign_in_settings import protect_sign_in_settings
from fairlead.controllers.runtime.loop import Controller
from fairlead.features.auth import Auth
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.settings.values import ON
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.sso.consumed import ConsumedValueController, ConsumedValues
from fairlead.signin.sso.encryption import SignOnEncryption
from fairlead.signin.sso.endpoints import SignOnHandlers, SignOnThrottle
from fairlead.signin.sso.pending import PendingSignOns
from fairlead.signin.sso.provider_access import ProviderAccess
from fairlead.signin.sso.reasons import sign_on_families
from fairlead.signin.sso.refresh import RefreshServices, SessionRefresher, SignOnSessionController
from fairlead.signin.sso.review import SignOnReviews, sign_on_review_handlers
from fairlead.signin.sso.service import SignOnService, SignOnServices
from fairlead.signin.sso.sessions import SessionStore
from fairlead.signin.sso.users import SignOnUsers


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
    return SignOnHandlers(SignOnService(services), logins, throttle, settings.console == ON)


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
        metrics=(partial(sign_on_families, services.sign_on.counters),),
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
        counters=services.sign_on.counters,
    )
    return (
        SignOnSessionController(registry, group, SessionRefresher(registry, group, refresh)),
        ConsumedValueController(registry, SYSTEM_NAMESPACE),
    )
