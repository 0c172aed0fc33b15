"""Builds the handlers, the stages of the pipeline and the metrics. `server/pipeline.py` has the order.

`build_handler` is the entry point.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead import __version__
from fairlead.app.admission import SYSTEM_NAMESPACE
from fairlead.app.auth import Auth
from fairlead.app.controllers import ClusterServices
from fairlead.app.drain import Drain
from fairlead.app.flow_control import FlowServices, build_flow_control
from fairlead.app.health import build_readiness_checks
from fairlead.app.https import read_ca_certificate
from fairlead.app.metrics import build_metrics
from fairlead.app.oauth import OAuthServices
from fairlead.app.runner_keys import build_runner_keys
from fairlead.app.sso import build_sign_on
from fairlead.app.worker_limits import build_password_hasher
from fairlead.app.workload_identity import build_token_exchange
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authn.login_sessions import LoginSessions
from fairlead.authn.login_throttle import LoginThrottle, PasswordThrottle
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.service_accounts import ServiceAccountTokenIssuer, TokenLimits
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.ssh_authority import SshAuthority
from fairlead.authn.sso.users import SignOnUsers
from fairlead.authn.token_issuer import DelegationChecks, DirectTokenIssuer, IssuerConfig
from fairlead.authz.scope import is_superset
from fairlead.authz.subject_access_reviews import SubjectAccessReviews
from fairlead.console.build import CONSOLE_PATH, load_build
from fairlead.core.call import MANAGEMENT, Call, Handler, RequestInfo
from fairlead.core.objects import metadata
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.registry.codec import decode
from fairlead.registry.informer import Derived
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.server.api.actions import ActionHandler, ActionPath, Actions, object_verbs
from fairlead.server.api.aggregation import mount_at_root, serve_aggregated
from fairlead.server.api.routing import Dispatcher, RouteConfig, routing_stage
from fairlead.server.api.verbs import Verbs
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.log import AuditLog
from fairlead.server.audit.log_reader import AuditLogReader
from fairlead.server.auth.aggregated_authorization import AggregatedAuthorization
from fairlead.server.auth.impersonation import Impersonation, new_impersonation_cache
from fairlead.server.auth.login import LoginHandlers
from fairlead.server.auth.stages import (
    AuthorizeStage,
    Identify,
    authenticate_when_current,
    build_authentication_stage,
    build_identify,
)
from fairlead.server.auth.token_exchange import TOKEN_EXCHANGE
from fairlead.server.console import ConsoleHandler, redirect_browser
from fairlead.server.discovery.documents import aggregated_documents, build_documents, platform_documents
from fairlead.server.discovery.health import HealthHandler
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.http.response import custom_headers_stage
from fairlead.server.http.unsent import ClientMemoryLimiter
from fairlead.server.metrics.endpoint import MetricsEndpoint
from fairlead.server.metrics.exposition import Histogram
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.server.pipeline import Before, Stages, build_pipeline
from fairlead.server.workers.client import CoordinatorClient
from fairlead.settings import Settings
from fairlead.settings.values import OFF, ON
from fairlead.storage.contract import Store
from fairlead.subresources.access_reviews import ReviewSources, review_handlers
from fairlead.subresources.audit_events import AuditEventSources, audit_event_handlers
from fairlead.subresources.cluster_agents import AgentBootstrapInfo, AgentConfigBuilder, agent_handlers
from fairlead.subresources.cluster_health import health_handlers
from fairlead.subresources.credentials import (
    DirectTokenHandlers,
    OidcDiscovery,
    key_list_handlers,
    rotation_handlers,
    service_account_handlers,
)
from fairlead.subresources.migration import migration_handlers
from fairlead.subresources.profile import ProfileHandler
from fairlead.subresources.projects import project_handlers, usage_handlers
from fairlead.subresources.resource_access import ResourceAccess
from fairlead.subresources.resource_counts import ResourceCounter
from fairlead.subresources.runners import runner_handlers
from fairlead.subresources.sign_on_review import SignOnReviews, sign_on_review_handlers
from fairlead.subresources.whoami import InstallationInfo, TokenReviewer, WhoAmI, whoami_handlers
from fairlead.subresources.workspaces.handlers import WorkspaceServices, workspace_handlers
from fairlead.subresources.workspaces.hub import RunnerHub


def build_agent_handlers(
    settings: Settings, registry: Registry, auth: Auth, reports: AgentReports, url: str, instance: str
) -> Mapping[ActionPath, ActionHandler]:
    """Handlers for the agents of clusters: keys, configuration, reports. `instance` is the ID of the installation."""
    group, pepper = settings.api_group, auth.pepper
    rotation = KeyRotator(registry, group, pepper, is_superset)
    keys = ComponentKeys(registry, group, AGENT, SYSTEM_NAMESPACE, pepper, rotation)
    prefixes = settings.namespace_prefix, settings.identity_prefix
    installation = AgentBootstrapInfo(url, instance, group, *prefixes, lambda: read_ca_certificate(settings))
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigBuilder(registry, auth.principals, signing.jwks, installation, auth.authorizer)
    return agent_handlers(installation, keys, configs, reports)


MANAGEMENT_PATH = "/kubernetes/management"


class PasswordLoginServices:
    """Logins and user profiles, which share the login sessions, the password store and the login throttle."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        auth: Auth,
        coordinator: CoordinatorClient | None,
        base_url: str,
    ) -> None:
        group, run_time = settings.api_group, auth.dynamic_config
        throttle: PasswordThrottle = coordinator or LoginThrottle(registry.clock)
        hasher = build_password_hasher(coordinator.worker_count if coordinator is not None else 1)
        logins = LoginSessions(registry, group, run_time.login_key_ttl)
        passwords = PasswordStore(registry, group, hasher, logins)
        is_enabled, console = run_time.is_password_login_enabled, settings.console == ON
        self.sign_on = build_sign_on(settings, registry, auth, logins, base_url)
        self.login = LoginHandlers(
            passwords=passwords,
            sessions=logins,
            throttle=throttle,
            is_enabled=is_enabled,
            public_url=settings.public_url,
            cli_login=console,
            sign_on=self.sign_on,
        )
        self.profiles = ProfileHandler(
            registry=registry,
            api_group=group,
            passwords=passwords,
            throttle=throttle,
            authorize=auth.authorize,
            is_admin_user=auth.is_admin_user,
        )

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {**self.login.endpoints(), **self.sign_on.endpoints()}


