"""The page of a space: its pods, usage against quota, events, and ways into it, through its gateway; and a pod's page.

The cluster `oslo` stores what is sent to it, and has two pods, a quota and two events in the namespace `corner`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, VIEWER, ConsoleServer
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import ACCESS_REVIEWS_PATH, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import connect_cluster, create_resource, is_online
from tests.live.discovery import build_core_discovery, build_discovery_list, serve_discovery

INSIDE = "/api/v1/namespaces/corner"
CREATED = "2026-11-18T12:00:00Z"
PAGE = "spaceinstances/service-p-corners/corner"
POD = "web-6f7c9d"
OWN_PATHS = ("/api", "/apis", "/version", "/readyz", "/api/v1/nodes", "/api/v1/namespaces/kube-system")


@dataclass(slots=True)
class SpaceCluster:
    """`denied` are resources that users may not list, by the cluster's own decision."""

    fake: FakeCluster
    denied: set[str]


def metadata(name: str) -> dict[str, Any]:
    common = {"namespace": "corner", "resourceVersion": "1", "creationTimestamp": CREATED}
    return {"name": name, "uid": f"uid-of-{name}", **common}


def build_pods() -> list[dict[str, Any]]:
    web = {
        "nodeName": "node-1",
        "initContainers": [{"name": "migrate", "image": "example/migrate:1"}],
        "containers": [
            {"name": "web", "image": "example/web:1.4.2", "ports": [{"containerPort": 8080, "name": "http"}]},
            {"name": "resolver", "image": "example/dns:2", "ports": [{"containerPort": 53, "protocol": "UDP"}]},
        ],
    }
    statuses = [
        {"name": "web", "ready": True, "restartCount": 2, "state": {"running": {"startedAt": CREATED}}},
        {"name": "resolver", "ready": False, "restartCount": 1, "state": {"terminated": {"exitCode": 3}}},
    ]
    done = {"name": "migrate", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    running = {
        "phase": "Running",
        "podIP": "10.0.3.17",
        "initContainerStatuses": [done],
        "containerStatuses": statuses,
    }
    waiting = {"reason": "ImagePullBackOff", "message": "the image does not exist"}
    pending = {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "ready": False, "restartCount": 7, "state": {"waiting": waiting}}],
    }
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(POD), "spec": web, "status": running},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata("worker-0"),
            "spec": {"containers": [{"name": "c", "image": "example/broken"}]},
            "status": pending,
        },
    ]


