"""Builds the request pipeline: all stages in order, the dispatcher at the end, the metrics and the audit log.

`build_handler` is the entry point. The audit log consists of three logs: that of authenticated users, and beside it one
for unauthenticated requests and one for the reports of agents. Their file names derive from `audit_path`. On the
standard output, or in a device, they are one.
"""

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

PATHS = (*HEALTH_PATHS, "/", "/version", PATH, "/api", "/apis", "/openapi/v2", "/openapi/v3", LOGIN[1])
"""Non-resource paths with a label value of their own in the request metrics."""


def measuring(
    settings: Settings,
    registry: Registry,
    audit: AuditLog | None,
    commits: Histogram,
    watchdog: Watchdog,
    flow: Flow,
) -> tuple[Requests, Metrics]:
    """The metrics stage, and the metrics endpoint."""
    view, clusters = registry.view, (settings.api_group, "clusters")
    requests = Requests(Known(registry.catalog, PATHS), note=watchdog.note)
    platform = Platform(
        phases=lambda: [entry.fields.get("status.phase", "") for entry in view.entries(*clusters)],
        revision=lambda: view.revision,
        audit_events=lambda: audit.events if audit is not None else 0,
        commits=commits,
    )
    audit_families = (audit.families,) if audit is not None else ()
    loop_families = partial(event_loop_families, watchdog)
    fairness_families = partial(flow_families, flow.control, flow.clients.tallies)
    sources = (lambda: request_families(requests), platform.families, loop_families, fairness_families, *audit_families)
    return requests, Metrics(sources)


def for_agents(
    settings: Settings, registry: Registry, identity: Identity, reports: ClusterReports, url: str, instance: str
) -> Mapping[Place, Handler]:
    """Handlers for the agents of clusters: keys, configuration, reports. `instance` is the ID of the installation."""
    group, pepper = settings.api_group, identity.pepper
    rotation = Rotation(registry, group, pepper, covers)
    keys = ComponentKeys(registry, group, AGENT, SYSTEM_NAMESPACE, pepper, rotation)
    prefixes = settings.namespace_prefix, settings.identity_prefix
    installation = AgentBootstrapInfo(url, instance, group, *prefixes, lambda: _authority(settings))
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigs(registry, identity.people, signing.published, installation, identity.permissions)
    return agent_handlers(installation, keys, configs, reports)


def _authority(settings: Settings) -> str:
    """The CA certificate of the server: the configured one, or the generated one. Empty if there is none."""
    file = settings.tls_ca if settings.tls_cert else settings.data / "tls" / "ca.crt"
    content = read_file(file) if file is not None else None
    return content.decode(errors="replace") if content else ""


MOUNT = "/kubernetes/management"


class Signing:
    """Password login and user profiles, which share the password store and the login throttle."""

    def __init__(self, settings: Settings, registry: Registry, identity: Identity) -> None:
        group, throttle, run_time = settings.api_group, Throttle(registry.clock), identity.run_time
        logins = LoginKeys(registry, group, run_time.login_key_ttl)
        passwords = PasswordStore(registry, group, Passwords(), logins)
        self.login = Login(passwords, logins, throttle, run_time.password_login, settings.public_url)
        self.profiles = Profiles(registry, group, passwords, throttle, identity.may)


