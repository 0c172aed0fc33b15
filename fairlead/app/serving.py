"""The path of a request: the stages in order, and what stands at their end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead import __version__
from fairlead.app.flow import flow_control
from fairlead.app.for_agents import for_agents
from fairlead.app.identity import Identity
from fairlead.app.measuring import measuring
from fairlead.app.rules import SYSTEM_NAMESPACE
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.direct_minting import DirectMinting, Issuing, Rights
from fairlead.authn.login_keys import LoginKeys
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.passwords import Passwords
from fairlead.authn.rotation import Rotation
from fairlead.authn.service_accounts import AccountTokens, TokenLimits
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.throttle import Throttle
from fairlead.authz.scope import covers
from fairlead.core.call import MANAGEMENT
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.given import ON
from fairlead.core.objects import metadata
from fairlead.kinds.runner import RUNNER_COMPONENT
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.translate import storage_errors
from fairlead.server.actions import Actions, Handler, Place
from fairlead.server.audit.cluster_reports import ClusterReports
from fairlead.server.audit.log import AuditLog
from fairlead.server.compress import compressed
from fairlead.server.custom_headers import custom_headers
from fairlead.server.deadline import deadline
from fairlead.server.documents import documents
from fairlead.server.event_loop import Watchdog
from fairlead.server.failures import failures
from fairlead.server.health import Health, Probe
from fairlead.server.identify import Authorized, Identify, authenticated, identification
from fairlead.server.impersonate import Impersonation
from fairlead.server.issuer import Issuer
from fairlead.server.key_lists import key_list_handlers
from fairlead.server.key_rotation import rotation_handlers
from fairlead.server.login import Login
from fairlead.server.metrics.histogram import Histogram
from fairlead.server.migration import migration_handlers
from fairlead.server.pipeline import Proceed, Stage, pipeline
from fairlead.server.platform import platform_documents
from fairlead.server.profile import Profiles
from fairlead.server.project_parts import project_handlers
from fairlead.server.reviews import Sources, review_handlers
from fairlead.server.route import Roots
from fairlead.server.runners import runner_handlers
from fairlead.server.selves import Installation, Selves, Tokens, self_handlers
from fairlead.server.serve import Serve, routed
from fairlead.server.service_accounts import service_account_handlers
from fairlead.server.tokens import DirectTokens
from fairlead.server.unsent import Unsent
from fairlead.server.verbs import Verbs
from fairlead.server.watch import Watches, WatchLimits
from fairlead.settings import Settings
from fairlead.storage.contract import Store

MOUNT = "/kubernetes/management"


class Signing:
    """Signing in with a password, and what users see of themselves: both need the same passwords and patience."""

    def __init__(self, settings: Settings, registry: Registry, identity: Identity) -> None:
        group, throttle, run_time = settings.api_group, Throttle(registry.clock), identity.run_time
        logins = LoginKeys(registry, group, run_time.login_key_ttl)
        passwords = PasswordStore(registry, group, Passwords(), logins)
        self.login = Login(passwords, logins, throttle, run_time.password_login, settings.public_url)
        self.profiles = Profiles(registry, group, passwords, throttle, identity.may)


class Direct:
    """Direct tokens, and what those need who verify them: both go by the same keys and the same name."""

    def __init__(self, settings: Settings, registry: Registry, identity: Identity, base_url: str) -> None:
        keys = SigningKeyStore(registry, SYSTEM_NAMESPACE)
        issuing, rights = Issuing(base_url, identity.run_time.token_lifetimes), Rights(covers, identity.may)
        minting = DirectMinting(registry, settings.api_group, keys, issuing, rights)
        self.handlers = DirectTokens(minting, keys).handlers(settings.api_group)
        self.endpoints = Issuer(base_url, keys.published).endpoints()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What requests need beside the registry: the audit log, the store for its health, gateways, and our address.

    `commits` is how long the store took, and `watchdog` how long the event loop was held, which `/metrics` tells.
    `unsent` bounds what clients leave unread.
    """

    audit: AuditLog | None
    store: Store
    gateways: Proceed
    base_url: str
    commits: Histogram
    watchdog: Watchdog
    unsent: Unsent


