"""The controllers of spaces and virtual clusters, with the fakes of a test."""

from fairlead.controllers.apps.template_releases import TemplateReleases
from fairlead.controllers.helm.deploy import ChartDeployer, ReleaseRunner
from fairlead.controllers.helm.fetch import ChartFetcher
from fairlead.controllers.helm.helm import Helm
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.import_sources import MayUseCluster
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.virtual_cluster_release import VirtualClusterReleases
from fairlead.controllers.instances.virtual_clusters import VirtualClusterController
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.address_policy import AddressPolicy
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG

NO_CHARTS = ChartFetcher(AddressPolicy((), list).resolve)
REPOSITORIES = ("https://charts.example",)


def build_space_controller(
    api: RegistryFixture, access: ClusterAccess, helm: ChartDeployer | None = None
) -> SpaceController:
    runner = ReleaseRunner(api.clock, helm or Helm(NO_CHARTS, "no-such-helm"))
    template_releases = TemplateReleases(api.registry, INSTANCE_CONFIG, runner, REPOSITORIES)
    return SpaceController(api.registry, INSTANCE_CONFIG, access, template_releases)


def build_virtual_cluster_controller(
    api: RegistryFixture,
    access: ClusterAccess,
    helm: ChartDeployer,
    may_use_cluster: MayUseCluster = lambda writer, cluster: True,
) -> VirtualClusterController:
    runner = ReleaseRunner(api.clock, helm)
    virtual_cluster_releases = VirtualClusterReleases(api.registry, MANAGEMENT_GROUP, access, runner, REPOSITORIES)
    template_releases = TemplateReleases(api.registry, INSTANCE_CONFIG, runner, REPOSITORIES)
    return VirtualClusterController(
        api.registry, INSTANCE_CONFIG, access, virtual_cluster_releases, template_releases, may_use_cluster
    )
