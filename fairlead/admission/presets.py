"""Workspaces from presets, and what presets refer to.

- `apply_presets` copies a preset into a workspace that is created with `spec.presetRef`. It runs before all rules about
  what a workspace uses, so that these apply to a copied template or environment as to one that the requester wrote: a
  preset gives no permissions. Later changes of the preset do not change the workspace. Whether the project allows the
  preset is checked before anything else is said about it.
- `require_presets` rejects workspaces without a preset in a project that requires one. Exempt are those who may create
  workspaces without a template. What the project did not require before may stay.
- `check_presets` rejects values for password parameters in presets, and warns about templates and environments that do
  not exist.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, forbidden, has_valid_types, invalid, is_resource
from fairlead.admission.allow_lists import allowed_names
from fairlead.admission.projects import check_allow_list, describe_allowed, find_project
from fairlead.admission.restricted import RESTRICTED_SUBRESOURCE, may_create_restricted
from fairlead.core.call import Authorize
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.parameters import parse_values
from fairlead.domain.password_parameters import PASSWORD_TYPE
from fairlead.domain.presets import apply_definition, find_preset_definition, keep_copied
from fairlead.domain.template_resolution import ResolutionError, find_definition
from fairlead.kinds.instances.preset import WORKSPACE_PRESET, list_definitions
from fairlead.kinds.instances.templates import ENVIRONMENT_TEMPLATE, WORKSPACE_TEMPLATE
from fairlead.kinds.instances.workspace import PRESET_FIELD, WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

MAX_WARNINGS = 5
_FIELD_TYPES = {
    "spec": dict,
    "spec.presetRef": dict,
    "spec.presetRef.name": str,
    "spec.presetRef.version": str,
    "spec.templateRef": dict,
    "spec.templateRef.name": str,
    "spec.template": dict,
    "spec.environmentRef": dict,
    "spec.environmentRef.name": str,
    "spec.parameters": str,
    "metadata.annotations": dict,
}


def apply_presets(api_group: str, prefix: str) -> Rule:
    """Copies the preset into a new workspace. `prefix` is that of project namespaces."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        name = get_path(change.obj, PRESET_FIELD.path)
        if change.subresource or change.user == CONTROLLER_USER or change.is_move or change.new is None:
            return
        if not name or not has_valid_types(change.new, _FIELD_TYPES):
            return
        presets = registry.resource(api_group, WORKSPACE_PRESET.plural)
        if change.old is not None:
            if name == get_path(change.old, PRESET_FIELD.path) and presets.get_cached("", name) is not None:
                change.new.update(keep_copied(change.new, change.old))
            if get_path(change.new, "spec.presetRef") != get_path(change.old, "spec.presetRef"):
                change.warnings.append(
                    "spec.presetRef has no effect on a workspace that exists; remove it and set the other fields, or "
                    "create another workspace"
                )
            return
        check_allow_list(change, PRESET_FIELD, registry, (api_group, prefix))
        entry = presets.get_cached("", name)
        if entry is None:
            change.warnings.append(
                f'spec.presetRef has no effect: there is no preset "{name}"; create it first, or name another one, and '
                "create the workspace anew"
            )
            return
        try:
            definition = find_preset_definition(change.new, decode(entry))
        except ResolutionError as error:
            version = get_path(change.new, "spec.presetRef.version") or ""
            raise invalid(change, Problem.invalid("spec.presetRef.version", version, error.message)) from None
        change.new.update(apply_definition(change.new, definition))

    return rule


def require_presets(authorize: Authorize, api_group: str, prefix: str) -> Rule:
    """Requires a preset of workspaces in projects with `spec.requirePreset`. `prefix` is that of project namespaces."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        if not has_valid_types(change.new, _FIELD_TYPES):
            return
        problem = _find_missing_preset(change, registry, api_group)
        if not problem:
            return
        project = find_project(change, registry, (api_group, prefix))
        if project is None or not requires_preset(project) or may_create_restricted(change, authorize):
            return
        why = _describe_requirement(problem, project, api_group)
        raise forbidden(change, why)

    return rule


def requires_preset(project: Object) -> bool:
    """`requirePreset: {}` is enough; `disabled` takes it back without removing the field."""
    required = get_path(project, "spec.requirePreset")
    return isinstance(required, dict) and required.get("disabled") is not True


def _find_missing_preset(change: Change, registry: Registry, api_group: str) -> str:
    """Why the workspace is not from a preset; empty if it is, or if the change is not about that."""
    name = get_path(change.new, PRESET_FIELD.path)
    if change.old is None:
        if not name:
            return "the workspace names none"
        exists = registry.resource(api_group, WORKSPACE_PRESET.plural).get_cached("", name) is not None
        return "" if exists else f'there is no preset "{name}"'
    return "the change removes spec.presetRef" if get_path(change.old, PRESET_FIELD.path) and not name else ""


def _describe_requirement(problem: str, project: Object, api_group: str) -> str:
    names = allowed_names(project, PRESET_FIELD.allow_list, PRESET_FIELD.kind, api_group)
    choice = f" ({describe_allowed(PRESET_FIELD, names)})" if names is not None else ""
    return (
        f'project "{name_of(project)}" requires a preset (spec.requirePreset), and {problem}; name one{choice} in '
        f"spec.presetRef.name, as `fairlead workspace create --preset` does, or ask for the permission to create "
        f"{WORKSPACE.plural}/{RESTRICTED_SUBRESOURCE} in the project"
    )


def check_presets(api_group: str) -> Rule:
    """Checks the templates, environments and parameters of presets."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE_PRESET.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        known = [definition for _, definition in list_definitions(change.old or {})]
        added = [each for each in list_definitions(change.new) if each[1] not in known]
        problems = [each for path, one in added for each in _password_problems(path, one, registry, api_group)]
        if problems:
            raise invalid(change, *problems)
        missing = [each for path, one in added for each in _missing_references(path, one, registry, api_group)]
        change.warnings.extend(missing[:MAX_WARNINGS])

    return rule


def _password_problems(path: str, definition: Object, registry: Registry, api_group: str) -> Iterator[Problem]:
    name = get_path(definition, "templateRef.name") or ""
    entry = registry.resource(api_group, WORKSPACE_TEMPLATE.plural).get_cached("", name)
    if entry is None:
        return
    try:
        template = find_definition({"spec": definition}, decode(entry))
    except ResolutionError:
        return  # that of the workspaces is reported
    values, _ = parse_values(definition.get("parameters") or "")
    secret = {each.get("variable") for each in template.parameters or () if each.get("type") == PASSWORD_TYPE}
    for variable in values:
        if variable in secret:
            why = "it is a password, which all who can read the preset would see; leave it to the users of the preset"
            yield Problem.forbidden(f"{path}.parameters[{variable}]", why)


def _missing_references(path: str, definition: Object, registry: Registry, api_group: str) -> Iterator[str]:
    for field, kind, noun in (
        ("templateRef", WORKSPACE_TEMPLATE, "workspace template"),
        ("environmentRef", ENVIRONMENT_TEMPLATE, "environment template"),
    ):
        name = get_path(definition, f"{field}.name")
        if name and registry.resource(api_group, kind.plural).get_cached("", name) is None:
            yield f'{path}.{field}.name: there is no {noun} "{name}"; workspaces from this preset wait until it exists'
