"""The allow lists of projects (`allowedClusters`, `allowedRunners`, `allowedTemplates`) and the verb `use` on clusters.

A missing list restricts nothing, an empty one allows nothing, and `*` allows everything. `admission/projects.py`
enforces the lists and `subresources/projects.py` shows them.

Clusters are stricter. In a project without `allowedClusters`, each requester needs the verb `use` on the cluster.
Adding a cluster to the list grants it to all members of the project, so that needs the verb `use`, too. Installations
older than this rule keep the old behaviour, with a warning: there, a project without the list may use all clusters. An
annotation on the system namespace records which one applies; the setting `unlisted_clusters` overrides it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.names import dns_subdomain_errors
from fairlead.registry.registry import Registry

ANY = "*"
CLUSTERS, RUNNERS, TEMPLATES = "allowedClusters", "allowedRunners", "allowedTemplates"


def allowed_names(project: Object, allow_list: str, kind: str = "", api_group: str = "") -> list[str] | None:
    """The names in an allow list, in order; None if the project has no such list. `kind` selects template entries."""
    listed = get_path(project, f"spec.{allow_list}")
    if not isinstance(listed, list):
        return None
    return [each["name"] for each in _matching_entries(listed, kind, api_group)]


def _matching_entries(entries: list[Object], kind: str, api_group: str) -> Iterator[Object]:
    """The entries for a kind. An entry without a kind applies to all kinds, one without a group to `api_group`."""
    for each in entries:
        if each.get("kind") in (None, "", kind) and each.get("group") in (None, "", api_group):
            yield each


def is_allowed(names: list[str] | None, name: str) -> bool:
    return names is None or name in names or ANY in names


def default_template(project: Object, kind: str, api_group: str) -> str | None:
    """The project's default template of a kind, if it has one."""
    for each in _matching_entries(get_path(project, f"spec.{TEMPLATES}") or [], kind, api_group):
        if each.get("isDefault") and each["name"] != ANY:
            return str(each["name"])
    return None


USE_VERB_REQUIRED, ALL_CLUSTERS = "use", "all"
"""What a project without `allowedClusters` may use: the clusters that the requester may `use`, or every cluster."""
UNLISTED_CLUSTERS_ANNOTATION = "service.sh/unlisted-clusters"
"""Annotation of the system namespace that records which of the two the installation started with."""

UnlistedPolicy = Callable[[Registry], str]


def unlisted_cluster_policy(setting: str, system_namespace: str) -> UnlistedPolicy:
    """Returns a function for the policy that applies: the setting, else the annotation of the system namespace."""

    def decide(registry: Registry) -> str:
        if setting:
            return setting
        entry = registry.resource("", "namespaces").get_cached("", system_namespace)
        noted = metadata(decode(entry)).get("annotations") if entry is not None else None
        return (
            USE_VERB_REQUIRED if (noted or {}).get(UNLISTED_CLUSTERS_ANNOTATION) == USE_VERB_REQUIRED else ALL_CLUSTERS
        )

    return decide


@dataclass(frozen=True, slots=True)
class ClusterUseCheck:
    """Checks access to clusters for projects without `allowedClusters`."""

    authorize: Authorize
    unlisted_policy: UnlistedPolicy
    api_group: str

    def may_use(self, user: User, cluster: str) -> bool:
        """Whether the user has the verb `use` on the cluster; an empty name stands for all clusters."""
        target = RequestInfo(verb="use", group=self.api_group, version="v1", resource="clusters", name=cluster)
        return user == CONTROLLER_USER or self.authorize(user, target).allowed

    def denial_reason(self, change: Change, registry: Registry, project: str, cluster: str) -> str:
        """Returns why the cluster may not be used, empty if it may. Older installations only get a warning."""
        if self.may_use(change.user, cluster):
            return ""
        command = suggest_patch(project, f'{{"spec":{{"allowedClusters":[{{"name":"{cluster}"}}]}}}}', "merge", cluster)
        if self.unlisted_policy(registry) == USE_VERB_REQUIRED:
            return (
                f'project "{project}" has no spec.allowedClusters, and User "{change.user.name}" may not use the '
                f'cluster "{cluster}"; have a user with the verb use on the cluster add it to the project{command}'
            )
        change.warnings.append(
            f'project "{project}" has no spec.allowedClusters and may use all clusters; a later version will reject '
            f"this: list the clusters that the project should use{command}"
        )
        return ""


def suggest_patch(project: str, patch: str, patch_type: str, cluster: str) -> str:
    """A kubectl command that changes the list; empty if a name is invalid, because users paste it into a shell."""
    if any(dns_subdomain_errors(cluster)) or any(dns_subdomain_errors(project)):
        return ""
    return f": kubectl patch project {project} --type {patch_type} -p '{patch}'"


def check_listed_clusters(use_check: ClusterUseCheck) -> Rule:
    """Adding a cluster to `spec.allowedClusters` of a project needs the verb `use` on that cluster."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, use_check.api_group, "projects"))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.user.is_unscoped_admin or change.new is None:
            return
        for cluster in _added_clusters(change, allows_all=use_check.unlisted_policy(registry) == ALL_CLUSTERS):
            if not use_check.may_use(change.user, "" if cluster == ANY else cluster):
                what = "all clusters" if cluster == ANY else f'the cluster "{cluster}"'
                why = (
                    f'User "{change.user.name}" may not use {what}, and adding it to spec.allowedClusters needs the '
                    "verb use on it; leave it out, or ask for that permission"
                )
                raise forbidden(change, why)

    return rule


def _added_clusters(change: Change, *, allows_all: bool) -> Iterator[str]:
    """The clusters that the change adds. If a missing list allows all clusters, removing the list adds all of them."""
    listed = get_path(change.new, f"spec.{CLUSTERS}")
    before = allowed_names(change.old or {}, CLUSTERS)
    if listed is None and before is not None and allows_all:
        yield ANY
    if not isinstance(listed, list) or ANY in (before or ()):
        return
    for each in listed:
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and name not in (before or ()):
            yield name
