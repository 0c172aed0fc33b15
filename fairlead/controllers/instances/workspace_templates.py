"""What differs for the templates of workspaces: their environment, and what a template may not decide. Pure.

The conditions of the environment are those of the template: runners and clients wait for `TemplateResolved` before a
workspace comes up, and request changes that `TemplateSynced` reports with `spec.templateRef.syncOnce`.

Admission rejects workspaces with permissions or a placement that their template may not decide. For those that were
stored before, and for templates that have changed or lost their trust, the rendered template is removed here, since it
is all that a runner gets, and a condition says why. What runs goes on running until the next `up`, which fails.
"""

from collections.abc import Sequence

from fairlead.controllers.instances.status import TEMPLATE_SYNCED, TemplateResolution, failed_resolution
from fairlead.core.objects import Object, get_path
from fairlead.domain.environments import EnvironmentResolution, resolve_environment
from fairlead.domain.template_resolution import ResolutionError, TemplateDefinition
from fairlead.domain.typed_objects import TEMPLATE_RESOLVED
from fairlead.domain.workspace_trust import NOT_TRUSTED, describe_trust_problems, find_trust_problems
from fairlead.kinds.instances.templates import TRUSTED
from fairlead.registry.conditions import FALSE, TRUE, condition

FIELD = "environment"
RENDERED_FIELDS = ("instance", "renderedSecrets", "templateHash", "templateTrust")


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


def refuse_untrusted(
    workspace: Object, definition: TemplateDefinition | ResolutionError, result: TemplateResolution, trust: str
) -> TemplateResolution | None:
    """The conditions of a workspace whose rendered template must not count; None if it may. `trust` is that of the
    rendered template: the new one if it is adopted, else the one in the status."""
    rendered = result.rendered if result.is_adopted else get_path(workspace, "status.instance")
    found = find_trust_problems(rendered, None, is_trusted=trust == TRUSTED)
    if not found and result.is_adopted and isinstance(definition, TemplateDefinition):
        found = find_trust_problems(definition.template, definition.parameters, is_trusted=trust == TRUSTED)
    if not found:
        return None
    name = get_path(workspace, "spec.templateRef.name") or ""
    return failed_resolution(ResolutionError(NOT_TRUSTED, describe_trust_problems(found, name)))


def without_rendered(status: Object) -> Object:
    """Also without the hash: as soon as the template is trusted, it is rendered again."""
    return {name: value for name, value in status.items() if name not in RENDERED_FIELDS}
