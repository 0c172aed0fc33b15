"""Informers for the objects that were applied in remote clusters: a change there triggers a reconcile of the instance.

The controllers of spaces and of virtual clusters have one each. `drift.py` registers what each
reconcile applied: per cluster there is one watch of namespaces and one of every applied resource, selected by the
labels of `ownership_labels`. A watch ends when no instance needs it; all of them run on the leader only.

A change counts if it leaves an object in another state than the last apply did. Changes during a reconcile are
evaluated after it, so that an instance is not triggered by its own writes. A namespace has one owner, the instance that
last proved its ownership, and only the owner is notified: an instance can name any namespace in its spec.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.controllers.instances.remote_namespace import (
    MANAGED_LABEL,
    MANAGED_VALUE,
    NAMESPACES_PATH,
    RemoteNamespace,
    url_segment,
)
from fairlead.controllers.instances.resync_rate import ResyncLimiter
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import add_jitter
from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object
from fairlead.storage.contract import Key
from fairlead.upstream.kube_client import FIELD_MANAGER, RequestSender
from fairlead.upstream.watch import RemoteWatch

MAX_WATCHES_PER_CLUSTER = 32
"""Per cluster and controller. Resources beyond that are covered by the periodic resync only."""
WATCH_LOST_REQUEUE_SECONDS = 60.0
"""Requeue delay of an instance that has lost a watch."""
MAX_PENDING_CHANGES = 250
"""How many unknown objects that changed during a reconcile are kept. If there are more, it is repeated."""
STATE_DELETED, STATE_UNKNOWN = "", "?"
"""States of an object that does not exist, and of a namespace that was not observed yet."""
_NAMESPACES_SEGMENTS = NAMESPACES_PATH.strip("/").split("/")
_MAX_NAME_LENGTH = 100


@dataclass(slots=True)
class _TrackedInstance:
    """One instance: its remote namespace, and the state of every applied object, by path."""

    cluster: str
    namespace: str
    states: dict[str, str]
    collections: frozenset[str]
    is_reconciling: bool = False
    """Whether a reconcile is in progress."""
    is_queued: bool = False
    """Whether it is queued already."""
    pending: dict[str, str] = field(default_factory=dict)
    """States by path that were received during the reconcile."""
    pending_overflowed: bool = False
    """Whether more changes were received than are kept."""
    changed_by: dict[str, str] = field(default_factory=dict)
    """Field managers that changed applied objects since the last reconcile, by path, as far as known."""


@dataclass(slots=True)
class _Watch:
    task: "asyncio.Task[None] | None" = None
    is_synced: bool = False
    refusal: str = ""


class RemoteInformers:
    """`sender_for` returns the connection for watches of a cluster. `label` is the label key of the kind."""

    def __init__(self, sender_for: Callable[[str], RequestSender], label: str, limiter: ResyncLimiter) -> None:
        self._sender_for = sender_for
        self._selector = f"{MANAGED_LABEL}={MANAGED_VALUE},{label}"
        self._limiter = limiter
        self._instances: dict[Key, _TrackedInstance] = {}
        self._namespace_owners: dict[tuple[str, str], Key] = {}
        """By cluster and namespace."""
        self._watch_users: dict[str, Counter[str]] = {}
        """By cluster: how many instances need the watch of each collection."""
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._requeue: Requeue | None = None

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Starts the watches. Returns the function that stops them."""
        self._requeue = requeue
        for watched in self._watches:
            self._start_watch(watched)
        return self._stop

    def _stop(self) -> None:
        self._requeue = None
        for watch in self._watches.values():
            if watch.task is not None:
                watch.task.cancel()
            watch.task, watch.is_synced = None, False

    # --- for drift.py ---------------------------------------------------------------------------------------

    def begin_pass(self, key: Key, target: RemoteNamespace) -> Mapping[str, str]:
        """A reconcile starts. Returns the field managers that changed objects since the last one, by path."""
        instance = self._instances.get(key)
        if instance is None or (instance.cluster, instance.namespace) != (target.cluster, target.namespace):
            self.finish_pass(key, target, {})
            instance = self._instances[key]
        instance.is_reconciling, instance.is_queued = True, False
        changed_by, instance.changed_by = instance.changed_by, {}
        return changed_by

    def claim(self, key: Key, target: RemoteNamespace) -> None:
        """The instance has proved that it owns the namespace: it is notified of changes there from now on."""
        self._namespace_owners[target.cluster, target.namespace] = key

    def finish_pass(self, key: Key, target: RemoteNamespace, states: Mapping[str, str]) -> None:
        """A reconcile is over and has left the objects in these states, by path."""
        before = self._instances.get(key)
        if before is not None and (before.cluster, before.namespace) != (target.cluster, target.namespace):
            self.forget(key)
            before = None
        states = {target.path: STATE_UNKNOWN, **states}
        collections = frozenset(map(collection_path, states))
        instance = self._instances[key] = _TrackedInstance(target.cluster, target.namespace, states, collections)
        self._update_watches(target.cluster, before.collections if before is not None else frozenset(), collections)
        for path, state in (before.pending if before is not None else {}).items():
            self._process_change(key, instance, path, state)
        if before is not None and before.pending_overflowed:
            self._requeue_instance(key, instance, "")

    def forget(self, key: Key) -> None:
        """Stops tracking the instance."""
        instance = self._instances.pop(key, None)
        self._limiter.forget(key)
        if instance is not None:
            location = instance.cluster, instance.namespace
            if self._namespace_owners.get(location) == key:
                del self._namespace_owners[location]
            self._update_watches(instance.cluster, instance.collections, frozenset())

    def has_synced(self, key: Key) -> bool:
        """Whether all applied objects of the instance are covered by a running watch."""
        instance = self._instances.get(key)
        if instance is None:
            return False
        watches = (self._watches.get((instance.cluster, each)) for each in instance.collections)
        return all(watch is not None and watch.is_synced for watch in watches)

    def forbidden_resources(self, key: Key) -> tuple[str, ...]:
        """The resources of the instance that the credential may not watch, such as `configmaps`."""
        instance = self._instances.get(key)
        if instance is None:
            return ()
        watches = ((each, self._watches.get((instance.cluster, each))) for each in instance.collections)
        return tuple(sorted(each.rpartition("/")[2] for each, watch in watches if watch is not None and watch.refusal))

    # --- watches -----------------------------------------------------------------------------------------------------

    def _update_watches(self, cluster: str, before: frozenset[str], now: frozenset[str]) -> None:
        """An instance needs other watches than before: starts missing ones, and ends those without users."""
        if before == now:
            return
        needed = self._watch_users.setdefault(cluster, Counter())
        needed.update(now - before)
        needed.subtract(before - now)
        for collection in [each for each in before - now if needed[each] <= 0]:
            del needed[collection]
            watch = self._watches.pop((cluster, collection), None)
            if watch is not None and watch.task is not None:
                watch.task.cancel()
        if not needed:
            del self._watch_users[cluster]
        watched = {collection for collection in needed if (cluster, collection) in self._watches}
        missing = sorted(needed.keys() - watched, key=lambda each: (each != NAMESPACES_PATH, each))
        for collection in missing[: MAX_WATCHES_PER_CLUSTER - len(watched)]:
            self._watches[cluster, collection] = _Watch()
            self._start_watch((cluster, collection))

    def _start_watch(self, watch_key: tuple[str, str]) -> None:
        if self._requeue is None:
            return  # `subscribe` starts it
        cluster, collection = watch_key
        listener = _Listener(self, cluster, collection)
        watch = RemoteWatch(lambda: self._sender_for(cluster), collection, self._selector, listener)
        name = f"watch of {collection} in cluster {cluster}"
        self._watches[watch_key].task = asyncio.create_task(watch.run(), name=name)

    def set_watch_state(self, watch_key: tuple[str, str], is_synced: bool, refusal: str) -> None:
        """A watch has synced or was lost. Conditions report a refusal, so its change triggers a reconcile."""
        watch = self._watches.get(watch_key)
        if watch is None:
            return
        refusal_changed = bool(refusal) != bool(watch.refusal) and (is_synced or bool(refusal))
        was_lost = watch.is_synced and not is_synced
        watch.is_synced = is_synced
        watch.refusal = refusal if refusal or is_synced else watch.refusal
        for key, instance in self._instances.items() if refusal_changed or was_lost else ():
            if instance.cluster == watch_key[0] and watch_key[1] in instance.collections:
                if refusal_changed:
                    self._requeue_instance(key, instance, "")
                elif self._requeue is not None:
                    self._requeue(key, add_jitter(WATCH_LOST_REQUEUE_SECONDS))

    # --- watch events -------------------------------------------------------------------------------------------------

    def handle_object(self, watch_key: tuple[str, str], meta: Object, *, is_deleted: bool) -> None:
        """An object was added, changed or deleted."""
        cluster, collection = watch_key
        namespace = meta["name"] if collection == NAMESPACES_PATH else meta.get("namespace") or ""
        key = self._namespace_owners.get((cluster, namespace))
        instance = self._instances.get(key) if key is not None else None
        if key is None or instance is None:
            return
        path = object_path(collection, namespace, meta["name"])
        state = STATE_DELETED if is_deleted else state_digest(meta)
        known = instance.states.get(path)
        if known is not None and state not in (STATE_DELETED, known) and (manager := last_field_manager(meta)):
            instance.changed_by[path] = manager
        self._receive_change(key, instance, path, state)

    def handle_list(self, watch_key: tuple[str, str], names: set[tuple[str, str]]) -> None:
        """A list has returned exactly these objects: all others were deleted."""
        cluster, collection = watch_key
        existing = {object_path(collection, *each) for each in names}
        for key, instance in list(self._instances.items()):
            if instance.cluster == cluster and collection in instance.collections:
                for path in [each for each in instance.states if collection_path(each) == collection]:
                    if path not in existing:
                        self._receive_change(key, instance, path, STATE_DELETED)

    def _receive_change(self, key: Key, instance: _TrackedInstance, path: str, state: str) -> None:
        if not instance.is_reconciling:
            self._process_change(key, instance, path, state)
        elif path in instance.states or path in instance.pending or len(instance.pending) < MAX_PENDING_CHANGES:
            instance.pending[path] = state
        else:
            instance.pending_overflowed = True

    def _process_change(self, key: Key, instance: _TrackedInstance, path: str, state: str) -> None:
        known = instance.states.get(path)
        if known == state:
            return
        if known is None:
            # Not applied by us, in spite of its labels. Only bindings with our name prefix concern the controller.
            if state != STATE_DELETED and path.rpartition("/")[2].startswith(BINDING_PREFIX):
                self._requeue_instance(key, instance, path)
            return
        instance.states[path] = state
        self._requeue_instance(
            key, instance, path, urgent=state == STATE_DELETED and collection_path(path) == NAMESPACES_PATH
        )

    def _requeue_instance(self, key: Key, instance: _TrackedInstance, path: str, *, urgent: bool = False) -> None:
        urgent = urgent and self._limiter.allow_urgent(key)
        if self._requeue is None or (instance.is_queued and not urgent):
            return
        delay = self._limiter.next_delay(key, path, urgent=urgent)
        instance.is_queued = True
        self._requeue(key, delay)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Passes the events of one watch on."""

    informers: RemoteInformers
    cluster: str
    collection: str

    def on_object(self, meta: Object) -> None:
        self.informers.handle_object((self.cluster, self.collection), meta, is_deleted=False)

    def on_deleted(self, meta: Object) -> None:
        self.informers.handle_object((self.cluster, self.collection), meta, is_deleted=True)

    def on_list_complete(self, names: set[tuple[str, str]]) -> None:
        self.informers.handle_list((self.cluster, self.collection), names)

    def on_watch_state(self, is_watching: bool, error: str = "") -> None:
        self.informers.set_watch_state((self.cluster, self.collection), is_watching, error)


def state_digest(meta: Mapping[str, Any]) -> str:
    """A digest of the relevant state of an object, from its metadata alone.

    If the object has a generation, status changes are ignored; otherwise every resourceVersion counts.
    """
    generation = meta.get("generation")
    parts: list[Any] = [meta.get("uid"), "deletionTimestamp" in meta]
    parts += [generation, meta.get("labels"), meta.get("annotations")] if generation else [meta.get("resourceVersion")]
    return json_digest(parts)


def json_digest(value: Any) -> str:
    return hashlib.sha256(encode_sorted(value)).hexdigest()[:32]


def collection_path(path: str) -> str:
    """The list path of an object's resource, across all namespaces."""
    parts = path.strip("/").split("/")
    if parts[:-1] == _NAMESPACES_SEGMENTS:
        return NAMESPACES_PATH
    *root, _, _, plural, _ = parts
    return f"/{'/'.join(root)}/{plural}"


def object_path(collection: str, namespace: str, name: str) -> str:
    """The path of an object; the inverse of `collection_path`."""
    if collection == NAMESPACES_PATH:
        return f"{NAMESPACES_PATH}/{url_segment(name)}"
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{url_segment(namespace)}/{plural}/{url_segment(name)}"


def last_field_manager(meta: Mapping[str, Any]) -> str:
    """The other field manager that last changed an object; empty if unknown."""
    managers = meta.get("managedFields")
    others = [
        (str(each.get("time") or ""), str(each.get("manager") or ""))
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") != FIELD_MANAGER and not each.get("subresource")
    ]
    name = max(others, default=("", ""))[1][:_MAX_NAME_LENGTH]
    return name if name.isprintable() else ""
