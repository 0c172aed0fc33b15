"""What all objects have in common that exist in a cluster: spaces, virtual clusters, installed apps and deployed
runners, which are all called instances here.

- The controller of a kind is a list of steps, in order. A step adds conditions and fields to its `ReconcileAttempt`, or
  fails with an InstanceError, which becomes the condition of its stage; `InstanceReconciler.run` does all that is
  around them.
- `write_status` is the one writer of conditions. It writes them together with everything that is derived from them.
- Before anything is created in a cluster, the instance gets a finalizer. `clean_up` delays the deletion of the instance
  until that is removed again. What cannot be removed is reported in the conditions; an annotation skips the cleanup.
  `abandon` reports what is left behind then.
- A failed try is repeated after a while, which grows: every write to an instance triggers a reconcile, including the
  status write that reports the failure. A change of its inputs ends the wait.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fairlead.controllers.helm.slots import WAITING_FOR_HELM_SLOT
from fairlead.controllers.instances.remote_errors import ABANDONED, INFO, WARNING, InstanceError, StillDeleting
from fairlead.controllers.instances.status import record_transition
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import BackoffPolicy, add_jitter
from fairlead.core.clock import Clock, timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, add_finalizer, has_finalizer, remove_finalizer
from fairlead.domain.password_parameters import redact_conditions
from fairlead.domain.typed_objects import PlacedObject, TypedObject
from fairlead.kinds.instances.fields import READY
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, record_event, with_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key

DELETION_POLL_SECONDS = 2.0
"""Requeue delay while a deletion is in progress."""
CHANGED_RETRY_SECONDS = 2.0
"""Requeue delay after the instance has changed during a reconcile."""
HELM_SLOT_RETRY_SECONDS = 15.0
"""Requeue delay while no slot for a helm run is free, if it is not queued before because one has become free."""
REQUEUE_SECONDS = 15.0
"""Requeue delay of an instance that is in progress, and of a deletion that is blocked."""
RETRY = BackoffPolicy(first_seconds=5.0, max_seconds=120.0)
MIN_RETRY_INTERVAL_SECONDS = 10.0
"""Minimum interval between retries that are triggered by changes in the cluster, for an instance in backoff."""

V = TypeVar("V", bound=TypedObject)
InstanceKey = tuple[str, str]
"""Namespace and name of an instance."""


@dataclass(slots=True)
class ReconcileAttempt(Generic[V]):
    """One try to bring an instance to Ready, and what its steps have found so far."""

    instance: V
    stage: str = ""
    """The type of the condition that an error becomes."""
    conditions: list[Object] = field(default_factory=list)
    fields: Object = field(default_factory=dict)
    """Fields of the status to write; None removes one."""
    describe_failure: Callable[[V, InstanceError], Sequence[Object]] | None = None
    """The conditions of an error, if they are more than that of the stage."""

    def done(self, type: str, reason: str, message: str) -> None:
        self.conditions.append(condition(type, TRUE, reason, message))

    def failed(self, error: InstanceError) -> Sequence[Object]:
        if self.describe_failure is not None:
            return self.describe_failure(self.instance, error)
        return (error.as_condition(self.stage),)


@dataclass(frozen=True, slots=True)
class Removal:
    """What is removed from a cluster when an instance is deleted."""

    tear_down: Callable[[], Awaitable[None]]
    """Raises StillDeleting until everything is gone, and InstanceError if that is not possible."""
    blocked: Callable[[InstanceError], Sequence[Object]]
    """The conditions while the deletion is not possible."""
    waiting: Callable[[StillDeleting], Sequence[Object]] = lambda remaining: ()
    """The conditions while the deletion is in progress."""
    begins: Sequence[Object] = ()
    """The conditions before anything is deleted, if it is Ready: it must not say so while parts are missing."""
    fields: Object = field(default_factory=dict)
    """Other fields of the status for that time."""


class ChangedMeanwhile(Exception):
    """The instance has changed since the reconcile began, and what was computed from it is outdated."""


@dataclass(frozen=True, slots=True)
class _Failure:
    attempt: object
    failures: int
    due: float


class InstanceBackoff:
    """Exponential backoff. `attempt` is a value for all inputs of a try: a try with other inputs is due at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[InstanceKey, _Failure] = {}
        self._shortened_at: dict[InstanceKey, float] = {}

    def remaining_seconds(self, key: InstanceKey, attempt: object) -> float:
        """Seconds until the next try; 0 if it is due."""
        known = self._failures.get(key)
        if known is None or known.attempt != attempt:
            return 0.0
        return max(0.0, known.due - self._clock.monotonic())

    def record_failure(self, key: InstanceKey, attempt: object, error: InstanceError) -> float:
        """Records a failed try. Returns the seconds until the next one."""
        if error.severity == INFO:
            self.reset(key)
            return add_jitter(REQUEUE_SECONDS)
        known = self._failures.get(key)
        failures = 1 if known is None or known.attempt != attempt else known.failures + 1
        wait = add_jitter(RETRY.delay(failures))
        self._failures[key] = _Failure(attempt, failures, self._clock.monotonic() + wait)
        return wait

    def shorten(self, key: InstanceKey) -> None:
        """Something in the cluster has changed, which may fix the failure: the next try is due. Rate-limited, for
        clusters that change all the time."""
        now = self._clock.monotonic()
        due = max(now, self._shortened_at.get(key, -MIN_RETRY_INTERVAL_SECONDS) + MIN_RETRY_INTERVAL_SECONDS)
        known = self._failures.get(key)
        if known is not None and known.due > due:
            self._failures[key] = replace(known, due=due)
            self._shortened_at[key] = due

    def reset(self, key: InstanceKey) -> None:
        self._failures.pop(key, None)

    def forget(self, key: InstanceKey) -> None:
        """The instance is gone."""
        self.reset(key)
        self._shortened_at.pop(key, None)


