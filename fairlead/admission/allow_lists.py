"""What a project lets its instances use: the lists `allowedClusters`, `allowedRunners` and `allowedTemplates`.

Pure; the admission rule refuses by it, and the subresources of projects show by it. A list that is not there restricts
nothing; one that is there names everything that is allowed, and an empty one therefore nothing. `*` is all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.core.objects import Object, dig

ANY = "*"
CLUSTERS, RUNNERS, TEMPLATES = "allowedClusters", "allowedRunners", "allowedTemplates"

TEMPLATE_KINDS = {
    "devpodworkspaceinstances": "DevPodWorkspaceTemplate",
    "spaceinstances": "SpaceTemplate",
    "virtualclusterinstances": "VirtualClusterTemplate",
}
"""What instances are made from, by their plural."""


@dataclass(frozen=True, slots=True)
class Use:
    """One thing that an object names, and the list that it must be in."""

    path: str
    word: str
    """What it is called in messages."""
    field: str
    kind: str = ""


USES: dict[str, tuple[Use, ...]] = {
    "devpodworkspaceinstances": (
        Use("spec.templateRef.name", "template", TEMPLATES, TEMPLATE_KINDS["devpodworkspaceinstances"]),
        Use("spec.environmentRef.name", "environment template", TEMPLATES, "DevPodEnvironmentTemplate"),
        Use("spec.presetRef.name", "preset", TEMPLATES, "DevPodWorkspacePreset"),
        Use("spec.runnerRef.runner", "runner", RUNNERS),
        Use("spec.target.cluster.name", "cluster", CLUSTERS),
    ),
    "spaceinstances": (
        Use("spec.templateRef.name", "template", TEMPLATES, TEMPLATE_KINDS["spaceinstances"]),
        Use("spec.clusterRef.cluster", "cluster", CLUSTERS),
    ),
    "virtualclusterinstances": (
        Use("spec.templateRef.name", "template", TEMPLATES, TEMPLATE_KINDS["virtualclusterinstances"]),
        Use("spec.clusterRef.cluster", "cluster", CLUSTERS),
    ),
}
"""By the plural of a kind, what its objects use."""


def allowed_names(project: Object, field: str, kind: str = "", api_group: str = "") -> list[str] | None:
    """The names that a project's list has, in order; None where there is no list. Templates are told by their kind."""
    listed = dig(project, f"spec.{field}")
    if not isinstance(listed, list):
        return None
    return [each["name"] for each in _entries(listed, kind, api_group)]


def _entries(listed: list[Object], kind: str, api_group: str) -> Iterator[Object]:
    """An entry that leaves out the kind is about all of them; one that leaves out the group about ours."""
    for each in listed:
        if each.get("kind") in (None, "", kind) and each.get("group") in (None, "", api_group):
            yield each


def is_allowed(names: list[str] | None, name: str) -> bool:
    return names is None or name in names or ANY in names


def default_template(project: Object, kind: str, api_group: str) -> str | None:
    """The template of a kind that is chosen when nobody chooses."""
    for each in _entries(dig(project, f"spec.{TEMPLATES}") or [], kind, api_group):
        if each.get("isDefault") and each["name"] != ANY:
            return str(each["name"])
    return None