class Direct:
    """Direct tokens and OIDC discovery for their verification, which share the signing keys and the issuer."""

    def __init__(self, settings: Settings, registry: Registry, identity: Identity, base_url: str) -> None:
        keys = SigningKeyStore(registry, SYSTEM_NAMESPACE)
        issuing, rights = Issuing(base_url, identity.run_time.token_lifetimes), Rights(covers, identity.may)
        minting = DirectMinting(registry, settings.api_group, keys, issuing, rights)
        self.handlers = DirectTokens(minting, keys).handlers(settings.api_group)
        self.endpoints = Issuer(base_url, keys.published).endpoints()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the pipeline needs besides the registry.

    `store` is for health checks. `commit_seconds` and `watchdog` are exposed by `/metrics`. `memory_limiter` bounds the
    memory of responses that clients do not read.
    """

    audit: AuditLog | None
    store: Store
    gateways: Proceed
    base_url: str
    commits: Histogram
    watchdog: Watchdog
    unsent: Unsent


def handler(settings: Settings, registry: Registry, identity: Identity, around: Surroundings) -> Proceed:
    """The whole request pipeline as one handler."""
    audit, base_url = around.audit, around.base_url
    if audit is not None:
        audit.audit.record_at_least(identity.run_time.audit_level)
    login, tokens = Signing(settings, registry, identity), Direct(settings, registry, identity, base_url)
    reports = audit.reports if audit is not None else ClusterReports(None, registry.clock)
    agents = for_agents(settings, registry, identity, reports, base_url, _installation_id(registry))
    accounts = service_account_handlers(_account_tokens(settings, registry, identity, base_url))
    handlers = {**_handlers(settings, registry, identity, login), **tokens.handlers, **agents, **accounts}
    actions = Actions(registry.catalog, handlers)
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
    metrics_endpoints = metrics.endpoints()
    platform_endpoints = {**login.login.endpoints(), **tokens.endpoints, **metrics_endpoints}
    endpoints = {"": platform_endpoints, MANAGEMENT: metrics_endpoints}
    dispatcher = Serve(verbs, health, roots, endpoints, around.gateways)
    public_metrics = (metrics.in_public,) if settings.metrics_public == ON else ()
    access_stages = (
        authenticated(identify, identity.activity.note),
        flow.stage,
        *public_metrics,
        around.unsent.bounded,
        Authorized(identity.permissions, identify),
    )
    return pipeline((requests.measured, *_stages(settings, identity, audit, access_stages)), dispatcher)


def _identification(settings: Settings, identity: Identity) -> Identify:
    permissions = identity.permissions
    impersonation = Impersonation(
        permissions.decide, identity.people.user_named, identity.is_administrator, permissions.generation
    )
    return identification(identity.authenticators, impersonation, ClusterNames(settings.identity_prefix))


def _stages(
    settings: Settings, identity: Identity, audit: AuditLog | None, asking: Sequence[Stage]
) -> tuple[Stage, ...]:
    """All stages but the metrics, in order. `access_stages` authenticate, schedule and authorize requests."""
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
    """The handlers of virtual kinds and action subresources."""
    group, prefix = settings.api_group, settings.namespace_prefix
    whoami = Selves(registry, group, identity.keys.identity, InstallationInfo(_installation_id(registry), prefix))
    rbac, principals, keys = identity.rbac, identity.people, identity.keys
    sources = Sources(
        registry.catalog,
        identity.permissions,
        rbac.rules_for,
        principals.user_named,
        keys.identity,
        whoami.inspect,
        identity.allowing_entry,
        identity.members.is_member,
    )
    return {
        **self_handlers(group, whoami, Tokens(identity.authenticators)),
        **review_handlers(group, sources),
        **key_list_handlers(group, registry),
        **migration_handlers(group, registry, prefix),
        **project_handlers(group, registry, principals, identity.may),
        **rotation_handlers(group, Rotation(registry, group, identity.pepper, covers)),
        **_runner_handlers(settings, registry, identity),
        (group, "users", "profile"): signing.profiles,
    }


def _account_tokens(settings: Settings, registry: Registry, identity: Identity, base_url: str) -> AccountTokens:
    def limits() -> TokenLimits:
        max_ttl, key_ttl = settings.service_account_token_max_ttl, identity.run_time.access_key_max_ttl()
        return TokenLimits(min(max_ttl, key_ttl) if key_ttl else max_ttl, settings.service_account_tokens)

    return AccountTokens(registry, settings.api_group, base_url, limits)


def _runner_handlers(settings: Settings, registry: Registry, identity: Identity) -> Mapping[Place, Handler]:
    group, pepper = settings.api_group, identity.pepper
    rotation = Rotation(registry, group, pepper, covers)
    keys = ComponentKeys(registry, group, RUNNER_COMPONENT, SYSTEM_NAMESPACE, pepper, rotation)
    installation = {
        "serviceHost": settings.public_url,
        "projectNamespacePrefix": settings.namespace_prefix,
        "serviceInstanceID": _installation_id(registry),
    }
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    return runner_handlers(group, registry, keys, signing.published, installation)


def _installation_id(registry: Registry) -> str:
    """The UID of the system namespace, which exists in every installation and is never deleted."""
    entry = registry.resource("", "namespaces").peek("", SYSTEM_NAMESPACE)
    return str(metadata(decode(entry))["uid"]) if entry is not None else ""


def _probes(store: Store, audit: AuditLog | None) -> Mapping[str, Probe]:
    async def store_ready() -> None:
        with storage_errors():
            await store.check()

    return {"store": store_ready, **({"audit": audit.logs.people.check} if audit else {})}


MEBIBYTE = 1024 * 1024
UNAUTHENTICATED, AGENTS, PEOPLE = "unauthenticated", "agents", "people"
"""The logs, in the order in which their rotated files are deleted when the disk quota is reached."""
SIDE_BYTES = 16 * MEBIBYTE
"""The queue size of the logs other than that of users, in bytes."""


@asynccontextmanager
async def auditing(settings: Settings, catalog: Catalog, clock: Clock) -> AsyncIterator[AuditLog | None]:
    """Opens the audit log and closes it on exit. None if it is disabled."""
    if not settings.audit_place:
        yield None
        return
    policy = load_policy(settings.audit_policy) if settings.audit_policy else DEFAULT
    logs, disk = _open(settings, clock)
    audit = Audit(policy, logs, catalog, clock, MOUNT)
    try:
        yield AuditLog(audit, logs, ClusterReports(logs.agents, clock), disk, clock)
    finally:
        audit.finish()
        for writer in logs.trails:
            await writer.close()


def _open(settings: Settings, clock: Clock) -> tuple[Logs, Shelf | None]:
    allowances = Allowances(settings.audit_refused, settings.audit_reads)
    new_backups = partial(
        Backups,
        count=settings.audit_backups,
        days=settings.audit_days,
        compress=settings.audit_compress == ON,
        days_min=settings.audit_days_min,
    )
    size, path = settings.audit_size * MEBIBYTE, settings.audit_place
    if path == STANDARD_OUTPUT or _is_special(Path(path)):
        writer = Trail(open_sink(path, new_backups, size, clock))
        return Logs(writer, writer, writer, allowances), None
    disk = Shelf({name: new_backups(file) for name, file in _paths(Path(path))}, settings.audit_disk * MEBIBYTE)
    sinks = {name: RotatedFile(backups, size, clock, disk.tidy) for name, backups in disk.logs.items()}
    users, unauthenticated, agents = (sinks[name] for name in (PEOPLE, UNAUTHENTICATED, AGENTS))
    side_writers = Trail(unauthenticated, size=SIDE_BYTES), Trail(agents, size=SIDE_BYTES)
    return Logs(Trail(users), *side_writers, allowances), disk


def _is_special(path: Path) -> bool:
    """Whether the path is a device such as /dev/null, next to which no other files should be created."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _paths(path: Path) -> Iterator[tuple[str, Path]]:
    for name in (UNAUTHENTICATED, AGENTS):
        yield name, path.with_name(f"{path.stem}.{name}{path.suffix}")
    yield PEOPLE, path
