"""Schedules workspaces to runners, and computes their status. Pure; called by `workspaces.py`.

A workspace that names a runner is scheduled there or not at all. Otherwise it goes to the allowed runner with the
fewest workspaces; on a tie, the first by name; runners that have never reported, or whose machine is smaller than what
the template wants, come last. Those that are silent, have failed, or lack the engine or the labels that the template
names (`suitability.py`) get nothing; so the template is resolved first. A scheduled workspace stays on its runner, even
if the runner becomes unusable or silent, or the project no longer allows it. The allow-list is checked before the
existence of a runner, so that a project learns nothing about runners that it may not use.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.admission.allow_lists import RUNNERS as ALLOWED_RUNNERS
from fairlead.admission.allow_lists import allowed_names, is_allowed
from fairlead.controllers.instances.prerequisites import NO_PROJECT
from fairlead.controllers.workspaces.readiness import (
    READY,
    RECONCILING,
    STALLED,
    TEMPLATE_NOT_RESOLVED,
    evaluate_readiness,
)
from fairlead.controllers.workspaces.suitability import Demand, find_lack, is_too_small, read_demand
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.workspaces import RUNNER_FAILED, RUNNER_NOT_STARTED, silence_message
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

SCHEDULED = "Scheduled"
RUNNER_FIELD = "spec.runnerRef.runner"
RUNNER_NOT_FOUND, WAITING_FOR_RUNNER = "RunnerNotFound", "WaitingForRunner"
NO_RUNNER_FOR_PROVIDER = "NoRunnerForProvider"
SERVER_REASONS = frozenset(
    {
        *(RUNNER_NOT_FOUND, WAITING_FOR_RUNNER, RUNNER_NOT_STARTED, RUNNER_FAILED, TEMPLATE_NOT_RESOLVED),
        *("NoRunner", "NoRunnerAllowed", "NoRunnerUsable"),
        *("RunnerNotAllowed", "RunnerUnusable", "TargetNotSupported", NO_PROJECT, "NoRunnerResponding"),
        NO_RUNNER_FOR_PROVIDER,
    }
)
"""Reasons that the server sets. With any other reason, the phase was set by the runner and is kept."""
STARTED_STATES = frozenset({"Busy", "Running", "Stopped"})
"""States of a workspace that has something on its runner, which the runner removes before it is deleted."""
MAX_NAMED = 10
"""Runners in a message."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A scheduling decision: a runner with its endpoint, or none. `scheduled` is the Scheduled condition. `silence`
    says since when the runner does not respond; it is empty if it does. `runner_phase` is that of the runner."""

    scheduled: Object
    runner: str = ""
    endpoint: str = ""
    silence: str = ""
    runner_phase: str = ""


def schedule(
    workspace: Object, project: Object | None, runners: Mapping[str, Object], load: Mapping[str, int]
) -> Placement:
    """`load` is the number of workspaces of each runner. `project` is None outside of projects."""
    if project is None:
        namespace = metadata(workspace)["namespace"]
        message = f'namespace "{namespace}" belongs to no project; create the workspace in the namespace of a project'
        return Placement(_unscheduled_condition(NO_PROJECT, message))
    names = allowed_names(project, ALLOWED_RUNNERS)
    requested = get_path(workspace, RUNNER_FIELD)
    demand = read_demand(workspace)
    if requested:
        return _schedule_to_named(workspace, demand, requested, is_allowed(names, requested), runners.get(requested))
    if get_path(workspace, "spec.target.cluster.name") or get_path(workspace, "spec.target.virtualCluster.name"):
        message = "spec.target is not supported: this server runs workspaces on runners; remove it"
        return Placement(_unscheduled_condition("TargetNotSupported", message))
    if not is_template_known(workspace):
        return Placement(_unscheduled_condition(TEMPLATE_NOT_RESOLVED, _describe_template_problem(workspace)))
    usable = {name: each for name, each in runners.items() if is_allowed(names, name) and _accepts_workspaces(each)}
    silent = {name: message for name, each in usable.items() if (message := silence_message(each))}
    working = [name for name in usable if name not in silent and get_path(usable[name], "status.phase") != "Failed"]
    lacks = {name: find_lack(usable[name], demand) for name in working}
    candidates = [name for name in working if not lacks[name]]
    if candidates:

        def rank(name: str) -> tuple[bool, bool, int, str]:
            return _is_unreported(usable[name]), is_too_small(usable[name], demand), load.get(name, 0), name

        best = min(candidates, key=rank)
        return _build_placement(best, runners[best])
    if lacks:
        return Placement(_unscheduled_condition(NO_RUNNER_FOR_PROVIDER, _describe_lacks(lacks, demand)))
    if silent:
        return Placement(
            _unscheduled_condition("NoRunnerResponding", "; ".join(silent[name] for name in sorted(silent)))
        )
    if names == []:
        message = "the project allows no runners; add some to its spec.allowedRunners"
        return Placement(_unscheduled_condition("NoRunnerAllowed", message))
    if not runners:
        message = (
            "there is no runner yet; create one with `fairlead runner create NAME`, and start it on the machine that "
            "is to run workspaces with `fairlead runner start NAME`"
        )
        return Placement(_unscheduled_condition("NoRunner", message))
    message = (
        "no runner that the project allows exists and is usable; create one, set spec.unusable of one to false, or fix "
        "one that has failed"
    )
    return Placement(_unscheduled_condition("NoRunnerUsable", message))


def is_template_known(workspace: Object) -> bool:
    """Whether it is known what the template wants of a runner."""
    spec = workspace.get("spec") or {}
    has_template = bool(get_path(spec, "templateRef.name") or spec.get("template"))
    return not has_template or get_path(workspace, "status.instance") is not None


def _describe_template_problem(workspace: Object) -> str:
    resolved = find_condition(workspace.get("status"), "TemplateResolved") or {}
    return str(resolved.get("message") or "its template is not resolved yet")


def _describe_lacks(lacks: Mapping[str, str], demand: Demand) -> str:
    shown = [f'runner "{name}" {lacks[name]}' for name in sorted(lacks)[:MAX_NAMED]]
    further = [f"and {len(lacks) - MAX_NAMED} more"] if len(lacks) > MAX_NAMED else []
    wanted = f'the provider "{demand.provider}"' if demand.provider else "what the template names"
    return (
        f"no runner that the project allows has {wanted}: {'; '.join([*shown, *further])}. Start a runner that has it "
        "(`fairlead runner start NAME --engine ENGINE`), or use another template"
    )


def _accepts_workspaces(runner: Object) -> bool:
    """One that is being deleted would leave them behind."""
    return not is_unusable(runner) and "deletionTimestamp" not in metadata(runner)


def _is_unreported(runner: Object) -> bool:
    return bool(get_path(runner, "status.phase") != "Initialized")


def _schedule_to_named(
    workspace: Object, demand: Demand, name: str, is_permitted: bool, runner: Object | None
) -> Placement:
    is_here = is_true(workspace.get("status"), SCHEDULED)
    if not is_permitted and not is_here:
        message = f'the project does not allow runner "{name}"; add it to the project\'s spec.allowedRunners'
        return Placement(_unscheduled_condition("RunnerNotAllowed", message))
    if runner is None:
        message = f'runner "{name}" does not exist; create it, or delete this workspace and create a new one'
        if get_path(workspace, "status.lastWorkspaceStatus") in STARTED_STATES:
            message = (
                f'runner "{name}" was deleted, and what it has of this workspace stays on its machine; create a runner '
                "of that name and start it there, to go on with it or to have it removed, or delete this workspace"
            )
        return Placement(_unscheduled_condition(RUNNER_NOT_FOUND, message))
    if not _accepts_workspaces(runner) and not is_here:
        is_deleted = "deletionTimestamp" in metadata(runner)
        advice = "it is being deleted; use another one" if is_deleted else "set its spec.unusable to false"
        message = f'runner "{name}" accepts no new workspaces; {advice}'
        return Placement(_unscheduled_condition("RunnerUnusable", message))
    if not is_here and (lack := find_lack(runner, demand)):
        return Placement(_unscheduled_condition(NO_RUNNER_FOR_PROVIDER, _describe_lacks({name: lack}, demand)))
    return _build_placement(name, runner)


def _build_placement(name: str, runner: Object) -> Placement:
    scheduled = condition(SCHEDULED, TRUE, SCHEDULED, f'scheduled to runner "{name}"')
    return Placement(
        scheduled=scheduled,
        runner=name,
        endpoint=get_path(runner, "spec.endpoint") or "",
        silence=silence_message(runner),
        runner_phase=get_path(runner, "status.phase") or "",
    )


def _unscheduled_condition(reason: str, message: str) -> Object:
    return condition(SCHEDULED, FALSE, reason, message, "Error")


def next_status(workspace: Object, placement: Placement, now: str) -> Object:
    """The desired status of the workspace: phase, conditions and observedGeneration."""
    generation = metadata(workspace).get("generation")
    status = {**(workspace.get("status") or {}), **_phase_fields(workspace, placement)}
    readiness = evaluate_readiness(workspace, status, placement.scheduled, placement.silence)
    ready = condition(READY, readiness.ready, readiness.reason, readiness.message, readiness.severity)
    conditions = [placement.scheduled, ready]
    if readiness.progress:
        conditions.append(condition(readiness.progress, TRUE, readiness.reason, readiness.message))
    obsolete = {RECONCILING, STALLED} - {readiness.progress}
    status = with_conditions(without_conditions(status, *obsolete), conditions, now, generation)
    return {**status, "observedGeneration": generation}


def _phase_fields(workspace: Object, placement: Placement) -> Object:
    """The phase fields that the server sets; empty if the phase is the runner's to set."""
    status = workspace.get("status") or {}
    if placement.scheduled["status"] != TRUE:
        runner_missing = (
            placement.scheduled["reason"] == RUNNER_NOT_FOUND and status.get("lastWorkspaceStatus") in STARTED_STATES
        )
        return _status_fields("Failed" if runner_missing else "Pending", placement.scheduled)
    if _is_set_by_runner(status):
        # The runner may have changed only the phase; then our reason for the previous phase is obsolete.
        return {"reason": "", "message": ""} if status.get("reason") in SERVER_REASONS else {}
    template = find_condition(status, "TemplateResolved") or {}
    if template.get("status") == FALSE:
        return _status_fields("Pending", {"reason": TEMPLATE_NOT_RESOLVED, "message": template.get("message") or ""})
    return _status_fields("Pending", _describe_wait(placement.runner, placement.runner_phase))


