"""A virtual cluster in a fake cluster, as its chart leaves it: a Service, pods, and their port-forward.

What runs in the pods listens on 127.0.0.1, at the port that is given.
"""

import asyncio
from typing import Any

from tests.fake_cluster.exchange import RecordedRequest, build_status_response
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.pods import PodWebSocket
from tests.fake_cluster.port_forward import PodForward
from tests.fake_cluster.server import FakeCluster

LABELS = {"app": "vcluster", "release": "dev"}


class VirtualClusterPods:
    """The Service `dev` and its pods, in one namespace of a FakeCluster whose Kubernetes is `kube`."""

    def __init__(
        self, cluster: FakeCluster, kube: FakeKube, namespace: str = "demo-v-dev", release: str = "dev"
    ) -> None:
        self.cluster = cluster
        self.kube = kube
        self.forwards: list[PodForward] = []
        self.labels = {**LABELS, "release": release}
        self._release = release
        self._folder = f"/api/v1/namespaces/{namespace}"
        self._created = 0

    def pod_path(self, name: str) -> str:
        return f"{self._folder}/pods/{name}"

    def add_service(self, target_port: Any, **spec: Any) -> None:
        port = {"name": "https", "port": 443, "targetPort": target_port}
        fields = {"selector": self.labels, "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [port]}
        self.kube.add_object(f"{self._folder}/services/{self._release}", spec={**fields, **spec})

    def add_pod(self, name: str, *, is_ready: bool = True, **status: Any) -> str:
        """Adds a pod, newer than the others. Returns its uid."""
        self._created += 1
        path = self.pod_path(name)
        meta = {
            "labels": self.labels,
            "creationTimestamp": f"2026-01-01T00:00:{self._created:02}Z",
            "ownerReferences": [{"kind": "StatefulSet", "name": self._release, "controller": True}],
        }
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        state = {"phase": "Running", "podIP": "10.244.0.9", "conditions": conditions, **status}
        containers = [{"name": "syncer", "ports": [{"name": "api", "containerPort": 8443}]}]
        pod = self.kube.add_object(path, metadata=meta, spec={"containers": containers}, status=state)
        self.cluster.set_upgrade_behaviour(f"{path}/portforward", self._forward)
        return str(pod["metadata"]["uid"])

    def remove_pod(self, name: str) -> None:
        """As when a pod is deleted: its connections break, and the API server does not know it any more."""
        self.kube.objects.pop(self.pod_path(name))
        self.cluster.run_in_thread(self._end_forwards)

    def _end_forwards(self) -> None:
        for forward in self.forwards:
            forward.end_pod()

    async def _forward(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        path = request.path.removesuffix("/portforward")
        status, failure = self.kube.find_failure(request.path)
        if status:
            writer.write(build_status_response(status, failure["reason"], failure["message"]).encode("GET"))
            return True
        if path not in self.kube.objects:
            writer.write(build_status_response(404, "NotFound", "pods not found").encode("GET"))
            return True
        forward = PodForward(PodWebSocket(request, reader, writer))
        self.forwards.append(forward)
        await forward.run()
        return False
