"""Fixtures for tests of deployed apps: running controllers, and a fake helm that stores releases as Helm does."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.missing_rules import PERMISSIONS_MISSING, describe_missing_rules
from fairlead.controllers.helm.release_objects import RELEASE_NAME, RELEASE_NAMESPACE
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.instances.helm_fixture import KUBECONFIG
from tests.fake_cluster.helm_releases import SECRETS, find_revisions, remove_release, store_release
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.script_hooks import ScriptEnd, run_hooks
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, create_cluster, encode_base64

APP = "AppInstance"
VIRTUAL_CLUSTER_CHART = "vc"
"""The chart that makes a virtual cluster: it stores a kubeconfig."""
VALUES = "size: {{ parameters.size }}\ntoken: {{ parameters.token }}\n"
PARAMETERS = [{"variable": "size", "defaultValue": "1"}, {"variable": "token", "type": "password"}]


def app_spec(**fields: Any) -> Object:
    chart = {"name": "web", "repoURL": "https://charts.example", "version": "1.2.3"}
    return {"config": {"chart": chart, "values": VALUES}, "parameters": PARAMETERS, **fields}


SETTINGS = "/api/v1/namespaces/{}/configmaps/{}-settings"
EXTRA = "/api/v1/namespaces/{}/configmaps/{}-extra"
"""The objects of a chart: each has the first; a chart whose values have the word `more` also has the second."""


class ReleaseHelm:
    """Stores each revision in a Secret of the cluster that the endpoint leads to, and its objects, and records its
    calls. As Helm 4 it refuses to change a field that others have changed, unless it is forced to, and refuses to run
    while the newest revision is pending."""

    def __init__(self, access: FakeAccess) -> None:
        self._kubes = {"cluster-token": access.kube, "virtual-token": access.virtual}
        self.is_missing = False
        self.failures: set[str] = set()
        """Names of releases that fail before anything is stored, as if the chart could not be rendered."""
        self.refused_values = ""
        """With values that contain this, the first object is written, and the cluster refuses the second."""
        self.hanging_values = ""
        """With values that contain this, the run does not end after the first object, as with `wait`."""
        self.script_end = ScriptEnd()
        """How the next script ends."""
        self.installed: list[Release] = []
        self.uninstalled: list[Release] = []
        self.now: Callable[[], float] = time.time
        self.forced = 0
        """How many runs were told to take over fields of others."""

    def find_program(self) -> str:
        if self.is_missing:
            raise InstanceError("HelmNotFound", "install it", ERROR)
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        self.installed.append(release)
        self.forced += forces_conflicts
        if release.name in self.failures:
            raise InstanceError("HelmFailed", f"{release.values.strip()} is not good", WARNING)
        kube = self._kubes[endpoint.token]
        if any(
            kube.objects[path]["metadata"]["labels"]["status"].startswith("pending-")
            for path in find_revisions(kube, release)
        ):
            raise InstanceError(RELEASE_PENDING, "another operation is in progress", WARNING)
        if "helm.sh/hook" in release.chart.manifests:
            self._run_hooks(kube, release)
            return
        manifest = self._write_objects(kube, release, forces_conflicts=forces_conflicts)
        if self.hanging_values and self.hanging_values in release.values:
            store_release(kube, release, "pending-upgrade", created_at=str(int(self.now())), manifest=manifest)
            await asyncio.Event().wait()
        if self.refused_values and self.refused_values in release.values:
            store_release(kube, release, "failed", manifest=manifest)
            raise InstanceError("HelmFailed", "the second object was refused", WARNING)
        store_release(kube, release, manifest=manifest)
        if release.chart.name == VIRTUAL_CLUSTER_CHART:
            path = f"{SECRETS.format(release.namespace)}/vc-{release.name}"
            kube.add_object(path, data={"config": encode_base64(KUBECONFIG)})

    def _run_hooks(self, kube: FakeKube, release: Release) -> None:
        error = run_hooks(kube, release, self.script_end)
        store_release(kube, release, "failed" if error else "deployed")
        if missing := describe_missing_rules(" ".join(error.split())):
            raise InstanceError(PERMISSIONS_MISSING, missing, ERROR)
        if error:
            raise InstanceError("HelmFailed", f"helm upgrade failed: Error: UPGRADE FAILED: {error}", WARNING)

    def _write_objects(self, kube: FakeKube, release: Release, *, forces_conflicts: bool) -> str:
        """Returns the manifest."""
        paths = [SETTINGS] + [EXTRA] * ("more" in release.values)
        documents = []
        for pattern in paths:
            path = pattern.format(release.namespace, release.name)
            managers = (kube.objects.get(path) or {"metadata": {}})["metadata"].get("managedFields") or ()
            others = [each for each in managers if each["manager"] == "kubectl-edit"]
            if others and not forces_conflicts:
                raise InstanceError("HelmFailed", 'conflict with "kubectl-edit"', WARNING)
            data = {"values": release.values}
            annotations = {RELEASE_NAME: release.name, RELEASE_NAMESPACE: release.namespace}
            kube.add_object(path, metadata={"annotations": annotations}, data=data)
            meta = {"name": path.rpartition("/")[2]}
            documents.append(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}))
        return "\n---\n".join(documents)

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        self.uninstalled.append(release)
        remove_release(self._kubes[endpoint.token], release)


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
