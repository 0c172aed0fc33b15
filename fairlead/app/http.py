"""The path of a request: the stages in order, and what stands at their end."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairlead import __version__
from fairlead.app.admission import SYSTEM_NAMESPACE
from fairlead.app.auth import Identity
from fairlead.app.flow_control import Flow, flow_control
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import Rotation
from fairlead.authn.login_sessions import LoginKeys
from fairlead.authn.login_throttle import Throttle
from fairlead.authn.password_hash import Passwords
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.service_accounts import AccountTokens, TokenLimits
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DirectMinting, Issuing, Rights
from fairlead.authz.scope import covers
from fairlead.core.call import MANAGEMENT
from fairlead.core.clock import Clock
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.files import read_file
from fairlead.core.objects import metadata
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.catalog import Catalog
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import storage_errors
from fairlead.server.api.actions import Actions, Handler, Place
from fairlead.server.api.errors import failures
from fairlead.server.api.routing import Roots, Serve, routed
from fairlead.server.api.verbs import Verbs
from fairlead.server.api.watch import Watches, WatchLimits
from fairlead.server.audit.agent_reports import ClusterReports
from fairlead.server.audit.disk_usage import Shelf
from fairlead.server.audit.intake import Allowances, Logs
from fairlead.server.audit.log import AuditLog
from fairlead.server.audit.log_file import STANDARD_OUTPUT, Backups, RotatedFile, open_sink
from fairlead.server.audit.log_writer import Trail
from fairlead.server.audit.policy import DEFAULT, load_policy
from fairlead.server.audit.stage import Audit
from fairlead.server.auth.impersonation import Impersonation
from fairlead.server.auth.login import LOGIN, Login
from fairlead.server.auth.oidc_discovery import Issuer
from fairlead.server.auth.stages import Authorized, Identify, authenticated, identification
from fairlead.server.discovery.documents import documents, platform_documents
from fairlead.server.discovery.health import HEALTH_PATHS, Health, Probe
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.http.pipeline import Proceed, Stage, compressed, custom_headers, deadline, pipeline
from fairlead.server.http.unsent import Unsent
from fairlead.server.metrics.endpoint import PATH, Metrics
from fairlead.server.metrics.exposition import Histogram
from fairlead.server.metrics.families import Platform, event_loop_families, flow_families, request_families
from fairlead.server.metrics.stage import Known, Requests
from fairlead.settings import Settings
from fairlead.settings.values import ON
from fairlead.storage.contract import Store
from fairlead.subresources.access_keys import key_list_handlers, rotation_handlers
from fairlead.subresources.access_reviews import Sources, review_handlers
from fairlead.subresources.cluster_agents import AgentBootstrapInfo, AgentConfigs, agent_handlers
from fairlead.subresources.direct_tokens import DirectTokens
from fairlead.subresources.migration import migration_handlers
from fairlead.subresources.profile import Profiles
from fairlead.subresources.projects import project_handlers
from fairlead.subresources.runners import runner_handlers
from fairlead.subresources.service_accounts import service_account_handlers
from fairlead.subresources.whoami import InstallationInfo, Selves, Tokens, self_handlers

# DOC-MERGED app/measuring
# What is counted, and where the numbers are that nobody has to count.


PATHS = (*HEALTH_PATHS, "/", "/version", PATH, "/api", "/apis", "/openapi/v2", "/openapi/v3", LOGIN[1])
"""What is told apart beside resources."""


def measuring(
    settings: Settings,
    registry: Registry,
    audit: AuditLog | None,
    commits: Histogram,
    watchdog: Watchdog,
    flow: Flow,
) -> tuple[Requests, Metrics]:
    """The stage that counts, and what tells it."""
    view, clusters = registry.view, (settings.api_group, "clusters")
    requests = Requests(Known(registry.catalog, PATHS), note=watchdog.note)
    platform = Platform(
        phases=lambda: [entry.fields.get("status.phase", "") for entry in view.entries(*clusters)],
        revision=lambda: view.revision,
        audit_events=lambda: audit.events if audit is not None else 0,
        commits=commits,
    )
    of_audit = (audit.families,) if audit is not None else ()
    of_loop = partial(event_loop_families, watchdog)
    of_flow = partial(flow_families, flow.control, flow.clients.tallies)
    sources = (lambda: request_families(requests), platform.families, of_loop, of_flow, *of_audit)
    return requests, Metrics(sources)


# DOC-MERGED app/for_agents
# What the server does for the agents of clusters: their keys, their configuration and their reports.
#
# The agent itself is put together in `agent.py`.


def for_agents(
    settings: Settings, registry: Registry, identity: Identity, reports: ClusterReports, url: str, instance: str
) -> Mapping[Place, Handler]:
    """`url` is the base URL of this server, `instance` names the installation."""
    group, pepper = settings.api_group, identity.pepper
    rotation = Rotation(registry, group, pepper, covers)
    keys = ComponentKeys(registry, group, AGENT, SYSTEM_NAMESPACE, pepper, rotation)
    prefixes = settings.namespace_prefix, settings.identity_prefix
    installation = AgentBootstrapInfo(url, instance, group, *prefixes, lambda: _authority(settings))
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigs(registry, identity.people, signing.published, installation, identity.permissions)
    return agent_handlers(installation, keys, configs, reports)


def _authority(settings: Settings) -> str:
    """The authority's certificate: the one that was named, or our own if we have made one."""
    file = settings.tls_ca if settings.tls_cert else settings.data / "tls" / "ca.crt"
    content = read_file(file) if file is not None else None
    return content.decode(errors="replace") if content else ""


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
    selves = Selves(registry, group, identity.keys.identity, InstallationInfo(_installation_id(registry), prefix))
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


