"""Drift detection for the remote objects of instances: tracks applied objects, and records Events about repairs.

`namespace_contents.py` applies everything inside `track_pass`. Afterwards all applied objects are watched
(`controllers/runtime/remote_informers.py`), and Events of the instance report what others had changed or deleted.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

from fairlead.controllers.instances.applied_objects import (
    AppliedObject,
    Drift,
    RecordingApi,
    detect_drift,
    format_titles,
    merge_applied,
)
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.remote_namespace import RemoteNamespace
from fairlead.controllers.instances.resync_rate import REPAIRS, ResyncLimiter
from fairlead.controllers.runtime.remote_informers import RemoteInformers, object_states
from fairlead.core.backoff import add_jitter
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.spaces import SPACE_SYNCED
from fairlead.registry.conditions import TRUE, find_condition, record_event
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeApi, RemoteApiError, RequestSender

NAMESPACE_TERMINATING = "NamespaceTerminating"
WATCHED_RESYNC_SECONDS = 300.0
"""Resync interval of an instance whose objects are all watched."""
PASS_TIMEOUT = 180.0
"""Timeout of all requests of one reconcile. A template has a few hundred objects at most."""
SLOT_RETRY_SECONDS = 2.0
"""Requeue delay of an instance whose cluster already uses as many workers as allowed."""
MAX_LISTED_RESOURCES = 5
NAMESPACE_DELETED, NAMESPACE_MISSING = "NamespaceDeleted", "NamespaceMissing"
OBJECTS_RESTORED = "ObjectsRestored"
DRIFT_REPAIRED, REPAIRED_REPEATEDLY = "DriftRepaired", "RepairedRepeatedly"
"""Event reasons."""


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
    async def track_pass(self, instance: Object, target: RemoteNamespace, api: KubeApi) -> AsyncIterator[RecordingApi]:
        """One reconcile of everything that an instance has in its cluster, through an API that records writes."""
        key = self._key(instance)
        changed_by = self.informers.begin_pass(key, target)
        tracked = RecordingApi(api, target.path, partial(self.informers.claim, key, target))
        try:
            async with self._with_timeout(target):
                yield tracked
        except (InstanceError, RemoteApiError, UpstreamError) as error:
            if (
                isinstance(error, InstanceError) and error.reason == NAMESPACE_TERMINATING
            ):  # raised only for a namespace that the instance owns
                self.informers.claim(key, target)
            await self._record_events(instance, target, self._record_pass(instance, target, tracked), changed_by)
            raise
        except BaseException:
            self._record_pass(instance, target, tracked)
            raise
        await self._record_events(instance, target, self._record_pass(instance, target, tracked), changed_by)

    @asynccontextmanager
    async def _with_timeout(self, target: RemoteNamespace) -> AsyncIterator[None]:
        """Raises InstanceError if the block takes too long."""
        try:
            async with asyncio.timeout(PASS_TIMEOUT) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            message = (
                f'cluster "{target.cluster}" took more than {PASS_TIMEOUT:.0f} seconds to apply the content of '
                f'namespace "{target.namespace}"; this is retried. Check whether the cluster or its webhooks are slow'
            )
            raise InstanceError("TimedOut", message, WARNING) from None

    @contextmanager
    def cluster_slot(self, instance: Object, max_workers: int) -> Iterator[float]:
        """Reserves a worker for the cluster of an instance: one slow cluster may use three quarters of them at most.
        Yields 0, or the requeue delay if no worker is available."""
        cluster = get_path(instance, "spec.clusterRef.cluster") or ""
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

    def track_removal(self, instance: Object, target: RemoteNamespace) -> None:
        """Watches the terminating namespace, so that its deletion triggers a reconcile."""
        key = self._key(instance)
        self.informers.begin_pass(key, target)
        self._applied.pop(key, None)
        self.informers.finish_pass(key, target, {target.path: NAMESPACE_TERMINATING})

    def forget(self, key: Key) -> None:
        self._applied.pop(key, None)
        self._last_sender.pop(key, None)
        self.informers.forget(key)

    def resync_seconds(self, instance: Object, otherwise: float) -> float:
        """The resync interval: `otherwise` if some objects are not watched."""
        return WATCHED_RESYNC_SECONDS if self.informers.has_synced(self._key(instance)) else otherwise

    def watch_caveat(self, instance: Object) -> str:
        """A note for the condition if changes in the cluster are not noticed at once."""
        refused = self.informers.forbidden_resources(self._key(instance))
        if not refused:
            return ""
        more = " and others" if len(refused) > MAX_LISTED_RESOURCES else ""
        return (
            f"; changes there are noticed within a minute only, since the stored credential may not list and watch "
            f"{', '.join(refused[:MAX_LISTED_RESOURCES])}{more} in all namespaces"
        )

    def _key(self, instance: Object) -> Key:
        return (*self._resource, metadata(instance).get("namespace", ""), name_of(instance))

    def _record_pass(self, instance: Object, target: RemoteNamespace, recording: RecordingApi) -> Drift:
        key = self._key(instance)
        before = self._applied.get(key, {})
        drift = detect_drift(before, recording, target.path in before or _was_synced(instance))
        sender = self._find_sender(target.cluster)
        if drift.namespace_lost and sender is not self._last_sender.get(key, sender):
            drift = replace(drift, may_be_other_cluster=True)
        self._last_sender[key] = sender
        self._applied[key] = merge_applied(before, recording)
        self.informers.finish_pass(key, target, object_states(self._applied[key]))
        return drift

    def _find_sender(self, cluster: str) -> RequestSender | None:
        try:
            return self._sender_for(cluster)
        except UpstreamError:
            return None

    async def _record_events(
        self, instance: Object, target: RemoteNamespace, drift: Drift, changed_by: Mapping[str, str]
    ) -> None:
        if not drift:
            return
        location = f'namespace "{target.namespace}" in cluster "{target.cluster}"'
        changed_by = {path: manager for path, manager in changed_by.items() if path in drift.repaired}
        for reason, message in _drift_events(drift, location, changed_by):
            if self._limiter.allow_event(self._key(instance)):
                await record_event(self._registry, instance, reason, message, type="Warning")
        paths = (target.path,) if drift.namespace_lost else (*drift.restored, *drift.repaired)
        if self._limiter.record_repairs(self._key(instance), paths) == REPAIRS.free_attempts:
            await record_event(
                self._registry,
                instance,
                REPAIRED_REPEATEDLY,
                _repeated_repair_message(drift, location, changed_by),
                type="Warning",
            )


def _was_synced(instance: Object) -> bool:
    """Whether the namespace existed at the last reconcile, maybe in another process."""
    synced = find_condition(instance.get("status"), SPACE_SYNCED) or {}
    return synced.get("status") == TRUE or synced.get("reason") == NAMESPACE_TERMINATING


def _drift_events(drift: Drift, location: str, changed_by: Mapping[str, str]) -> list[tuple[str, str]]:
    if drift.may_be_other_cluster:
        message = (
            f"{location} did not exist any more after the credential of the cluster had changed; it was created "
            "again. If "
            "the credential now belongs to another cluster, the namespace still exists in the former one"
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
        "are now "
        "delayed longer each time, up to five minutes. Stop whatever changes it, or remove it from the template"
    )
