"""Shared by the controllers of spaces and virtual clusters: reading and writing instances, and their cleanup.

Only instances of projects in clusters with a kubeconfig are handled. Conditions about the cluster are written together
with everything that is derived from them, by `derive_status`, as in `templates.py`.

On deletion, the remote namespace is deleted first, then the finalizer is removed. An unreachable cluster is reported in
the conditions. The cleanup is skipped if the Cluster object is deleted, or by an annotation of the instance.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from fairlead.controllers.helm.helm import WAITING
from fairlead.controllers.instances.prerequisites import CLUSTERS, PROJECTS, Setting, Surroundings
from fairlead.controllers.instances.remote_errors import ERROR, INFO, Trouble, troubles
from fairlead.controllers.instances.remote_namespace import DELETING, Place
from fairlead.controllers.instances.status import RESOLVED, record_transition, standing
from fairlead.controllers.runtime.backoff import RETRY, Backoff, Where, jittered
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, copied, dig, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.domain.password_parameters import conceal_conditions
from fairlead.domain.template_resolution import TEMPLATES
from fairlead.kinds.instances.fields import READY
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true, with_conditions
from fairlead.registry.events import record
from fairlead.registry.names import label_faults
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

ABANDON = "service.sh/abandon"
"""Annotation that skips the cleanup in the cluster when an instance is deleted."""


POLL, TURN = 2.0, 5.0
"""Requeue delay while the namespace is terminating, and while no slot for a helm run is free."""
TRY_AGAIN_SECONDS = 10.0
"""Minimum interval between retries that are triggered by changes in the cluster, for an instance in backoff."""

TakeDown = Callable[[Object, Place], Awaitable[Trouble | None]]
"""Deletes everything in a remote namespace. Returns what that waits for; None when done. Raises InstanceError."""


class ConnectedInstances:
    """The instances of one resource. `finalizer` delays their deletion until the cluster is cleaned up."""

    def __init__(self, registry: Registry, setting: Setting, plural: str, finalizer: str) -> None:
        self.registry = registry
        self._setting = setting
        self._surroundings = Surroundings(registry, setting)
        self._plural = plural
        self._finalizer = finalizer
        self._resource = registry.resource(setting.api_group, plural)
        self._backoff = Backoff(registry.clock)
        self._tried_again: dict[Where, float] = {}
        """When the backoff was last shortened because of a change in the cluster."""
        self._seen: dict[tuple[str, str], object] = {}
        """The relevant state of each cluster and project, as last observed."""

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        return tuple((self._setting.api_group, plural) for plural in (self._plural, CLUSTERS, PROJECTS))

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for a cluster or project, its instances, if a relevant part has changed: their status
        is updated all the time."""
        if key[1] == self._plural:
            return (key,)
        state = _gist(key[1], decode(entry)) if entry is not None else None
        if state == self._seen.get((key[1], key[3])):
            return ()
        if state is None:
            del self._seen[key[1], key[3]]
        else:
            self._seen[key[1], key[3]] = state
        if key[1] == PROJECTS:
            return [each.key for each in self._entries(f"{self._setting.prefix}{key[3]}")]
        return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]

    def _entries(self, namespace: str = "") -> list[Entry]:
        return self.registry.view.entries(self._setting.api_group, self._plural, namespace)

    def see(self, key: Key) -> Object | None:
        """The instance; None if it is deleted, or has `status.ignoreReconciliation`."""
        entry = self._resource.peek(key[2], key[3])
        instance = decode(entry) if entry is not None else None
        if instance is None:
            self._backoff.forget((key[2], key[3]))
            self._tried_again.pop((key[2], key[3]), None)
        return None if dig(instance, "status.ignoreReconciliation") else instance

    def project(self, instance: Object) -> Object | None:
        return self._surroundings.project(instance)

    def project_name(self, instance: Object) -> str:
        return self._surroundings.project_name(instance)

    def cluster(self, instance: Object) -> Object | None:
        """The cluster that the instance names, if it exists."""
        return self._surroundings.cluster(instance)

    def can_be_made(self, instance: Object) -> bool:
        """Whether nothing blocks its deployment. A change of that triggers a reconcile."""
        return self._surroundings.can_be_made(instance)

    def wait(self, instance: Object) -> float:
        """Seconds until the next try after a failure; 0 if it is due."""
        return self._backoff.wait(_where(instance), self._attempt(instance))

    def failed(self, instance: Object, trouble: Trouble) -> float:
        """Records a failed try. Returns the seconds until the next one."""
        return self._backoff.failed(_where(instance), self._attempt(instance), trouble)

    def start_over(self, instance: Object) -> None:
        """Resets the backoff."""
        self._backoff.forget(_where(instance))

    def trying_again(self, requeue: Requeue) -> Requeue:
        """Wraps `requeue`: a change in the cluster also ends the backoff, since it may fix the failure. Rate-limited,
        for clusters that change all the time."""

        def requeue_and_retry(key: Key, seconds: float) -> None:
            instance_key, now = (key[2], key[3]), self.registry.clock.monotonic()
            pause = max(0.0, self._tried_again.get(instance_key, -TRY_AGAIN_SECONDS) + TRY_AGAIN_SECONDS - now)
            if self._backoff.shorten(instance_key, pause):
                self._tried_again[instance_key] = now + pause
            requeue(key, seconds)

        return requeue_and_retry

    def _attempt(self, instance: Object) -> object:
        """All inputs that the outcome of a try depends on."""
        meta, rendered = metadata(instance), dig(instance, f"status.{TEMPLATES[self._plural][1]}")
        inputs = ((PROJECTS, self.project(instance)), (CLUSTERS, self.cluster(instance)))
        states = [_gist(plural, each) for plural, each in inputs if each is not None]
        return meta["uid"], meta.get("generation"), rendered, states

    def holds(self, instance: Object) -> bool:
        """Whether something may have been created for it in a cluster."""
        return has_finalizer(instance, self._finalizer)

    async def settle(self, instance: Object, place: Callable[[Object], Object]) -> Object:
        """Writes the clusterRef that `choose` returns, and adds the finalizer, before anything is created remotely, so
        that nothing is ever left behind. Returns the updated instance. Raises InstanceError."""
        cluster = self.cluster(instance)
        if not self.holds(instance) and dig(cluster, "spec.unusable"):
            advice = "use another cluster, or set its spec.unusable to false"
            message = f'cluster "{name_of(cluster or {})}" accepts no new instances; {advice}'
            raise Trouble("ClusterUnusable", message, ERROR)

        def edit(current: Object) -> Object:
            new = copied(current)
            new["spec"]["clusterRef"] = _usable(place(new))
            return add_finalizer(new, self._finalizer)

        if edit(instance) == instance:
            return instance
        key = metadata(instance)["namespace"], name_of(instance)
        await self._resource.modify(*key, edit, by_the_server())
        return decode(await self._resource.get(*key))

    async def hold(self, instance: Object) -> None:
        """Adds the finalizer alone, for instances without a clusterRef. Raises NotFound."""

        def edit(current: Object) -> Object:
            is_same = metadata(current)["uid"] == metadata(instance)["uid"]
            return add_finalizer(current, self._finalizer) if is_same else current

        if not self.holds(instance):
            await self._resource.modify(metadata(instance)["namespace"], name_of(instance), edit, by_the_server())

    async def tell(self, instance: Object, conditions: Sequence[Object], **fields: object) -> None:
        """Writes conditions, which were determined for `instance` as passed, and other status fields."""
        now = timestamp(self.registry.clock.now())
        before: Object = {}

        def edit(current: Object) -> Object:
            nonlocal before
            before = current
            return {**current, "status": self._status(current, instance, conditions, fields, now)}

        namespace, name = metadata(instance)["namespace"], name_of(instance)
        entry = self._resource.peek(namespace, name)
        if entry is None or edit(current := decode(entry)) == current:
            return
        with suppress(NotFound):  # it was deleted meanwhile
            await self._resource.modify(namespace, name, edit, by_the_server("status"))
            await record_transition(self.registry, before, edit(before)["status"])

    def _status(
        self, current: Object, instance: Object, conditions: Sequence[Object], fields: Object, now: str
    ) -> Object:
        status = current.get("status") or {}
        if metadata(current)["uid"] != metadata(instance)["uid"] or status.get("ignoreReconciliation"):
            return status
        # Results for another rendering of the template: keep the fields, but not the conditions.
        rendered = TEMPLATES[self._plural][1]
        is_same = status.get(rendered) == dig(instance, f"status.{rendered}")
        generation = metadata(instance).get("generation", 1)
        concealed = conceal_conditions(instance, conditions) if is_same else ()
        status = with_conditions({**status, **fields}, concealed, now, generation)
        return standing(current, status, self._surroundings.obstacle(current), now)

    async def let_go(self, instance: Object, left_behind: str = "") -> None:
        """Removes the finalizer. `left_behind` is recorded in an Event."""
        if left_behind:
            await record(self.registry, instance, "Abandoned", left_behind, type="Warning")

        def edit(current: Object) -> Object:
            return remove_finalizer(current, self._finalizer)

        with suppress(NotFound):
            await self._resource.modify(metadata(instance)["namespace"], name_of(instance), edit, by_the_server())


