"""Fixtures for tests with a cluster that does not answer for a minute, from one of the requests of the server or Helm
on; and a Helm that leaves its release pending then, as the real one does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.release_objects import RELEASE_NAME, RELEASE_NAMESPACE
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.sleep import InstanceSleepController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.clock import Clock
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.domain.sleep_mode import build_wake_request, change_annotations
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import Unreachable
from tests.controllers.apps.app_fixture import SETTINGS, app_spec, create_space
from tests.controllers.instances.helm_fixture import CHART, KUBECONFIG, VC
from tests.fake_cluster.helm_releases import SECRETS, find_revisions, remove_release, store_release
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.fake_cluster.workloads import APPS, run_workloads
from tests.harness.controllers import running_controllers
from tests.harness.instance_controllers import build_space_controller, build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, create_cluster, encode_base64

OUTAGE_SECONDS = 60.0
PREFIX = "sleepmode.service.sh/"


class VanishingAccess(FakeAccess):
    """Its cluster does not answer from the request on that `vanish_after` counts down to, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.vanish_after: int | None = None
        self.down_until = 0.0

    @property
    def has_vanished(self) -> bool:
        """Whether the outage has begun."""
        return self.vanish_after is None

    def count_request(self) -> None:
        """Raises Unreachable during the outage."""
        now = asyncio.get_running_loop().time()
        if self.vanish_after is not None and self.vanish_after <= 0:
            self.vanish_after = None
            self.down_until = now + OUTAGE_SECONDS
            self.sender.end_streams()
        if now < self.down_until:
            raise Unreachable("no response")
        if self.vanish_after is not None:
            self.vanish_after -= 1

    def cluster_api(self, name: str, acting_as: str = "") -> InMemoryClusterApi:
        return _VanishingApi(self, acting_as)

    def virtual_cluster_api(self, namespace: str, name: str) -> InMemoryClusterApi:
        """It answers while its pod is there."""
        is_running = f"/api/v1/namespaces/{namespace}-v-{name}/pods/{name}-0" in self.kube.objects
        return InMemoryClusterApi(self.virtual, None if is_running else Unreachable("no ready pod"))


class _VanishingApi(InMemoryClusterApi):
    def __init__(self, access: VanishingAccess, acting_as: str) -> None:
        super().__init__(access.kube, None, acting_as)
        self._access = access

    def _send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        self._access.count_request()
        return super()._send(method, path, body, content_type)


class VanishingHelm:
    """As Helm: it records a revision as pending, writes the objects, and records how that ended, if the cluster answers
    then. It refuses to run while the newest revision is pending."""

    def __init__(self, access: VanishingAccess, clock: Clock) -> None:
        self._access = access
        self._kube = access.kube
        self._clock = clock
        self.left_pending = 0
        """How many runs have left a pending revision."""

    def find_program(self) -> str:
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        self._request()
        if any(_state_of(self._kube, path).startswith("pending") for path in find_revisions(self._kube, release)):
            raise InstanceError(RELEASE_PENDING, "another operation is in progress", WARNING)
        self._request()
        self._store(release, "pending-upgrade")
        try:
            for path, obj in _objects_of(release).items():
                self._request()
                annotations = {RELEASE_NAME: release.name, RELEASE_NAMESPACE: release.namespace}
                self._kube.add_object(path, **{**deep_copy(obj), "metadata": {"annotations": annotations}})
        except InstanceError:
            self._finish(release, "failed")
            raise
        self._finish(release, "deployed")

    def _finish(self, release: Release, state: str) -> None:
        """Replaces the pending revision."""
        try:
            self._request()
        except InstanceError:
            self.left_pending += 1
            raise
        self._kube.remove_object(find_revisions(self._kube, release)[-1])
        self._store(release, state)

    def _store(self, release: Release, state: str) -> None:
        manifest = "\n---\n".join(map(json.dumps, _objects_of(release).values()))
        created_at = str(int(self._clock.now().timestamp()))
        store_release(self._kube, release, state, created_at=created_at, manifest=manifest)

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        for path in [path for path in _objects_of(release) if path in self._kube.objects]:
            self._request()
            self._kube.remove_object(path)
        self._request()
        remove_release(self._kube, release)

    def uninstall_outside(self, name: str, namespace: str) -> None:
        """As somebody else does with the program helm."""
        release = Release(name, namespace, Chart("vc", ""), "")
        if find_revisions(self._kube, release):
            pod = f"/api/v1/namespaces/{namespace}/pods/{name}-0"
            for path in [path for path in (*_objects_of(release), pod) if path in self._kube.objects]:
                self._kube.remove_object(path)
            remove_release(self._kube, release)

    def _request(self) -> None:
        try:
            self._access.count_request()
        except Unreachable:
            raise InstanceError("HelmFailed", "helm could not reach the cluster", WARNING) from None


