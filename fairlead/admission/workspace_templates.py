"""Permissions and placement of workspaces come from templates that administrators trust.

- `restrict_workspace_templates` rejects workspaces that would get them from another definition: inline, or from a
  template that is not trusted. An inline definition is never trusted, even an administrator's: others may change the
  rest of it later. It looks at workspaces only when their definition changes, so that stored ones can be updated; of
  those, the controller of templates gives nothing to runners (`controllers/instances/workspace_templates.py`).
- `warn_about_workspace_templates` tells the author of a template what will not count in it.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, invalid, is_resource
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.template_resolution import ResolutionError, find_definition
from fairlead.domain.workspace_trust import describe_trust_problems, find_trust_problems, trust_advice
from fairlead.kinds.instances.templates import TRUE, TRUST_ANNOTATION, TRUSTED, WORKSPACE_TEMPLATE, trust_level
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

MAX_WARNINGS = 10


def restrict_workspace_templates(api_group: str) -> Rule:
    """Rejects a workspace with permissions or placement from a definition that may not decide them."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.is_move or not _definition_changed(change):
            return
        name = get_path(change.obj, "spec.templateRef.name") or ""
        entry = registry.view.get((api_group, WORKSPACE_TEMPLATE.plural, "", str(name)))
        template = decode(entry) if entry is not None else None
        try:
            definition = find_definition(change.obj, template)
        except ResolutionError:
            return  # its conditions report that
        is_trusted = trust_level(change.obj, template) == TRUSTED
        found = find_trust_problems(definition.template, definition.parameters, is_trusted=is_trusted)
        if not found:
            return
        if name:
            problems = [Problem.forbidden("spec.templateRef.name", describe_trust_problems(found, str(name)))]
        else:
            problems = [
                Problem.forbidden(f"spec.template.{field}", f"{why}; {trust_advice('')}")
                for field, why in found.items()
            ]
        raise invalid(change, *problems)

    return rule


def _definition_changed(change: Change) -> bool:
    paths = ("spec.templateRef.name", "spec.templateRef.version", "spec.template")
    return change.old is None or any(get_path(change.old, path) != get_path(change.obj, path) for path in paths)


def warn_about_workspace_templates(api_group: str) -> Rule:
    """Warns about permissions and placement in a template that will not count."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE_TEMPLATE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        annotations = metadata(change.new).get("annotations")
        is_trusted = isinstance(annotations, dict) and annotations.get(TRUST_ANNOTATION) == TRUE
        warnings = list(_definition_warnings(change.new, is_trusted=is_trusted))
        change.warnings.extend(warnings[:MAX_WARNINGS])

    return rule


def _definition_warnings(template: Object, *, is_trusted: bool) -> Iterator[str]:
    for path, definition in _definitions(template):
        parameters = definition.get("parameters") or ()
        if found := find_trust_problems(definition.get("template"), parameters, is_trusted=is_trusted):
            yield f"no workspace can be created from {path}: {describe_trust_problems(found, name_of(template))}"


def _definitions(template: Object) -> Iterator[tuple[str, Object]]:
    spec = template.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    yield "spec.template", spec
    versions = spec.get("versions")
    for index, each in enumerate(versions if isinstance(versions, list) else ()):
        if isinstance(each, dict):
            yield f"spec.versions[{index}]", each
