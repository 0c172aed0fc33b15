"""What Pods of a real cluster say about a workspace. The statuses are recordings."""

import json
from typing import Any

import pytest

from fairlead.core.objects import deep_copy
from fairlead.runner.engines.contract import ContainerState, Reason
from fairlead.runner.engines.kubernetes.observation import build_status, describe_end, find_obstacle, is_running
from fairlead.runner.engines.kubernetes.records import NO_SESSION, Session
from tests.fake_cluster.workspace_node import RECORDINGS

PODS: dict[str, Any] = json.loads(RECORDINGS.read_bytes())


def read_state(pod: Any, source_pod: Any = None, claim: Any = None) -> tuple[ContainerState, str]:
    status = build_status(pod, source_pod, claim, NO_SESSION)
    return status.state, status.cause.partition(":")[0]


@pytest.mark.parametrize(
    ("name", "state", "cause"),
    [
        ("running", ContainerState.RUNNING, ""),
        ("terminating", ContainerState.BUSY, ""),
        ("never-pull", ContainerState.BUSY, "workspace"),
        ("unschedulable", ContainerState.BUSY, "Unschedulable"),
        ("missing-secret-volume", ContainerState.BUSY, ""),
        ("oom", ContainerState.STOPPED, "OutOfMemory"),
        ("evicted", ContainerState.STOPPED, "Evicted"),
        ("exit", ContainerState.STOPPED, "Exited"),
        ("no-shell", ContainerState.STOPPED, "Exited"),
        ("init-failed", ContainerState.STOPPED, "NotStarted"),
    ],
)
def test_the_state_of_a_pod(name: str, state: ContainerState, cause: str) -> None:
    assert read_state(PODS[name]) == (state, cause)


def test_without_a_pod_the_claim_decides() -> None:
    assert read_state(None) == (ContainerState.NOT_FOUND, "")
    assert read_state(None, claim={"metadata": {}}) == (ContainerState.STOPPED, "")
    assert read_state(None, source_pod=PODS["running"]) == (ContainerState.BUSY, "")


def test_a_pod_on_a_silent_node_is_not_called_running() -> None:
    pod = deep_copy(PODS["running"])
    for condition in pod["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    assert not is_running(pod)
    assert read_state(pod) == (ContainerState.BUSY, "NodeNotReady")


def test_a_running_pod_says_who_and_where_and_since_when() -> None:
    status = build_status(PODS["running"], None, None, Session("dev", "0", "/workspaces/demo"))
    assert (status.user, status.folder) == ("dev", "/workspaces/demo")
    assert status.started_at is not None and status.started_at.year == 2026


@pytest.mark.parametrize(
    ("name", "is_final", "is_pull", "words"),
    [
        ("never-pull", True, False, "is not present with pull policy of Never"),
        ("invalid-image", True, False, "must be lowercase"),
        ("missing-secret", True, False, "not found"),
        ("root", True, False, "image will run as root"),
        ("pull", False, True, "connection refused"),
        ("unschedulable", False, False, "Insufficient memory"),
        ("unbound", False, False, "persistentvolumeclaim"),
    ],
)
def test_why_a_pod_does_not_run(name: str, is_final: bool, is_pull: bool, words: str) -> None:
    obstacle = find_obstacle(PODS[name])
    is_image = is_pull or name in ("never-pull", "invalid-image")
    assert obstacle is not None
    assert obstacle.reason == (Reason.IMAGE_PULL_FAILED if is_image else Reason.START_FAILED)
    assert (obstacle.is_final, obstacle.is_pull) == (is_final, is_pull)
    assert words in obstacle.message


def test_an_image_for_another_platform_is_named() -> None:
    pod = deep_copy(PODS["pull"])
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    waiting["message"] = "no match for platform in manifest: not found"
    obstacle = find_obstacle(pod)
    assert obstacle is not None and obstacle.reason == Reason.PLATFORM_MISMATCH and obstacle.is_final


def test_nothing_is_in_the_way_of_a_pod_that_is_being_created() -> None:
    assert find_obstacle(PODS["missing-secret-volume"]) is None
    assert find_obstacle(PODS["running"]) is None
    assert describe_end({"status": {"phase": "Succeeded"}}) == "Stopped"
