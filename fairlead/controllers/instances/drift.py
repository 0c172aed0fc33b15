"""Drift detection for the remote objects of instances: tracks applied objects, and records Events about repairs.

Everything is applied inside `track_pass`. Afterwards all applied objects are watched (`remote_informers.py`), and
Events of the instance report what others had changed or deleted.

Drift is detected from the response of server-side apply, without a read before: another uid means that the object had
been deleted, and another time of our field manager that our fields had been changed. An apply without changes keeps
that time, whatever others have done to other fields.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from fairlead.controllers.instances.remote_errors import NAMESPACE_TERMINATING, WARNING, InstanceError
from fairlead.controllers.instances.remote_informers import RemoteInformers, json_digest, state_digest
from fairlead.controllers.instances.remote_namespace import RecordingApi, RemoteNamespace
from fairlead.controllers.instances.resync_rate import REPAIRS, ResyncLimiter
from fairlead.core.backoff import add_jitter
from fairlead.core.objects import Object, name_of
from fairlead.domain.typed_objects import SPACE_SYNCED, PlacedObject
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import FIELD_MANAGER, KubeApi, RemoteApiError, RequestSender

WATCHED_RESYNC_SECONDS = 300.0
"""Resync interval of an instance whose objects are all watched."""
PASS_TIMEOUT = 180.0
"""Timeout of all requests of one reconcile. A template has a few hundred objects at most."""
SLOT_RETRY_SECONDS = 2.0
"""Requeue delay of an instance whose cluster already uses as many workers as allowed."""
MAX_LISTED_RESOURCES, MAX_LISTED_OBJECTS = 5, 10
"""How many resources and objects one message lists."""
_MAX_NAME_LENGTH = 100
NAMESPACE_DELETED, NAMESPACE_MISSING = "NamespaceDeleted", "NamespaceMissing"
OBJECTS_RESTORED = "ObjectsRestored"
DRIFT_REPAIRED, REPAIRED_REPEATEDLY = "DriftRepaired", "RepairedRepeatedly"
"""Event reasons."""


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """An applied object: its identity, a digest of the applied body, and its state on the server."""

    kind: str
    name: str
    desired_digest: str
    uid: str
    applied_at: str
    """When our field manager last changed it, according to `managedFields`."""
    state: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Drift:
    """The changes of others that a reconcile has undone."""

    namespace_lost: bool = False
    may_be_other_cluster: bool = False
    """Whether the namespace may still exist in another cluster, which the old credential pointed to."""
    restored: Mapping[str, str] = field(default_factory=dict)
    """Objects that had been deleted: titles by path."""
    repaired: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.namespace_lost or bool(self.restored or self.repaired)


class DriftTracker:
    """For the instances of one controller. `label` is the label key of their kind."""

    def __init__(
        self, registry: Registry, sender_for: Callable[[str], RequestSender], label: str, resource: tuple[str, str]
    ) -> None:
        self._registry = registry
        self._sender_for = sender_for
        self._resource = resource
        self._limiter = ResyncLimiter(registry.clock)
        self.informers = RemoteInformers(sender_for, label, self._limiter)
        self._busy_workers: Counter[str] = Counter()
        """The number of busy workers, by cluster."""
        self._applied: dict[Key, dict[str, AppliedObject]] = {}
        self._last_sender: dict[Key, RequestSender | None] = {}
        """The connection that each instance last used: another one may lead to another cluster."""

    @asynccontextmanager
    async def track_pass(
        self, instance: PlacedObject, target: RemoteNamespace, api: KubeApi
    ) -> AsyncIterator[RecordingApi]:
        """One reconcile of everything that an instance has in its cluster, through an API that records writes."""
        key = self._key(instance)
        tracked = RecordingApi(api, target.path, partial(self.informers.claim, key, target))
        changed_by = self.informers.begin_pass(key, target)
        try:
            try:
                async with asyncio.timeout(PASS_TIMEOUT) as limit:
                    yield tracked
            except TimeoutError:
                if not limit.expired():
                    raise
                message = (
                    f'cluster "{target.cluster}" took more than {PASS_TIMEOUT:.0f} seconds to apply the content of '
                    f'namespace "{target.namespace}"; this is retried. Check whether the cluster or its webhooks are '
                    "slow"
                )
                raise InstanceError("TimedOut", message, WARNING) from None
        except (InstanceError, RemoteApiError, UpstreamError) as error:
            # The reason is that only of a namespace which the instance owns.
            if isinstance(error, InstanceError) and error.reason == NAMESPACE_TERMINATING:
                self.informers.claim(key, target)
            await self._record_events(instance, target, self._record_pass(instance, target, tracked), changed_by)
            raise
        except BaseException:
            self._record_pass(instance, target, tracked)
            raise
        await self._record_events(instance, target, self._record_pass(instance, target, tracked), changed_by)

    @contextmanager
    def cluster_slot(self, instance: PlacedObject, max_workers: int) -> Iterator[float]:
        """Reserves a worker for the cluster of an instance: one slow cluster may use three quarters of them at most.
        Yields 0, or the requeue delay if no worker is available."""
        cluster = instance.cluster
        if cluster and self._busy_workers[cluster] >= max_workers * 3 // 4:
            yield add_jitter(SLOT_RETRY_SECONDS)
            return
        self._busy_workers[cluster] += 1
        try:
            yield 0.0
        finally:
            self._busy_workers[cluster] -= 1
            if not self._busy_workers[cluster]:
                del self._busy_workers[cluster]

    def track_removal(self, instance: PlacedObject, target: RemoteNamespace) -> None:
        """Watches the terminating namespace, so that its deletion triggers a reconcile."""
        key = self._key(instance)
        self.informers.begin_pass(key, target)
        self._applied.pop(key, None)
        self.informers.finish_pass(key, target, {target.path: NAMESPACE_TERMINATING})

    def forget(self, key: Key) -> None:
        self._applied.pop(key, None)
        self._last_sender.pop(key, None)
        self.informers.forget(key)

    def resync_seconds(self, instance: PlacedObject, otherwise: float) -> float:
        """The resync interval: `otherwise` if some objects are not watched."""
        return WATCHED_RESYNC_SECONDS if self.informers.has_synced(self._key(instance)) else otherwise

    def watch_caveat(self, instance: PlacedObject) -> str:
        """A note for the condition if changes in the cluster are not noticed at once."""
        refused = self.informers.forbidden_resources(self._key(instance))
        if not refused:
            return ""
        more = " and others" if len(refused) > MAX_LISTED_RESOURCES else ""
        return (
            f"; changes there are noticed within a minute only, since the stored credential may not list and watch "
            f"{', '.join(refused[:MAX_LISTED_RESOURCES])}{more} in all namespaces"
        )

    def _key(self, instance: PlacedObject) -> Key:
        return (*self._resource, *instance.key)

    def _record_pass(self, instance: PlacedObject, target: RemoteNamespace, recording: RecordingApi) -> Drift:
        key = self._key(instance)
        before = self._applied.get(key, {})
        applied = {path: _build_applied_object(*pair) for path, pair in recording.applied.items()}
        existed = (
            target.path in before
            or instance.is_true(SPACE_SYNCED)
            or instance.condition(SPACE_SYNCED).get("reason") == NAMESPACE_TERMINATING
        )
        is_lost = recording.has_created_namespace and existed
        drift = Drift(namespace_lost=True) if is_lost else detect_drift(before, applied, target.path)
        try:
            sender = self._sender_for(target.cluster)
        except UpstreamError:
            sender = None
        if drift.namespace_lost and sender is not self._last_sender.get(key, sender):
            drift = replace(drift, may_be_other_cluster=True)
        self._last_sender[key] = sender
        # Earlier objects are gone if the namespace was created anew.
        known = {} if recording.has_created_namespace else before
        merged = {path: each for path, each in {**known, **applied}.items() if path not in recording.removed}
        self._applied[key] = merged
        self.informers.finish_pass(key, target, {path: each.state for path, each in merged.items()})
        return drift

    async def _record_events(
        self, instance: PlacedObject, target: RemoteNamespace, drift: Drift, changed_by: Mapping[str, str]
    ) -> None:
        if not drift:
            return
        location = target.location
        changed_by = {path: manager for path, manager in changed_by.items() if path in drift.repaired}
        for reason, message in _drift_events(drift, location, changed_by):
            if self._limiter.allow_event(self._key(instance)):
                await record_event(self._registry, instance.raw, reason, message, type="Warning")
        paths = (target.path,) if drift.namespace_lost else (*drift.restored, *drift.repaired)
        if self._limiter.record_repairs(self._key(instance), paths) == REPAIRS.free_attempts:
            await record_event(
                self._registry,
                instance.raw,
                REPAIRED_REPEATEDLY,
                _repeated_repair_message(drift, location, changed_by),
                type="Warning",
            )


def _build_applied_object(body: Object, response: Object) -> AppliedObject:
    meta = response.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    managers = meta.get("managedFields")
    times = [
        str(each.get("time") or "")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
    ]
    kind = str(body.get("kind"))[:_MAX_NAME_LENGTH]
    name = name_of(body)[:_MAX_NAME_LENGTH]
    return AppliedObject(
        kind=kind,
        name=name,
        desired_digest=json_digest(body),
        uid=str(meta.get("uid") or ""),
        applied_at=max(times, default=""),
        state=state_digest(meta),
    )


def detect_drift(
    before: Mapping[str, AppliedObject], applied: Mapping[str, AppliedObject], namespace_path: str
) -> Drift:
    """The drift that a reconcile has repaired: what differs between the objects of the last one and of this one."""
    restored = {}
    repaired = {}
    for path, current in applied.items():
        previous = before.get(path)
        if previous is None:
            continue
        is_same_body = current.desired_digest == previous.desired_digest
        if current.uid != previous.uid:
            restored[path] = current.title
        elif is_same_body and current.applied_at and current.applied_at != previous.applied_at:
            repaired[path] = current.title
    if namespace_path in restored:
        return Drift(namespace_lost=True)
    return Drift(restored=restored, repaired=repaired)


def _drift_events(drift: Drift, location: str, changed_by: Mapping[str, str]) -> list[tuple[str, str]]:
    if drift.may_be_other_cluster:
        message = (
            f"{location} did not exist any more after the credential of the cluster had changed; it was created "
            "again. If the credential now belongs to another cluster, the namespace still exists in the former one"
        )
        return [(NAMESPACE_MISSING, message)]
    if drift.namespace_lost:
        message = f"{location} was deleted outside of Fairlead; it was created again, and its former content is lost"
        return [(NAMESPACE_DELETED, message)]
    events = []
    if drift.restored:
        message = (
            f"deleted outside of Fairlead from {location}, and created again: {format_titles(drift.restored.values())}"
        )
        events.append((OBJECTS_RESTORED, message))
    if drift.repaired:
        titles = format_titles(drift.repaired.values())
        message = f"changed outside of Fairlead in {location}, and reverted: {titles}{_format_managers(changed_by)}"
        events.append((DRIFT_REPAIRED, message))
    return events


def _format_managers(changed_by: Mapping[str, str]) -> str:
    managers = sorted(set(changed_by.values()))
    return f' (field manager: "{format_titles(managers)}")' if managers else ""


def _repeated_repair_message(drift: Drift, location: str, changed_by: Mapping[str, str]) -> str:
    titles = (
        "the namespace itself"
        if drift.namespace_lost
        else format_titles((*drift.restored.values(), *drift.repaired.values()))
    )
    return (
        f"{titles} in {location} is changed or deleted again after each repair{_format_managers(changed_by)}; repairs "
        "are now delayed longer each time, up to five minutes. Stop whatever changes it, or remove it from the template"
    )


def format_titles(titles: Iterable[str]) -> str:
    """A sorted, comma-separated list of limited length."""
    ordered = sorted(titles)
    more = f" and {len(ordered) - MAX_LISTED_OBJECTS} more" if len(ordered) > MAX_LISTED_OBJECTS else ""
    return ", ".join(ordered[:MAX_LISTED_OBJECTS]) + more
