"""Spaces and virtual clusters, their templates, and the move of a virtual cluster to another project. Some of the rules
are about workspaces and app instances as well.
"""

from fairlead.admission import Phase
from fairlead.admission.instance_owners import OwnerChecks, default_instance_owner, require_owner_consent
from fairlead.admission.instances import (
    check_abandon,
    check_import_source,
    require_chart,
    require_template,
    restrict_remote_access,
    warn_outside_of_projects,
)
from fairlead.admission.objects_in_use import prevent_deletion_while_used
from fairlead.admission.parameters import check_parameters, parse_large_parameters
from fairlead.admission.presets import apply_presets, require_presets
from fairlead.admission.secret_references import check_virtual_cluster_secret
from fairlead.admission.sleep import check_delete_after, keep_sleep_state, warn_invalid_sleep
from fairlead.admission.templates import mark_trusted_templates
from fairlead.authz.name_index import owns
from fairlead.controllers.apps.template_releases import TemplateReleases
from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.sleep import InstanceSleepController
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.instances.virtual_cluster_release import VirtualClusterReleases
from fairlead.controllers.instances.virtual_clusters import VirtualClusterController
from fairlead.controllers.runtime.loop import Controller
from fairlead.core.call import RequestInfo
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.settings import Settings
from fairlead.subresources.migration import migration_handlers
from fairlead.upstream.kubeconfig import kubeconfig_problems


def pod_security(settings: Settings) -> str:
    """The pod security level of namespaces that the server creates in clusters; empty for none."""
    return "" if settings.space_pod_security == "none" else settings.space_pod_security


def instance_config(services: Services) -> InstanceConfig:
    settings = services.settings
    names = ClusterIdentityMapper(settings.identity_prefix)
    confinement = Confinement(
        settings.space_roles, settings.space_metadata, pod_security(settings), settings.chart_role
    )
    return InstanceConfig(
        api_group=settings.api_group,
        namespace_prefix=settings.namespace_prefix,
        names=names,
        confinement=confinement,
        may_use_secret=services.auth.secret_access.writer_may_use,
    )


def build_instances_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    group = services.api_group
    prefix = settings.namespace_prefix
    owners = OwnerChecks(auth.authorize, owns, auth.secret_access.may_own)

    def may_use_cluster(writer: str, cluster: str) -> bool:
        target = RequestInfo(verb="use", group=group, version="v1", resource="clusters", name=cluster)
        return auth.secret_access.writer_may_use(writer, target)

    def build_controllers(leader: LeaderServices) -> tuple[Controller, ...]:
        registry = leader.registry
        config = instance_config(services)
        virtual_cluster_releases = VirtualClusterReleases(
            registry, group, leader.clusters, leader.helm, settings.chart_repositories
        )
        template_releases = TemplateReleases(registry, config, leader.helm, settings.chart_repositories)
        return (
            SpaceController(registry, config, leader.clusters, template_releases),
            VirtualClusterController(
                registry, config, leader.clusters, virtual_cluster_releases, template_releases, may_use_cluster
            ),
            InstanceSleepController(registry, group),
        )

    return Feature(
        name="instances",
        admission={
            Phase.PLACE: (parse_large_parameters(group),),  # before all rules that read parameters
            Phase.PROTECT: (check_abandon(auth.authorize, group), keep_sleep_state(group)),
            Phase.COMPLETE: (
                apply_presets(group, prefix),  # of workspaces, before all rules about what one uses
                require_presets(auth.authorize, group, prefix),  # before the rule that requires a template
                default_instance_owner(group),
                require_template(auth.authorize, group, prefix),
                check_import_source(auth.authorize, group),
            ),
            Phase.AUTHORIZE: (
                require_owner_consent(owners, group),
                check_delete_after(auth.authorize, group),
                check_virtual_cluster_secret(auth.authorize, group, kubeconfig_problems),
                restrict_remote_access(auth.authorize, group, frozenset(settings.space_roles)),
            ),
            Phase.CHECK: (
                warn_outside_of_projects(group, prefix),
                check_parameters(group),
                require_chart(group),
                warn_invalid_sleep(group),
            ),
        },
        controllers=build_controllers,
    )


def build_templates_feature(services: Services) -> Feature:
    settings = services.settings
    group = services.api_group
    config = InstanceConfig(group, settings.namespace_prefix, ClusterIdentityMapper(settings.identity_prefix))
    return Feature(
        name="templates",
        admission={
            Phase.CHECK: (
                mark_trusted_templates(group),
                prevent_deletion_while_used(services.auth.authorize, group),
            ),
        },
        controllers=lambda leader: (InstanceTemplateController(leader.registry, config),),
    )


def build_migration_feature(services: Services) -> Feature:
    return Feature(
        name="migration",
        handlers=migration_handlers(services.api_group, services.registry, services.settings.namespace_prefix),
    )