def _where(instance: Object) -> Where:
    return metadata(instance)["namespace"], name_of(instance)


def _usable(ref: Object) -> Object:
    for fault in label_faults(ref["namespace"]):
        message = f"spec.clusterRef.namespace {fault}; delete this instance and create one with another namespace"
        raise Trouble("BadNamespace", message, ERROR)
    return ref


def is_placed(instance: Object) -> bool:
    """Whether it has a valid clusterRef. Only then anything can have been created for it."""
    namespace = dig(instance, "spec.clusterRef.namespace") or ""
    return bool(dig(instance, "spec.clusterRef.cluster")) and not any(label_faults(namespace))


def _gist(plural: str, obj: Object) -> object:
    """The state that instances depend on: uid and generation; of a cluster also its reachability and identity."""
    meta = metadata(obj)
    if plural == PROJECTS:
        return meta["uid"], meta.get("generation")
    known = tuple(dig(obj, f"status.{field}") for field in ("online", "phase", "clusterUID"))
    return meta["uid"], meta.get("generation"), *known


def is_resolved(instance: Object) -> bool:
    """Whether its template is resolved for the current generation, and its trust is known."""
    resolved = find_condition(instance.get("status"), RESOLVED) or {}
    is_current = resolved.get("observedGeneration") == metadata(instance).get("generation", 1)
    return is_current and resolved.get("status") == TRUE and bool(dig(instance, "status.templateTrust"))


