"""Tests of `fairlead.controllers.instances.sleeping_workloads`: what runs in a namespace is stopped and started."""

import random
from datetime import UTC, datetime

import pytest

from fairlead.controllers.instances.remote_namespace import SPACE_LABEL, RemoteNamespace, ownership_labels
from fairlead.controllers.instances.sleeping_workloads import QUOTA_NAME, SleepingNamespace
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.upstream.kube_client import RemoteApiError
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.fake_cluster.workloads import (
    add_cron_job,
    add_daemon_set,
    add_job,
    add_pod,
    add_workload,
    pods_in,
    run_workloads,
)

NAMESPACE = "demo-one"
TARGET = RemoteNamespace("c", NAMESPACE, ownership_labels(SPACE_LABEL, "demo", "one", "u"))
NOW = datetime(2026, 11, 18, tzinfo=UTC)


class Interrupted(Exception):
    pass


class InterruptedApi(InMemoryClusterApi):
    """Fails after a number of writes, like a server that is killed."""

    def __init__(self, kube: FakeKube, writes: int) -> None:
        super().__init__(kube)
        self.writes = writes

    def _send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        if method != "GET":
            if not self.writes:
                raise Interrupted
            self.writes -= 1
        return super()._send(method, path, body, content_type)


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube(after_write=run_workloads)
    kube.add_object(TARGET.path, metadata={"labels": dict(TARGET.labels)})
    add_workload(kube, NAMESPACE, "deployments", "web", 3)
    add_workload(kube, NAMESPACE, "statefulsets", "db", 2)
    add_workload(kube, NAMESPACE, "replicasets", "bare", 1)
    add_workload(kube, NAMESPACE, "deployments", "off", 0)
    add_daemon_set(kube, NAMESPACE, "logs", **{"kubernetes.io/os": "linux"})
    add_cron_job(kube, NAMESPACE, "nightly")
    add_cron_job(kube, NAMESPACE, "stopped", suspend=True)
    add_job(kube, NAMESPACE, "done", active=0)
    return kube


def sleeping(kube: FakeKube, api: InMemoryClusterApi | None = None, **options: bool | str) -> SleepingNamespace:
    return SleepingNamespace(api or InMemoryClusterApi(kube), TARGET, NOW, **options)  # type: ignore[arg-type]


def contents(kube: FakeKube) -> dict[str, tuple[object, object]]:
    """What users see of the namespace: specs and annotations, by path."""
    return {
        path: (deep_copy(obj.get("spec") or {}), obj["metadata"].get("annotations") or {})
        for path, obj in kube.objects.items()
        if "/pods/" not in path
    }


async def test_everything_stops_and_comes_back(kube: FakeKube) -> None:
    before = contents(kube)
    pods = pods_in(kube, NAMESPACE)
    assert len(pods) == 7
    progress = await sleeping(kube).put_to_sleep()
    assert (progress.running, progress.kept) == ([], [])
    assert pods_in(kube, NAMESPACE) == []
    await sleeping(kube).wake()
    assert contents(kube) == before
    assert pods_in(kube, NAMESPACE) == pods


async def test_a_repetition_does_not_save_zero(kube: FakeKube) -> None:
    before = contents(kube)
    for _ in range(3):
        await sleeping(kube).put_to_sleep()
    await sleeping(kube).wake()
    assert contents(kube) == before


async def test_interruptions_between_any_two_writes_lose_nothing(kube: FakeKube) -> None:
    """In any order of sleeps and wake-ups, each of them interrupted anywhere, the last wake-up restores everything."""
    before = contents(kube)
    for seed in range(150):
        choice = random.Random(seed)
        for _ in range(choice.randint(1, 6)):
            place = sleeping(kube, InterruptedApi(kube, choice.randint(0, 9)))
            try:
                await (place.put_to_sleep() if choice.random() < 0.6 else place.wake())
            except Interrupted:
                continue
        await sleeping(kube).wake()
        assert contents(kube) == before, seed


async def test_no_new_pods_while_it_sleeps(kube: FakeKube) -> None:
    await sleeping(kube).put_to_sleep()
    add_workload(kube, NAMESPACE, "deployments", "late", 2)
    assert pods_in(kube, NAMESPACE) == []
    await sleeping(kube).wake()
    assert len(pods_in(kube, NAMESPACE)) == 9


async def test_running_jobs_are_found_suspended_and_resumed(kube: FakeKube) -> None:
    path = add_job(kube, NAMESPACE, "import")
    assert await sleeping(kube).find_running_jobs() == ["Job import"]
    await sleeping(kube).put_to_sleep()
    assert get_path(kube.objects[path], "spec.suspend") is True
    assert pods_in(kube, NAMESPACE) == []
    await sleeping(kube).wake()
    assert get_path(kube.objects[path], "spec.suspend") is False
    assert "import-0" in pods_in(kube, NAMESPACE)


async def test_bare_pods_run_on_and_are_reported(kube: FakeKube) -> None:
    add_pod(kube, NAMESPACE, "shell")
    progress = await sleeping(kube).put_to_sleep()
    assert (progress.running, progress.kept) == ([], ["pod shell"])
    assert pods_in(kube, NAMESPACE) == ["shell"]


async def test_bare_pods_are_deleted_by_policy(kube: FakeKube) -> None:
    add_pod(kube, NAMESPACE, "shell")
    await sleeping(kube, deletes_bare_pods=True).put_to_sleep()
    assert pods_in(kube, NAMESPACE) == []


