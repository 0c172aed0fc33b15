"""Workspaces in a real cluster: Pods on a real node, reached through the gateway with a key of small scope."""

import asyncio
import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from fairlead.runner.engines.contract import EngineError, ExecOptions, ImageSource, Limits, Reason, WorkspaceSpec
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Deadlines, Settings
from tests.harness.eventually import wait_until
from tests.harness.gateways import create_key, create_resource, gateway_kubeconfig
from tests.live.runner_process import running_runner
from tests.live.workspace_setup import M, create_object
from tests.reference.connected_cluster import CLUSTER, DIALLED, ConnectedCluster, seconds_since
from tests.reference.workspace_cluster import NAMESPACE, WORKSPACE_IMAGE, WorkspaceCluster, open_workspace_cluster
from tests.runner.harness.cluster_engine import ENGINE
from tests.runner.harness.sessions import read_all, run_inside
from tests.runner.harness.tasks import RecordedTask

WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
SECONDS = 90
ROUNDS = int(os.environ.get("RUNNER_ROUNDS", "1"))
STEPS = ("Prepare", "Clone", "Start", "LifecycleCommands")
UID = "0d3f1b52-6a7c-4f0e-9b1d-2c3e4f5a6b7c"

pytestmark = pytest.mark.parametrize("connected_node", [DIALLED], indirect=True)  # the runner dials it


@pytest.fixture(scope="module")
def cluster(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceCluster]:
    folder = tmp_path_factory.mktemp("workspaces")
    with connected_node.server.client() as admin, open_workspace_cluster(connected_node, admin, folder) as opened:
        yield opened


def create_workspace(admin: httpx.Client, cluster: WorkspaceCluster, name: str) -> str:
    values = {**cluster.options, "memory": "256Mi", "cpus": "1"}
    provider = {"name": "kubernetes", "options": {each: {"value": value} for each, value in values.items()}}
    # Where Pods run comes from a template of an administrator.
    create_object(
        admin, f"{M}/devpodworkspacetemplates", "DevPodWorkspaceTemplate", name, template={"provider": provider}
    )
    created = create_object(
        *(admin, WORKSPACES, "DevPodWorkspaceInstance", name),
        runnerRef={"runner": "local"},
        templateRef={"name": name},
    )
    wait_until(lambda: admin.get(f"{WORKSPACES}/{name}/tasks").status_code == 200, SECONDS, what="the runner has it")
    return str(created["metadata"]["uid"])


def post(admin: httpx.Client, name: str, subresource: str, **options: str) -> str:
    response = admin.post(f"{WORKSPACES}/{name}/{subresource}", json={"spec": {"options": json.dumps(options)}})
    assert response.status_code == 201, response.text
    return str(response.json()["status"]["taskId"])


def get_status(admin: httpx.Client, name: str) -> dict[str, object]:
    status: dict[str, object] = admin.get(f"{WORKSPACES}/{name}").json().get("status") or {}
    return status


def current_step(admin: httpx.Client, name: str) -> str:
    conditions: object = get_status(admin, name).get("conditions") or ()
    assert isinstance(conditions, list | tuple)
    return next((each["message"] for each in conditions if each["type"] == "TaskSucceeded"), "")


def wait_for(admin: httpx.Client, name: str, state: str) -> None:
    def is_reached() -> bool:
        status = get_status(admin, name)
        assert status.get("phase") != "Failed", status
        return status.get("lastWorkspaceStatus") == state

    wait_until(is_reached, SECONDS, what=f"the workspace is {state}")


def read_log(admin: httpx.Client, name: str, task: str) -> str:
    response = admin.get(f"{WORKSPACES}/{name}/log", params={"taskID": task, "follow": "true"}, timeout=SECONDS)
    lines = [json.loads(line) for line in response.text.splitlines()]
    return b"".join(base64.b64decode(line["bytes"]) for line in lines if "bytes" in line).decode()


