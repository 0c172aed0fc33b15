"""Spaces that sleep and wake, with real processes: a request at any worker wakes, a killed server loses nothing."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from fairlead.core.objects import get_path
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, Responder, build_json_response
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.server import FakeCluster
from tests.fake_cluster.workloads import add_cron_job, add_workload, pods_in, run_workloads
from tests.harness.eventually import wait_until
from tests.harness.gateways import M, connect_cluster, create_resource, is_online, merge_patch, post_object
from tests.harness.server_process import running_server
from tests.harness.worker_processes import running_workers

SPACES = f"{M}/namespaces/service-p-demo/spaceinstances"
GATEWAY = "/kubernetes/project/demo/space/dev"
NAMESPACE = "demo-dev"
SERVED = ("/api/v1/namespaces", "/apis/apps/", "/apis/batch/", "/apis/rbac.authorization.k8s.io/")
PREFIX = "sleepmode.service.sh/"


def serve(kube: FakeKube) -> Responder:
    """The objects of the cluster. All else is as for every fake cluster; users may do everything."""

    def respond(request: RecordedRequest) -> CannedResponse | None:
        if not request.path.startswith(SERVED) or "watch=" in request.target:
            return None
        body = json.loads(request.body) if request.body else None
        content_type = dict(request.headers).get("content-type", "")
        status, response = kube.handle_request(request.method, request.target, body, "", content_type)
        return build_json_response(response, status)

    return respond


def create_space(admin: httpx.Client, cluster: FakeCluster, kube: FakeKube) -> None:
    """With workloads, and ready."""
    connect_cluster(admin, "c", cluster.build_kubeconfig())
    wait_until(lambda: is_online(admin, "c"), 30)
    create_resource(admin, "projects", "Project", "demo", allowedClusters=[{"name": "*"}])
    body = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": "dev"}}
    post_object(admin, SPACES, {**body, "spec": {"clusterRef": {"cluster": "c"}}})
    wait_until(lambda: get_phase(admin) == "Ready", 30)
    add_workload(kube, NAMESPACE, "deployments", "web", 3)
    add_workload(kube, NAMESPACE, "statefulsets", "db", 2)
    add_cron_job(kube, NAMESPACE, "nightly")


def get_space(admin: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = admin.get(f"{SPACES}/dev").json()
    return found


def get_phase(admin: httpx.Client) -> str:
    return str(get_path(get_space(admin), "status.phase"))


def annotate(admin: httpx.Client, **notes: str | None) -> None:
    changes = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
    merge_patch(admin, f"{SPACES}/dev", {"metadata": {"annotations": changes}})


def counts(kube: FakeKube) -> list[object]:
    root = f"/apis/apps/v1/namespaces/{NAMESPACE}"
    paths = (f"{root}/deployments/web", f"{root}/statefulsets/db")
    suspended = get_path(kube.objects[f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/nightly"], "spec.suspend")
    return [*(get_path(kube.objects[each], "spec.replicas") for each in paths), suspended]


def test_requests_at_all_workers_wake_it_once(tmp_path: Path) -> None:
    kube = FakeKube(after_write=run_workloads)
    with (
        FakeCluster(serve(kube)) as cluster,
        running_workers(tmp_path / "data", count=2) as server,
        server.client() as admin,
    ):
        create_space(admin, cluster, kube)
        annotate(admin, sleep_after="2", last_activity=str(int(time.time()) - 60))
        wait_until(lambda: get_phase(admin) == "Sleeping", 60)
        assert (pods_in(kube, NAMESPACE), counts(kube)) == ([], [0, 0, True])
        annotate(admin, sleep_after="3600")

        def read(number: int) -> httpx.Response:
            """On a connection of its own, so that both workers get some."""
            with server.client() as client:
                return client.get(f"{GATEWAY}/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web", timeout=60)

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(read, range(20)))
        assert {each.status_code for each in answers} == {200}, [each.text for each in answers]
        assert {each.json()["spec"]["replicas"] for each in answers} == {3}
        assert any("woken up by this request" in each.headers.get("warning", "") for each in answers)
        wait_until(lambda: get_phase(admin) == "Ready", 30)
        assert (len(pods_in(kube, NAMESPACE)), counts(kube)) == (5, [3, 2, False])
        events = admin.get("/kubernetes/management/api/v1/namespaces/service-p-demo/events").json()["items"]
        assert sum(each.get("count", 1) for each in events if each["reason"] == "WokenUp") == 1


def test_a_server_that_is_killed_between_any_two_steps_goes_on(tmp_path: Path) -> None:
    """It is killed after each of the first writes of a sleep, and of the wake-up."""
    reached = threading.Event()
    limit = [-1]
    kube = FakeKube()

    def count_writes(kube: FakeKube) -> None:
        run_workloads(kube)
        if limit[0] > 0:
            limit[0] -= 1
            if limit[0] == 0:
                reached.set()

    kube.after_write = count_writes
    with FakeCluster(serve(kube)) as cluster:
        with running_server(tmp_path / "data") as server, server.client() as admin:
            create_space(admin, cluster, kube)
        for writes in (1, 2, 3):
            for force, expected in (("true", "Sleeping"), (None, "Ready")):
                with running_server(tmp_path / "data") as server, server.client() as admin:
                    wait_until(lambda: is_online(admin, "c"), 30)
                    reached.clear()
                    limit[0] = writes
                    annotate(admin, force=force)
                    assert reached.wait(30)
                    server.kill()
                with running_server(tmp_path / "data") as server, server.client() as admin:
                    wait_until(lambda phase=expected: get_phase(admin) == phase, 60)
            assert (len(pods_in(kube, NAMESPACE)), counts(kube)) == (5, [3, 2, False]), writes
