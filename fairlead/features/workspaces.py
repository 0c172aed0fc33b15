"""Workspaces, and the runners on which they run."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

from fairlead.admission import Phase
from fairlead.admission.port_shares import check_port_shares
from fairlead.admission.prebuilds import check_prebuilds
from fairlead.admission.presets import check_presets
from fairlead.admission.runners import (
    prevent_runner_deletion_while_used,
    protect_cluster_ref,
)
from fairlead.admission.secret_references import WriterChecks, record_secret_writers
from fairlead.admission.workspace_templates import restrict_workspace_templates, warn_about_workspace_templates
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.ssh_authority import SshAuthority
from fairlead.authz.name_index import owns
from fairlead.controllers.runtime.loop import Controller
from fairlead.controllers.workspaces.moves import MoveController
from fairlead.controllers.workspaces.prebuilds import PrebuildController
from fairlead.controllers.workspaces.runner_deployments import RunnerDeploymentConfig, RunnerDeploymentController
from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.controllers.workspaces.sleep import WorkspaceSleepController
from fairlead.controllers.workspaces.workspaces import WorkspaceController
from fairlead.core.objects import Object
from fairlead.core.workspaces import SILENT, runner_status
from fairlead.features.access_keys import build_component_keys
from fairlead.features.contract import Feature, HostPipeline, LeaderServices, Services
from fairlead.features.instances import pod_security
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT, RUNNERS
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.kinds.instances.workspace import PORT_ACCESS_SUBRESOURCE
from fairlead.registry.codec import decode
from fairlead.server.metrics.exposition import GAUGE, MAXIMUM, Family
from fairlead.settings.values import ON
from fairlead.subresources.ports.access import PortAccessHandler, PortPermissions
from fairlead.subresources.ports.clients import PortClients
from fairlead.subresources.ports.grants import GrantSigners
from fairlead.subresources.ports.hosts import PortHosts
from fairlead.subresources.ports.proxy import PortProxy
from fairlead.subresources.ports.stages import PortStages
from fairlead.subresources.runners import runner_handlers
from fairlead.subresources.workspaces.exchanges import ask_runner
from fairlead.subresources.workspaces.handlers import WorkspaceServices, workspace_handlers
from fairlead.subresources.workspaces.targets import WORKSPACES

NOT_READY = "NotReady"
RUNNER_STATUSES = ("Ready", NOT_READY, SILENT)


def build_workspaces_feature(services: Services) -> Feature:
    auth = services.auth
    registry = services.registry
    group = services.api_group
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    workspace_services = WorkspaceServices(
        registry=registry,
        hub=services.hub,
        streams=services.flow.streams,
        secret_access=auth.secret_access,
        authority=SshAuthority(registry, SYSTEM_NAMESPACE),
        namespace_prefix=services.settings.namespace_prefix,
    )
    writers = WriterChecks(auth.authorize, auth.is_within_scope, owns, auth.secret_access.writer_may_use)

    def describe_server() -> dict[str, str]:
        return {
            "serviceHost": services.settings.public_url,
            "projectNamespacePrefix": services.settings.namespace_prefix,
            "serviceInstanceID": services.installation_id(),
        }

    keys = build_component_keys(services, registry, RUNNER_COMPONENT)
    hosts = PortHosts(services.settings.port_domain, services.base_url)
    permissions = PortPermissions(registry, auth.port_access, auth.access_keys.user_of_key)
    signers = GrantSigners(auth.pepper.secret)
    ports = PortAccessHandler(hosts, signers.tickets, permissions, registry.clock, services.settings.namespace_prefix)
    return Feature(
        name="workspaces",
        handlers={
            (group, WORKSPACES, PORT_ACCESS_SUBRESOURCE): ports,
            **workspace_handlers(group, workspace_services),
            **runner_handlers(group, registry, keys, signing.jwks, describe_server),
        },
        admission={
            Phase.AUTHORIZE: (
                record_secret_writers(writers, group),
                protect_cluster_ref(group),
                check_port_shares(auth.authorize, registry.clock, group),
            ),
            Phase.CHECK: (
                check_presets(group),
                check_prebuilds(group),
                restrict_workspace_templates(group),
                warn_about_workspace_templates(group),
                prevent_runner_deletion_while_used(auth.authorize, group),
            ),
        },
        host_pipelines=_build_port_pipelines(services, hosts, signers, permissions),
        controllers=lambda leader: _build_controllers(services, leader),
        metrics=(lambda: [count_runners(map(decode, registry.view.entries(group, RUNNERS)))],),
    )


def _build_port_pipelines(
    services: Services, hosts: PortHosts, signers: GrantSigners, permissions: PortPermissions
) -> tuple[HostPipeline, ...]:
    """How ports of workspaces are served by their host names; nothing if they have none."""
    if not hosts.domain:
        return ()
    settings = services.settings
    stages = PortStages(
        hosts=hosts,
        signers=signers,
        permissions=permissions,
        clock=services.registry.clock,
        namespace_prefix=settings.namespace_prefix,
        console_url=services.base_url if settings.console == ON else "",
    )
    proxy = PortProxy(stages, PortClients(services.hub, stages.get_workspace))
    return (
        HostPipeline(
            covers=hosts.covers,
            route=stages.route,
            authenticate=stages.authenticate,
            authorize=stages.authorize,
            serve=proxy,
        ),
    )


def count_runners(runners: Iterable[Object]) -> Family:
    """The metric of runners. One that has not reported yet is not ready."""
    counted = Counter(runner_status(each) or NOT_READY for each in runners)
    return Family(
        name="fairlead_runners",
        type=GAUGE,
        help="Runners by status.",
        labels=("status",),
        series=[((status,), counted[status]) for status in RUNNER_STATUSES],
        aggregation=MAXIMUM,  # each worker sees all runners
    )


def _build_controllers(services: Services, leader: LeaderServices) -> tuple[Controller, ...]:
    settings = services.settings
    registry = leader.registry
    group = services.api_group
    deployments = RunnerDeploymentConfig(
        api_group=group,
        system_namespace=SYSTEM_NAMESPACE,
        public_url=settings.public_url,
        image=settings.runner_image,
        pod_security=pod_security(settings),
        read_authority=services.read_authority,
        get_key=build_component_keys(services, registry, RUNNER_COMPONENT).get_or_create,
    )
    return (
        RunnerDeploymentController(registry, deployments, leader.clusters),
        RunnerController(registry, group),
        WorkspaceController(registry, group, settings.namespace_prefix),
        WorkspaceSleepController(registry, group),
        PrebuildController(registry, group),
        MoveController(registry, group, partial(ask_runner, services.hub)),
    )
