"""Keeps permissions and placement from runners that the template of a workspace may not decide. Pure.

Admission rejects such workspaces already. This is for those that were stored before, and for templates that have
changed or lost their trust: the rendered template is all that a runner gets, so it is removed, and a condition says
why. What runs goes on running until the next `up`, which fails.
"""

from fairlead.controllers.instances.status import TemplateResolution, failed_resolution
from fairlead.core.objects import Object, get_path
from fairlead.domain.template_resolution import ResolutionError, TemplateDefinition
from fairlead.domain.workspace_trust import NOT_TRUSTED, describe_trust_problems, find_trust_problems
from fairlead.kinds.instances.templates import TRUSTED

RENDERED_FIELDS = ("instance", "renderedSecrets", "templateHash", "templateTrust")


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
