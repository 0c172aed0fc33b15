"""Drift detection for the remote objects of instances: tracks applied objects, and records Events about repairs.

`spaces.py` and `virtual_clusters.py` apply everything inside `track_pass`. Afterwards all applied objects are watched
(`controllers/runtime/remote_informers.py`), and Events of the instance report what others had changed or deleted.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

from fairlead.controllers.instances.applied_objects import Drift, Trace, TrackedApi, compare, in_words, remember
from fairlead.controllers.instances.remote_errors import WARNING, Trouble
from fairlead.controllers.instances.remote_namespace import Api, Place
from fairlead.controllers.instances.resync_rate import PATIENCE, Pace
from fairlead.controllers.runtime.backoff import jittered
from fairlead.controllers.runtime.remote_informers import RemoteInformers, states_of
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.conditions import TRUE, find_condition
from fairlead.registry.events import record
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import FarError, Sender

SYNCED, TERMINATING = "SpaceSynced", "NamespaceTerminating"
WATCHED_SECONDS = 300.0
"""Resync interval of an instance whose objects are all watched."""
PASS_SECONDS = 180.0
"""Timeout of all requests of one reconcile. A template has a few hundred objects at most."""
TURN_SECONDS = 2.0
"""Requeue delay of an instance whose cluster already uses as many workers as allowed."""
MOST_REFUSED = 5
NAMESPACE_DELETED, NAMESPACE_MISSING = "NamespaceDeleted", "NamespaceMissing"
OBJECTS_RESTORED = "ObjectsRestored"
DRIFT_REPAIRED, REPAIRED_REPEATEDLY = "DriftRepaired", "RepairedRepeatedly"
"""Event reasons."""


class Upkeep:
    """For the instances of one controller. `label` is the label key of their kind."""

    def __init__(self, registry: Registry, ways: Callable[[str], Sender], mark: str, resource: tuple[str, str]) -> None:
        self._registry = registry
        self._ways = ways
        self._resource = resource
        self._pace = Pace(registry.clock)
        self.informers = RemoteInformers(ways, mark, self._pace)
        self._workers: Counter[str] = Counter()
        """The number of busy workers, by cluster."""
        self._traces: dict[Key, dict[str, Trace]] = {}
        self._way_of: dict[Key, Sender | None] = {}
        """The connection that each instance last used: another one may lead to another cluster."""

    @asynccontextmanager
    async def passing(self, instance: Object, place: Place, api: Api) -> AsyncIterator[TrackedApi]:
        """One reconcile of everything that an instance has in its cluster, through an API that records writes."""
        key = self._key(instance)
        changed_by = self.informers.begin(key, place)
        tracked = TrackedApi(api, place.path, partial(self.informers.claim, key, place))
        try:
            async with self._bounding(place):
                yield tracked
        except (Trouble, FarError, UpstreamError) as error:
            if (
                isinstance(error, Trouble) and error.reason == TERMINATING
            ):  # raised only for a namespace that the instance owns
                self.informers.claim(key, place)
            await self._report(instance, place, self._learn(instance, place, tracked), changed_by)
            raise
        except BaseException:
            self._learn(instance, place, tracked)
            raise
        await self._report(instance, place, self._learn(instance, place, tracked), changed_by)

    @asynccontextmanager
    async def _bounding(self, place: Place) -> AsyncIterator[None]:
        """Raises InstanceError if the block takes too long."""
        try:
            async with asyncio.timeout(PASS_SECONDS) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            message = (
                f'cluster "{place.cluster}" took more than {PASS_SECONDS:.0f} seconds to apply the content of '
                f'namespace "{place.namespace}"; this is retried. Check whether the cluster or its webhooks are slow'
            )
            raise Trouble("TimedOut", message, WARNING) from None

    @contextmanager
    def turn(self, instance: Object, workers: int) -> Iterator[float]:
        """Reserves a worker for the cluster of an instance: one slow cluster may use three quarters of them at most.
        Yields 0, or the requeue delay if no worker is available."""
        cluster = dig(instance, "spec.clusterRef.cluster") or ""
        if cluster and self._workers[cluster] >= workers * 3 // 4:
            yield jittered(TURN_SECONDS)
            return
        self._workers[cluster] += 1
        try:
            yield 0.0
        finally:
            self._workers[cluster] -= 1
            if not self._workers[cluster]:
                del self._workers[cluster]

    def follow_removal(self, instance: Object, place: Place) -> None:
        """Watches the terminating namespace, so that its deletion triggers a reconcile."""
        key = self._key(instance)
        self.informers.begin(key, place)
        self._traces.pop(key, None)
        self.informers.follow(key, place, {place.path: TERMINATING})

    def forget(self, key: Key) -> None:
        self._traces.pop(key, None)
        self._way_of.pop(key, None)
        self.informers.forget(key)

    def look_again(self, instance: Object, otherwise: float) -> float:
        """The resync interval: `otherwise` if some objects are not watched."""
        return WATCHED_SECONDS if self.informers.is_following(self._key(instance)) else otherwise

    def caveat(self, instance: Object) -> str:
        """A note for the condition if changes in the cluster are not noticed at once."""
        refused = self.informers.refused(self._key(instance))
        if not refused:
            return ""
        more = " and others" if len(refused) > MOST_REFUSED else ""
        return (
            f"; changes there are noticed within a minute only, since the stored credential may not list and watch "
            f"{', '.join(refused[:MOST_REFUSED])}{more} in all namespaces"
        )

    def _key(self, instance: Object) -> Key:
        return (*self._resource, metadata(instance)["namespace"], name_of(instance))

    def _learn(self, instance: Object, place: Place, tracked: TrackedApi) -> Drift:
        key = self._key(instance)
        before = self._traces.get(key, {})
        drift = compare(before, tracked, place.path in before or _was_made(instance))
        sender = self._find_way(place.cluster)
        if drift.namespace_lost and sender is not self._way_of.get(key, sender):
            drift = replace(drift, is_elsewhere=True)
        self._way_of[key] = sender
        self._traces[key] = remember(before, tracked)
        self.informers.follow(key, place, states_of(self._traces[key]))
        return drift

    def _find_way(self, cluster: str) -> Sender | None:
        try:
            return self._ways(cluster)
        except UpstreamError:
            return None

    async def _report(self, instance: Object, place: Place, drift: Drift, changed_by: Mapping[str, str]) -> None:
        if not drift:
            return
        location = f'namespace "{place.namespace}" in cluster "{place.cluster}"'
        changed_by = {path: manager for path, manager in changed_by.items() if path in drift.repaired}
        for reason, message in _words(drift, location, changed_by):
            if self._pace.may_tell(self._key(instance)):
                await record(self._registry, instance, reason, message, type="Warning")
        paths = (place.path,) if drift.namespace_lost else (*drift.restored, *drift.repaired)
        if self._pace.repaired(self._key(instance), paths) == PATIENCE + 1:
            await record(
                self._registry, instance, REPAIRED_REPEATEDLY, _fight(drift, location, changed_by), type="Warning"
            )


def _was_made(instance: Object) -> bool:
    """Whether the namespace existed at the last reconcile, maybe in another process."""
    synced = find_condition(instance.get("status"), SYNCED) or {}
    return synced.get("status") == TRUE or synced.get("reason") == TERMINATING


def _words(drift: Drift, where: str, changed_by: Mapping[str, str]) -> list[tuple[str, str]]:
    if drift.is_elsewhere:
        message = (
            f"{where} did not exist any more after the credential of the cluster had changed; it was created again. If "
            "the credential now belongs to another cluster, the namespace still exists in the former one"
        )
        return [(NAMESPACE_MISSING, message)]
    if drift.namespace_lost:
        message = f"{where} was deleted outside of Fairlead; it was created again, and its former content is lost"
        return [(NAMESPACE_DELETED, message)]
    events = []
    if drift.restored:
        message = f"deleted outside of Fairlead from {where}, and created again: {in_words(drift.restored.values())}"
        events.append((OBJECTS_RESTORED, message))
    if drift.repaired:
        titles = in_words(drift.repaired.values())
        message = f"changed outside of Fairlead in {where}, and reverted: {titles}{_by(changed_by)}"
        events.append((DRIFT_REPAIRED, message))
    return events


def _by(changed_by: Mapping[str, str]) -> str:
    managers = sorted(set(changed_by.values()))
    return f' (field manager: "{in_words(managers)}")' if managers else ""


def _fight(drift: Drift, where: str, changed_by: Mapping[str, str]) -> str:
    titles = (
        "the namespace itself"
        if drift.namespace_lost
        else in_words((*drift.restored.values(), *drift.repaired.values()))
    )
    return (
        f"{titles} in {where} is changed or deleted again after each repair{_by(changed_by)}; repairs are now "
        "delayed longer each time, up to five minutes. Stop whatever changes it, or remove it from the template"
    )
