"""Fixtures for tests of virtual clusters: running controllers, and a fake helm that records its calls."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object
from fairlead.upstream.access import ClusterEndpoint
from tests.fake_cluster.helm_releases import find_revisions, remove_release, store_release
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, condition_status, encode_base64

VC = "VirtualClusterInstance"
NAMESPACE_PATH = "/api/v1/namespaces/demo-v-one"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-v-one/rolebindings"
CHART = {"name": "vc", "repo": "https://charts.example", "version": "1.2.3"}
RELEASE = {"helmRelease": {"chart": CHART, "values": "a: b"}}
KUBECONFIG = b"""
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: 'https://vc.example:8443'}}]
users: [{name: x, user: {token: inner-token}}]
"""


class FakeHelm:
    """Records its calls. An installed chart leaves `kubeconfig` in a Secret, unless that is empty."""

    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        self.is_missing = False
        self.is_failing = False
        self.kubeconfig = KUBECONFIG
        self.installed: list[Release] = []
        self.uninstalled: list[Release] = []

    def find_program(self) -> str:
        if self.is_missing:
            raise InstanceError("HelmNotFound", "install it", ERROR)
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        assert endpoint.token == "cluster-token"
        self.installed.append(release)
        secrets = [self.kube.objects[path] for path in find_revisions(self.kube, release)]
        if any(each["metadata"].get("labels", {}).get("status") == "pending-install" for each in secrets):
            raise InstanceError(RELEASE_PENDING, "another operation is in progress", WARNING)
        if self.is_failing:
            store_release(self.kube, release, "failed")
            raise InstanceError("HelmFailed", "it broke", WARNING)
        store_release(self.kube, release)
        if self.kubeconfig:
            path = f"/api/v1/namespaces/{release.namespace}/secrets/vc-{release.name}"
            self.kube.add_object(path, data={"config": encode_base64(self.kubeconfig)})

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        assert f"/api/v1/namespaces/{release.namespace}" in self.kube.objects
        self.uninstalled.append(release)
        remove_release(self.kube, release)


@pytest.fixture
def access() -> FakeAccess:
    return FakeAccess()


@pytest.fixture
def helm(access: FakeAccess) -> FakeHelm:
    return FakeHelm(access.kube)


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> AsyncIterator[RegistryFixture]:
    virtual_clusters = build_virtual_cluster_controller(api, access, helm)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG), virtual_clusters):
        yield api


async def create_virtual_cluster(api: RegistryFixture, **spec: Any) -> Object:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, **spec}
    return await api.create(VC, "one", spec=spec)


async def create_from_template(api: RegistryFixture, template: Object = RELEASE, **reference: str) -> Object:
    await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": template})
    return await create_virtual_cluster(api, templateRef={"name": "t", **reference})


async def wait_until_ready(api: RegistryFixture, access: FakeAccess) -> None:
    access.virtual_down = None
    await eventually(lambda: condition_status(api, VC, "VirtualClusterReady") == ("True", "Ready"))
