"""Shared by the controllers of spaces and virtual clusters: reading and writing instances, and their cleanup.

Only instances of projects in clusters with a kubeconfig are handled. Conditions about the cluster are written together
with everything that is derived from them, by `derive_status`, as in `templates.py`.

On deletion, the remote namespace is deleted first, then the finalizer is removed. An unreachable cluster is reported in
the conditions. The cleanup is skipped if the Cluster object is deleted, or by an annotation of the instance.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from fairlead.controllers.helm.slots import WAITING_FOR_HELM_SLOT
from fairlead.controllers.instances.prerequisites import CLUSTERS, PROJECTS, InstanceConfig, InstanceContext
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import DELETING, RemoteNamespace
from fairlead.controllers.instances.status import TEMPLATE_RESOLVED, derive_status, record_transition
from fairlead.controllers.runtime.backoff import REQUEUE_SECONDS, InstanceBackoff, InstanceKey
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import add_jitter
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import (
    Object,
    add_finalizer,
    deep_copy,
    get_path,
    has_finalizer,
    metadata,
    name_of,
    remove_finalizer,
)
from fairlead.domain.password_parameters import redact_conditions
from fairlead.kinds import INSTANCES
from fairlead.kinds.instances.fields import READY
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true, record_event, with_conditions
from fairlead.registry.names import dns_label_errors
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

ABANDON_ANNOTATION = "service.sh/abandon"
"""Annotation that skips the cleanup in the cluster when an instance is deleted."""


DELETION_POLL_SECONDS, HELM_SLOT_RETRY_SECONDS = 2.0, 5.0
"""Requeue delay while the namespace is terminating, and while no slot for a helm run is free."""
MIN_RETRY_INTERVAL_SECONDS = 10.0
"""Minimum interval between retries that are triggered by changes in the cluster, for an instance in backoff."""

TearDown = Callable[[Object, RemoteNamespace], Awaitable[InstanceError | None]]
"""Deletes everything in a remote namespace. Returns what that waits for; None when done. Raises InstanceError."""


class RemoteInstanceStore:
    """The instances of one resource. `finalizer` delays their deletion until the cluster is cleaned up."""

    def __init__(self, registry: Registry, config: InstanceConfig, plural: str, finalizer: str) -> None:
        self.registry = registry
        self._config = config
        self._context = InstanceContext(registry, config)
        self._plural = plural
        self._finalizer = finalizer
        self._resource = registry.resource(config.api_group, plural)
        self._backoff = InstanceBackoff(registry.clock)
        self._retried_at: dict[InstanceKey, float] = {}
        """When the backoff was last shortened because of a change in the cluster."""
        self._observed: dict[tuple[str, str], object] = {}
        """The relevant state of each cluster and project, as last observed."""

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        return tuple((self._config.api_group, plural) for plural in (self._plural, CLUSTERS, PROJECTS))

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for a cluster or project, its instances, if a relevant part has changed: their status
        is updated all the time."""
        if key[1] == self._plural:
            return (key,)
        state = relevant_state(key[1], decode(entry)) if entry is not None else None
        if state == self._observed.get((key[1], key[3])):
            return ()
        if state is None:
            del self._observed[key[1], key[3]]
        else:
            self._observed[key[1], key[3]] = state
        if key[1] == PROJECTS:
            return [each.key for each in self._entries(f"{self._config.namespace_prefix}{key[3]}")]
        return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]

    def _entries(self, namespace: str = "") -> list[Entry]:
        return self.registry.view.entries(self._config.api_group, self._plural, namespace)

    def key_of(self, instance: Object) -> Key:
        return self._config.api_group, self._plural, metadata(instance)["namespace"], name_of(instance)

    def get_managed(self, key: Key) -> Object | None:
        """The instance; None if it is deleted, or has `status.ignoreReconciliation`."""
        entry = self._resource.get_cached(key[2], key[3])
        instance = decode(entry) if entry is not None else None
        if instance is None:
            self._backoff.forget((key[2], key[3]))
            self._retried_at.pop((key[2], key[3]), None)
        return None if get_path(instance, "status.ignoreReconciliation") else instance

    def project(self, instance: Object) -> Object | None:
        return self._context.project(instance)

    def project_name(self, instance: Object) -> str:
        return self._context.project_name(instance)

    def cluster(self, instance: Object) -> Object | None:
        """The cluster that the instance names, if it exists."""
        return self._context.cluster(instance)

    def can_deploy(self, instance: Object) -> bool:
        """Whether nothing blocks its deployment. A change of that triggers a reconcile."""
        return self._context.can_deploy(instance)

    def backoff_seconds(self, instance: Object) -> float:
        """Seconds until the next try after a failure; 0 if it is due."""
        return self._backoff.remaining_seconds(_instance_key(instance), self._attempt_inputs(instance))

    def record_failure(self, instance: Object, error: InstanceError) -> float:
        """Records a failed try. Returns the seconds until the next one."""
        return self._backoff.record_failure(_instance_key(instance), self._attempt_inputs(instance), error)

    def reset_backoff(self, instance: Object) -> None:
        """Resets the backoff."""
        self._backoff.forget(_instance_key(instance))

    def retry_on_change(self, requeue: Requeue) -> Requeue:
        """Wraps `requeue`: a change in the cluster also ends the backoff, since it may fix the failure. Rate-limited,
        for clusters that change all the time."""

        def requeue_and_retry(key: Key, seconds: float) -> None:
            instance_key, now = (key[2], key[3]), self.registry.clock.monotonic()
            pause = max(
                0.0, self._retried_at.get(instance_key, -MIN_RETRY_INTERVAL_SECONDS) + MIN_RETRY_INTERVAL_SECONDS - now
            )
            if self._backoff.shorten(instance_key, pause):
                self._retried_at[instance_key] = now + pause
            requeue(key, seconds)

        return requeue_and_retry

    def _attempt_inputs(self, instance: Object) -> object:
        """All inputs that the outcome of a try depends on."""
        meta = metadata(instance)
        rendered = get_path(instance, f"status.{INSTANCES[self._plural].rendered_field}")
        inputs = ((PROJECTS, self.project(instance)), (CLUSTERS, self.cluster(instance)))
        states = [relevant_state(plural, each) for plural, each in inputs if each is not None]
        return meta["uid"], meta.get("generation"), rendered, states

    def has_finalizer(self, instance: Object) -> bool:
        """Whether something may have been created for it in a cluster."""
        return has_finalizer(instance, self._finalizer)

    async def claim_placement(self, instance: Object, choose: Callable[[Object], Object]) -> Object:
        """Writes the clusterRef that `choose` returns, and adds the finalizer, before anything is created remotely, so
        that nothing is ever left behind. Returns the updated instance. Raises InstanceError."""
        cluster = self.cluster(instance)
        if not self.has_finalizer(instance) and get_path(cluster, "spec.unusable"):
            advice = "use another cluster, or set its spec.unusable to false"
            message = f'cluster "{name_of(cluster or {})}" accepts no new instances; {advice}'
            raise InstanceError("ClusterUnusable", message, ERROR)

        def edit(current: Object) -> Object:
            new = deep_copy(current)
            new["spec"]["clusterRef"] = _check_namespace_name(choose(new))
            return add_finalizer(new, self._finalizer)

        if edit(instance) == instance:
            return instance
        key = metadata(instance)["namespace"], name_of(instance)
        await self._resource.modify(*key, edit, server_write_options())
        return decode(await self._resource.get(*key))

    async def ensure_finalizer(self, instance: Object) -> None:
        """Adds the finalizer alone, for instances without a clusterRef. Raises NotFound."""

        def edit(current: Object) -> Object:
            is_same = metadata(current)["uid"] == metadata(instance)["uid"]
            return add_finalizer(current, self._finalizer) if is_same else current

        if not self.has_finalizer(instance):
            await self._resource.modify(
                metadata(instance)["namespace"], name_of(instance), edit, server_write_options()
            )

    async def write_status(self, instance: Object, conditions: Sequence[Object], **fields: object) -> None:
        """Writes conditions, which were determined for `instance` as passed, and other status fields."""
        now = timestamp(self.registry.clock.now())
        before: Object = {}

        def edit(current: Object) -> Object:
            nonlocal before
            before = current
            return {**current, "status": self._build_status(current, instance, conditions, fields, now)}

        namespace = metadata(instance)["namespace"]
        name = name_of(instance)
        entry = self._resource.get_cached(namespace, name)
        if entry is None or edit(current := decode(entry)) == current:
            return
        with suppress(NotFound):  # it was deleted meanwhile
            await self._resource.modify(namespace, name, edit, server_write_options("status"))
            await record_transition(self.registry, before, edit(before)["status"])

    def _build_status(
        self, current: Object, instance: Object, conditions: Sequence[Object], fields: Object, now: str
    ) -> Object:
        status = current.get("status") or {}
        if metadata(current)["uid"] != metadata(instance)["uid"] or status.get("ignoreReconciliation"):
            return status
        # Results for another rendering of the template: keep the fields, but not the conditions.
        rendered = INSTANCES[self._plural].rendered_field
        is_same = status.get(rendered) == get_path(instance, f"status.{rendered}")
        generation = metadata(instance).get("generation", 1)
        concealed = redact_conditions(instance, conditions) if is_same else ()
        status = with_conditions({**status, **fields}, concealed, now, generation)
        return derive_status(current, status, self._context.find_blocker(current), now)

    async def remove_finalizer(self, instance: Object, left_behind: str = "") -> None:
        """Removes the finalizer. `left_behind` is recorded in an Event."""
        if left_behind:
            await record_event(self.registry, instance, "Abandoned", left_behind, type="Warning")

        def edit(current: Object) -> Object:
            return remove_finalizer(current, self._finalizer)

        with suppress(NotFound):
            await self._resource.modify(
                metadata(instance)["namespace"], name_of(instance), edit, server_write_options()
            )


