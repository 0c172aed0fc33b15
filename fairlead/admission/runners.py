"""Admission of Runners: who may have this server deploy a runner into a cluster, and when a Runner may be deleted.

With `spec.clusterRef`, the server deploys the runner with the stored credential of the cluster, and the Pod can mount
whatever its template names. So only administrators set it, with a key without a scope, and their write marks the Runner
with the finalizer of a deployment. A `clusterRef` that others stored before it had an effect has no mark, and nothing
is deployed for it.

With a Runner goes its key, so its process can no longer remove what it has of workspaces: containers, networks and
files would stay on its machine. So a Runner with workspaces is not deleted, unless the annotation `service.sh/abandon`
says that they are left behind.
"""

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.admission.objects_in_use import describe_objects_in_use
from fairlead.core.call import Authorize
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER
from fairlead.core.errors import Conflict
from fairlead.core.objects import add_finalizer, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.typed_objects import ABANDON_ANNOTATION
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.kind import Change
from fairlead.registry.no_effect import is_set
from fairlead.registry.registry import Registry

RUNNER_FIELD = "spec.runnerRef.runner"


def protect_cluster_ref(api_group: str) -> Rule:
    """Only administrators set and change what the server deploys; their write marks the Runner as to be deployed."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, RUNNERS))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        wanted = get_path(change.new, "spec.clusterRef") or {}
        if not is_set(wanted) or wanted == (get_path(change.old, "spec.clusterRef") or {}):
            return
        if not change.user.is_unscoped_admin:
            why = (
                "only administrators, with a key without a scope, set and change spec.clusterRef: the server deploys "
                "what it says with its own credential of the cluster; leave it as it is, and start the runner with "
                "`fairlead runner start`, or ask an administrator"
            )
            raise forbidden(change, why)
        if wanted.get("cluster"):
            change.new["metadata"] = metadata(add_finalizer(change.new, DEPLOYMENT_FINALIZER))

    return rule


def prevent_runner_deletion_while_used(authorize: Authorize, api_group: str) -> Rule:
    """Rejects deleting a Runner while it has workspaces, unless they are to be abandoned."""

    @applies_to(lambda kind, verb: verb == "delete" and is_resource(kind, api_group, RUNNERS))
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        name = name_of(change.obj)
        is_abandoned = (meta.get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"
        if change.user == CONTROLLER_USER or is_abandoned or "deletionTimestamp" in meta:
            return
        entries = registry.view.entries(api_group, WORKSPACE.plural)
        keys = [entry.key for entry in entries if entry.fields.get(RUNNER_FIELD) == name]
        if keys:
            them = "it" if len(keys) == 1 else "them"
            why = (
                f"{describe_objects_in_use(keys, change.user, authorize)} on it; delete {them} first, so that the "
                f"runner removes what it has of {them}, or annotate this Runner with {ABANDON_ANNOTATION}=true to "
                "leave that behind on its machine, as `fairlead runner delete --abandon` does"
            )
            raise Conflict.of(change.kind.plural, change.kind.group, name, why)

    return rule