class DirectTokenServices:
    """Direct tokens and OIDC discovery for their verification, which share the signing keys and the issuer."""

    def __init__(self, settings: Settings, registry: Registry, auth: Auth, base_url: str) -> None:
        keys = SigningKeyStore(registry, SYSTEM_NAMESPACE)
        issuing = IssuerConfig(base_url, auth.dynamic_config.token_lifetimes)
        rights = DelegationChecks(is_superset, auth.authorize)
        issuer = DirectTokenIssuer(registry, settings.api_group, keys, issuing, rights)
        self.handlers = DirectTokenHandlers(issuer, keys).handlers(settings.api_group)
        self.endpoints = OidcDiscovery(base_url, keys.jwks).endpoints()


@dataclass(frozen=True, slots=True)
class HandlerDependencies:
    """What the pipeline needs besides the registry.

    `store` and `drain` are for health checks. `clusters` and `hub` have the connections of clusters and runners.
    `commit_seconds`, `watchdog`, `certificate` and `is_leader` are exposed by `/metrics`. `memory_limiter` bounds the
    memory of responses that clients do not read. `coordinator` is None in a server with one process, `host_reviews` if
    no host decides about requests.
    """

    audit: AuditLog | None
    store: Store
    clusters: ClusterServices
    hub: RunnerHub
    base_url: str
    commit_seconds: Histogram
    watchdog: Watchdog
    memory_limiter: ClientMemoryLimiter
    coordinator: CoordinatorClient | None
    certificate: ServedCertificate
    is_leader: Callable[[], bool]
    host_reviews: SubjectAccessReviews | None
    drain: Drain


