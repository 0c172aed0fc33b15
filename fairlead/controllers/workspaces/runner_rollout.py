"""Whether the Pod of a deployed runner runs: the condition `Deployed`, from its Deployment and Pods. Pure.

A Deployment itself reports what keeps it from creating Pods, such as a quota, but not what keeps a Pod from starting,
such as an image that cannot be pulled. That is in the status of the Pod.
"""

from collections.abc import Iterator, Sequence

from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, quote_remote
from fairlead.core.objects import Object, get_path

PROGRESSING, POD_NOT_CREATED = "Progressing", "PodNotCreated"
POD_NOT_STARTED, POD_NOT_SCHEDULED = "PodNotStarted", "PodNotScheduled"

_starting_reasons = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that is not running yet, and of which nothing is wrong."""


def find_rollout_problem(deployment: Object, pods: Sequence[Object], location: str) -> InstanceError | None:
    """Why the current Pod of the runner does not run; None if it does. `location` names the Deployment."""
    if _is_available(deployment):
        return None
    if message := _condition_message(deployment, "ReplicaFailure", "True"):
        advice = "correct spec.clusterRef.podTemplate, or what the cluster limits"
        return InstanceError(POD_NOT_CREATED, f"{location} cannot create its Pod: {message}; {advice}", ERROR)
    for pod in (each for each in pods if "deletionTimestamp" not in (each.get("metadata") or {})):
        if message := next(_container_problems(pod), ""):
            return InstanceError(POD_NOT_STARTED, f"the Pod of {location} does not start: {message}", WARNING)
        if message := _condition_message(pod, "PodScheduled", "False"):
            text = f"the Pod of {location} fits on no node: {message}"
            return InstanceError(POD_NOT_SCHEDULED, text, WARNING)
    return InstanceError(PROGRESSING, f"{location} is being rolled out", INFO)


def _is_available(deployment: Object) -> bool:
    """Whether the Pod of the current definition, and not of an earlier one, is available."""
    status = deployment.get("status")
    generation = get_path(deployment, "metadata.generation")
    observed = get_path(status, "observedGeneration")
    if not isinstance(observed, int) or not isinstance(generation, int) or observed < generation:
        return False
    return all(_is_positive(get_path(status, field)) for field in ("availableReplicas", "updatedReplicas"))


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _condition_message(obj: Object, type: str, status: str) -> str:
    """The reason and message of a condition with this status; empty if there is none."""
    conditions = get_path(obj, "status.conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and (each.get("type"), each.get("status")) == (type, status):
            return f"{quote_remote(each.get('reason') or type)}: {quote_remote(each.get('message') or '')}"
    return ""


def _container_problems(pod: Object) -> Iterator[str]:
    for field in ("initContainerStatuses", "containerStatuses"):
        statuses = get_path(pod, f"status.{field}")
        for each in statuses if isinstance(statuses, list) else ():
            reason = get_path(each, "state.waiting.reason") or ""
            if isinstance(reason, str) and reason not in _starting_reasons:
                name = get_path(each, "name")
                message = get_path(each, "state.waiting.message") or ""
                yield f"container {quote_remote(name)}: {quote_remote(reason)}: {quote_remote(message)}"
