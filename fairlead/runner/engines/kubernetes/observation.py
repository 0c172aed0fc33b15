"""What the objects of a workspace say about it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, get_path, metadata
from fairlead.runner.engines.contract import ContainerState, EngineStatus, Reason
from fairlead.runner.engines.devcontainer.grant import TASK_LABEL, TEMPLATE_LABEL
from fairlead.runner.engines.kubernetes.manifests import WORKSPACE
from fairlead.runner.engines.kubernetes.records import Session

HOPELESS = frozenset(
    {
        *("CreateContainerConfigError", "CreateContainerError"),
        *("RunContainerError", "StartError", "ContainerCannotRun"),
    }
)
"""Reasons of waiting containers that no waiting changes."""
HOPELESS_PULLS = frozenset({"ErrImageNeverPull", "InvalidImageName"})
PULL_FAILURES = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
MISSING_PLATFORM = "no match for platform"
NODE_LOST = "NodeNotReady: the cluster does not hear from the node of the workspace"
OUT_OF_MEMORY = "OutOfMemory: the workspace used more memory than its limit"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a Pod does not run yet. A final one stays."""

    reason: str
    message: str
    is_final: bool = False
    is_pull: bool = False


def is_terminating(obj: Object | None) -> bool:
    return obj is not None and "deletionTimestamp" in metadata(obj)


def has_ended(pod: Object) -> bool:
    return get_path(pod, "status.phase") in ("Succeeded", "Failed")


def is_running(pod: Object | None) -> bool:
    """Whether the workspace itself runs, not only its init containers, and its node says so."""
    if pod is None or is_terminating(pod) or get_path(pod, "status.phase") != "Running" or _is_lost(pod):
        return False
    return any("running" in (each.get("state") or {}) for each in list_statuses(pod, WORKSPACE))


def _is_lost(pod: Object) -> bool:
    """Whether the cluster does not hear from the node any more: the containers have no probes that could fail."""
    conditions = get_path(pod, "status.conditions") or ()
    return any((each.get("type"), each.get("status")) == ("Ready", "False") for each in conditions)


def list_statuses(pod: Object, name: str = "") -> Iterator[Object]:
    """Those of all containers, init containers first; or of the one with this name."""
    for part in ("initContainerStatuses", "containerStatuses"):
        for each in get_path(pod, f"status.{part}") or ():
            if name in ("", each.get("name")):
                yield each


def find_obstacle(pod: Object) -> Obstacle | None:
    """None while everything takes its course."""
    for each in list_statuses(pod):
        waiting = get_path(each, "state.waiting") or {}
        word = str(waiting.get("reason") or "")
        text = str(waiting.get("message") or "")
        message = f"{each.get('name')}: {word}: {text}" if text else f"{each.get('name')}: {word}"
        if MISSING_PLATFORM in text:
            return Obstacle(Reason.PLATFORM_MISMATCH, message, is_final=True)
        if word in HOPELESS:
            return Obstacle(Reason.START_FAILED, message, is_final=True)
        if word in HOPELESS_PULLS:
            return Obstacle(Reason.IMAGE_PULL_FAILED, message, is_final=True)
        if word in PULL_FAILURES:
            return Obstacle(Reason.IMAGE_PULL_FAILED, message, is_pull=True)
    for condition in get_path(pod, "status.conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False"):
            return Obstacle(Reason.START_FAILED, f"{condition.get('reason')}: {condition.get('message')}")
    return None


def find_end(pod: Object, name: str) -> Object | None:
    """How the container with this name ended."""
    for each in list_statuses(pod, name):
        if terminated := get_path(each, "state.terminated"):
            return dict(terminated)
    return None


def describe_end(pod: Object) -> str:
    """Why a Pod ended, as one word and an explanation."""
    word = str(get_path(pod, "status.reason") or "")
    message = str(get_path(pod, "status.message") or "")
    if word:
        return f"{word}: {message}" if message else word
    for each in list_statuses(pod):
        terminated = get_path(each, "state.terminated") or {}
        code = int(terminated.get("exitCode") or 0)
        if terminated.get("reason") == "OOMKilled":
            return OUT_OF_MEMORY
        if code and each.get("name") != WORKSPACE:
            return f"NotStarted: the init container {each.get('name')} ended with code {code}"
        if code not in (0, 137, 143):
            text = str(terminated.get("message") or f"the main process ended with code {code}")
            return f"Exited: {text}"
    return "Stopped"


def build_status(pod: Object | None, source_pod: Object | None, claim: Object | None, session: Session) -> EngineStatus:
    shown = pod or source_pod
    if shown is None:
        return EngineStatus(ContainerState.STOPPED if claim is not None else ContainerState.NOT_FOUND)
    meta = metadata(shown)
    task_id = str((meta.get("labels") or {}).get(TASK_LABEL) or "")
    template = str((meta.get("annotations") or {}).get(TEMPLATE_LABEL) or "")
    if pod is None:
        return EngineStatus(ContainerState.BUSY, task_id=task_id)
    if has_ended(pod) and not is_terminating(pod):
        return EngineStatus(ContainerState.STOPPED, cause=describe_end(pod), template_hash=template, task_id=task_id)
    if not is_running(pod):
        obstacle = find_obstacle(pod)
        lost = NODE_LOST if get_path(pod, "status.phase") == "Running" and _is_lost(pod) else ""
        return EngineStatus(ContainerState.BUSY, cause=obstacle.message if obstacle else lost, task_id=task_id)
    return EngineStatus(
        ContainerState.RUNNING,
        started_at=_find_start(pod),
        user=session.user,
        folder=session.folder,
        template_hash=template,
        task_id=task_id,
    )


def _find_start(pod: Object) -> datetime | None:
    for each in list_statuses(pod, WORKSPACE):
        return parse_rfc3339(get_path(each, "state.running.startedAt"))
    return None