def build_handler(settings: Settings, registry: Registry, auth: Auth, deps: HandlerDependencies) -> Handler:
    """The whole request pipeline as one handler."""
    audit, base_url, coordinator = deps.audit, deps.base_url, deps.coordinator
    if audit is not None:
        audit.stage.set_minimum_level(auth.dynamic_config.audit_level)
    login = PasswordLoginServices(settings, registry, auth, coordinator, base_url)
    tokens = DirectTokenServices(settings, registry, auth, base_url)
    reports = audit.reports if audit is not None else AgentReports(None, registry.clock)
    if coordinator is not None:
        coordinator.exchange_key_uses(auth.last_used)
        reports.use_quota(coordinator)
    agents = build_agent_handlers(settings, registry, auth, reports, base_url, _installation_id(registry))
    accounts = service_account_handlers(_build_account_tokens(settings, registry, auth, base_url))
    identify = _build_identify(settings, registry, auth)
    flow = build_flow_control(settings, registry, identify, coordinator)
    handlers = {
        **_build_audit_event_handlers(settings, registry, auth, audit, flow),
        **_build_action_handlers(settings, registry, auth, login),
        **tokens.handlers,
        **agents,
        **accounts,
        **_build_workspace_handlers(settings, registry, auth, deps, flow),
    }
    actions = Actions(registry.catalog, handlers)
    limits = WatchLimits(settings.watch_timeout_min, settings.watch_queue)
    verbs = Verbs(
        registry, WatchService(limits, registry.clock, flow.streams, flow.pacer), actions, auth.authorizer.authorize
    )
    roots = {
        MANAGEMENT: build_documents(registry.catalog, MANAGEMENT_PATH, version=__version__),
        "": platform_documents(__version__, MANAGEMENT_PATH),
    }
    health = HealthHandler(build_readiness_checks(deps.store, audit, deps.drain))
    requests, metrics = build_metrics(settings, registry, auth, deps, flow)
    metrics_endpoints = metrics.endpoints()
    oauth = _build_oauth(settings, registry, auth, login.login, deps)
    platform_endpoints = {**login.endpoints(), **oauth.endpoints(), **tokens.endpoints, **metrics_endpoints}
    endpoints = {"": platform_endpoints, MANAGEMENT: metrics_endpoints}
    console = ConsoleHandler(load_build()) if settings.console == ON else None
    dispatcher = Dispatcher(verbs, health, roots, endpoints, deps.clusters.gateways, console)
    route, dispatch = _build_routing(settings, registry, dispatcher)
    stages = Stages(
        audit=audit.stage if audit is not None else None,
        route=route,
        authenticate=_build_authentication(
            registry, deps, build_authentication_stage(identify, auth.last_used.record_use)
        ),
        flow=flow.stage,
        serve_public=_list_public_stages(settings, metrics),
        memory=deps.memory_limiter,
        authorize=_build_authorization(settings, registry, auth, identify, deps.host_reviews),
        add_headers=custom_headers_stage(auth.dynamic_config.custom_headers),
        metrics=requests,
    )
    return build_pipeline(stages, dispatch, settings.request_timeout, deps.watchdog.record_step)


def _build_workspace_handlers(
    settings: Settings, registry: Registry, auth: Auth, deps: HandlerDependencies, flow: FlowServices
) -> Mapping[ActionPath, ActionHandler]:
    authority = SshAuthority(registry, SYSTEM_NAMESPACE)
    services = WorkspaceServices(
        registry=registry,
        hub=deps.hub,
        streams=flow.streams,
        secret_access=auth.secret_access,
        authority=authority,
        namespace_prefix=settings.namespace_prefix,
    )
    return workspace_handlers(settings.api_group, services)


def _build_routing(
    settings: Settings, registry: Registry, dispatcher: Dispatcher
) -> tuple[Callable[[Call], None], Handler]:
    """The routing stage and the dispatcher, also for an aggregation layer if that is enabled."""
    route = routing_stage(_build_route_config(settings))
    if settings.aggregated_api == OFF:
        return route, dispatcher
    documents = aggregated_documents(registry.catalog, settings.api_group, __version__)
    return mount_at_root(route, MANAGEMENT_PATH, settings.api_group), serve_aggregated(dispatcher, documents)


def _build_authorization(
    settings: Settings, registry: Registry, auth: Auth, identify: Identify, reviews: SubjectAccessReviews | None
) -> Before:
    stage = AuthorizeStage(auth.authorizer, identify, object_verbs(registry.catalog))
    if settings.aggregated_api == OFF:
        return stage

    def is_stored(target: RequestInfo) -> bool:
        kind = registry.catalog.find(target.group, target.version, target.resource)
        return kind is not None and kind.persisted and not target.subresource

    return AggregatedAuthorization(stage, settings.api_group, registry.clock, is_stored, reviews)


def _build_oauth(
    settings: Settings, registry: Registry, auth: Auth, login: LoginHandlers, deps: HandlerDependencies
) -> OAuthServices:
    oauth = OAuthServices(settings, registry, auth, login, deps.store, deps.base_url)
    oauth.grants[TOKEN_EXCHANGE] = build_token_exchange(
        settings, registry, auth, deps.clusters.upstreams, deps.base_url
    )
    return oauth


def _list_public_stages(settings: Settings, metrics: MetricsEndpoint) -> tuple[Before, ...]:
    enabled = (settings.metrics_public, metrics.serve_public), (settings.console, redirect_browser)
    return tuple(stage for setting, stage in enabled if setting == ON)