@pytest.mark.timeout(300 + 120 * len(STEPS) * ROUNDS)
def test_a_workspace_lives_in_a_pod_and_outlives_its_runner(
    cluster: WorkspaceCluster, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    flags = ("--kubeconfig", str(cluster.kubeconfig))
    server = cluster.connected.server
    with (
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", ENGINE, flags=flags) as runner,
    ):
        cluster.add_volume("life")
        create_workspace(admin, cluster, "life")
        began = time.monotonic()
        task = post(admin, "life", "up", source=f"git:{cluster.repository}")
        wait_for(admin, "life", "Running")
        first = seconds_since(began)
        log = read_log(admin, "life", task)
        assert "created by dev" in log and "Cloning http://" in log
        files = admin.get(f"{WORKSPACES}/life/download", params={"path": "README"})
        assert files.status_code == 200 and b"hello\n" in files.content
        runner.kill()
        pods = cluster.list_objects()
        runner.start()
        wait_until(lambda: admin.get(f"{WORKSPACES}/life/tasks").status_code == 200, SECONDS)
        assert cluster.list_objects() == pods
        began = time.monotonic()
        read_log(admin, "life", post(admin, "life", "stop"))
        wait_for(admin, "life", "Stopped")
        stopped = seconds_since(began)
        assert not any(each.startswith(("pod/", "secret/")) for each in cluster.list_objects())
        began = time.monotonic()
        post(admin, "life", "up")
        wait_for(admin, "life", "Running")
        again = seconds_since(began)
        began = time.monotonic()
        assert admin.delete(f"{WORKSPACES}/life").status_code in (200, 202)
        wait_until(lambda: admin.get(f"{WORKSPACES}/life").status_code == 404, SECONDS)
        wait_until(lambda: not cluster.list_objects(), SECONDS)
        times = f"up {first:.1f} s, stop {stopped:.1f} s, start {again:.1f} s, delete {seconds_since(began):.1f} s"
        record_figure(times)
        for number in range(ROUNDS * len(STEPS)):
            kill_in_each_task(admin, cluster, runner.kill, runner.start, number)
        assert runner.stop() == 0


def kill_in_each_task(
    admin: httpx.Client, cluster: WorkspaceCluster, kill: Callable[[], None], start: Callable[[], None], number: int
) -> None:
    name, step = f"round-{number}", STEPS[number % len(STEPS)]
    cluster.add_volume(name)
    create_workspace(admin, cluster, name)
    post(admin, name, "up", source=f"git:{cluster.repository}")
    wait_until(lambda: current_step(admin, name) in STEPS[STEPS.index(step) :], SECONDS, what=f"step {step}")
    kill()
    start()
    wait_for(admin, name, "Running")
    pods = [each for each in cluster.list_objects() if each.startswith("pod/") and not each.endswith("-source")]
    assert len(pods) == 1
    post(admin, name, "stop")
    kill()
    start()
    wait_for(admin, name, "Stopped")
    assert admin.delete(f"{WORKSPACES}/{name}").status_code in (200, 202)
    kill()
    start()
    wait_until(lambda: admin.get(f"{WORKSPACES}/{name}").status_code == 404, SECONDS)
    wait_until(lambda: not cluster.list_objects(), SECONDS, what="nothing is left")


def make_spec(cluster: WorkspaceCluster, image: str = WORKSPACE_IMAGE, **changes: str) -> WorkspaceSpec:
    options = {**cluster.options, **changes}
    limits = Limits(memory_bytes=256 << 20, cpus=1.0)
    source = ImageSource(image)
    return WorkspaceSpec(UID, "web", "demo", "ada", source, options=options, limits=limits, is_trusted=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["", "1000"])
async def test_sessions_and_ports_in_a_pod(
    user: str, cluster: WorkspaceCluster, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    """With a number as user, the namespace may be `restricted`."""
    level = "restricted" if user else "baseline"
    cluster.kubectl("label", "namespace", NAMESPACE, "--overwrite", f"pod-security.kubernetes.io/enforce={level}")
    cluster.add_volume(f"sessions-{level}")
    engine = KubernetesEngine(Settings(tmp_path, "direct", cluster.kubeconfig))
    await engine.up(make_spec(cluster, user=user), RecordedTask())
    try:
        outcome = await run_inside(engine, UID, "id -u; touch x; grep NoNewPrivs /proc/self/status; exit 7")
        assert (outcome.code, outcome.output.split()) == (7, [user or "0", "NoNewPrivs:", "1"])
        process = await engine.exec(UID, ["/bin/sh", "-c", "sleep 71 & sleep 72"], ExecOptions())
        await asyncio.sleep(0.5)
        await process.kill()
        assert "sleep 7" not in (await run_inside(engine, UID, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).output[:-60]
        data = os.urandom(8 << 20)
        process = await engine.exec(UID, ["sha256sum"], ExecOptions())
        began = time.monotonic()
        await process.stdin.write(data)
        await process.stdin.close()
        assert (await read_all(process.stdout)).split()[0].decode() == hashlib.sha256(data).hexdigest()
        record_figure(f"8 MiB of input in {seconds_since(began):.1f} s")
        await process.kill()
        process = await engine.exec(UID, ["/bin/sh"], ExecOptions(tty=True, columns=101, rows=33))
        await process.stdin.write(b"sleep 1; stty size; exit 5\n")
        assert b"33 101" in await read_all(process.stdout)
        assert await process.wait() == 5
        await process.kill()
        code = (
            "import socket; s=socket.create_server(('127.0.0.1', 8123)); c=s.accept()[0]; c.sendall(c.recv(99).upper())"
        )
        process = await engine.exec(UID, ["python3", "-c", code], ExecOptions())
        while [each.port for each in await engine.list_ports(UID)] != [8123]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        connection = await engine.open_port(UID, 8123)
        await connection.writer.write(b"hello")
        assert await read_all(connection.reader) == b"HELLO"
        await connection.abort()
        await process.kill()
        with pytest.raises(EngineError):
            await engine.open_port(UID, 8124)
    finally:
        await engine.delete(UID, RecordedTask())
        cluster.kubectl("label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/enforce=baseline")
    assert not cluster.list_objects()
    await engine.contexts.close()


@pytest.mark.timeout(180)
async def test_the_owner_of_a_space_needs_no_further_permissions(cluster: WorkspaceCluster, tmp_path: Path) -> None:
    """A key with the scope of a space, through the gateway of the space."""
    connected = cluster.connected
    with connected.server.client() as admin:
        create_resource(admin, "users", "User", "desk-runner", username="desk-runner")
        members = [{"kind": "User", "name": "desk-runner", "clusterRole": "user"}]
        create_resource(admin, "projects", "Project", "lab", allowedClusters=[{"name": "*"}], members=members)
        owner = {"user": "desk-runner"}
        spec = {"owner": owner, "clusterRef": {"cluster": CLUSTER}}
        create_resource(admin, "namespaces/service-p-lab/spaceinstances", "SpaceInstance", "desk", **spec)
        key = create_key(admin, "desk-runner", "desk", scope={"spaces": [{"project": "lab", "space": "desk"}]})
    wait = ("wait", "--for=condition=Ready", "spaceinstance/desk", "-n", "service-p-lab", "--timeout=60s")
    connected.management_kubectl()(*wait)
    path = f"{M}/namespaces/service-p-lab/spaceinstances/desk"
    with connected.server.client() as admin:
        namespace = admin.get(path).json()["spec"]["clusterRef"]["namespace"]
    kubeconfig = tmp_path / "kubeconfig"
    content = yaml.safe_load(gateway_kubeconfig(connected.server, "/kubernetes/project/lab/space/desk", key))
    content["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(content))
    cluster.add_volume("space")
    engine = KubernetesEngine(Settings(tmp_path / "state", "desk", kubeconfig))
    assert not any(finding.problem for finding in await engine.check())
    await engine.up(make_spec(cluster, namespace=""), RecordedTask())
    assert (await run_inside(engine, UID, "hostname")).output == "demo\n"
    await engine.delete(UID, RecordedTask())
    assert await engine.list_workspaces() == {}
    await engine.contexts.close()


@pytest.mark.timeout(120)
async def test_failures_of_a_real_cluster_say_why(cluster: WorkspaceCluster, tmp_path: Path) -> None:
    cluster.add_volume("failures")
    deadlines = Deadlines(start=6)
    engine = KubernetesEngine(Settings(tmp_path, "direct", cluster.kubeconfig, deadlines=deadlines))
    for spec, reason, words in (
        (make_spec(cluster, "localhost/missing:1"), Reason.IMAGE_PULL_FAILED, "ErrImageNeverPull"),
        (make_spec(cluster, nodeSelector="no=such"), Reason.STEP_TIMED_OUT, "node affinity/selector"),
    ):
        with pytest.raises(EngineError) as error:
            await engine.up(spec, RecordedTask())
        assert error.value.reason == reason and words in error.value.message, error.value.message
    assert not any(finding.problem for finding in await engine.check())
    await engine.delete(UID, RecordedTask())
    assert not cluster.list_objects()
    await engine.contexts.close()
