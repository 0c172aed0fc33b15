"""What is left of a deployed app that cannot be uninstalled, since its target is gone or was replaced.

What was deployed into a space or a virtual cluster is deleted with the namespace that this has in a connected cluster.
So its release is gone if, and only if, that namespace is; a label with the uid of something else tells that a namespace
of that name is another one. Whatever cannot be found out counts as left behind: a release that is still running is
never reported as uninstalled.
"""

from fairlead.controllers.apps.targets import AppTargets
from fairlead.controllers.instances.remote_errors import InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, UID_LABEL, url_segment
from fairlead.core.objects import get_path, metadata
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, AppInstance
from fairlead.kinds.instances.app_instance import TARGETS
from fairlead.upstream.clusters import CLUSTERS
from fairlead.upstream.kube_client import get_or_none


async def find_left_behind(targets: AppTargets, instance: AppInstance) -> str:
    """Says what is left of its release, and why; empty if it is gone."""
    reason = await _find_reason(targets, instance)
    return _describe(instance, reason) if reason else ""


def describe_abandoned(instance: AppInstance) -> str:
    """Says what is left of the release of an instance that a user has abandoned."""
    return _describe(instance, f"the annotation {ABANDON_ANNOTATION} requests that")


async def _find_reason(targets: AppTargets, instance: AppInstance) -> str:
    noun = TARGETS[instance.target_field][1]
    removed = f'the {noun} "{instance.target_name}" was removed'
    host = instance.namespace_in_cluster
    if not host:  # a cluster, or a virtual cluster that this server has not deployed: what is in it stays
        return removed
    cluster = host["cluster"]
    if targets.registry.resource(targets.api_group, CLUSTERS).get_cached("", cluster) is None:
        return f'{removed}, and so was the cluster "{cluster}", so that its namespace cannot be checked'
    location = f'namespace "{host["namespace"]}" in cluster "{cluster}"'
    try:
        with translate_errors(cluster, f"get {location}"):
            path = f"{NAMESPACES_PATH}/{url_segment(host['namespace'])}"
            existing = await get_or_none(targets.clusters.cluster_api(cluster), path)
    except InstanceError as error:
        return f"{removed}, and its {location} cannot be checked: {error.message}"
    if existing is None:
        return ""
    labels = get_path(existing, "metadata.labels")
    uid = labels.get(UID_LABEL) if isinstance(labels, dict) else None
    if not uid:
        return f"{removed}, and its {location} exists, but has lost its label {UID_LABEL}"
    if uid != host["uid"]:
        return ""
    state = "is still being deleted" if "deletionTimestamp" in metadata(existing) else "still exists"
    return f"{removed}, but its {location} {state}"


def _describe(instance: AppInstance, reason: str) -> str:
    title = f'release "{instance.release_name}" in namespace "{instance.release.get("namespace")}"'
    place = f'{TARGETS[instance.target_field][1]} "{instance.target_name}"'
    advice = "if it still exists, uninstall it yourself with helm"
    return f"{title} of {place} was not uninstalled: {reason}; {advice}"