def _build_route_config(settings: Settings) -> RouteConfig:
    console = CONSOLE_PATH if settings.console == ON else ""
    return RouteConfig(MANAGEMENT_PATH, settings.api_group, settings.namespace_prefix, console)


def _build_authentication(registry: Registry, deps: HandlerDependencies, stage: Callable[[Call], None]) -> Before:
    """The authentication stage. A worker that knows the newest revision without asking the store waits for it first."""
    view = registry.view

    async def wait_current() -> None:
        with translate_storage_errors():
            await view.wait_current()

    if deps.coordinator is None or deps.store.local_revision() is None:
        return stage
    return authenticate_when_current(stage, view.is_current, wait_current)


def _build_identify(settings: Settings, registry: Registry, auth: Auth) -> Identify:
    permissions = auth.authorizer
    cache = Derived(registry.view, (permissions.generation,), new_impersonation_cache)
    impersonation = Impersonation(permissions.authorize, auth.principals.find_user, auth.is_admin_user, cache.get)
    return build_identify(auth.authenticators, impersonation, ClusterIdentityMapper(settings.identity_prefix))


def _build_action_handlers(
    settings: Settings, registry: Registry, auth: Auth, login_services: PasswordLoginServices
) -> Mapping[ActionPath, ActionHandler]:
    """The handlers of virtual kinds and action subresources."""
    group, prefix = settings.api_group, settings.namespace_prefix
    whoami = WhoAmI(registry, group, auth.access_keys.user_of_key, InstallationInfo(_installation_id(registry), prefix))
    rbac, principals, keys = auth.rbac, auth.principals, auth.access_keys
    sources = ReviewSources(
        catalog=registry.catalog,
        authorizer=auth.authorizer,
        list_rules=rbac.list_rules,
        find_user=principals.find_user,
        user_for_key=keys.user_of_key,
        check_key_visible=whoami.get_visible_key,
        matching_entry=auth.matching_entry,
        is_project_member=auth.project_members.is_member,
    )
    return {
        **whoami_handlers(group, whoami, TokenReviewer(auth.authenticators)),
        **review_handlers(group, sources),
        **ResourceCounter(registry, auth.authorizer).handlers(group),
        **ResourceAccess(registry, auth.authorizer, principals).handlers(group),
        **key_list_handlers(group, registry),
        **health_handlers(group, registry),
        **migration_handlers(group, registry, prefix),
        **project_handlers(group, registry, principals, auth.authorize),
        **usage_handlers(group, registry, settings.namespace_prefix),
        **sign_on_review_handlers(
            group, SignOnReviews(auth.sign_on.settings, SignOnUsers(registry, group), principals)
        ),
        **rotation_handlers(group, KeyRotator(registry, group, auth.pepper, is_superset)),
        **_build_runner_handlers(settings, registry, auth),
        (group, "users", "profile"): login_services.profiles,
    }


def _build_audit_event_handlers(
    settings: Settings, registry: Registry, auth: Auth, audit: AuditLog | None, flow: FlowServices
) -> Mapping[ActionPath, ActionHandler]:
    reader = audit.reader if audit is not None else AuditLogReader(())
    within_scope, seconds = auth.authorizer.is_within_scope, settings.watch_timeout_min
    sources = AuditEventSources(reader, flow.streams, registry.clock, within_scope, seconds)
    return audit_event_handlers(settings.api_group, sources)


def _build_account_tokens(
    settings: Settings, registry: Registry, auth: Auth, base_url: str
) -> ServiceAccountTokenIssuer:
    def limits() -> TokenLimits:
        max_ttl, key_ttl = settings.service_account_token_max_ttl, auth.dynamic_config.access_key_max_ttl()
        return TokenLimits(min(max_ttl, key_ttl) if key_ttl else max_ttl, settings.service_account_tokens)

    return ServiceAccountTokenIssuer(registry, settings.api_group, base_url, limits)


def _build_runner_handlers(settings: Settings, registry: Registry, auth: Auth) -> Mapping[ActionPath, ActionHandler]:
    group, keys = settings.api_group, build_runner_keys(settings, registry, auth)
    installation = {
        "serviceHost": settings.public_url,
        "projectNamespacePrefix": settings.namespace_prefix,
        "serviceInstanceID": _installation_id(registry),
    }
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    return runner_handlers(group, registry, keys, signing.jwks, installation)


def _installation_id(registry: Registry) -> str:
    """The UID of the system namespace, which exists in every installation and is never deleted."""
    entry = registry.resource("", "namespaces").get_cached("", SYSTEM_NAMESPACE)
    return str(metadata(decode(entry))["uid"]) if entry is not None else ""
