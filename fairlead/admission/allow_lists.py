"""What a project lets its instances use: the lists `allowedClusters`, `allowedRunners` and `allowedTemplates`.

Pure; the admission rule refuses by it, and the subresources of projects show by it. A list that is not there restricts
nothing; one that is there names everything that is allowed, and an empty one therefore nothing. `*` is all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairlead.admission import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.names import subdomain_faults
from fairlead.registry.registry import Registry

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


# DOC-MERGED admission/cluster_use
# Who may use which cluster: whoever holds the verb `use` on it, and projects that list it in `spec.allowedClusters`.
#
# A project without that list has no clusters of its own, so that each of its members needs the right. Installations from
# before there was this rule go on as they were, with a warning: there a project without a list may use all clusters. The
# annotation of the system namespace tells the two apart, unless the setting `unlisted_clusters` says what holds.
#
# Listing a cluster is giving it to the members of a project, which takes the right to use it.


USE, ALL = "use", "all"
"""What a project without a list has: what its members may use by themselves, or every cluster."""
UNLISTED = "service.sh/unlisted-clusters"
"""The annotation of the system namespace that says which of the two an installation began with."""

Unlisted = Callable[[Registry], str]


def unlisted_clusters(setting: str, system_namespace: str) -> Unlisted:
    """What holds here: as the setting says, else as the installation began."""

    def decide(registry: Registry) -> str:
        if setting:
            return setting
        entry = registry.resource("", "namespaces").peek("", system_namespace)
        noted = metadata(decode(entry)).get("annotations") if entry is not None else None
        return USE if (noted or {}).get(UNLISTED) == USE else ALL

    return decide


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """Whether somebody may use a cluster that no list of the project is about."""

    may: May
    unlisted: Unlisted
    api_group: str

    def holds(self, user: User, cluster: str) -> bool:
        """Without a name: all of them."""
        target = Target("use", "", "", self.api_group, "v1", "clusters", "", "", cluster)
        return user == CONTROLLER or self.may(user, target).allowed

    def judge(self, change: Change, registry: Registry, project: str, cluster: str) -> str:
        """Why it may not be used; empty where it may. In older installations there is only a warning."""
        if self.holds(change.user, cluster):
            return ""
        command = suggest(project, f'{{"spec":{{"allowedClusters":[{{"name":"{cluster}"}}]}}}}', "merge", cluster)
        if self.unlisted(registry) == USE:
            return (
                f'project "{project}" has no spec.allowedClusters, and User "{change.user.name}" may not use the '
                f'cluster "{cluster}"; have somebody who may use it allow it to the project{command}'
            )
        change.warnings.append(
            f'project "{project}" has no spec.allowedClusters and may use all clusters; a later version will refuse '
            f"this: list the clusters that it is to use{command}"
        )
        return ""


def suggest(project: str, patch: str, sort: str, cluster: str) -> str:
    """The command that changes the list. People copy it into a shell, so there is none for a name that is no name."""
    if any(subdomain_faults(cluster)) or any(subdomain_faults(project)):
        return ""
    return f": kubectl patch project {project} --type {sort} -p '{patch}'"


def listed_clusters(use: ClusterUse) -> Rule:
    """The rule about who writes the list of a project."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, use.api_group, "projects"))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.user.holds_everything or change.new is None:
            return
        for cluster in _added(change, is_open=use.unlisted(registry) == ALL):
            if not use.holds(change.user, "" if cluster == ANY else cluster):
                what = "all clusters" if cluster == ANY else f'the cluster "{cluster}"'
                why = (
                    f'User "{change.user.name}" may not use {what}, which it takes to allow it to the members of a '
                    "project in spec.allowedClusters; leave it out, or ask for the verb use on it"
                )
                raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _added(change: Change, *, is_open: bool) -> Iterator[str]:
    """The clusters that a project gets. Where one without a list has all, taking the list away gives all of them."""
    listed = dig(change.new, f"spec.{CLUSTERS}")
    before = allowed_names(change.old or {}, CLUSTERS)
    if listed is None and before is not None and is_open:
        yield ANY
    if not isinstance(listed, list) or ANY in (before or ()):
        return
    for each in listed:
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and name not in (before or ()):
            yield name