def _describe_wait(runner: str, phase: str) -> Object:
    """Why a runner has not reported on a workspace, also for its owner, who may not be allowed to get the runner."""
    if not phase:
        message = f'runner "{runner}" was never started; start it on its machine with `fairlead runner start {runner}`'
        return {"reason": RUNNER_NOT_STARTED, "message": message}
    if phase == "Failed":
        advice = f"`fairlead runner doctor {runner}` on its machine shows why"
        return {"reason": RUNNER_FAILED, "message": f'runner "{runner}" has failed; {advice}'}
    return {"reason": WAITING_FOR_RUNNER, "message": f'runner "{runner}" has not reported on it yet'}


def _is_set_by_runner(status: Object) -> bool:
    """Whether the runner set the phase. The server sets Pending, and Failed if the runner does not exist."""
    phase = status.get("phase")
    reason = status.get("reason")
    is_server_reason = reason in SERVER_REASONS and (
        phase == "Pending" or (phase, reason) == ("Failed", RUNNER_NOT_FOUND)
    )
    return bool(phase) and not is_server_reason


def _status_fields(phase: str, source: Object) -> Object:
    return {"phase": phase, "reason": source["reason"], "message": source["message"]}


def blocks_deletion(workspace: Object, runner: Object | None) -> bool:
    """Whether a live runner has to remove the workspace before it may be deleted.

    A silent runner does not block: when it responds again, it stops what is left, and removes it a week later.
    """
    if runner is None or get_path(runner, "status.phase") == "Failed" or silence_message(runner):
        return False
    return get_path(workspace, "status.lastWorkspaceStatus") in STARTED_STATES