def is_abandoned(instance: Object) -> bool:
    return (metadata(instance).get("annotations") or {}).get(ABANDON) == "true"


class Removing:
    """Cleans up in the cluster when an instance is deleted. `synced` and `ready` are the conditions to report with."""

    def __init__(self, instances: ConnectedInstances, take_down: TakeDown, synced: str, ready: str) -> None:
        self._instances = instances
        self._take_down = take_down
        self._synced = synced
        self._ready = ready

    async def remove(self, instance: Object, place_of: Callable[[Object], Place]) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        if not is_placed(instance):
            await self._instances.let_go(instance)
            return None
        target = place_of(instance)
        location = f'namespace "{target.namespace}" in cluster "{target.cluster}"'
        if is_abandoned(instance) or self._instances.cluster(instance) is None:
            await self._instances.let_go(
                instance, f"{location} was not deleted; if it still exists, delete it yourself"
            )
            return None
        # Before anything is deleted: the status must not say Ready while parts are missing.
        if is_true(instance.get("status"), READY):
            await self._instances.tell(instance, (self._waiting(Trouble(DELETING, "", INFO), location),), online=False)
        try:
            with troubles(target.cluster, f"delete {location}"):
                remaining = await self._take_down(instance, target)
        except Trouble as error:
            await self._instances.tell(instance, self._stuck(error, location), online=False)
            return jittered(TURN if error.reason == WAITING else RETRY)
        if remaining is None:
            await self._instances.let_go(instance)
            return None
        await self._instances.tell(instance, (self._waiting(remaining, location),), online=False)
        return POLL

    def _waiting(self, remaining: Trouble, where: str) -> Object:
        detail = f": {remaining.message}" if remaining.message else ""
        return condition(
            self._ready, FALSE, remaining.reason, f"waiting for the deletion of {where}{detail}", remaining.severity
        )

    def _stuck(self, trouble: Trouble, what: str) -> Sequence[Object]:
        """The conditions of an instance whose deletion is blocked."""
        advice = f"to delete this and leave {what} behind, annotate it with {ABANDON}=true"
        blocked = Trouble(trouble.reason, f"{what} cannot be deleted: {trouble.message}; {advice}", trouble.severity)
        waiting = condition(self._ready, FALSE, DELETING, f"waiting until {what} can be deleted", INFO)
        return blocked.as_condition(self._synced), waiting
