"""Tests of `fairlead.controllers.instances.status`: every revision of an instance with Ready=True is usable."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.registry.conditions import find_condition
from fairlead.upstream.errors import Unreachable
from tests.controllers.instances.helm_fixture import CHART, FakeHelm
from tests.controllers.instances.revisions import RevisionRecorder, SlowAccess, record_revisions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller, build_virtual_cluster_controller
from tests.harness.kstatus import is_wait_over, kstatus
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, condition_status, create_cluster, set_online

SPACE, VC = "SpaceInstance", "VirtualClusterInstance"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class ReadyChecker:
    """Compares each revision of the instance with the state of the cluster at that moment."""

    def __init__(self, access: FakeAccess, check_usable: Callable[[Object, Object], None]) -> None:
        self._access = access
        self._check_usable = check_usable
        self._specs: dict[int, Object] = {}
        self._last: Object = {}

    def check(self, obj: Object) -> None:
        generation, status = metadata(obj)["generation"], obj["status"]
        self._specs[generation] = obj["spec"]
        is_changed, self._last = status != self._last, status
        ready = find_condition(status, "Ready")
        assert ready is not None
        is_ready = ready["status"] == "True"
        assert (status["phase"] == "Ready") == is_ready
        if kstatus(obj) == "Current" or is_wait_over(obj):
            assert is_ready and ready["observedGeneration"] == generation
        if is_ready:
            assert not (is_changed and self._access.down)
            self._check_usable(obj, self._specs[ready["observedGeneration"]])


def space_checker(access: FakeAccess) -> Callable[[Object, Object], None]:
    def check_usable(space: Object, spec: Object) -> None:
        objects = access.kube.objects
        namespace = objects[f"/api/v1/namespaces/{spec['clusterRef']['namespace']}"]
        assert metadata(namespace)["labels"]["service.sh/uid"] == metadata(space)["uid"]
        assert "deletionTimestamp" not in metadata(namespace)
        binding = objects[f"{RBAC}/namespaces/{name_of(namespace)}/rolebindings/service.sh:admin"]
        assert INSTANCE_CONFIG.names.map_name(spec["owner"]["user"]) in {
            subject["name"] for subject in binding["subjects"]
        }
        expected = {name_of(obj): obj["data"] for obj in parse_objects(get_path(space, "status.space.objects") or "")}
        config_maps_path = f"/api/v1/namespaces/{name_of(namespace)}/configmaps/"
        existing = {
            path.removeprefix(config_maps_path): obj["data"]
            for path, obj in objects.items()
            if path.startswith(config_maps_path)
        }
        assert existing == expected

    return check_usable


def virtual_cluster_checker(access: FakeAccess, helm: FakeHelm) -> Callable[[Object, Object], None]:
    def check_usable(instance: Object, spec: Object) -> None:
        assert f"/api/v1/namespaces/{spec['clusterRef']['namespace']}" in access.kube.objects
        assert helm.installed[-1].values == get_path(instance, "status.virtualCluster.helmRelease.values")
        assert access.virtual_down is None

    return check_usable


def build_template(kind: str, number: int) -> Object:
    """A template whose object names and content depend on the number."""
    if kind == VC:
        return {"helmRelease": {"chart": CHART, "values": f"number: {number}"}}
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME}, data: {number: 'NUMBER'}}"
    names = ("always", f"only-{number % 3}")
    return {"objects": "\n---\n".join(text.replace("NAME", name).replace("NUMBER", str(number)) for name in names)}


@asynccontextmanager
async def run_with_checks(kind: str) -> AsyncIterator[tuple[RegistryFixture, FakeAccess, RevisionRecorder]]:
    """Runs all controllers, and checks every revision of instances of the kind."""
    access = SlowAccess()
    helm = FakeHelm(access.kube)
    async with open_registry() as api:
        plural = api.resource(kind).kind.plural
        check_usable = space_checker(access) if kind == SPACE else virtual_cluster_checker(access, helm)
        recorder = record_revisions(api, plural, ReadyChecker(access, check_usable).check)
        await create_cluster(api)
        access.virtual_down = None
        controllers = (
            InstanceTemplateController(api.registry, INSTANCE_CONFIG),
            build_space_controller(api, access),
            build_virtual_cluster_controller(api, access, helm),
        )
        async with running_controllers(api, *controllers):
            yield api, access, recorder


class InstanceActions:
    """Random actions on an instance: edits, changes of its template, and loss and return of its cluster."""

    def __init__(self, api: RegistryFixture, access: FakeAccess, kind: str, seed: int) -> None:
        self._api = api
        self._access = access
        self._kind = kind
        self._random = random.Random(seed)
        self._number = 0

    async def create(self) -> None:
        template = {"template": build_template(self._kind, 0)}
        await self._api.create(self._kind.replace("Instance", "Template"), "t", metadata=TRUSTED, spec=template)
        spec = {
            "owner": {"user": "ada"},
            "clusterRef": {"cluster": "c"},
            "templateRef": {"name": "t", "version": "x.x.x"},
        }
        await self._api.create(self._kind, "one", spec=spec)

    async def run_random_steps(self, steps: int) -> None:
        actions = (self._edit, self._change_owner, self._change_template, self._lose_cluster, self._restore_cluster)
        for _ in range(steps):
            await self._random.choice(actions)()
            await asyncio.sleep(self._random.choice((0, 0.01, 0.05, 0.1, 0.3, 2, 30)))

    async def _edit(self) -> None:
        self._number += 1
        await self._change(displayName=f"number {self._number}")

    async def _change_owner(self) -> None:
        self._number += 1
        await self._change(owner={"user": f"user-{self._number}"})

    async def _change(self, **spec: Any) -> None:
        await self._api.patch(self._kind, "one", lambda obj: obj["spec"].update(spec))

    async def _change_template(self) -> None:
        self._number += 1
        definition = build_template(self._kind, self._number)
        kind = self._kind.replace("Instance", "Template")
        await self._api.patch(kind, "t", lambda obj: obj["spec"].update(template=definition))

    async def _lose_cluster(self) -> None:
        self._access.down = Unreachable("no response")
        await asyncio.sleep(self._random.choice((0, 0.1, 10)))
        await set_online(self._api, False)

    async def _restore_cluster(self) -> None:
        self._access.down = None
        await set_online(self._api, True)

    async def wait_until_current(self) -> None:
        await self._restore_cluster()
        await eventually(lambda: kstatus(self._api.get(self._kind, "one") or {}) == "Current")

    async def delete(self) -> None:
        """Edits the instance while it is being deleted."""
        self._access.kube.delays_deletion = True
        await self._api.delete(self._kind, "one")
        for _ in range(20):
            await self._edit()
            await asyncio.sleep(0.02)
        self._access.kube.finish_deletions()
        await eventually(lambda: self._api.get(self._kind, "one") is None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [SPACE, VC])
async def test_every_revision_with_ready_true_is_usable(kind: str, seed: int) -> None:
    async with run_with_checks(kind) as (api, access, recorder):
        actions = InstanceActions(api, access, kind, seed)
        await actions.create()
        await actions.wait_until_current()
        await actions.run_random_steps(40)
        await actions.wait_until_current()
        await actions.delete()
    assert recorder.errors == []
    kstatuses = {kstatus(revision) for revision in recorder.revisions}
    assert {"InProgress", "Current", "Terminating"} <= kstatuses


async def apply_change(api: RegistryFixture, change: Callable[[], Awaitable[object]], kind: str = SPACE) -> None:
    await change()
    await eventually(lambda: kstatus(api.get(kind, "one") or {}) == "Current")


async def test_the_first_revision_is_in_progress() -> None:
    async with run_with_checks(SPACE) as (api, access, recorder):
        await InstanceActions(api, access, SPACE, 0).create()
        first = recorder.revisions[0]
        assert (kstatus(first), is_wait_over(first)) == ("InProgress", False)
        assert get_path(first, "status.phase") == "Pending"
        assert not [entry for entry in first["metadata"]["managedFields"] if "f:status" in entry["fieldsV1"]]


@pytest.mark.parametrize("kind", [SPACE, VC])
async def test_an_offline_cluster_is_reported_and_recovers(kind: str) -> None:
    async with run_with_checks(kind) as (api, access, recorder):
        actions = InstanceActions(api, access, kind, 0)
        await actions.create()
        await actions.wait_until_current()
        before = dict(access.kube.objects)
        access.down = Unreachable("no response")
        await set_online(api, False)
        await eventually(lambda: condition_status(api, kind, "Ready") == ("False", "ClusterOffline"))
        instance = api.get(kind, "one")
        assert (get_path(instance, "status.phase"), get_path(instance, "status.online")) == ("Pending", False)
        assert condition_status(api, kind, "SpaceSynced")[0] != "True"
        await asyncio.sleep(600)
        assert access.kube.objects == before
        await actions.wait_until_current()
        assert condition_status(api, kind, "Ready") == ("True", "Usable")
    assert recorder.errors == []


async def test_a_cluster_that_returns_is_checked_before_instances_are_ready() -> None:
    async with run_with_checks(SPACE) as (api, access, recorder):
        actions = InstanceActions(api, access, SPACE, 0)
        await actions.create()
        await actions.wait_until_current()
        await asyncio.sleep(5)  # no pass is in progress any more
        await set_online(api, False)
        await eventually(lambda: condition_status(api, SPACE, "Ready") == ("False", "ClusterOffline"))
        access.kube.objects.clear()  # like a cluster that was restored from an old backup
        await actions.wait_until_current()
        assert "/api/v1/namespaces/demo-one" in access.kube.objects
    assert recorder.errors == []


async def test_a_virtual_cluster_that_does_not_respond_is_not_ready() -> None:
    async with run_with_checks(VC) as (api, access, recorder):
        actions = InstanceActions(api, access, VC, 0)
        access.virtual_down = Unreachable("no response")
        await actions.create()
        await eventually(lambda: condition_status(api, VC, "Ready") == ("False", "Unreachable"))
        assert get_path(api.get(VC, "one"), "status.phase") == "Pending"
        access.virtual_down = None
        await actions.wait_until_current()
    assert recorder.errors == []
