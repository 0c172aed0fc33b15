"""What a workspace template may decide: permissions and placement only if an administrator trusts it.

Pure. Admission rejects workspaces with it, and the controller of templates applies it to what runners get: also to
objects that were stored before, and after a template has changed.

In a trusted template, its author chooses permissions and placement, not those who set parameters or write the secrets
of a project. A parameter counts there only if the template lists its possible values.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.core.objects import Object, get_path
from fairlead.core.workspaces import PLACEMENT_OPTIONS, find_options_from_secrets, find_options_needing_trust
from fairlead.domain.parameters import TEXT_TYPES
from fairlead.domain.template_resolution import find_parameters

NOT_TRUSTED = "TemplateNotTrusted"
"""The reason of the condition TemplateResolved."""
CLUSTER_PROVIDER = "kubernetes"
MAX_NAMED = 10


def find_trust_problems(template: Any, parameters: Sequence[Object] | None, *, is_trusted: bool) -> dict[str, str]:
    """Fields of a definition that must not count, and why. `template` may be rendered already."""
    options = get_path(template, "provider.options")
    if not is_trusted:
        why = "counts only in a template that administrators trust"
        return {f"provider.options[{name}]": why for name in find_options_needing_trust(options)}
    found = {
        f"provider.options[{name}]": "must not come from a secret, which others than the author of the template write"
        for name in find_options_from_secrets(options)
    }
    free = {str(each.get("variable")) for each in parameters or () if not _has_fixed_values(each)}
    for field, text in _author_fields(template):
        if chosen := sorted(free.intersection(find_parameters(text))):
            found[field] = (
                f"uses the parameter {chosen[0]}, whose values the template does not restrict: give it `options`, "
                "without `validation`, or the type boolean"
            )
    return found


def describe_trust_problems(problems: Mapping[str, str], template: str) -> str:
    """A sentence for conditions and messages, with what to do. `template` is empty for an inline definition."""
    named = "; ".join(f"{field} {why}" for field, why in list(problems.items())[:MAX_NAMED])
    return f"{named}; {trust_advice(template)}"


def trust_advice(template: str) -> str:
    if not template:
        return "leave it out, or name a template of an administrator in spec.templateRef"
    trust = "trust it with the annotation service.sh/trusted=true"
    return f'have an administrator correct the template "{template}", or {trust}'


def _has_fixed_values(definition: Object) -> bool:
    """Values that match `validation` are accepted besides the options, and for numbers, options have no effect."""
    if (definition.get("type") or "") not in TEXT_TYPES:
        return definition.get("type") == "boolean"
    return bool(definition.get("options")) and not definition.get("validation") and not definition.get("invalidation")


def _author_fields(template: Any) -> Iterator[tuple[str, str]]:
    """The fields that only the author of a trusted template chooses. Without an image of its own for it, a repository
    is cloned in `image`, with the credentials of the project."""
    yield "provider.name", str(get_path(template, "provider.name") or "")
    options = get_path(template, "provider.options")
    options = options if isinstance(options, Mapping) else {}
    for name in sorted(PLACEMENT_OPTIONS | ({"image"} if _clones_in_image(template) else set())):
        yield f"provider.options[{name}]", str(get_path(options.get(name), "value") or "")


def _clones_in_image(template: Any) -> bool:
    clone_image = str(get_path(template, "provider.options.cloneImage.value") or "")
    has_own = bool(clone_image) and not find_parameters(clone_image)
    return get_path(template, "provider.name") == CLUSTER_PROVIDER and not has_own