# DOC-MERGED app/auditing
# The audit log of this server, from its first line to its last: the log of people, and those beside it.
#
# They lie side by side, with names that follow from `audit_path`. On the standard output, or in a device, they are one.


MEBIBYTE = 1024 * 1024
UNAUTHENTICATED, AGENTS, PEOPLE = "unauthenticated", "agents", "people"
"""The logs, in the order in which their old files go when there is no room."""
SIDE_BYTES = 16 * MEBIBYTE
"""How much may wait to be written into one of the logs beside that of people."""


@asynccontextmanager
async def auditing(settings: Settings, catalog: Catalog, clock: Clock) -> AsyncIterator[AuditLog | None]:
    """The log while the server runs, or None where it is turned off."""
    if not settings.audit_place:
        yield None
        return
    policy = load_policy(settings.audit_policy) if settings.audit_policy else DEFAULT
    logs, shelf = _open(settings, clock)
    audit = Audit(policy, logs, catalog, clock, MOUNT)
    try:
        yield AuditLog(audit, logs, ClusterReports(logs.agents, clock), shelf, clock)
    finally:
        audit.finish()
        for trail in logs.trails:
            await trail.close()


def _open(settings: Settings, clock: Clock) -> tuple[Logs, Shelf | None]:
    allowances = Allowances(settings.audit_refused, settings.audit_reads)
    make = partial(
        Backups,
        count=settings.audit_backups,
        days=settings.audit_days,
        compress=settings.audit_compress == ON,
        days_min=settings.audit_days_min,
    )
    size, place = settings.audit_size * MEBIBYTE, settings.audit_place
    if place == STANDARD_OUTPUT or _is_special(Path(place)):
        trail = Trail(open_sink(place, make, size, clock))
        return Logs(trail, trail, trail, allowances), None
    shelf = Shelf({name: make(path) for name, path in _paths(Path(place))}, settings.audit_disk * MEBIBYTE)
    sinks = {name: RotatedFile(backups, size, clock, shelf.tidy) for name, backups in shelf.logs.items()}
    people, unauthenticated, agents = (sinks[name] for name in (PEOPLE, UNAUTHENTICATED, AGENTS))
    aside = Trail(unauthenticated, size=SIDE_BYTES), Trail(agents, size=SIDE_BYTES)
    return Logs(Trail(people), *aside, allowances), shelf


def _is_special(path: Path) -> bool:
    """Something like /dev/null, beside which no other file belongs."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _paths(path: Path) -> Iterator[tuple[str, Path]]:
    for name in (UNAUTHENTICATED, AGENTS):
        yield name, path.with_name(f"{path.stem}.{name}{path.suffix}")
    yield PEOPLE, path
