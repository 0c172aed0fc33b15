"""Adds the environment of a workspace to its status, and what there is to say of it to the conditions. Pure.

The conditions are those of the template: runners and clients wait for `TemplateResolved` before a workspace comes up,
and request changes that `TemplateSynced` reports with `spec.templateRef.syncOnce`.
"""

from collections.abc import Sequence

from fairlead.controllers.instances.status import TEMPLATE_RESOLVED, TEMPLATE_SYNCED, failed_resolution
from fairlead.core.objects import Object
from fairlead.domain.environments import EnvironmentResolution, resolve_environment
from fairlead.domain.template_resolution import ResolutionError
from fairlead.registry.conditions import FALSE, TRUE, condition

FIELD = "environment"


def apply_environment(
    workspace: Object, environment: Object | None, status: Object, conditions: Sequence[Object]
) -> tuple[Object, Sequence[Object]]:
    """The status with the environment, and the conditions. `conditions` are those about the template; if that is not
    resolved, they stay as they are. An environment that cannot be resolved does not reach the runner."""
    others = {name: value for name, value in status.items() if name != FIELD}
    try:
        resolution = resolve_environment(workspace, environment)
    except ResolutionError as error:
        is_template_resolved = _status_of(conditions, TEMPLATE_RESOLVED) == TRUE
        return others, failed_resolution(error).conditions if is_template_resolved else conditions
    if resolution is None:
        return others, conditions
    difference = _describe_difference(resolution)
    if difference is not None and _status_of(conditions, TEMPLATE_SYNCED) == TRUE:
        conditions = [each for each in conditions if each["type"] != TEMPLATE_SYNCED] + [difference]
    return {**others, FIELD: resolution.applied}, conditions


def _describe_difference(resolution: EnvironmentResolution) -> Object | None:
    if resolution.is_outdated:
        message = (
            "the environment template has changed since it was applied; set spec.templateRef.syncOnce to apply the "
            "changes"
        )
        return condition(TEMPLATE_SYNCED, FALSE, "TemplateChangesAvailable", message, "Info")
    if resolution.newest_version:
        message = (
            f"version {resolution.applied['version']} of the environment template is in use, and "
            f"{resolution.newest_version} is available; name it in spec.environmentRef.version to upgrade"
        )
        return condition(TEMPLATE_SYNCED, FALSE, "NewTemplateVersionAvailable", message, "Info")
    return None


def _status_of(conditions: Sequence[Object], type: str) -> str:
    return next((str(each["status"]) for each in conditions if each["type"] == type), "")
