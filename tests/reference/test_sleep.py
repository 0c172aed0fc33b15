"""A space that sleeps and wakes in a real cluster: its pods end and come back, and its data stays."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, merge_patch
from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import CLUSTER, IMAGE, ConnectedCluster, seconds_since

PROJECT = "sleepers"
NAMESPACE = f"service-p-{PROJECT}"
SPACE = f"{M}/namespaces/{NAMESPACE}/spaceinstances/dev"
GATEWAY = f"/kubernetes/project/{PROJECT}/space/dev"
PREFIX = "sleepmode.service.sh/"
POD = f"""
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: {IMAGE}, imagePullPolicy: Never, command: [sh, -c, "sleep 100000"]}}]
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: sleep-data}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /tmp/fairlead-sleep-data, type: DirectoryOrCreate}
  storageClassName: ""
  persistentVolumeReclaimPolicy: Retain
"""
WORKLOADS = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:{POD}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: {IMAGE}
        imagePullPolicy: Never
        command: [sh, -c, "sleep 100000"]
        volumeMounts: [{{name: data, mountPath: /data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec: {{accessModes: [ReadWriteOnce], storageClassName: "", resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:{POD}
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{{name: main, image: {IMAGE}, imagePullPolicy: Never, command: ["true"]}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  minReplicas: 1
  maxReplicas: 4
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}]
"""


class Sleeper:
    """The space, and clients of it."""

    def __init__(self, connected: ConnectedCluster, folder: Path) -> None:
        self.connected = connected
        self.folder = folder
        self.direct = connected.direct_kubectl()
        self.gateway = connected.gateway_kubectl(name="sleep", path=GATEWAY)

    def phase(self) -> str:
        return str(self.space().get("status", {}).get("phase"))

    def space(self) -> dict[str, Any]:
        found: dict[str, Any] = self.connected.management_kubectl().get_json("spaceinstance", "dev", "-n", NAMESPACE)
        return found

    @property
    def namespace(self) -> str:
        return str(self.space()["spec"]["clusterRef"]["namespace"])

    def pods(self) -> list[str]:
        """Without those that have ended, and are still to be deleted."""
        ended = "--field-selector=status.phase!=Failed,status.phase!=Succeeded"
        return list(self.direct.get_names("pods", "-n", self.namespace, ended))

    def apply(self, kubectl: Kubectl, text: str, *arguments: str) -> None:
        path = self.folder / "manifest.yaml"
        path.write_text(text)
        kubectl("apply", "-f", str(path), *arguments)

    def annotate(self, **notes: str | None) -> None:
        changes = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
        with self.connected.server.client() as admin:
            merge_patch(admin, SPACE, {"metadata": {"annotations": changes}})

    def workloads(self) -> dict[str, Any]:
        found = self.direct.get_json("deployments,statefulsets,daemonsets,cronjobs", "-n", self.namespace)
        return {
            f"{each['kind']} {each['metadata']['name']}": (
                each["spec"].get("replicas"),
                each["spec"].get("suspend"),
                each["spec"].get("template", {}).get("spec", {}).get("nodeSelector"),
                {key for key in each["metadata"].get("annotations", {}) if key.startswith(PREFIX)},
            )
            for each in found["items"]
        }


@pytest.fixture(scope="module")
def sleeper(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Sleeper:
    with connected_node.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": "*"}])
    created = connected_node.run_cli("space", "create", "dev", "--project", PROJECT, "--cluster", CLUSTER, "--wait")
    assert created.returncode == 0, created.stderr
    found = Sleeper(connected_node, tmp_path_factory.mktemp("sleep"))
    found.apply(found.direct, VOLUME)
    found.apply(found.direct, WORKLOADS, "-n", found.namespace)
    wait_until(lambda: len(found.pods()) == 4, 60)
    found.direct("wait", "--for=condition=Ready", "pod", "--all", "-n", found.namespace, "--timeout=90s")
    return found


def test_pods_end_and_come_back_and_data_stays(sleeper: Sleeper, record_figure: Callable[[str], None]) -> None:
    before = sleeper.workloads()
    in_pod = ("exec", "db-0", "-n", sleeper.namespace, "--")
    sleeper.direct(*in_pod, "sh", "-c", "echo kept > /data/file")
    start = time.monotonic()
    asleep = sleeper.connected.run_cli("space", "sleep", "dev", "--project", PROJECT, "--wait")
    assert asleep.returncode == 0, asleep.stderr
    asleep_seconds = seconds_since(start)
    assert (sleeper.phase(), sleeper.pods()) == ("Sleeping", [])
    assert sleeper.workloads()["CronJob nightly"][1] is True
    sleeper.direct("create", "deployment", "late", f"--image={IMAGE}", "-n", sleeper.namespace)
    time.sleep(5)
    assert sleeper.pods() == []
    sleeper.direct("delete", "deployment", "late", "-n", sleeper.namespace)
    start = time.monotonic()
    awake = sleeper.connected.run_cli("space", "wake", "dev", "--project", PROJECT, "--wait")
    assert awake.returncode == 0, awake.stderr
    awake_seconds = seconds_since(start)
    wait_until(lambda: len(sleeper.pods()) == 4, 60)
    sleeper.direct("wait", "--for=condition=Ready", "pod", "--all", "-n", sleeper.namespace, "--timeout=90s")
    record_figure(
        f"asleep after {asleep_seconds:.1f} s, awake {awake_seconds:.1f} s, pods {seconds_since(start):.1f} s"
    )
    assert sleeper.workloads() == before
    assert sleeper.direct(*in_pod, "cat", "/data/file").strip() == "kept"
    assert sleeper.direct.get_names("resourcequotas", "-n", sleeper.namespace) == []


def test_fifty_requests_wake_it_once_and_all_succeed(sleeper: Sleeper, record_figure: Callable[[str], None]) -> None:
    sleeper.annotate(sleep_after="3", last_activity=str(int(time.time()) - 60))
    wait_until(lambda: sleeper.phase() == "Sleeping", 60)
    assert sleeper.pods() == []
    # What programs ask by themselves wakes nothing.
    for _ in range(3):
        sleeper.gateway("get", "--raw", "/version")
        time.sleep(1)
    assert sleeper.phase() == "Sleeping"
    sleeper.annotate(sleep_after=None)
    namespace = sleeper.namespace
    start = time.monotonic()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: sleeper.gateway("get", "deployment", "web", "-n", namespace), range(50)))
    seconds = seconds_since(start)
    assert all("web" in each for each in answers)
    assert sleeper.phase() == "Ready"
    events = sleeper.connected.management_kubectl().get_json(
        "events", "-n", NAMESPACE, "--field-selector=involvedObject.name=dev"
    )
    woken = [each for each in events["items"] if each["reason"] == "WokenUp" and "admin" in each["message"]]
    assert len(woken) == 2, events  # by the command of the test before, and now
    record_figure(f"50 requests of kubectl, 10 at a time, done after {seconds:.1f} s")
    wait_until(lambda: len(sleeper.pods()) == 4, 60)
