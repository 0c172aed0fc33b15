"""Admission of the annotations that make a workspace a prebuild.

An `up` of a prebuild deletes what the workspace has. So a workspace is a prebuild from its creation on, or never.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, invalid, is_resource
from fairlead.core.objects import Object, annotations_of
from fairlead.core.workspaces import PREBUILD_ANNOTATION, PREBUILD_SCHEDULE_ANNOTATION
from fairlead.domain.cron import InvalidSchedule, parse_schedule
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.kind import Change, Problem
from fairlead.registry.registry import Registry

PATH = f"metadata.annotations[{PREBUILD_ANNOTATION}]"
SCHEDULE_PATH = f"metadata.annotations[{PREBUILD_SCHEDULE_ANNOTATION}]"


def check_prebuilds(api_group: str) -> Rule:
    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.is_move or change.subresource:
            return
        problems = list(_find_problems(change.obj, change.old))
        if problems:
            raise invalid(change, *problems)

    return rule


def _find_problems(workspace: Object, before: Object | None) -> Iterator[Problem]:
    value = _read(workspace, PREBUILD_ANNOTATION)
    schedule = _read(workspace, PREBUILD_SCHEDULE_ANNOTATION)
    former = _read(before, PREBUILD_ANNOTATION) if before is not None else value
    if value != former:
        reason = "cannot be changed: a prebuild deletes the files of its workspace; create a new workspace"
        yield Problem.invalid(PATH, value, reason)
    elif value not in ("", "true"):
        yield Problem.invalid(PATH, value, "must be true, or be left out")
    if before is not None and schedule == _read(before, PREBUILD_SCHEDULE_ANNOTATION):
        return
    if schedule and not value:
        yield Problem.invalid(SCHEDULE_PATH, schedule, f"is for workspaces with the annotation {PREBUILD_ANNOTATION}")
    try:
        if schedule:
            parse_schedule(schedule)
    except InvalidSchedule as error:
        yield Problem.invalid(SCHEDULE_PATH, schedule, str(error))


def _read(workspace: Object, annotation: str) -> str:
    return str(annotations_of(workspace).get(annotation) or "")
