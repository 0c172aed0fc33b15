"""Informers for the objects that were applied in remote clusters: a change there triggers a reconcile of the instance.

The controllers of spaces and of virtual clusters have one each. `controllers/instances/drift.py` registers what each
reconcile applied: per cluster there is one watch of namespaces and one of every applied resource, selected by the
labels of `ownership_labels`. A watch ends when no instance needs it; all of them run on the leader only.

A change counts if it leaves an object in another state than the last apply did. Changes during a reconcile are
evaluated after it, so that an instance is not triggered by its own writes. A namespace has one owner, the instance that
last proved its ownership, and only the owner is notified: an instance can name any namespace in its spec.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairlead.controllers.instances.applied_objects import Trace, collection_of, last_manager, path_of, state_of
from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED
from fairlead.controllers.instances.remote_namespace import NAMESPACES, Place
from fairlead.controllers.instances.resync_rate import Pace
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.objects import Object
from fairlead.storage.contract import Key
from fairlead.upstream.kube_client import Sender
from fairlead.upstream.watch import RemoteWatch

MOST_WATCHES = 32
"""Per cluster and controller. Resources beyond that are covered by the periodic resync only."""
UNWATCHED_SECONDS = 60.0
"""Requeue delay of an instance that has lost a watch."""
MOST_HEARD = 250
"""How many unknown objects that changed during a reconcile are kept. If there are more, it is repeated."""
GONE, UNKNOWN = "", "?"
"""States of an object that does not exist, and of a namespace that was not observed yet."""


@dataclass(slots=True)
class _Followed:
    """One instance: its remote namespace, and the state of every applied object, by path."""

    cluster: str
    namespace: str
    states: dict[str, str]
    collections: frozenset[str]
    is_busy: bool = False
    """Whether a reconcile is in progress."""
    is_due: bool = False
    """Whether it is queued already."""
    heard: dict[str, str] = field(default_factory=dict)
    """States by path that were received during the reconcile."""
    has_missed: bool = False
    """Whether more changes were received than are kept."""
    changed_by: dict[str, str] = field(default_factory=dict)
    """Field managers that changed applied objects since the last reconcile, by path, as far as known."""


@dataclass(slots=True)
class _Watch:
    task: "asyncio.Task[None] | None" = None
    is_following: bool = False
    refusal: str = ""


class RemoteInformers:
    """`sender_for` returns the connection for watches of a cluster. `label` is the label key of the kind."""

    def __init__(self, ways: Callable[[str], Sender], mark: str, pace: Pace) -> None:
        self._ways = ways
        self._selector = f"{MANAGED}={FAIRLEAD},{mark}"
        self._pace = pace
        self._followed: dict[Key, _Followed] = {}
        self._owners: dict[tuple[str, str], Key] = {}
        """By cluster and namespace."""
        self._needed: dict[str, Counter[str]] = {}
        """By cluster: how many instances need the watch of each collection."""
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._requeue: Requeue | None = None

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Starts the watches. Returns the function that stops them."""
        self._requeue = requeue
        for watched in self._watches:
            self._start(watched)
        return self._stop

    def _stop(self) -> None:
        self._requeue = None
        for watch in self._watches.values():
            if watch.task is not None:
                watch.task.cancel()
            watch.task, watch.is_following = None, False

    # --- for instances/drift.py ---------------------------------------------------------------------------------------

    def begin(self, key: Key, place: Place) -> Mapping[str, str]:
        """A reconcile starts. Returns the field managers that changed objects since the last one, by path."""
        instance = self._followed.get(key)
        if instance is None or (instance.cluster, instance.namespace) != (place.cluster, place.namespace):
            self.follow(key, place, {})
            instance = self._followed[key]
        instance.is_busy, instance.is_due = True, False
        changed_by, instance.changed_by = instance.changed_by, {}
        return changed_by

    def claim(self, key: Key, place: Place) -> None:
        """The instance has proved that it owns the namespace: it is notified of changes there from now on."""
        self._owners[place.cluster, place.namespace] = key

    def follow(self, key: Key, place: Place, states: Mapping[str, str]) -> None:
        """A reconcile is over and has left the objects in these states, by path."""
        before = self._followed.get(key)
        if before is not None and (before.cluster, before.namespace) != (place.cluster, place.namespace):
            self.forget(key)
            before = None
        states = {place.path: UNKNOWN, **states}
        collections = frozenset(map(collection_of, states))
        instance = self._followed[key] = _Followed(place.cluster, place.namespace, states, collections)
        self._need(place.cluster, before.collections if before is not None else frozenset(), collections)
        for path, state in (before.heard if before is not None else {}).items():
            self._judge(key, instance, path, state)
        if before is not None and before.has_missed:
            self._wake(key, instance, "")

    def forget(self, key: Key) -> None:
        """Stops tracking the instance."""
        instance = self._followed.pop(key, None)
        self._pace.forget(key)
        if instance is not None:
            location = instance.cluster, instance.namespace
            if self._owners.get(location) == key:
                del self._owners[location]
            self._need(instance.cluster, instance.collections, frozenset())

    def is_following(self, key: Key) -> bool:
        """Whether all applied objects of the instance are covered by a running watch."""
        instance = self._followed.get(key)
        if instance is None:
            return False
        watches = (self._watches.get((instance.cluster, each)) for each in instance.collections)
        return all(watch is not None and watch.is_following for watch in watches)

    def refused(self, key: Key) -> tuple[str, ...]:
        """The resources of the instance that the credential may not watch, such as `configmaps`."""
        instance = self._followed.get(key)
        if instance is None:
            return ()
        watches = ((each, self._watches.get((instance.cluster, each))) for each in instance.collections)
        return tuple(sorted(each.rpartition("/")[2] for each, watch in watches if watch is not None and watch.refusal))

    # --- watches -----------------------------------------------------------------------------------------------------

    def _need(self, cluster: str, before: frozenset[str], now: frozenset[str]) -> None:
        """An instance needs other watches than before: starts missing ones, and ends those without users."""
        if before == now:
            return
        needed = self._needed.setdefault(cluster, Counter())
        needed.update(now - before)
        needed.subtract(before - now)
        for collection in [each for each in before - now if needed[each] <= 0]:
            del needed[collection]
            watch = self._watches.pop((cluster, collection), None)
            if watch is not None and watch.task is not None:
                watch.task.cancel()
        if not needed:
            del self._needed[cluster]
        watched = {collection for collection in needed if (cluster, collection) in self._watches}
        missing = sorted(needed.keys() - watched, key=lambda each: (each != NAMESPACES, each))
        for collection in missing[: MOST_WATCHES - len(watched)]:
            self._watches[cluster, collection] = _Watch()
            self._start((cluster, collection))

    def _start(self, watched: tuple[str, str]) -> None:
        if self._requeue is None:
            return  # `subscribe` starts it
        cluster, collection = watched
        listener = _Listener(self, cluster, collection)
        watch = RemoteWatch(lambda: self._ways(cluster), collection, self._selector, listener)
        name = f"watch of {collection} in cluster {cluster}"
        self._watches[watched].task = asyncio.create_task(watch.run(), name=name)

    def note_health(self, watched: tuple[str, str], is_following: bool, refusal: str) -> None:
        """A watch has synced or was lost. Conditions report a refusal, so its change triggers a reconcile."""
        watch = self._watches.get(watched)
        if watch is None:
            return
        refusal_changed = bool(refusal) != bool(watch.refusal) and (is_following or bool(refusal))
        was_lost = watch.is_following and not is_following
        watch.is_following = is_following
        watch.refusal = refusal if refusal or is_following else watch.refusal
        for key, instance in self._followed.items() if refusal_changed or was_lost else ():
            if instance.cluster == watched[0] and watched[1] in instance.collections:
                if refusal_changed:
                    self._wake(key, instance, "")
                elif self._requeue is not None:
                    self._requeue(key, UNWATCHED_SECONDS * random.uniform(0.8, 1.2))

    # --- watch events -------------------------------------------------------------------------------------------------

    def note(self, watched: tuple[str, str], meta: Object, *, is_gone: bool) -> None:
        """An object was added, changed or deleted."""
        cluster, collection = watched
        namespace = meta["name"] if collection == NAMESPACES else meta.get("namespace") or ""
        key = self._owners.get((cluster, namespace))
        instance = self._followed.get(key) if key is not None else None
        if key is None or instance is None:
            return
        path, state = path_of(collection, namespace, meta["name"]), GONE if is_gone else state_of(meta)
        known = instance.states.get(path)
        if known is not None and state not in (GONE, known) and (manager := last_manager(meta)):
            instance.changed_by[path] = manager
        self._hear(key, instance, path, state)

    def note_all(self, watched: tuple[str, str], names: set[tuple[str, str]]) -> None:
        """A list has returned exactly these objects: all others were deleted."""
        cluster, collection = watched
        existing = {path_of(collection, *each) for each in names}
        for key, instance in list(self._followed.items()):
            if instance.cluster == cluster and collection in instance.collections:
                for path in [each for each in instance.states if collection_of(each) == collection]:
                    if path not in existing:
                        self._hear(key, instance, path, GONE)

    def _hear(self, key: Key, followed: _Followed, path: str, state: str) -> None:
        if not followed.is_busy:
            self._judge(key, followed, path, state)
        elif path in followed.states or path in followed.heard or len(followed.heard) < MOST_HEARD:
            followed.heard[path] = state
        else:
            followed.has_missed = True

    def _judge(self, key: Key, followed: _Followed, path: str, state: str) -> None:
        known = followed.states.get(path)
        if known == state:
            return
        if known is None:
            # Not applied by us, in spite of its labels. Only bindings with our name prefix concern the controller.
            if state != GONE and path.rpartition("/")[2].startswith(BINDING_PREFIX):
                self._wake(key, followed, path)
            return
        followed.states[path] = state
        self._wake(key, followed, path, urgent=state == GONE and collection_of(path) == NAMESPACES)

    def _wake(self, key: Key, followed: _Followed, path: str, *, urgent: bool = False) -> None:
        urgent = urgent and self._pace.may_hurry(key)
        if self._requeue is None or (followed.is_due and not urgent):
            return
        delay = self._pace.delay(key, path, urgent=urgent)
        followed.is_due = True
        self._requeue(key, delay)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Passes the events of one watch on."""

    informers: RemoteInformers
    cluster: str
    collection: str

    def saw(self, meta: Object) -> None:
        self.informers.note((self.cluster, self.collection), meta, is_gone=False)

    def lost(self, meta: Object) -> None:
        self.informers.note((self.cluster, self.collection), meta, is_gone=True)

    def listed(self, names: set[tuple[str, str]]) -> None:
        self.informers.note_all((self.cluster, self.collection), names)

    def became(self, following: bool, refusal: str = "") -> None:
        self.informers.note_health((self.cluster, self.collection), following, refusal)


def states_of(traces: Mapping[str, Trace]) -> dict[str, str]:
    return {path: trace.state for path, trace in traces.items()}
