"""DevPodEnvironmentTemplate: a devcontainer.json for workspaces, in the place of the one that a repository has.

It has no trust level, unlike a template: a runner treats it as it treats the file of a repository, so it gives neither
permissions nor a place to a workspace. Those come from the workspace template.
"""

from collections.abc import Iterable, Iterator

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import parse_jsonc
from fairlead.core.objects import Object, get_path
from fairlead.kinds.fields import CATEGORY, owned_spec, owner_problems
from fairlead.kinds.instances.templates import newest_version_cell, version_problems
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import array, obj, open_object, string, with_description

ENVIRONMENT_SPEC = obj(
    "Definition of an environment.",
    inline=string(
        "Text of a devcontainer.json, which may contain comments. Paths in it are relative to `.devcontainer` of the "
        "repository. Without `image` and `build`, the image of the source or of the template is used.",
        max_length=limits.DEVCONTAINER,
    ),
)

FIELDS = {
    "spec": owned_spec(
        "Definition of the environment, and access to it.",
        template=with_description(ENVIRONMENT_SPEC, "The unversioned definition, for workspaces without a version."),
        versions=array(
            obj(
                template=with_description(ENVIRONMENT_SPEC, "The definition of this version."),
                version=string("Version with three components, such as `1.4.0`."),
            ),
            "Versions of the environment, one entry for each.",
            max_items=limits.VERSIONS,
        ),
    ),
    "status": open_object("Not used. Not a subresource."),
}


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    yield from version_problems(spec.get("versions") or ())
    known = {text for _, text in _texts((change.old or {}).get("spec") or {})}
    texts = list(_texts(spec))
    size = sum(len(text) for _, text in texts)
    if size > limits.DEVCONTAINERS and size > sum(map(len, known)):
        yield Problem.too_many("spec.versions", size, limits.DEVCONTAINERS, "characters in all versions together")
        return
    has_unversioned = spec.get("template") is not None or not spec.get("versions")
    if has_unversioned and not get_path(spec, "template.inline"):
        yield Problem.required("spec.template.inline", "must be the text of a devcontainer.json")
    for index, entry in enumerate(spec.get("versions") or ()):
        if not get_path(entry, "template.inline"):
            path = f"spec.versions[{index}].template.inline"
            yield Problem.required(path, "must be the text of a devcontainer.json")
    for path, text in texts:
        if text not in known and (reason := _find_fault(text)):
            yield Problem.invalid(path, "<devcontainer.json>", f"is no devcontainer.json: {reason}")


def _texts(spec: Object) -> Iterator[tuple[str, str]]:
    """The texts, with their paths."""
    if text := get_path(spec, "template.inline"):
        yield "spec.template.inline", text
    for index, entry in enumerate(spec.get("versions") or ()):
        if text := get_path(entry, "template.inline"):
            yield f"spec.versions[{index}].template.inline", text


def _find_fault(text: str) -> str:
    try:
        parse_jsonc(text)
    except (Malformed, TooManyValues) as error:
        return str(error)
    return ""


ENVIRONMENT_TEMPLATE = Kind(
    name="DevPodEnvironmentTemplate",
    plural="devpodenvironmenttemplates",
    namespaced=False,
    fields=FIELDS,
    description="An environment for workspaces: a devcontainer.json in the place of that of the repository.",
    categories=(CATEGORY,),
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Newest", newest_version_cell, description="Newest version, if it has versions."),
        Column("Description", "spec.description", description="Purpose of the environment.", wide=True),
    ),
    selectable=("spec.owner.user",),
    has_access_entries=True,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
