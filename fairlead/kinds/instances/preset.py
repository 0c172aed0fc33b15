"""DevPodWorkspacePreset: what a workspace starts from: a source, a template with parameters, and an environment.

`admission/presets.py` copies it into a workspace that is created with `spec.presetRef`. From then on, the workspace is
like any other: all rules apply to the fields that it has, and a preset gives nothing that its user could not have
written there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from fairlead.core.objects import Object, get_path
from fairlead.domain.parameters import PARAMETERS_PATH, parse_values
from fairlead.domain.template_versions import parse_pattern
from fairlead.kinds.fields import CATEGORY, VERSIONED_REF, owned_spec, owner_problems
from fairlead.kinds.instances.templates import newest_version_cell, version_problems
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import dns_subdomain_errors
from fairlead.registry.schema import array, obj, open_object, string, with_description

_DEFINITION = {
    "source": obj(
        "Where the content of the workspace comes from. One of `git` and `image`.",
        git=string(
            "URL of a Git repository. It may be followed by `@BRANCH`, `@sha256:COMMIT` and `@subpath:FOLDER`.",
            max_length=limits.URL,
        ),
        image=string("Image of a workspace without a repository."),
    ),
    "templateRef": with_description(VERSIONED_REF, "Template of the workspace."),
    "environmentRef": with_description(VERSIONED_REF, "Environment template of the workspace."),
    "parameters": string(
        "Values for the template's parameters, as YAML text. Those of the workspace take precedence. No passwords: "
        "all who can read the preset see them.",
        max_length=limits.DOCUMENT,
    ),
}
DEFINITION_FIELDS = tuple(_DEFINITION)

FIELDS = {
    "spec": owned_spec(
        "What workspaces start from, and access to the preset. Its own fields are for workspaces without a version.",
        **_DEFINITION,
        versions=array(
            obj(required=(), **_DEFINITION, version=string("Version with three components, such as `1.4.0`.")),
            "Versions of the preset, one entry for each.",
            max_items=limits.VERSIONS,
        ),
    ),
    "status": open_object("Not used. Not a subresource."),
}


def list_definitions(preset: Object) -> Iterator[tuple[str, Object]]:
    """The definitions of a preset, with their paths: the unversioned one if there is any, and those of its versions."""
    spec = preset.get("spec") or {}
    versions = spec.get("versions") or ()
    unversioned = {name: spec[name] for name in DEFINITION_FIELDS if spec.get(name)}
    if unversioned or not versions:
        yield "spec", unversioned
    for index, entry in enumerate(versions):
        yield f"spec.versions[{index}]", entry


def check(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from version_problems(change.spec.get("versions") or ())
    known = [definition for _, definition in list_definitions(change.old)] if change.old is not None else []
    for path, definition in list_definitions(change.obj):
        if definition not in known:  # parsing the parameters of a thousand versions takes time
            yield from _definition_problems(path, definition)


def _definition_problems(path: str, definition: Object) -> Iterator[Problem]:
    git = get_path(definition, "source.git")
    image = get_path(definition, "source.image")
    if git and image:
        yield Problem.forbidden(f"{path}.source.image", f"{path}.source.git is set too; keep one of them")
    elif not git and not image:
        yield Problem.required(f"{path}.source", "must have the URL of a repository in git, or an image")
    if git and _has_password(git):
        yield Problem.invalid(f"{path}.source.git", "<hidden>", "contains a password; use the credentials of projects")
    if not get_path(definition, "templateRef.name"):
        yield Problem.required(f"{path}.templateRef.name", "must be the name of a workspace template")
    for field in ("templateRef", "environmentRef"):
        yield from _reference_problems(f"{path}.{field}", definition.get(field) or {})
    _, problems = parse_values(definition.get("parameters") or "")
    for each in problems:
        yield replace(each, field=f"{path}.parameters{each.field.removeprefix(PARAMETERS_PATH)}")


def _has_password(url: str) -> bool:
    try:
        return "://" in url and urlsplit(url).password is not None
    except ValueError:  # no valid URL; the runner refuses it
        return False


def _reference_problems(path: str, reference: Object) -> Iterator[Problem]:
    if name := reference.get("name"):
        yield from (Problem.invalid(f"{path}.name", name, fault) for fault in dns_subdomain_errors(name))
    if (version := reference.get("version")) and parse_pattern(version) is None:
        yield Problem.invalid(f"{path}.version", version, "must be three parts, each a number or x, such as 1.2.x")


def _source_cell(preset: Object) -> Any:
    return get_path(preset, "spec.source.git") or get_path(preset, "spec.source.image")


WORKSPACE_PRESET = Kind(
    name="DevPodWorkspacePreset",
    plural="devpodworkspacepresets",
    namespaced=False,
    fields=FIELDS,
    description="What workspaces start from: a source, a template with parameters, and an environment.",
    categories=(CATEGORY,),
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Source", _source_cell, description="Repository or image, without a version."),
        Column("Template", "spec.templateRef.name", description="Template, without a version."),
        Column("Newest", newest_version_cell, description="Newest version, if it has versions."),
        Column("Environment", "spec.environmentRef.name", description="Environment, without a version.", wide=True),
        Column("Description", "spec.description", description="Purpose of the preset.", wide=True),
    ),
    selectable=("spec.owner.user",),
    encrypted=("spec.parameters", "spec.versions.parameters"),
    has_access_entries=True,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
