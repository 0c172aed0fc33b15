"""Reconciles spaces: one namespace in a connected cluster for each.

A space that names a cluster with a kubeconfig gets a namespace there, with the labels, annotations and objects of its
template, and RoleBindings for its users. It is reconciled when it, its cluster, its project or the remote objects
change, and periodically, so that drift is repaired. A finalizer delays its deletion until the namespace is deleted. An
unreachable cluster is reported in the conditions; an annotation skips the cleanup.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.controllers.instances.cluster_access import Reach
from fairlead.controllers.instances.confinement import applied_as, describe_left_out, plan_template
from fairlead.controllers.instances.drift import Upkeep
from fairlead.controllers.instances.namespace_contents import Contents, Wanted
from fairlead.controllers.instances.prerequisites import Setting, is_connected
from fairlead.controllers.instances.remote_errors import INFO, NAMESPACE_TERMINATING, Trouble
from fairlead.controllers.instances.remote_instance import POLL, ConnectedInstances, Removing, is_resolved
from fairlead.controllers.instances.remote_names import SPACE, default_namespace, marks, patterned_namespace
from fairlead.controllers.instances.remote_namespace import NAMESPACE_TAKEN, Place, remove_namespace
from fairlead.controllers.instances.remote_objects import MOST_KEPT, merged, parsed, references
from fairlead.controllers.instances.role_bindings import role_bindings
from fairlead.controllers.instances.status import SPACE_FINALIZER, SPACE_READY, SPACE_SYNCED
from fairlead.controllers.runtime.backoff import jittered
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, find_condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

SPACES = "spaceinstances"
SYNCED, READY = SPACE_SYNCED, SPACE_READY
LOOK_AGAIN = 60.0
"""Resync interval of a space whose remote objects are not all watched."""


class Spaces:
    name, workers = "spaces", 32

    def __init__(self, registry: Registry, setting: Setting, reach: Reach) -> None:
        self._instances = ConnectedInstances(registry, setting, SPACES, SPACE_FINALIZER)
        self.watches = self._instances.watches
        self._removing = Removing(self._instances, self._take_down, SYNCED, READY)
        self._reach = reach
        self._upkeep = Upkeep(registry, reach.watching, SPACE, (setting.api_group, SPACES))
        self._setting = setting
        self._contents = Contents(registry, setting, reach, self._upkeep)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._upkeep.informers.subscribe(self._instances.trying_again(requeue))

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return self._instances.concerned(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        space = self._instances.see(key)
        if space is None:
            self._upkeep.forget(key)
            return None
        with self._upkeep.turn(space, self.workers) as wait:
            requeue_after = wait or await self._look(space)
        if requeue_after is None and not self._is_kept(space):
            self._upkeep.forget(key)
        return requeue_after

    def _is_kept(self, space: Object) -> bool:
        """Whether its namespace in a cluster is managed by this controller."""
        is_elsewhere = dig(space, "spec.clusterRef.virtualCluster") or "deletionTimestamp" in metadata(space)
        return not is_elsewhere and is_connected(self._instances.cluster(space))

    async def _look(self, space: Object) -> float | None:
        if "deletionTimestamp" in metadata(space):
            return await self._removing.remove(space, self._place) if self._instances.holds(space) else None
        project = self._instances.project(space)
        if project is None or not self._is_kept(space) or not is_resolved(space):
            return None
        if not self._instances.can_be_made(space):
            self._instances.start_over(space)
            return None
        return self._instances.wait(space) or await self._keep(space, project)

    async def _keep(self, space: Object, project: Object) -> float | None:
        try:
            space = await self._instances.settle(space, lambda current: self._cluster_ref(current, project))
            if "deletionTimestamp" in metadata(space) or not is_resolved(space):
                return POLL  # it has changed meanwhile, and the rendered template is outdated
            await self._make(space, project)
        except NotFound:  # it was deleted meanwhile
            return None
        except Trouble as error:
            await self._instances.tell(space, _not_made(space, error), online=False)
            return self._instances.failed(space, error)
        self._instances.start_over(space)
        return jittered(self._upkeep.look_again(space, LOOK_AGAIN))

    def _cluster_ref(self, space: Object, project: Object) -> Object:
        """The clusterRef with a namespace, which is chosen once and never changes."""
        ref: Object = dig(space, "spec.clusterRef")
        if ref.get("namespace"):
            return ref
        pattern, name = dig(project, "spec.namespacePattern.space"), name_of(space)
        values = {"project": name_of(project), "name": name}
        namespace = (
            patterned_namespace(pattern, values) if pattern else default_namespace(SPACE, name_of(project), name)
        )
        return {**ref, "namespace": namespace}

    def _place(self, space: Object) -> Place:
        ref, meta = dig(space, "spec.clusterRef"), metadata(space)
        labels = marks(SPACE, self._instances.project_name(space), meta["name"], meta["uid"])
        return Place(ref["cluster"], ref.get("namespace") or "", labels)

    async def _make(self, space: Object, project: Object) -> None:
        target, rendered = self._place(space), dig(space, "status.space") or {}
        plan = plan_template(self._setting.confinement, space, rendered, target.namespace)
        before = parsed(dig(space, "status.spaceObjects.lastAppliedObjects") or "", MOST_KEPT)
        objects = before if plan.leaves_contents else parsed(rendered.get("objects") or "")
        rules, roles = self._setting.confinement.confine_rules(dig(space, "spec.extraAccessRules") or ())
        limited_space = {**space, "spec": {**space["spec"], "extraAccessRules": rules}}
        deployer = plan.acting_as if objects or before else ""
        bindings = role_bindings(self._setting.names, limited_space, plan.template, project, target.namespace, deployer)
        try:
            result = await self._contents.make(space, target, plan, Wanted(bindings, objects, before))
        except Trouble:  # some objects may have been applied
            await self._instances.tell(space, (), **applied_as(space, plan), **_kept(space, merged(before, objects)))
            raise
        caveat = f"{self._upkeep.caveat(space)}{result.caveat}{plan.left_out}{describe_left_out((), roles)}"
        conditions = _made(target, rendered, result.usable, caveat)
        applied = _kept(space, merged(objects, result.left))
        await self._instances.tell(space, conditions, online=result.usable, **applied_as(space, plan), **applied)

    async def _take_down(self, space: Object, place: Place) -> Trouble | None:
        self._upkeep.follow_removal(space, place)
        return await remove_namespace(self._reach.cluster(place.cluster), place)


def _kept(space: Object, objects: Sequence[Object]) -> Object:
    """The status fields with the objects that may exist, so that a later reconcile can delete them."""
    known, applied = dig(space, "status.spaceObjects") or {}, references(objects)
    if not applied and not known.get("lastAppliedObjects"):
        return {}
    return {"spaceObjects": {**known, "lastAppliedObjects": applied}}


def _not_made(space: Object, trouble: Trouble) -> Sequence[Object]:
    """SpaceReady is Unknown only if the namespace was Ready before: the agent of the cluster relies on that."""
    synced = trouble.as_condition(SYNCED)
    if trouble.reason in (NAMESPACE_TAKEN, NAMESPACE_TERMINATING):
        return synced, trouble.as_condition(READY)
    known = find_condition(space.get("status"), READY)
    if known is None or known.get("status") == FALSE:
        return (synced,)
    return synced, condition(READY, UNKNOWN, trouble.reason, "the namespace is not in sync")


def _made(place: Place, rendered: Object, usable: bool, caveat: str) -> Sequence[Object]:
    message = f'namespace "{place.namespace}" in cluster "{place.cluster}" is in sync{caveat}'
    if unsupported := [part for part in ("charts", "apps") if rendered.get(part)]:
        message += f"; this server does not deploy the {' and '.join(unsupported)} of the template"
    synced = condition(SYNCED, TRUE, "Synced", message)
    if usable:
        return synced, condition(READY, TRUE, "Active", "the namespace can be used")
    return synced, condition(
        READY, FALSE, "Terminating", "the namespace is terminating; it will be created again after that", INFO
    )
