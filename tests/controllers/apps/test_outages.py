"""A cluster that does not answer for a minute, beginning with any of the requests of the server or of Helm: what was
requested is there afterwards, and soon."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.release_objects import RELEASE_NAME, RELEASE_NAMESPACE
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.clock import Clock
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.domain.sleep_mode import build_wake_request, change_annotations
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import Unreachable
from tests.controllers.apps.app_fixture import APP, SETTINGS, app_spec, create_space, install_app, wait_for_reason
from tests.controllers.instances.helm_fixture import KUBECONFIG, RELEASE, VC
from tests.fake_cluster.helm_releases import SECRETS, find_revisions, remove_release, store_release
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.fake_cluster.workloads import add_workload, pods_in, run_workloads
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller, build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, create_cluster, encode_base64

OUTAGE_SECONDS = 60.0
RECOVERY_SECONDS = 300.0
"""After the outage: the longest backoff and a retry of Helm."""
MAX_REQUESTS = 200
PREFIX = "sleepmode.service.sh/"


class VanishingAccess(FakeAccess):
    """Its cluster does not answer from the request on that `vanish_after` counts down to, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual_down = None
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
async def running_server(api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm) -> AsyncIterator[None]:
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access, helm),
        build_virtual_cluster_controller(api, access, helm),
        AppInstanceController(
            api.registry, INSTANCE_CONFIG, access, ReleaseRunner(api.clock, helm), ("https://charts.example",)
        ),
    )
    async with running_controllers(api, *controllers):
        await create_cluster(api)
        await api.create("App", "web", spec=app_spec())
        await api.create("SpaceTemplate", "plain", metadata=TRUSTED, spec={"template": {}})
        await create_space(api)
        await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": RELEASE})
        yield


def phase_of(api: RegistryFixture, kind: str) -> str:
    return str(get_path(api.get(kind, "one"), "status.phase"))


async def try_each_request(
    access: VanishingAccess, act: Callable[[int], Awaitable[object]], is_done: Callable[[], bool]
) -> int:
    """Repeats an action with an outage that begins with its first request, with its second, and so on. Returns how many
    requests it has."""
    for number in range(MAX_REQUESTS):
        access.vanish_after = number
        await act(number)
        await eventually(is_done, OUTAGE_SECONDS + RECOVERY_SECONDS)
        if not access.has_vanished:
            access.vanish_after = None
            return number
        await asyncio.sleep(OUTAGE_SECONDS)
    raise AssertionError(f"it is not done after {MAX_REQUESTS} requests")


async def test_an_app_is_upgraded_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    path = SETTINGS.format("demo-dev", "one")

    async def upgrade(number: int) -> None:
        await api.patch(APP, "one", lambda each: each["spec"].update(parameters=f"size: {number}\n"))

    def is_upgraded() -> bool:
        status = (api.get(APP, "one") or {})["status"]
        is_recorded = status["phase"] == "Ready" and status["lastAttempt"]["hash"] == status["deployHash"]
        is_observed = status["observedGeneration"] == (api.get(APP, "one") or {})["metadata"]["generation"]
        return bool(is_recorded and is_observed and status["lastAttempt"]["outcome"] == "Succeeded")

    async with running_server(api, access, helm):
        await install_app(api, parameters="size: 100\n")
        await wait_for_reason(api, "Deployed")
        count = await try_each_request(access, upgrade, is_upgraded)
        assert f"size: {count}\n" in access.kube.objects[path]["data"]["values"]
    assert count > 5
    assert helm.left_pending > 1


async def create_virtual_cluster(api: RegistryFixture) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
    await api.create(VC, "one", spec=spec)


async def delete_virtual_cluster(api: RegistryFixture) -> None:
    """And the Secret of it, as the garbage collector does."""
    await api.delete(VC, "one")
    await eventually(lambda: api.get(VC, "one") is None, OUTAGE_SECONDS + RECOVERY_SECONDS)
    await api.delete("Secret", "vc-one-kubeconfig")


async def test_a_virtual_cluster_is_created_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def create_anew(number: int) -> None:
        access.vanish_after = None
        if number:
            await delete_virtual_cluster(api)
        access.vanish_after = number
        await create_virtual_cluster(api)

    async with running_server(api, access, helm):
        assert await try_each_request(access, create_anew, lambda: phase_of(api, VC) == "Ready") > 10
    assert helm.left_pending > 1


async def test_a_virtual_cluster_is_deleted_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def delete_one(number: int) -> None:
        access.vanish_after = None
        await create_virtual_cluster(api)
        await eventually(lambda: phase_of(api, VC) == "Ready")
        access.vanish_after = number
        await delete_virtual_cluster(api)

    async with running_server(api, access, helm):
        assert await try_each_request(access, delete_one, lambda: api.get(VC, "one") is None) > 3
    assert not [path for path in access.kube.objects if "demo-v-one" in path]


async def test_a_virtual_cluster_sleeps_and_wakes_up_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def put_to_sleep(number: int) -> None:
        await _annotate(api, {f"{PREFIX}force": "true"})
        await eventually(lambda: phase_of(api, VC) == "Sleeping", OUTAGE_SECONDS + RECOVERY_SECONDS)
        assert pods_in(access.kube, "demo-v-one") == []

    async def wake(number: int) -> None:
        now = int(api.clock.now().timestamp())
        info = '{"reason": "Request", "message": "woken up by ada", "user": "ada"}'

        def edit(obj: Object) -> None:
            obj["metadata"] = change_annotations(obj, build_wake_request(obj, now, info))["metadata"]

        await api.patch(VC, "one", edit)

    async def do_both(number: int) -> None:
        await put_to_sleep(number)
        await wake(number)

    def is_awake() -> bool:
        return phase_of(api, VC) == "Ready" and pods_in(access.kube, "demo-v-one") == ["one-0"]

    async with running_server(api, access, helm):
        await create_virtual_cluster(api)
        await eventually(lambda: phase_of(api, VC) == "Ready")
        release = {"meta.helm.sh/release-name": "one"}
        path = add_workload(access.kube, "demo-v-one", "statefulsets", "one", 1, annotations=release)
        access.kube.objects[path]["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
        count = await try_each_request(access, do_both, is_awake)
        assert count > 20
        assert not [each for each in access.kube.objects[path]["metadata"]["annotations"] if each.startswith(PREFIX)]


async def _annotate(api: RegistryFixture, values: dict[str, str | None]) -> None:
    def edit(obj: Object) -> None:
        obj["metadata"] = change_annotations(obj, values)["metadata"]

    await api.patch(VC, "one", edit)
