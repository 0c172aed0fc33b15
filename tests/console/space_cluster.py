"""A cluster for tests of pages: `oslo`, which stores what is sent to it.

It has two pods, a quota and two events in the namespace of the space `corner` of the project `corners`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.console.servers import GROUP, ConsoleServer
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import ACCESS_REVIEWS_PATH, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import connect_cluster, create_resource, is_online
from tests.live.discovery import build_core_discovery, build_discovery_list, serve_discovery

INSIDE = "/api/v1/namespaces/corner"
CREATED = "2026-11-18T12:00:00Z"
SPACE_PAGE = "spaceinstances/service-p-corners/corner"
POD = "web-6f7c9d"
METRICS = "/apis/metrics.k8s.io/v1beta1"
OWN_PATHS = ("/api", "/apis", "/version", "/readyz", "/api/v1/nodes", "/api/v1/namespaces/kube-system")


@dataclass(slots=True)
class SpaceCluster:
    """`denied` are resources that users may not list, by the cluster's own decision."""

    fake: FakeCluster
    denied: set[str]


def metadata(name: str, namespace: str = "corner") -> dict[str, Any]:
    common = {"namespace": namespace, "resourceVersion": "1", "creationTimestamp": CREATED}
    return {"name": name, "uid": f"uid-of-{name}", **common}


def build_pods(namespace: str = "corner") -> list[dict[str, Any]]:
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
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(POD, namespace), "spec": web, "status": running},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata("worker-0", namespace),
            "spec": {"containers": [{"name": "c", "image": "example/broken"}]},
            "status": pending,
        },
    ]


def build_metrics_group() -> dict[str, Any]:
    def describe(plural: str, kind: str, scope: str) -> dict[str, Any]:
        response_kind = {"group": "metrics.k8s.io", "version": "v1beta1", "kind": kind}
        common = {"singularResource": "", "verbs": ["get", "list"]}
        return {"resource": plural, "scope": scope, "responseKind": response_kind, **common}

    resources = [describe("pods", "PodMetrics", "Namespaced"), describe("nodes", "NodeMetrics", "Cluster")]
    return {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "resources": resources}]}


def build_usage(name: str, namespace: str) -> dict[str, Any]:
    containers = [{"name": name, "usage": {"cpu": f"{cpu}n", "memory": "128Mi"}} for cpu in (125_000_000, 250_000_000)]
    return {"metadata": {"name": name, "namespace": namespace}, "containers": containers}


def serve_contents(cluster: FakeCluster, namespace: str = "corner") -> None:
    inside = f"/api/v1/namespaces/{namespace}"

    def describe(name: str, kind: str) -> dict[str, Any]:
        return {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list", "create"]}

    resources = [
        describe("pods", "Pod"),
        {**describe("pods/log", "Pod"), "verbs": ["get"]},
        {**describe("pods/exec", "Pod"), "verbs": ["create", "get"]},
        describe("events", "Event"),
        describe("resourcequotas", "ResourceQuota"),
        describe("configmaps", "ConfigMap"),
        {**describe("nodes", "Node"), "namespaced": False},
    ]
    versions = {"kind": "APIVersions", "versions": ["v1"]}
    cluster.set_behaviour("/api", serve_discovery(versions, build_core_discovery(resources)))
    groups: dict[str, Any] = {"kind": "APIGroupList", "groups": []}
    cluster.set_behaviour("/apis", serve_discovery(groups, build_discovery_list([build_metrics_group()])))
    pods = build_pods(namespace)
    usages = [build_usage(pod["metadata"]["name"], namespace) for pod in pods]
    cluster.set_response(f"{METRICS}/namespaces/{namespace}/pods", build_json_response({"items": usages}))
    cluster.set_response(f"{METRICS}/namespaces/{namespace}/pods/{POD}", build_json_response(usages[0]))
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    node = {"metadata": {"name": "node-1", "uid": "n"}, "status": {"capacity": capacity, "conditions": [ready]}}
    cluster.set_response("/api/v1/nodes", build_json_response({"metadata": {}, "items": [node]}))
    nodes = [{"metadata": {"name": "node-1"}, "usage": {"cpu": "1500m", "memory": "6Gi"}}]
    cluster.set_response(f"{METRICS}/nodes", build_json_response({"items": nodes}))
    quota = {"hard": {"pods": "10", "requests.cpu": "4"}, "used": {"pods": "2", "requests.cpu": "3500m"}}
    events = [
        {
            "metadata": metadata(f"event-{number}", namespace),
            "type": "Warning",
            "reason": "BackOff",
            "message": f"pulled in vain, {number}",
            "involvedObject": {"kind": "Pod", "name": "worker-0"},
            "lastTimestamp": f"2026-11-18T12:0{number}:00Z",
        }
        for number in (1, 2)
    ]
    lists = {
        "pods": pods,
        "resourcequotas": [{"metadata": metadata("limits", namespace), "status": quota}],
        "events": events,
    }
    for plural, items in lists.items():
        cluster.set_response(f"{inside}/{plural}", build_json_response({"metadata": {}, "items": items}))
    for pod in pods:
        cluster.set_response(f"{inside}/pods/{pod['metadata']['name']}", build_json_response(pod))


@contextmanager
def running_cluster() -> Iterator[SpaceCluster]:
    """A cluster that is not connected yet, without contents."""
    respond = build_kube_responder(FakeKube())
    denied: set[str] = set()

    def respond_or_default(request: RecordedRequest) -> CannedResponse | None:
        if request.path == ACCESS_REVIEWS_PATH:
            review = json.loads(request.body)
            resource = review["spec"].get("resourceAttributes", {}).get("resource", "")
            return build_json_response({**review, "status": {"allowed": resource not in denied}}, 201)
        if request.header("content-type") == "application/yaml":  # as an API server reads it
            return build_json_response({"metadata": {"name": "made-here", "namespace": "corner"}}, 201)
        is_own = request.path in OWN_PATHS or request.path.endswith("/log")  # what behaviours answer
        return None if is_own else respond(request)

    with FakeCluster(respond_or_default) as fake:
        yield SpaceCluster(fake, denied)


@contextmanager
def running_space_cluster(server: ConsoleServer) -> Iterator[SpaceCluster]:
    with running_cluster() as cluster, server.server.client() as admin:
        serve_contents(cluster.fake)
        connect_cluster(admin, "oslo", cluster.fake.build_kubeconfig())
        wait_until(partial(is_online, admin, "oslo"), what="oslo is online")
        create_resource(admin, "projects", "Project", "corners", allowedClusters=[{"name": "oslo"}])
        spec = {"clusterRef": {"cluster": "oslo", "namespace": "corner"}, "template": {}}
        create_resource(admin, "namespaces/service-p-corners/spaceinstances", "SpaceInstance", "corner", **spec)
        path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
        wait_until(lambda: server.send("GET", path).get("status", {}).get("phase") == "Ready", what="it is ready")
        yield cluster