class InstanceReconciler(Generic[V]):
    """Reconciles the instances of one resource. `typed` is the class of their kind. `finalizer` delays their deletion
    until the cluster is cleaned up. `derive` completes a status: everything in it that follows from conditions.
    `record` records Events about the change from an object to a status."""

    def __init__(
        self,
        registry: Registry,
        resource: tuple[str, str],
        typed: type[V],
        finalizer: str,
        derive: Callable[[V, Object, str], Object],
        record: Callable[[Registry, Object, Object], Awaitable[None]] = record_transition,
    ) -> None:
        self.registry = registry
        self.group, self.plural = resource
        self._typed = typed
        self._finalizer = finalizer
        self._derive = derive
        self._record = record
        self._resource = registry.resource(*resource)
        self.backoff = InstanceBackoff(registry.clock)

    def find(self, key: Key) -> V | None:
        """The instance; None if it is deleted."""
        entry = self._resource.get_cached(key[2], key[3])
        if entry is None:
            self.backoff.forget((key[2], key[3]))
            return None
        return self._typed(decode(entry))

    def retry_on_change(self, requeue: Requeue) -> Requeue:
        """Wraps `requeue` for changes in the cluster, which also end a backoff."""

        def requeue_and_retry(key: Key, seconds: float) -> None:
            self.backoff.shorten((key[2], key[3]))
            requeue(key, seconds)

        return requeue_and_retry

    async def run(
        self, instance: V, inputs: Callable[[V], object], steps: Callable[[ReconcileAttempt[V]], Awaitable[float]]
    ) -> float | None:
        """Runs the steps in order, up to the first that fails. Returns the seconds until the next reconcile: those that
        the steps return, or those of the backoff. `inputs` are all values that the outcome depends on."""
        if wait := self.backoff.remaining_seconds(instance.key, inputs(instance)):
            return wait
        run = ReconcileAttempt(instance)
        try:
            try:
                requeue_after = await steps(run)
            except InstanceError as error:
                await self.write_status(run.instance, (*run.conditions, *run.failed(error)), **run.fields)
                if error.reason == WAITING_FOR_HELM_SLOT:
                    return add_jitter(HELM_SLOT_RETRY_SECONDS)
                return self.backoff.record_failure(instance.key, inputs(run.instance), error)
        except ChangedMeanwhile:
            return CHANGED_RETRY_SECONDS
        except NotFound:  # it was deleted meanwhile
            return None
        self.backoff.reset(instance.key)
        return requeue_after

    async def clean_up(self, instance: V, removal: Removal) -> float | None:
        """Continues the cleanup after a deletion. Returns the requeue delay; None when the finalizer is removed."""
        try:
            if removal.begins and instance.is_true(READY):
                await self.write_status(instance, removal.begins, **removal.fields)
            await removal.tear_down()
        except NotFound:
            return None
        except StillDeleting as remaining:
            await self._report_removal(instance, removal.waiting(remaining), removal)
            return DELETION_POLL_SECONDS
        except InstanceError as error:
            await self._report_removal(instance, removal.blocked(error), removal)
            waits_for_slot = error.reason == WAITING_FOR_HELM_SLOT
            return add_jitter(HELM_SLOT_RETRY_SECONDS if waits_for_slot else REQUEUE_SECONDS)
        await self.release(instance)
        return None

    def has_finalizer(self, instance: V) -> bool:
        """Whether something may have been created for it in a cluster."""
        return has_finalizer(instance.raw, self._finalizer)

    async def claim(self, instance: V, cluster_ref: Object | None = None) -> V:
        """Adds the finalizer, and sets the clusterRef, before anything is created remotely, so that nothing is left
        behind. Returns the instance as it is then. Raises NotFound and ChangedMeanwhile."""

        def edit(current: Object) -> Object:
            found = PlacedObject(current)
            if found.uid != instance.uid or found.cluster_ref != PlacedObject(instance.raw).cluster_ref:
                raise ChangedMeanwhile
            if cluster_ref is not None:
                current = {**current, "spec": {**found.spec, "clusterRef": cluster_ref}}
            return add_finalizer(current, self._finalizer)

        if edit(instance.raw) == instance.raw:
            return instance
        await self._resource.modify(*instance.key, edit, server_write_options())
        result = self._typed(decode(await self._resource.get(*instance.key)))
        if result.is_deleting:
            raise ChangedMeanwhile
        return result

    async def abandon(self, instance: V, type: str, left_behind: str) -> None:
        """Removes the finalizer although something is left in a cluster. The last state of the instance says so in its
        condition of that type, for clients that wait for the deletion; and so does an Event."""
        now = timestamp(self.registry.clock.now())
        abandoned = condition(type, FALSE, ABANDONED, left_behind, WARNING)

        def edit(current: Object) -> Object:
            return {**current, "status": self._build_status(self._typed(current), instance, (abandoned,), {}, now)}

        with suppress(NotFound):  # not `write_status`, which would record an Event of the same reason
            await self._resource.modify(*instance.key, edit, server_write_options("status"))
        with suppress(ApiError):  # no Event can be created in a terminating namespace
            await record_event(self.registry, instance.raw, ABANDONED, left_behind, type="Warning")
        await self.release(instance)

    async def release(self, instance: V) -> None:
        """Removes the finalizer."""
        try:
            await self._resource.modify(
                *instance.key, lambda current: remove_finalizer(current, self._finalizer), server_write_options()
            )
        except NotFound:
            return

    async def write_status(self, instance: V, conditions: Sequence[Object], **fields: object) -> V:
        """Writes conditions, which were determined for `instance` as passed, and other fields; None removes a field.
        Returns the instance as it is then. Raises NotFound if it was deleted meanwhile."""
        now = timestamp(self.registry.clock.now())
        before = instance.raw

        def edit(current: Object) -> Object:
            nonlocal before
            before = current
            return {**current, "status": self._build_status(self._typed(current), instance, conditions, fields, now)}

        entry = self._resource.get_cached(*instance.key)
        if entry is None:
            raise NotFound.of(self.plural, self.group, instance.name)
        if edit(current := decode(entry)) == current:
            return self._typed(current)
        await self._resource.modify(*instance.key, edit, server_write_options("status"))
        after = edit(before)
        await self._record(self.registry, before, after["status"])
        return self._typed(after)

    async def record(self, instance: V, **fields: object) -> None:
        """Writes fields of the status that something depends on that is about to be done. Raises NotFound, and
        ChangedMeanwhile if they were not written, as the instance is another one or is not to be reconciled now."""
        written = (await self.write_status(instance, (), **fields)).status
        if any(written.get(name) != value for name, value in fields.items()):
            raise ChangedMeanwhile

    def key_of(self, instance: V) -> Key:
        return (self.group, self.plural, *instance.key)

    def _build_status(self, current: V, instance: V, conditions: Sequence[Object], fields: Object, now: str) -> Object:
        status = current.status
        if current.uid != instance.uid or current.is_ignored:
            return status
        is_same = current.basis == instance.basis  # otherwise, keep the fields, but not the conditions
        concealed = redact_conditions(instance.raw, conditions) if is_same else ()
        merged = {**status, **fields}
        status = {name: value for name, value in merged.items() if value is not None or name not in fields}
        return self._derive(current, with_conditions(status, concealed, now, instance.generation), now)

    async def _report_removal(self, instance: V, conditions: Sequence[Object], removal: Removal) -> None:
        try:
            await self.write_status(instance, conditions, **removal.fields)
        except NotFound:  # it is gone already
            return
