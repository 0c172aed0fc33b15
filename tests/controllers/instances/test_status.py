"""Ready means usable now: in every revision that anybody can see of a space or a virtual cluster."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.instances.virtual_clusters import VirtualClusterController
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.registry.conditions import find_condition
from fairlead.upstream.errors import Unreachable
from tests.controllers.instances.helm_fixture import CHART, FakeHelm
from tests.controllers.instances.revisions import Revisions, SlowReach, record_revisions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.kstatus import is_over, kstatus
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, condition_status, create_cluster, set_online

SPACE, VC = "SpaceInstance", "VirtualClusterInstance"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Truth:
    """Judges each revision of the one instance there is by what is in the cluster at that moment."""

    def __init__(self, reach: FakeAccess, holds: Callable[[Object, Object], None]) -> None:
        self._reach = reach
        self._holds = holds
        self._specs: dict[int, Object] = {}
        self._last: Object = {}

    def judge(self, obj: Object) -> None:
        generation, status = metadata(obj)["generation"], obj["status"]
        self._specs[generation] = obj["spec"]
        is_news, self._last = status != self._last, status
        ready = find_condition(status, "Ready")
        assert ready is not None
        is_ready = ready["status"] == "True"
        assert (status["phase"] == "Ready") == is_ready
        if kstatus(obj) == "Current" or is_over(obj):
            assert is_ready and ready["observedGeneration"] == generation
        if is_ready:
            assert not (is_news and self._reach.down)
            self._holds(obj, self._specs[ready["observedGeneration"]])


def holds_space(reach: FakeAccess) -> Callable[[Object, Object], None]:
    def holds(space: Object, spec: Object) -> None:
        objects = reach.kube.objects
        namespace = objects[f"/api/v1/namespaces/{spec['clusterRef']['namespace']}"]
        assert metadata(namespace)["labels"]["service.sh/uid"] == metadata(space)["uid"]
        assert "deletionTimestamp" not in metadata(namespace)
        binding = objects[f"{RBAC}/namespaces/{name_of(namespace)}/rolebindings/service.sh:admin"]
        assert INSTANCE_CONFIG.names.map_name(spec["owner"]["user"]) in {each["name"] for each in binding["subjects"]}
        wanted = {name_of(each): each["data"] for each in parse_objects(get_path(space, "status.space.objects") or "")}
        place = f"/api/v1/namespaces/{name_of(namespace)}/configmaps/"
        there = {at.removeprefix(place): each["data"] for at, each in objects.items() if at.startswith(place)}
        assert there == wanted

    return holds


def holds_virtual_cluster(reach: FakeAccess, helm: FakeHelm) -> Callable[[Object, Object], None]:
    def holds(instance: Object, spec: Object) -> None:
        assert f"/api/v1/namespaces/{spec['clusterRef']['namespace']}" in reach.kube.objects
        assert helm.installed[-1].values == get_path(instance, "status.virtualCluster.helmRelease.values")
        assert reach.virtual_down is None

    return holds


def rendered_with(kind: str, number: int) -> Object:
    """A definition that is another one for each number, in the names of its objects and in their content."""
    if kind == VC:
        return {"helmRelease": {"chart": CHART, "values": f"number: {number}"}}
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME}, data: {number: 'NUMBER'}}"
    names = ("always", f"only-{number % 3}")
    return {"objects": "\n---\n".join(text.replace("NAME", name).replace("NUMBER", str(number)) for name in names)}


@asynccontextmanager
async def followed(kind: str) -> AsyncIterator[tuple[RegistryFixture, FakeAccess, Revisions]]:
    """A world with everything at work, in which every revision of instances of the kind is judged."""
    reach = SlowReach()
    helm = FakeHelm(reach.kube)
    async with open_registry() as api:
        plural = api.of(kind).kind.plural
        holds = holds_space(reach) if kind == SPACE else holds_virtual_cluster(reach, helm)
        revisions = record_revisions(api, plural, Truth(reach, holds).judge)
        await create_cluster(api)
        reach.virtual_down = None
        controllers = (
            InstanceTemplateController(api.registry, INSTANCE_CONFIG),
            SpaceController(api.registry, INSTANCE_CONFIG, reach),
            VirtualClusterController(api.registry, INSTANCE_CONFIG, reach, helm, ("https://charts.example",)),
        )
        async with running_controllers(api, *controllers):
            yield api, reach, revisions


class Life:
    """What happens to an instance: it is edited, its template changes, its cluster is lost and comes back."""

    def __init__(self, api: RegistryFixture, reach: FakeAccess, kind: str, seed: int) -> None:
        self._world = api
        self._reach = reach
        self._kind = kind
        self._random = random.Random(seed)
        self._number = 0

    async def begin(self) -> None:
        template = {"template": rendered_with(self._kind, 0)}
        await self._world.create(self._kind.replace("Instance", "Template"), "t", metadata=TRUSTED, spec=template)
        spec = {
            "owner": {"user": "ada"},
            "clusterRef": {"cluster": "c"},
            "templateRef": {"name": "t", "version": "x.x.x"},
        }
        await self._world.create(self._kind, "one", spec=spec)

    async def go_on(self, steps: int) -> None:
        happenings = (self._edit, self._give_away, self._change_template, self._lose_cluster, self._find_cluster)
        for _ in range(steps):
            await self._random.choice(happenings)()
            await asyncio.sleep(self._random.choice((0, 0.01, 0.05, 0.1, 0.3, 2, 30)))

    async def _edit(self) -> None:
        self._number += 1
        await self._change(displayName=f"number {self._number}")

    async def _give_away(self) -> None:
        self._number += 1
        await self._change(owner={"user": f"user-{self._number}"})

    async def _change(self, **spec: Any) -> None:
        await self._world.patch(self._kind, "one", lambda each: each["spec"].update(spec))

    async def _change_template(self) -> None:
        self._number += 1
        definition = rendered_with(self._kind, self._number)
        kind = self._kind.replace("Instance", "Template")
        await self._world.patch(kind, "t", lambda each: each["spec"].update(template=definition))

    async def _lose_cluster(self) -> None:
        self._reach.down = Unreachable("nobody answers")
        await asyncio.sleep(self._random.choice((0, 0.1, 10)))
        await set_online(self._world, False)

    async def _find_cluster(self) -> None:
        self._reach.down = None
        await set_online(self._world, True)

    async def settle(self) -> None:
        await self._find_cluster()
        await eventually(lambda: kstatus(self._world.see(self._kind, "one") or {}) == "Current")

    async def end(self) -> None:
        """It is edited while it goes."""
        self._reach.kube.slow_to_go = True
        await self._world.delete(self._kind, "one")
        for _ in range(20):
            await self._edit()
            await asyncio.sleep(0.02)
        self._reach.kube.finish()
        await eventually(lambda: self._world.see(self._kind, "one") is None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [SPACE, VC])
async def test_ready_is_true_in_every_revision_that_says_so(kind: str, seed: int) -> None:
    async with followed(kind) as (api, reach, revisions):
        life = Life(api, reach, kind, seed)
        await life.begin()
        await life.settle()
        await life.go_on(40)
        await life.settle()
        await life.end()
    assert revisions.faults == []
    verdicts = {kstatus(each) for each in revisions.seen}
    assert {"InProgress", "Current", "Terminating"} <= verdicts


async def changed(api: RegistryFixture, change: Callable[[], Awaitable[object]], kind: str = SPACE) -> None:
    await change()
    await eventually(lambda: kstatus(api.see(kind, "one") or {}) == "Current")


async def test_the_first_revision_says_that_it_is_under_way() -> None:
    async with followed(SPACE) as (api, reach, revisions):
        await Life(api, reach, SPACE, 0).begin()
        first = revisions.seen[0]
        assert (kstatus(first), is_over(first)) == ("InProgress", False)
        assert get_path(first, "status.phase") == "Pending"
        assert not [each for each in first["metadata"]["managedFields"] if "f:status" in each["fieldsV1"]]


@pytest.mark.parametrize("kind", [SPACE, VC])
async def test_a_lost_cluster_is_said_and_comes_back_by_itself(kind: str) -> None:
    async with followed(kind) as (api, reach, revisions):
        life = Life(api, reach, kind, 0)
        await life.begin()
        await life.settle()
        before = dict(reach.kube.objects)
        reach.down = Unreachable("nobody answers")
        await set_online(api, False)
        await eventually(lambda: condition_status(api, kind, "Ready") == ("False", "ClusterOffline"))
        seen = api.see(kind, "one")
        assert (get_path(seen, "status.phase"), get_path(seen, "status.online")) == ("Pending", False)
        assert condition_status(api, kind, "SpaceSynced")[0] != "True"
        await asyncio.sleep(600)
        assert reach.kube.objects == before
        await life.settle()
        assert condition_status(api, kind, "Ready") == ("True", "Usable")
    assert revisions.faults == []


async def test_a_cluster_that_is_back_is_looked_at_before_anything_is_ready() -> None:
    async with followed(SPACE) as (api, reach, revisions):
        life = Life(api, reach, SPACE, 0)
        await life.begin()
        await life.settle()
        await asyncio.sleep(5)  # nothing is under way any more
        await set_online(api, False)
        await eventually(lambda: condition_status(api, SPACE, "Ready") == ("False", "ClusterOffline"))
        reach.kube.objects.clear()  # it was restored from a backup that is older
        await life.settle()
        assert "/api/v1/namespaces/demo-one" in reach.kube.objects
    assert revisions.faults == []


async def test_a_virtual_cluster_that_does_not_answer_is_not_ready() -> None:
    async with followed(VC) as (api, reach, revisions):
        life = Life(api, reach, VC, 0)
        reach.virtual_down = Unreachable("nobody answers")
        await life.begin()
        await eventually(lambda: condition_status(api, VC, "Ready") == ("False", "Unreachable"))
        assert get_path(api.see(VC, "one"), "status.phase") == "Pending"
        reach.virtual_down = None
        await life.settle()
    assert revisions.faults == []
