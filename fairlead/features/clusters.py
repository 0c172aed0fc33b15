"""Connected clusters, the gateways to them and their agents, and the cluster that the server itself runs in."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import structlog

from fairlead.admission import Phase
from fairlead.admission.cluster_exports import protect_cluster_exports, protect_exported_keys
from fairlead.admission.secret_references import check_cluster_secret
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.controllers.clusters.credentials import ClusterCredentialController
from fairlead.controllers.clusters.exports import ClusterExportController
from fairlead.controllers.clusters.kubeconfig_files import KubeconfigFileController
from fairlead.controllers.clusters.local_cluster import LocalClusterConnector
from fairlead.controllers.runtime.loop import Controller
from fairlead.core.clock import parse_rfc3339
from fairlead.core.cluster_exports import Gateways
from fairlead.core.crypto.agent_keys import Challenges
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.features.access_keys import build_component_keys
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.gateway.activity import ActivityTracker, SleepStates
from fairlead.gateway.routes import GatewayHandler, GatewayPaths
from fairlead.kinds.clusters.cluster import AGENT, CREDENTIAL_END_FIELD, CREDENTIAL_STATE_FIELD, CREDENTIAL_STATES
from fairlead.kinds.clusters.cluster import CLUSTER as CLUSTER_KIND
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.server.api.routing import FindMount, MountedPath
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.metrics.exposition import GAUGE, MAXIMUM, Family
from fairlead.subresources.agents.endpoints import AgentEndpoints, agent_token_handlers
from fairlead.subresources.agents.identities import AgentIdentities
from fairlead.subresources.clusters import AgentBootstrapInfo, AgentConfigBuilder, agent_handlers, health_handlers
from fairlead.upstream.clusters import CLUSTERS
from fairlead.upstream.kubeconfig import kubeconfig_problems
from fairlead.upstream.local_cluster import in_cluster_source

CLUSTER_PHASES = {"": "Pending", "Initialized": "Initialized", "Failed": "Failed"}
"""Cluster phases and their label values. A cluster that is being set up, or is offline, has an empty phase."""

log = structlog.get_logger(__name__)


def build_clusters_feature(services: Services) -> Feature:
    settings = services.settings
    registry = services.registry
    upstreams = services.upstreams
    group = services.api_group
    names = ClusterIdentityMapper(settings.identity_prefix)
    if not names.prefix:
        log.warning(
            "cluster_identity_prefix is off",
            consequence="users and groups act in clusters as the users and groups of the same name there",
            advice="set a prefix, unless users and groups are meant to be identical on this server and on all clusters",
        )
    folders = [settings.cluster_kubeconfig_folder] if settings.cluster_kubeconfig_folder is not None else []
    gateways = GatewayHandler(registry, group, settings.namespace_prefix, upstreams, names)

    def build_controllers(leader: LeaderServices) -> tuple[Controller, ...]:
        return (
            ClusterController(leader.registry, group, SYSTEM_NAMESPACE, upstreams, names, url=settings.public_url),
            ClusterCredentialController(
                leader.registry, group, SYSTEM_NAMESPACE, upstreams, follows_files=bool(folders)
            ),
            *(KubeconfigFileController(leader.registry, SYSTEM_NAMESPACE, each) for each in folders),
            ClusterExportController(
                registry=leader.registry,
                api_group=group,
                clusters=leader.clusters,
                gateways=lambda: Gateways(services.base_url, services.read_authority(), services.installation_id()),
                digest=services.auth.pepper.digest,
                max_ttl=services.auth.dynamic_config.access_key_max_ttl,
            ),
        )

    return Feature(
        name="clusters",
        handlers=health_handlers(group, registry),
        find_mounts=(find_gateways(group, settings.namespace_prefix),),
        mounts={CLUSTER: gateways, SPACE: gateways, VIRTUAL_CLUSTER: gateways},
        admission={
            Phase.PROTECT: (protect_cluster_exports(group, SYSTEM_NAMESPACE), protect_exported_keys(group)),
            Phase.AUTHORIZE: (
                check_cluster_secret(services.auth.authorize, group, SYSTEM_NAMESPACE, kubeconfig_problems),
            ),
        },
        controllers=build_controllers,
        tasks=(gateways.activity.run,),
        metrics=(
            lambda: describe_clusters([entry.fields for entry in registry.view.entries(group, CLUSTER_KIND.plural)]),
        ),
    )


def describe_clusters(clusters: Sequence[Mapping[str, str]]) -> Sequence[Family]:
    """The metrics of connected clusters, from their selectable fields."""
    return (count_clusters(clusters), *describe_credentials(clusters))


def describe_credentials(clusters: Iterable[Mapping[str, str]]) -> Sequence[Family]:
    """By the state of the stored credential: how many there are, and when the first of them expires."""
    ends: dict[str, list[float]] = {state: [] for state in CREDENTIAL_STATES}
    counted = Counter[str]()
    for fields in clusters:
        state = fields.get(CREDENTIAL_STATE_FIELD, "")
        end = parse_rfc3339(fields.get(CREDENTIAL_END_FIELD))
        counted[state] += 1
        if state in ends and end is not None:
            ends[state].append(end.timestamp())
    return (
        Family(
            name="fairlead_cluster_credentials",
            type=GAUGE,
            help="Stored credentials of clusters by state.",
            labels=("state",),
            series=[((state,), counted[state]) for state in CREDENTIAL_STATES],
            aggregation=MAXIMUM,  # each worker sees all clusters
        ),
        Family(
            name="fairlead_cluster_credential_expiration_timestamp_seconds",
            type=GAUGE,
            help="When the first of the stored credentials of clusters in this state expires.",
            labels=("state",),
            series=[((state,), min(times)) for state, times in ends.items() if times],
            aggregation=MAXIMUM,
        ),
    )


def count_clusters(clusters: Iterable[Mapping[str, str]]) -> Family:
    """The metric of connected clusters, from their selectable fields."""
    counted = Counter(CLUSTER_PHASES.get(fields.get("status.phase", ""), "Other") for fields in clusters)
    return Family(
        name="fairlead_clusters",
        type=GAUGE,
        help="Connected clusters by phase.",
        labels=("phase",),
        series=[((phase,), counted[phase]) for phase in (*CLUSTER_PHASES.values(), "Other")],
        aggregation=MAXIMUM,  # each worker sees all clusters
    )


def find_gateways(api_group: str, namespace_prefix: str) -> FindMount:
    paths = GatewayPaths(api_group, namespace_prefix)

    def find(path: str) -> MountedPath | None:
        found = paths.split(path)
        if found is None:
            return None
        gateway, path_below = found
        return MountedPath(gateway.root, path_below, gateway)

    return find


def build_local_cluster_feature(services: Services) -> Feature:
    """Keeps the cluster that the server runs in connected. Only with the setting `local_cluster`."""

    async def connect(leader: LeaderServices) -> None:
        source = in_cluster_source(
            "run the server in a pod with a service account, or remove the setting local_cluster"
        )
        name = services.settings.local_cluster
        await LocalClusterConnector(leader.registry, services.api_group, name, SYSTEM_NAMESPACE, source).run()

    return Feature(name="local cluster", leader_tasks=(connect,))


def build_agents_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    registry = services.registry
    group = services.api_group
    keys = build_component_keys(services, registry, AGENT)
    installation = AgentBootstrapInfo(
        url=services.base_url,
        instance_id=services.installation_id,
        api_group=group,
        namespace_prefix=settings.namespace_prefix,
        identity_prefix=settings.identity_prefix,
        ca_certificate=services.read_authority,
    )
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigBuilder(registry, auth.principals, signing.jwks, installation, auth.authorizer)
    reports = services.audit.reports if services.audit is not None else AgentReports(None, registry.clock)
    if services.coordinator is not None:
        reports.use_quota(services.coordinator)
    activity = ActivityTracker(registry, group, SleepStates(registry, group))

    def note_activity(cluster: str, events: Sequence[Object]) -> None:
        activity.note_reported(cluster, settings.namespace_prefix, events)

    identities = AgentIdentities(registry, group, SYSTEM_NAMESPACE)
    challenges = Challenges(auth.pepper.secret)
    endpoints = AgentEndpoints(services.agents, identities, challenges, registry.clock, services.read_authority)
    services.agents.on_change = lambda cluster: services.upstreams.failures.notify((group, CLUSTERS, "", cluster))
    return Feature(
        name="agents",
        handlers={
            **agent_handlers(installation, keys, configs, reports, note_activity),
            **agent_token_handlers(group, identities, services.read_authority, services.base_url),
        },
        public_endpoints=endpoints.public_endpoints(),
        tasks=(activity.run,),
    )