async def test_what_an_operator_controls_is_left_to_it(kube: FakeKube) -> None:
    owner = [{"uid": "operator", "name": "x", "controller": True}]
    path = add_workload(kube, NAMESPACE, "statefulsets", "managed", 1, ownerReferences=owner)
    progress = await sleeping(kube).put_to_sleep()
    assert get_path(kube.objects[path], "spec.replicas") == 1
    assert progress.kept == ["pod managed-0"]


async def test_pods_that_still_end_are_named(kube: FakeKube) -> None:
    kube.after_write = None  # no controller ends the pods
    progress = await sleeping(kube).put_to_sleep()
    assert "pod web-0-0" in progress.running
    run_workloads(kube)
    assert (await sleeping(kube).put_to_sleep()).running == []


async def test_a_workload_that_others_start_is_found_and_keeps_its_replicas(kube: FakeKube) -> None:
    path = "/apis/apps/v1/namespaces/demo-one/deployments/web"
    await sleeping(kube).put_to_sleep()
    assert await sleeping(kube).find_resumed() == []
    kube.edit_object(path, lambda obj: obj["spec"].update(replicas=5))
    assert await sleeping(kube).find_resumed() == ["Deployment web"]
    await sleeping(kube).wake()
    assert get_path(kube.objects[path], "spec.replicas") == 5
    assert "annotations" not in kube.objects[path]["metadata"] or not kube.objects[path]["metadata"]["annotations"]


async def test_a_made_up_number_of_replicas_is_dropped(kube: FakeKube) -> None:
    path = "/apis/apps/v1/namespaces/demo-one/deployments/web"
    await sleeping(kube).put_to_sleep()
    note = {"sleepmode.service.sh/replicas": "9999999999"}
    kube.edit_object(path, lambda obj: obj["metadata"].update(annotations=note))
    await sleeping(kube).wake()
    assert get_path(kube.objects[path], "spec.replicas") == 0


async def test_a_change_between_reading_and_writing_is_not_lost(kube: FakeKube) -> None:
    path = "/apis/apps/v1/namespaces/demo-one/deployments/web"

    class Racing(InMemoryClusterApi):
        raced = False

        async def patch(self, place: str, body: Object) -> Object:
            if place == path and not self.raced:
                self.raced = True
                kube.edit_object(path, lambda obj: obj["spec"].update(replicas=7))
            return await super().patch(place, body)

    await sleeping(kube, Racing(kube)).put_to_sleep()
    await sleeping(kube).wake()
    assert get_path(kube.objects[path], "spec.replicas") == 7


async def test_a_cluster_that_refuses_is_an_error(kube: FakeKube) -> None:
    kube.failing_paths["/resourcequotas/"] = 403
    with pytest.raises(RemoteApiError):
        await sleeping(kube).put_to_sleep()
    assert f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/{QUOTA_NAME}" not in kube.objects
    assert len(pods_in(kube, NAMESPACE)) == 7


def add_virtual_cluster(kube: FakeKube, *, has_claim: bool, has_etcd: bool = False) -> None:
    release = {"meta.helm.sh/release-name": "vc"}
    path = add_workload(kube, NAMESPACE, "statefulsets", "vc", 1, annotations=release)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} if has_claim else {"name": "data"}
    container = {"name": "a", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    kube.objects[path]["spec"]["template"]["spec"] = {"containers": [container], "volumes": [volume]}
    if has_etcd:
        etcd = add_workload(kube, NAMESPACE, "statefulsets", "vc-etcd", 1, annotations=release)
        kube.objects[etcd]["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]


@pytest.mark.parametrize(
    ("has_claim", "has_etcd", "expected"),
    [(True, False, ""), (False, False, "StatefulSet vc"), (False, True, "")],
)
async def test_a_virtual_cluster_without_a_claim_loses_its_data(
    kube: FakeKube, has_claim: bool, has_etcd: bool, expected: str
) -> None:
    add_virtual_cluster(kube, has_claim=has_claim, has_etcd=has_etcd)
    assert await sleeping(kube, release="vc").find_volatile_store() == expected


async def test_a_virtual_cluster_stops_from_the_control_plane_down(kube: FakeKube) -> None:
    add_virtual_cluster(kube, has_claim=True, has_etcd=True)
    add_pod(kube, NAMESPACE, "synced", labels={"vcluster.loft.sh/managed-by": "vc"})
    before = contents(kube)
    kube.after_write = None
    first = await sleeping(kube, release="vc").put_to_sleep()
    assert first.running == ["pod vc-0"]
    objects = kube.objects
    vc, etcd = (objects[f"/apis/apps/v1/namespaces/demo-one/statefulsets/{name}"] for name in ("vc", "vc-etcd"))
    assert get_path(etcd, "spec.replicas") == 1
    assert vc["metadata"]["annotations"]["loft.sh/paused-replicas"] == "1"
    assert "synced" in pods_in(kube, NAMESPACE)
    kube.after_write = run_workloads
    run_workloads(kube)
    progress = await sleeping(kube, release="vc").put_to_sleep()
    assert (progress.running, progress.kept, pods_in(kube, NAMESPACE)) == ([], [], [])
    await sleeping(kube, release="vc").wake()
    assert contents(kube) == before
    assert {"vc-0", "vc-etcd-0"} <= set(pods_in(kube, NAMESPACE))