def serve_contents(cluster: FakeCluster) -> None:
    def describe(name: str, kind: str) -> dict[str, Any]:
        return {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list", "create"]}

    resources = [
        describe("pods", "Pod"),
        {**describe("pods/log", "Pod"), "verbs": ["get"]},
        {**describe("pods/exec", "Pod"), "verbs": ["create", "get"]},
        describe("events", "Event"),
        describe("resourcequotas", "ResourceQuota"),
        describe("configmaps", "ConfigMap"),
    ]
    versions = {"kind": "APIVersions", "versions": ["v1"]}
    cluster.set_behaviour("/api", serve_discovery(versions, build_core_discovery(resources)))
    groups: dict[str, Any] = {"kind": "APIGroupList", "groups": []}
    cluster.set_behaviour("/apis", serve_discovery(groups, build_discovery_list([])))
    pods = build_pods()
    quota = {"hard": {"pods": "10", "requests.cpu": "4"}, "used": {"pods": "2", "requests.cpu": "3500m"}}
    events = [
        {
            "metadata": metadata(f"event-{number}"),
            "type": "Warning",
            "reason": "BackOff",
            "message": f"pulled in vain, {number}",
            "involvedObject": {"kind": "Pod", "name": "worker-0"},
            "lastTimestamp": f"2026-11-18T12:0{number}:00Z",
        }
        for number in (1, 2)
    ]
    lists = {"pods": pods, "resourcequotas": [{"metadata": metadata("limits"), "status": quota}], "events": events}
    for plural, items in lists.items():
        cluster.set_response(f"{INSIDE}/{plural}", build_json_response({"metadata": {}, "items": items}))
    for pod in pods:
        cluster.set_response(f"{INSIDE}/pods/{pod['metadata']['name']}", build_json_response(pod))


@pytest.fixture(scope="module")
def cluster(server: ConsoleServer) -> Iterator[SpaceCluster]:
    respond = build_kube_responder(FakeKube())
    denied: set[str] = set()

    def respond_or_default(request: RecordedRequest) -> CannedResponse | None:
        if request.path == ACCESS_REVIEWS_PATH:
            review = json.loads(request.body)
            resource = review["spec"].get("resourceAttributes", {}).get("resource", "")
            return build_json_response({**review, "status": {"allowed": resource not in denied}}, 201)
        if request.header("content-type") == "application/yaml":  # as an API server reads it
            return build_json_response({"metadata": {"name": "made-here", "namespace": "corner"}}, 201)
        return None if request.path in OWN_PATHS else respond(request)

    with FakeCluster(respond_or_default) as fake, server.server.client() as admin:
        serve_contents(fake)
        connect_cluster(admin, "oslo", fake.build_kubeconfig())
        wait_until(partial(is_online, admin, "oslo"), what="oslo is online")
        create_resource(admin, "projects", "Project", "corners", allowedClusters=[{"name": "oslo"}])
        spec = {"clusterRef": {"cluster": "oslo", "namespace": "corner"}, "template": {}}
        create_resource(admin, "namespaces/service-p-corners/spaceinstances", "SpaceInstance", "corner", **spec)
        path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
        wait_until(lambda: server.send("GET", path).get("status", {}).get("phase") == "Ready", what="it is ready")
        yield SpaceCluster(fake, denied)


def test_a_space_opens_with_its_pods_usage_and_events(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(PAGE)
    page.wait_for(role("link", POD))
    rows = page.texts("table.labelled tbody tr")
    assert "Running" in rows[0] or "Ready" in rows[0]
    assert "1 of 2" in rows[0] and "node-1" in rows[0] and "Open terminal" in rows[0]
    assert "ImagePullBackOff" in rows[1] and "7" in rows[1] and "Open terminal" not in rows[1]
    page.wait_for_text("3500m of 4", "main")
    assert page.attribute(".meter[data-state=high]", "data-state") == "high"  # 3.5 of 4, not 3500 of 4
    page.wait_for_text("CPU requested", "main")
    text = page.text("main")
    assert text.index("pulled in vain, 2") < text.index("pulled in vain, 1")
    assert "fairlead kubeconfig --space corners/corner" in text
    page.click(role("link", "Logs"))
    page.wait_until(lambda: page.path.endswith(f"/~browse/pods/corner/{POD}?view=logs"), "the logs are shown")


def test_what_the_cluster_denies_is_not_requested(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    cluster.denied.add("events")
    try:
        sign_in(page, ADMIN)
        page.goto(PAGE)
        page.wait_for_text("You may not list events there.", "main")
        page.wait_for(role("link", POD))
        assert not any(f"{INSIDE}/events" in each.path for each in page.requests)
    finally:
        cluster.denied.clear()


def test_nothing_is_requested_of_a_space_that_sleeps(
    page: Page, server: ConsoleServer, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
    force = "sleepmode.service.sh/force"
    server.send("PATCH", path, {"metadata": {"annotations": {force: "true"}}}, patch=True)
    wait_until(lambda: server.send("GET", path)["status"].get("phase") == "Sleeping", what="it sleeps")
    try:
        sign_in(page, ADMIN)
        page.goto(PAGE)
        page.wait_for_text("It sleeps, and no pods run.", "main")
        page.wait_idle()
        assert not any("/kubernetes/project/" in each.path for each in page.requests)
    finally:
        activity = {force: None, "sleepmode.service.sh/last-activity": "4000000000"}
        server.send("PATCH", path, {"metadata": {"annotations": activity}}, patch=True)
    page.wait_for(role("link", POD))


def test_who_may_not_use_a_space_learns_it_without_a_refused_request(
    page: Page, server: ConsoleServer, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    members = [{"kind": "User", "name": VIEWER, "clusterRole": "viewer"}]
    server.send("PATCH", f"{GROUP}/projects/corners", {"spec": {"members": members}}, patch=True)
    rule = {"name": "look", "verbs": ["get"], "users": [VIEWER]}
    path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
    server.send("PATCH", path, {"spec": {"access": [rule]}}, patch=True)
    sign_in(page, VIEWER)
    page.goto(PAGE)
    page.wait_for_text("Not known now.", "main")
    page.wait_idle()
    assert page.count(role("link", POD)) == 0
    assert [each.path for each in page.requests if each.status >= 400] == []


def test_a_pod_shows_its_containers_and_where_it_runs(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{PAGE}/~browse/pods/corner/{POD}")
    page.wait_for_text("10.0.3.17", "main")
    migrate, web, resolver = page.texts("table.labelled tbody tr")
    assert "Completed" in migrate and "before the others" in migrate
    assert "Running" in web and "example/web:1.4.2" in web and "8080 (http)" in web and "2" in web
    assert "Ended (3)" in resolver and "53/UDP" in resolver
    assert "node-1" in page.text("main")


def test_objects_are_created_from_yaml(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(PAGE)
    page.wait_for(role("link", POD))
    page.wait_idle()
    page.click(role("button", "Create from YAML"))
    page.wait_for_text("Create from YAML", "h1")
    page.fill("YAML of the objects", "kind: ConfigMap\n")
    page.click(role("button", "Create"))
    page.wait_for_text("Object 1 has no apiVersion or no kind", "main")
    page.fill("YAML of the objects", "apiVersion: v1\nkind: Ship\nmetadata:\n  name: a\n")
    page.click(role("button", "Create"))
    page.wait_for_text("Object 1 is of the kind Ship in v1, which the cluster does not serve.", "main")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made-here\ndata:\n  namespace: other\n"
    page.fill("YAML of the objects", f"# two\n---\n{text}---\n{text}")
    page.click(role("button", "Check"))
    page.wait_for_text("Nothing has been created yet", "main")
    page.click(role("button", "Create"))
    page.wait_for(role("link", "made-here"))
    sent = [each for each in cluster.fake.requests if each.method == "POST" and each.path == f"{INSIDE}/configmaps"]
    assert ["dryRun=All" in each.target for each in sent] == [True, True, False, False]
    assert {each.body.strip() for each in sent} == {text.strip().encode()}
