"""What a feature is, and what features are given.

A feature is built once in each process that serves requests, by a function of `Services`, before the server accepts any
request. `app/features.py` lists these functions in order, and joins what they return.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.admission import Phase, Rule
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.runtime.loop import Controller
from fairlead.core.call import Call, Handler
from fairlead.core.objects import metadata
from fairlead.features.auth import Auth
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath
from fairlead.server.api.routing import FindMount
from fairlead.server.audit.log import AuditLog
from fairlead.server.discovery.health import HealthCheck
from fairlead.server.flow.attempts import Throttle
from fairlead.server.flow.stage import FlowServices
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.endpoint import FamilySource
from fairlead.server.metrics.exposition import Histogram
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.server.metrics.stage import RequestMetrics
from fairlead.server.pipeline import Before
from fairlead.server.workers.client import CoordinatorClient
from fairlead.settings import Settings
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.oauth import GrantHandler
from fairlead.signin.passwords import PasswordHasher
from fairlead.signin.sso.endpoints import SignOnHandlers
from fairlead.storage.contract import Store
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What features share. Nothing in it has read a stored object yet: in a new installation, there is none."""

    settings: Settings
    auth: Auth
    """Authenticators, authorizers, and the settings that can change at run time."""
    registry: Registry
    """For requests. What only the leader may do uses that of `LeaderServices`."""
    store: Store
    base_url: str
    """The URL of this server for clients."""
    read_authority: Callable[[], str]
    """The CA certificate of this server as PEM; empty for a public CA."""

    audit: AuditLog | None
    """None if there is no audit log."""
    flow: FlowServices
    coordinator: CoordinatorClient | None
    """What is counted for all workers; None if this process is the whole server."""

    upstreams: UpstreamRegistry
    """Connections to clusters."""
    addresses: AddressPolicy
    """Which addresses the server may connect to for its users."""
    hub: RunnerHub
    """Connections of runners."""
    agents: AgentHub
    """Connections of agents of clusters."""

    logins: LoginSessions
    throttle: Throttle
    """Delays guesses of passwords and of the codes of devices."""
    password_hasher: PasswordHasher
    sign_on: SignOnHandlers
    """Single sign-on: for its own endpoints, and for the list of login methods and the logout."""

    requests: RequestMetrics
    """Counts requests, as a stage of the pipeline."""
    commit_seconds: Histogram
    watchdog: Watchdog
    certificate: ServedCertificate
    is_leader: Callable[[], bool]

    @property
    def api_group(self) -> str:
        return self.settings.api_group

    def installation_id(self) -> str:
        """The UID of the system namespace, which exists in every installation and is never deleted."""
        entry = self.registry.resource("", "namespaces").get_cached("", SYSTEM_NAMESPACE)
        return str(metadata(decode(entry))["uid"]) if entry is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderServices:
    """What controllers share. Made anew each time that this process becomes the leader."""

    registry: Registry
    """With a leader election, it is fenced: writes fail after the lease is lost."""
    clusters: ClusterAccess
    helm: ReleaseRunner
    """Runs helm. Its limits are for all controllers together."""


Task = Callable[[], Coroutine[Any, Any, None]]
LeaderTask = Callable[[LeaderServices], Coroutine[Any, Any, None]]


def no_controllers(leader: LeaderServices) -> Sequence[Controller]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPipeline:
    """Serves all requests to some host names, instead of the API. `covers` gets the Host header. `authenticate` sets
    the user, if there is one, and is repeated after a request was queued."""

    covers: Callable[[str], bool]
    route: Before
    authenticate: Callable[[Call], None]
    authorize: Before
    serve: Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature adds to the server."""

    name: str
    handlers: Mapping[ActionPath, ActionHandler] = field(default_factory=dict)
    """Of subresources, and of kinds that are answered, not stored."""
    endpoints: Mapping[tuple[str, str], Handler] = field(default_factory=dict)
    """Handlers of other paths of the platform, by verb and path. A `*` in a path of three parts takes any name."""
    public_endpoints: Mapping[tuple[str, str], Handler] = field(default_factory=dict)
    """The same, for those that need no authentication."""
    grants: Mapping[str, GrantHandler] = field(default_factory=dict)
    """Grant types of the OAuth token endpoint."""
    find_mounts: Sequence[FindMount] = ()
    """Which paths are below a root other than the API."""
    mounts: Mapping[str, Handler] = field(default_factory=dict)
    """Handlers of all requests below such a root, by `RequestInfo.root`."""
    host_pipelines: Sequence[HostPipeline] = ()
    """Host names that are served by a feature alone."""
    public_stages: Mapping[str, Before] = field(default_factory=dict)
    """Reply to requests that need no authorization, or leave them to the other stages. By path below the root."""
    admission: Mapping[Phase, Sequence[Rule]] = field(default_factory=dict)
    controllers: Callable[[LeaderServices], Sequence[Controller]] = no_controllers
    """Builds the controllers, which only the leader runs."""
    leader_tasks: Sequence[LeaderTask] = ()
    """Run beside the controllers."""
    tasks: Sequence[Task] = ()
    """Run in each process while it serves requests."""
    metrics: Sequence[FamilySource] = ()
    health_checks: Mapping[str, HealthCheck] = field(default_factory=dict)
    """Further checks of /readyz."""

    def admission_rules(self) -> Sequence[Rule]:
        """The rules, in the order in which they run."""
        return [rule for phase in Phase for rule in self.admission.get(phase, ())]