def handler(settings: Settings, registry: Registry, identity: Identity, around: Surroundings) -> Proceed:
    """Everything that a request passes, as one function."""
    audit, base_url = around.audit, around.base_url
    if audit is not None:
        audit.audit.record_at_least(identity.run_time.audit_level)
    signing, direct = Signing(settings, registry, identity), Direct(settings, registry, identity, base_url)
    reports = audit.reports if audit is not None else ClusterReports(None, registry.clock)
    agents = for_agents(settings, registry, identity, reports, base_url, _installation_id(registry))
    accounts = service_account_handlers(_account_tokens(settings, registry, identity, base_url))
    answers = {**_handlers(settings, registry, identity, signing), **direct.handlers, **agents, **accounts}
    actions = Actions(registry.catalog, answers)
    identify = _identification(settings, identity)
    flow = flow_control(settings, registry, identify)
    limits = WatchLimits(settings.watch_timeout_min, settings.watch_queue)
    verbs = Verbs(
        registry, Watches(limits, registry.clock, flow.streams, flow.pacer), actions, identity.permissions.decide
    )
    roots = {
        MANAGEMENT: documents(registry.catalog, MOUNT, version=__version__),
        "": platform_documents(__version__, MOUNT),
    }
    health = Health(_probes(around.store, audit))
    requests, metrics = measuring(settings, registry, audit, around.commits, around.watchdog, flow)
    measured = metrics.endpoints()
    endpoints = {"": {**signing.login.endpoints(), **direct.endpoints, **measured}, MANAGEMENT: measured}
    serve = Serve(verbs, health, roots, endpoints, around.gateways)
    in_public = (metrics.in_public,) if settings.metrics_public == ON else ()
    authorized = Authorized(identity.permissions, identify)
    asking = (
        authenticated(identify, identity.activity.note),
        flow.stage,
        *in_public,
        around.unsent.bounded,
        authorized,
    )
    return pipeline((requests.measured, *_stages(settings, identity, audit, asking)), serve)


def _identification(settings: Settings, identity: Identity) -> Identify:
    permissions = identity.permissions
    impersonation = Impersonation(
        permissions.decide, identity.people.user_named, identity.is_administrator, permissions.generation
    )
    return identification(identity.authenticators, impersonation, ClusterNames(settings.identity_prefix))


def _stages(
    settings: Settings, identity: Identity, audit: AuditLog | None, asking: Sequence[Stage]
) -> tuple[Stage, ...]:
    """`asking` lets through who may go on, at their turn."""
    return (
        custom_headers(identity.run_time.custom_headers),
        compressed,
        *((audit.audit.recorded,) if audit else ()),
        failures,
        deadline(settings.request_timeout),
        routed(Roots(MOUNT, settings.api_group, settings.namespace_prefix)),
        *asking,
        *((audit.audit.accountable,) if audit else ()),
    )


def _handlers(settings: Settings, registry: Registry, identity: Identity, signing: Signing) -> Mapping[Place, Handler]:
    """Who answers what is not stored."""
    group, prefix = settings.api_group, settings.namespace_prefix
    selves = Selves(registry, group, identity.keys.identity, Installation(_installation_id(registry), prefix))
    rbac, people, keys = identity.rbac, identity.people, identity.keys
    sources = Sources(
        registry.catalog,
        identity.permissions,
        rbac.rules_for,
        people.user_named,
        keys.identity,
        selves.inspect,
        identity.allowing_entry,
        identity.members.is_member,
    )
    return {
        **self_handlers(group, selves, Tokens(identity.authenticators)),
        **review_handlers(group, sources),
        **key_list_handlers(group, registry),
        **migration_handlers(group, registry, prefix),
        **project_handlers(group, registry, people, identity.may),
        **rotation_handlers(group, Rotation(registry, group, identity.pepper, covers)),
        **_runner_handlers(settings, registry, identity),
        (group, "users", "profile"): signing.profiles,
    }


def _account_tokens(settings: Settings, registry: Registry, identity: Identity, base_url: str) -> AccountTokens:
    def limits() -> TokenLimits:
        most, keys = settings.service_account_token_max_ttl, identity.run_time.access_key_max_ttl()
        return TokenLimits(min(most, keys) if keys else most, settings.service_account_tokens)

    return AccountTokens(registry, settings.api_group, base_url, limits)


def _runner_handlers(settings: Settings, registry: Registry, identity: Identity) -> Mapping[Place, Handler]:
    group, pepper = settings.api_group, identity.pepper
    rotation = Rotation(registry, group, pepper, covers)
    keys = ComponentKeys(registry, group, RUNNER_COMPONENT, SYSTEM_NAMESPACE, pepper, rotation)
    facts = {
        "serviceHost": settings.public_url,
        "projectNamespacePrefix": settings.namespace_prefix,
        "serviceInstanceID": _installation_id(registry),
    }
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    return runner_handlers(group, registry, keys, signing.published, facts)


def _installation_id(registry: Registry) -> str:
    """Whoever was here first: the namespace that comes with every installation and never goes."""
    entry = registry.resource("", "namespaces").peek("", SYSTEM_NAMESPACE)
    return str(metadata(decode(entry))["uid"]) if entry is not None else ""


def _probes(store: Store, audit: AuditLog | None) -> Mapping[str, Probe]:
    async def store_ready() -> None:
        with storage_errors():
            await store.check()

    return {"store": store_ready, **({"audit": audit.logs.people.check} if audit else {})}