def _instance_key(instance: Object) -> InstanceKey:
    return metadata(instance)["namespace"], name_of(instance)


def _check_namespace_name(ref: Object) -> Object:
    for fault in dns_label_errors(ref["namespace"]):
        message = f"spec.clusterRef.namespace {fault}; delete this instance and create one with another namespace"
        raise InstanceError("InvalidNamespace", message, ERROR)
    return ref


def has_placement(instance: Object) -> bool:
    """Whether it has a valid clusterRef. Only then anything can have been created for it."""
    namespace = get_path(instance, "spec.clusterRef.namespace") or ""
    return bool(get_path(instance, "spec.clusterRef.cluster")) and not any(dns_label_errors(namespace))


def relevant_state(plural: str, obj: Object) -> object:
    """The state that instances depend on: uid and generation; of a cluster also its reachability and identity."""
    meta = metadata(obj)
    if plural == PROJECTS:
        return meta["uid"], meta.get("generation")
    known = tuple(get_path(obj, f"status.{field}") for field in ("online", "phase", "clusterUID"))
    return meta["uid"], meta.get("generation"), *known


def is_resolved(instance: Object) -> bool:
    """Whether its template is resolved for the current generation, and its trust is known."""
    resolved = find_condition(instance.get("status"), TEMPLATE_RESOLVED) or {}
    is_current = resolved.get("observedGeneration") == metadata(instance).get("generation", 1)
    return is_current and resolved.get("status") == TRUE and bool(get_path(instance, "status.templateTrust"))


