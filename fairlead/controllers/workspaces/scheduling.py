"""Schedules workspaces to runners, and computes their status. Pure; called by `workspaces.py`.

A workspace that names a runner is scheduled there or not at all. Otherwise it goes to the allowed runner with the
fewest workspaces; on a tie, the first by name. A scheduled workspace stays on its runner, even if the runner becomes
unusable or the project no longer allows it. The allow-list is checked before the existence of a runner, so that a
project learns nothing about runners that it may not use.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairlead.admission.allow_lists import RUNNERS as ALLOWED_RUNNERS
from fairlead.admission.allow_lists import allowed_names, is_allowed
from fairlead.core.objects import Object, dig, metadata
from fairlead.kinds.clusters.runner import is_unusable
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    condition,
    find_condition,
    is_true,
    with_conditions,
    without_conditions,
)

SCHEDULED, READY, RECONCILING, STALLED = "Scheduled", "Ready", "Reconciling", "Stalled"
RUNNER = "spec.runnerRef.runner"
NOT_FOUND, WAITING, NO_TEMPLATE = "RunnerNotFound", "WaitingForRunner", "TemplateNotResolved"
OURS = frozenset(
    {
        *(NOT_FOUND, WAITING, NO_TEMPLATE, "NoRunnerAllowed", "NoRunnerUsable"),
        *("RunnerNotAllowed", "RunnerUnusable", "TargetNotServed"),
    }
)
"""Reasons that the server sets. With any other reason, the phase was set by the runner and is kept."""
AT_WORK = frozenset({"Busy", "Running"})
TAKEN = AT_WORK | {"Stopped"}


@dataclass(frozen=True, slots=True)
class Placement:
    """A scheduling decision: a runner with its endpoint, or none. `scheduled` is the Scheduled condition."""

    scheduled: Object
    runner: str = ""
    endpoint: str = ""


def place(workspace: Object, project: Object, runners: Mapping[str, Object], load: Mapping[str, int]) -> Placement:
    """`load` is the number of workspaces of each runner."""
    names = allowed_names(project, ALLOWED_RUNNERS)
    requested = dig(workspace, RUNNER)
    if requested:
        return _given(workspace, requested, is_allowed(names, requested), runners.get(requested))
    if dig(workspace, "spec.target.cluster.name") or dig(workspace, "spec.target.virtualCluster.name"):
        message = "spec.target is not supported: this server runs workspaces on runners; remove it"
        return Placement(_unscheduled("TargetNotServed", message))
    usable = [name for name, runner in runners.items() if is_allowed(names, name) and not is_unusable(runner)]
    if usable:
        best = min(usable, key=lambda name: (load.get(name, 0), name))
        return _on(best, runners[best])
    if names == []:
        message = "the project allows no runners; add some to its spec.allowedRunners"
        return Placement(_unscheduled("NoRunnerAllowed", message))
    message = "no runner that the project allows exists and is usable; create one, or set spec.unusable of one to false"
    return Placement(_unscheduled("NoRunnerUsable", message))


def _given(workspace: Object, name: str, allowed: bool, runner: Object | None) -> Placement:
    is_here = is_true(workspace.get("status"), SCHEDULED)
    if not allowed and not is_here:
        message = f'the project does not allow runner "{name}"; add it to the project\'s spec.allowedRunners'
        return Placement(_unscheduled("RunnerNotAllowed", message))
    if runner is None:
        message = f'runner "{name}" does not exist; create it, or delete this workspace and create a new one'
        return Placement(_unscheduled(NOT_FOUND, message))
    if is_unusable(runner) and not is_here:
        message = f'runner "{name}" accepts no new workspaces; set its spec.unusable to false'
        return Placement(_unscheduled("RunnerUnusable", message))
    return _on(name, runner)


def _on(name: str, runner: Object) -> Placement:
    scheduled = condition(SCHEDULED, TRUE, SCHEDULED, f'scheduled to runner "{name}"')
    return Placement(scheduled, name, dig(runner, "spec.endpoint") or "")


def _unscheduled(reason: str, message: str) -> Object:
    return condition(SCHEDULED, FALSE, reason, message, "Error")


def told(workspace: Object, placement: Placement, now: str) -> Object:
    """The desired status of the workspace: phase, conditions and observedGeneration."""
    generation = metadata(workspace).get("generation")
    status = {**(workspace.get("status") or {}), **_phase(workspace, placement)}
    ready, *progress = _ready(workspace, status, placement)
    obsolete = {RECONCILING, STALLED} - {each["type"] for each in progress}
    conditions = (placement.scheduled, ready, *progress)
    status = with_conditions(without_conditions(status, *obsolete), conditions, now, generation)
    return {**status, "observedGeneration": generation}


def _phase(workspace: Object, placement: Placement) -> Object:
    """The phase fields that the server sets; empty if the phase is the runner's to set."""
    status = workspace.get("status") or {}
    if placement.scheduled["status"] != TRUE:
        runner_missing = placement.scheduled["reason"] == NOT_FOUND and status.get("lastWorkspaceStatus") in TAKEN
        return _said("Failed" if runner_missing else "Pending", placement.scheduled)
    if _is_runners(status):
        # The runner may have changed only the phase; then our reason for the previous phase is obsolete.
        return {"reason": "", "message": ""} if status.get("reason") in OURS else {}
    template = find_condition(status, "TemplateResolved") or {}
    if template.get("status") == FALSE:
        return _said("Pending", {"reason": NO_TEMPLATE, "message": template.get("message") or ""})
    waiting = f'runner "{placement.runner}" has not reported its status yet'
    return _said("Pending", {"reason": WAITING, "message": waiting})


def _is_runners(status: Object) -> bool:
    """Whether the runner set the phase. The server sets Pending, and Failed if the runner does not exist."""
    phase, reason = status.get("phase"), status.get("reason")
    ours = reason in OURS and (phase == "Pending" or (phase, reason) == ("Failed", NOT_FOUND))
    return bool(phase) and not ours


def _said(phase: str, why: Object) -> Object:
    return {"phase": phase, "reason": why["reason"], "message": why["message"]}


def _ready(workspace: Object, status: Object, placement: Placement) -> Iterator[Object]:
    """Ready; and Reconciling while there is progress, or Stalled if there is none without intervention."""
    phase, message = status["phase"], status.get("message") or ""
    reason = status.get("reason") or phase
    if "deletionTimestamp" in metadata(workspace):
        message = f'waiting for runner "{dig(workspace, RUNNER)}" to shut it down'
        yield condition(READY, FALSE, "Deleting", message, "Info")
        yield condition(RECONCILING, TRUE, "Deleting", message)
    elif phase in ("Ready", "Sleeping"):
        is_ready = phase == "Ready"
        yield condition(READY, TRUE if is_ready else FALSE, reason, message, "" if is_ready else "Info")
    else:
        halted = phase == "Failed" or placement.scheduled["status"] != TRUE or reason == NO_TEMPLATE
        yield condition(READY, FALSE, reason, message, "Error" if halted else "Info")
        yield condition(STALLED if halted else RECONCILING, TRUE, reason, message)


def holds_work(workspace: Object, runner: Object | None) -> bool:
    """Whether a live runner has to shut the workspace down before it may be deleted."""
    if runner is None or dig(runner, "status.phase") == "Failed":
        return False
    return dig(workspace, "status.lastWorkspaceStatus") in AT_WORK
