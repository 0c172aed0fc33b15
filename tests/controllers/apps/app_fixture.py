"""Fixtures for tests of deployed apps: running controllers, and a fake helm that stores releases as Helm does."""

import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core import yaml
from fairlead.core.objects import Object, get_path
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.instances.helm_fixture import KUBECONFIG
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, create_cluster, encode_base64

APP = "AppInstance"
VIRTUAL_CLUSTER_CHART = "vc"
"""The chart that makes a virtual cluster: it stores a kubeconfig."""
SECRETS = "/api/v1/namespaces/{}/secrets"
VALUES = "size: {{ parameters.size }}\ntoken: {{ parameters.token }}\n"
PARAMETERS = [{"variable": "size", "defaultValue": "1"}, {"variable": "token", "type": "password"}]


def app_spec(**fields: Any) -> Object:
    chart = {"name": "web", "repoURL": "https://charts.example", "version": "1.2.3"}
    return {"config": {"chart": chart, "values": VALUES}, "parameters": PARAMETERS, **fields}


class ReleaseHelm:
    """Stores each revision in a Secret of the cluster that the endpoint leads to, and records its calls."""

    def __init__(self, access: FakeAccess) -> None:
        self._kubes = {"cluster-token": access.kube, "virtual-token": access.virtual}
        self.is_missing = False
        self.failures: set[str] = set()
        """Names of releases that fail."""
        self.installed: list[Release] = []
        self.uninstalled: list[Release] = []

    def find_program(self) -> str:
        if self.is_missing:
            raise InstanceError("HelmNotFound", "install it", ERROR)
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint) -> None:
        self.installed.append(release)
        if release.name in self.failures:
            raise InstanceError("HelmFailed", f"{release.values.strip()} is not good", WARNING)
        kube = self._kubes[endpoint.token]
        store_release(kube, release)
        if release.chart.name == VIRTUAL_CLUSTER_CHART:
            path = f"{SECRETS.format(release.namespace)}/vc-{release.name}"
            kube.add_object(path, data={"config": encode_base64(KUBECONFIG)})

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        self.uninstalled.append(release)
        kube = self._kubes[endpoint.token]
        for path in [path for path in kube.objects if _is_revision(path, release)]:
            del kube.objects[path]


def _is_revision(path: str, release: Release) -> bool:
    return path.startswith(f"{SECRETS.format(release.namespace)}/sh.helm.release.v1.{release.name}.v")


def store_release(kube: FakeKube, release: Release, **changes: Any) -> None:
    """Stores the next revision of a release."""
    former = [path for path in kube.objects if _is_revision(path, release)]
    for path in former:
        kube.objects[path]["metadata"]["labels"]["status"] = "superseded"
    revision = len(former) + 1
    content = {
        "chart": {"metadata": {"name": release.chart.name, "version": release.chart.version, "appVersion": "9.9"}},
        "config": yaml.decode(release.values.encode())[0],
        "info": {"notes": f"Deployed with {release.values}"},
        "manifest": "",
        **changes,
    }
    encoded = b64encode(b64encode(gzip.compress(json.dumps(content).encode()))).decode()
    labels = {"owner": "helm", "name": release.name, "status": "deployed", "version": str(revision)}
    path = f"{SECRETS.format(release.namespace)}/sh.helm.release.v1.{release.name}.v{revision}"
    kube.add_object(path, metadata={"labels": labels}, data={"release": encoded})


@pytest.fixture
def access() -> FakeAccess:
    return FakeAccess()


@pytest.fixture
def helm(access: FakeAccess) -> ReleaseHelm:
    return ReleaseHelm(access)


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> AsyncIterator[RegistryFixture]:
    """With a project, a cluster, an App, and a space that is ready."""
    runner = ReleaseRunner(api.clock, helm)
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access, helm),
        AppInstanceController(api.registry, INSTANCE_CONFIG, access, runner, ("https://charts.example",)),
    )
    async with running_controllers(api, *controllers):
        await create_cluster(api)
        await api.create("App", "web", spec=app_spec())
        await api.create("SpaceTemplate", "plain", metadata=TRUSTED, spec={"template": {}})
        await create_space(api)
        yield api


async def create_space(api: RegistryFixture, name: str = "dev", template: str = "plain") -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": template}}
    await api.create("SpaceInstance", name, spec=spec)
    await eventually(lambda: get_path(api.get("SpaceInstance", name), "status.phase") == "Ready")


async def create_virtual_cluster(api: RegistryFixture, name: str = "v") -> None:
    """A virtual cluster that is ready, without a controller."""
    await api.create("VirtualClusterInstance", name, spec={"clusterRef": {"cluster": "c"}})
    status = {"ignoreReconciliation": True, "phase": "Ready", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(
        "VirtualClusterInstance", name, lambda each: each.update(status=status), server_write_options("status")
    )


async def install_app(api: RegistryFixture, name: str = "one", **spec: Any) -> None:
    target = {"spaceInstance": {"name": "dev"}}
    await api.create(APP, name, spec={"owner": {"user": "ada"}, "appRef": {"name": "web"}, "target": target, **spec})


async def wait_for_reason(api: RegistryFixture, reason: str, name: str = "one") -> Object:
    """Returns the instance once its status has this reason."""
    await eventually(lambda: get_path(api.get(APP, name), "status.reason") == reason)
    return api.get(APP, name) or {}