def is_abandoned(instance: Object) -> bool:
    return (metadata(instance).get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"


class RemoteCleanup:
    """Cleans up in the cluster when an instance is deleted. `synced` and `ready` are the conditions to report with."""

    def __init__(self, instances: RemoteInstanceStore, tear_down: TearDown, synced: str, ready: str) -> None:
        self._instances = instances
        self._tear_down = tear_down
        self._synced = synced
        self._ready = ready

    async def remove(self, instance: Object, target_of: Callable[[Object], RemoteNamespace]) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        if not has_placement(instance):
            await self._instances.remove_finalizer(instance)
            return None
        target = target_of(instance)
        location = f'namespace "{target.namespace}" in cluster "{target.cluster}"'
        if is_abandoned(instance) or self._instances.cluster(instance) is None:
            await self._instances.remove_finalizer(
                instance, f"{location} was not deleted; if it still exists, delete it yourself"
            )
            return None
        # Before anything is deleted: the status must not say Ready while parts are missing.
        if is_true(instance.get("status"), READY):
            await self._instances.write_status(
                instance, (self._waiting_condition(InstanceError(DELETING, "", INFO), location),), online=False
            )
        try:
            with translate_errors(target.cluster, f"delete {location}"):
                remaining = await self._tear_down(instance, target)
        except InstanceError as error:
            await self._instances.write_status(instance, self._blocked_conditions(error, location), online=False)
            return add_jitter(HELM_SLOT_RETRY_SECONDS if error.reason == WAITING_FOR_HELM_SLOT else REQUEUE_SECONDS)
        if remaining is None:
            await self._instances.remove_finalizer(instance)
            return None
        await self._instances.write_status(instance, (self._waiting_condition(remaining, location),), online=False)
        return DELETION_POLL_SECONDS

    def _waiting_condition(self, blocker: InstanceError, location: str) -> Object:
        detail = f": {blocker.message}" if blocker.message else ""
        return condition(
            self._ready, FALSE, blocker.reason, f"waiting for the deletion of {location}{detail}", blocker.severity
        )

    def _blocked_conditions(self, error: InstanceError, location: str) -> Sequence[Object]:
        """The conditions of an instance whose deletion is blocked."""
        advice = f"to delete this and leave {location} behind, annotate it with {ABANDON_ANNOTATION}=true"
        blocked = InstanceError(
            error.reason, f"{location} cannot be deleted: {error.message}; {advice}", error.severity
        )
        waiting = condition(self._ready, FALSE, DELETING, f"waiting until {location} can be deleted", INFO)
        return blocked.as_condition(self._synced), waiting
