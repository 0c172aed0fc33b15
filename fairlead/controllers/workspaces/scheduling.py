"""Which runner a workspace goes to, and what a workspace's status says about it. Pure; `workspaces.py` asks.

A workspace that names a runner goes there or nowhere. One that names none goes to that runner among those the project
allows which has the fewest workspaces; of several such, the first by name. What is on a runner stays there, also if the
runner becomes unusable or the project no longer allows it. What the workspace may name is asked about before what there
is: a project learns nothing of runners that are not for it.
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
"""Reasons that the server gives. With any other, the phase is the runner's word, and stays."""
AT_WORK = frozenset({"Busy", "Running"})
TAKEN = AT_WORK | {"Stopped"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a workspace goes: a runner with its address, or nowhere. `scheduled` is the condition that says so."""

    scheduled: Object
    runner: str = ""
    endpoint: str = ""


def place(workspace: Object, project: Object, runners: Mapping[str, Object], load: Mapping[str, int]) -> Placement:
    """`load` is how many workspaces each runner has already."""
    names = allowed_names(project, ALLOWED_RUNNERS)
    given = dig(workspace, RUNNER)
    if given:
        return _given(workspace, given, is_allowed(names, given), runners.get(given))
    if dig(workspace, "spec.target.cluster.name") or dig(workspace, "spec.target.virtualCluster.name"):
        why = "spec.target is kept, but this server runs workspaces on runners; leave it out"
        return Placement(_unscheduled("TargetNotServed", why))
    usable = [name for name, runner in runners.items() if is_allowed(names, name) and not is_unusable(runner)]
    if usable:
        best = min(usable, key=lambda name: (load.get(name, 0), name))
        return _on(best, runners[best])
    if names == []:
        why = "the project allows no runners; add some to its spec.allowedRunners"
        return Placement(_unscheduled("NoRunnerAllowed", why))
    why = "none of the runners that the project allows is there and usable; create one, or make one usable"
    return Placement(_unscheduled("NoRunnerUsable", why))


def _given(workspace: Object, name: str, allowed: bool, runner: Object | None) -> Placement:
    is_here = is_true(workspace.get("status"), SCHEDULED)
    if not allowed and not is_here:
        why = f'the project does not allow runner "{name}"; add it to the project\'s spec.allowedRunners'
        return Placement(_unscheduled("RunnerNotAllowed", why))
    if runner is None:
        why = f'runner "{name}" does not exist; create it, or delete this workspace and make another one'
        return Placement(_unscheduled(NOT_FOUND, why))
    if is_unusable(runner) and not is_here:
        why = f'runner "{name}" takes no further workspaces; set its spec.unusable to false'
        return Placement(_unscheduled("RunnerUnusable", why))
    return _on(name, runner)


def _on(name: str, runner: Object) -> Placement:
    made = condition(SCHEDULED, TRUE, SCHEDULED, f'on runner "{name}"')
    return Placement(made, name, dig(runner, "spec.endpoint") or "")


def _unscheduled(reason: str, message: str) -> Object:
    return condition(SCHEDULED, FALSE, reason, message, "Error")


def told(workspace: Object, placement: Placement, now: str) -> Object:
    """The workspace's status as it should be: phase, conditions and the generation that they are about."""
    generation = metadata(workspace).get("generation")
    status = {**(workspace.get("status") or {}), **_phase(workspace, placement)}
    ready, *progress = _ready(workspace, status, placement)
    over = {RECONCILING, STALLED} - {each["type"] for each in progress}
    conditions = (placement.scheduled, ready, *progress)
    status = with_conditions(without_conditions(status, *over), conditions, now, generation)
    return {**status, "observedGeneration": generation}


def _phase(workspace: Object, placement: Placement) -> Object:
    """The phase that the server has to say, and nothing where it is the runner's to say."""
    status = workspace.get("status") or {}
    if placement.scheduled["status"] != TRUE:
        lost = placement.scheduled["reason"] == NOT_FOUND and status.get("lastWorkspaceStatus") in TAKEN
        return _said("Failed" if lost else "Pending", placement.scheduled)
    if _is_runners(status):
        # A runner may have changed the phase alone, and our reason for the one before makes no sense any more.
        return {"reason": "", "message": ""} if status.get("reason") in OURS else {}
    template = find_condition(status, "TemplateResolved") or {}
    if template.get("status") == FALSE:
        return _said("Pending", {"reason": NO_TEMPLATE, "message": template.get("message") or ""})
    waiting = f'runner "{placement.runner}" has not reported on it yet'
    return _said("Pending", {"reason": WAITING, "message": waiting})


def _is_runners(status: Object) -> bool:
    """Whether the phase is the runner's word. The server says Pending, and Failed where the runner is lost."""
    phase, reason = status.get("phase"), status.get("reason")
    ours = reason in OURS and (phase == "Pending" or (phase, reason) == ("Failed", NOT_FOUND))
    return bool(phase) and not ours


def _said(phase: str, why: Object) -> Object:
    return {"phase": phase, "reason": why["reason"], "message": why["message"]}


def _ready(workspace: Object, status: Object, placement: Placement) -> Iterator[Object]:
    """Ready; and Reconciling while something is going on, or Stalled where it has come to a halt."""
    phase, message = status["phase"], status.get("message") or ""
    reason = status.get("reason") or phase
    if "deletionTimestamp" in metadata(workspace):
        message = f'waits until runner "{dig(workspace, RUNNER)}" has taken it down'
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
    """Whether a live runner has something to take down before the workspace may go."""
    if runner is None or dig(runner, "status.phase") == "Failed":
        return False
    return dig(workspace, "status.lastWorkspaceStatus") in AT_WORK