def _state_of(kube: FakeKube, path: str) -> str:
    return str(kube.objects[path]["metadata"]["labels"]["status"])


def _objects_of(release: Release) -> dict[str, Object]:
    """The objects of a release by path: two, and the Secret of a virtual cluster."""
    found: dict[str, Object] = {}
    for suffix in ("settings", "more"):
        path = SETTINGS.format(release.namespace, release.name).replace("-settings", f"-{suffix}")
        meta = {"name": path.rpartition("/")[2]}
        found[path] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"values": release.values}}
    if release.chart.name == "vc":
        path = f"{SECRETS.format(release.namespace)}/vc-{release.name}"
        data = {"config": encode_base64(KUBECONFIG)}
        found[path] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"vc-{release.name}"}, "data": data}
        path = f"{APPS}/namespaces/{release.namespace}/statefulsets/{release.name}"
        claim = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}
        found[path] = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": release.name},
            "spec": {"replicas": 1, "template": {"spec": {}}, **claim},
        }
    return found


@pytest.fixture
def access() -> VanishingAccess:
    access = VanishingAccess()
    access.kube.after_write = run_workloads
    return access


@pytest.fixture
def helm(api: RegistryFixture, access: VanishingAccess) -> VanishingHelm:
    return VanishingHelm(access, api.clock)


@asynccontextmanager
async def run_server(api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm) -> AsyncIterator[None]:
    """The controllers, as of a server that has just started: they remember nothing."""
    controllers = (
        InstanceSleepController(api.registry, MANAGEMENT_GROUP),
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access, helm),
        build_virtual_cluster_controller(api, access, helm),
        AppInstanceController(
            api.registry, INSTANCE_CONFIG, access, ReleaseRunner(api.clock, helm), ("https://charts.example",)
        ),
    )
    async with running_controllers(api, *controllers):
        yield


async def prepare(api: RegistryFixture) -> None:
    """A project, a cluster, an App, a space that is ready, and a template of virtual clusters with a parameter."""
    await create_cluster(api)
    await api.create("App", "web", spec=app_spec())
    await api.create("SpaceTemplate", "plain", metadata=TRUSTED, spec={"template": {}})
    await create_space(api)
    release = {"helmRelease": {"chart": CHART, "values": "size: {{ parameters.size }}\n"}}
    spec = {"template": release, "parameters": [{"variable": "size", "defaultValue": "0"}]}
    await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec=spec)


def phase_of(api: RegistryFixture, kind: str) -> str:
    return str(get_path(api.get(kind, "one"), "status.phase"))


async def create_virtual_cluster(api: RegistryFixture) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
    await api.create(VC, "one", spec=spec)


async def wake(api: RegistryFixture) -> None:
    """What the gateway writes for a request."""
    now = int(api.clock.now().timestamp())
    info = '{"reason": "Request", "message": "woken up by ada", "user": "ada"}'

    def edit(obj: Object) -> None:
        obj["metadata"] = change_annotations(obj, build_wake_request(obj, now, info))["metadata"]

    await api.patch(VC, "one", edit)


async def annotate(api: RegistryFixture, values: dict[str, str | None]) -> None:
    def edit(obj: Object) -> None:
        obj["metadata"] = change_annotations(obj, values)["metadata"]

    await api.patch(VC, "one", edit)
