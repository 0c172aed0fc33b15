"""Looks at connected clusters again and again, and keeps their status true. Deletes nothing because of lost contact.

Each cluster is looked at about every five seconds (`probe_schedule.py` says when), and at once when a request through
a gateway fails. One that does not answer is asked once more a second later before it is said to be offline, so that its
loss is told within 15 seconds, and its return within five. What somebody has to mend in a cluster that was not
connected (a bad kubeconfig, a strange certificate) is told at once. Every look is a reconcile of its own that mostly
waits: hundreds run side by side, and slow ones hold nobody up.

Clusters that name no secret are left alone, as are those whose agent dials in and the one that the server runs in.
"""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from fairlead.controllers.clusters.admin_binding import (
    bind_administrators,
    bound_group,
    is_settled,
    rename_administrators,
)
from fairlead.controllers.clusters.probe import look, not_reached
from fairlead.controllers.clusters.probe_schedule import RETRY, Course, pause
from fairlead.controllers.clusters.removal import ClusterRemoval
from fairlead.controllers.clusters.status import (
    BOUND,
    INITIALIZED,
    AdministratorsBinding,
    Found,
    Probe,
    let_go,
    same_but_for_times,
    told,
)
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.clock import timestamp
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.codec import decode
from fairlead.registry.conditions import is_true
from fairlead.registry.events import record
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import CLUSTERS, Connected, NotConnected, Reference, cluster_reference
from fairlead.upstream.upstream import Upstream

# DOC-MERGED controllers/cluster_index
# Which clusters name a secret, and which say that they are the same cluster: kept by the controller beside it.


Name = TypeVar("Name")


class ClusterIndex:
    def __init__(self) -> None:
        self.by_secret: dict[tuple[str, str], set[Key]] = {}
        self.by_uid: dict[str, set[Key]] = {}
        self._noted: dict[Key, tuple[tuple[str, str] | None, str]] = {}

    def note(self, key: Key, secret: tuple[str, str] | None, uid: str) -> None:
        before_secret, before_uid = self._noted.pop(key, (None, ""))
        if before_secret:
            _take(self.by_secret, before_secret, key)
        if before_uid:
            _take(self.by_uid, before_uid, key)
        if secret:
            self.by_secret.setdefault(secret, set()).add(key)
        if uid:
            self.by_uid.setdefault(uid, set()).add(key)
        if secret or uid:
            self._noted[key] = (secret, uid)


def _take(index: dict[Name, set[Key]], name: Name, key: Key) -> None:
    index[name].discard(key)
    if not index[name]:
        del index[name]


REWRITE_SECONDS, DETAILS_SECONDS, BINDING_SECONDS = 30.0, 60.0, 300.0
START_SPREAD = 2.0
"""After a start, clusters that were known before are looked at within so many seconds, not all in one moment."""
SETTLE_SECONDS = 3.0
"""So long a new cluster may be without a secret that can be used before that is held against it: files with several
objects come in any order, and whoever makes one by hand changes it right away."""


class Clusters:
    name, workers = "clusters", 1_000

    def __init__(
        self, registry: Registry, api_group: str, system_namespace: str, connected: Connected, names: ClusterNames
    ) -> None:
        """`names` say what administrators are called at clusters."""
        self.watches = ((api_group, CLUSTERS), ("", "secrets"))
        self._registry = registry
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._secrets = registry.resource("", "secrets")
        self._system_namespace = system_namespace
        self._connected = connected
        self._names = names
        self._courses: dict[Key, Course] = {}
        self._index = ClusterIndex()
        self._removal = ClusterRemoval(registry, api_group, connected, self._other)

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """A cluster itself; a secret concerns the clusters that name it."""
        if key[1] != CLUSTERS:
            return tuple(self._index.by_secret.get((key[2], key[3]), ()))
        cluster = decode(entry) if entry is not None else {}
        reference = self._reference(cluster)
        secret = (reference.namespace, reference.name) if reference else None
        self._index.note(key, secret, dig(cluster, "status.clusterUID") or "")
        return (key,)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Probes a cluster soon after a request to it has failed."""

        def hear(key: Key) -> None:
            course, now = self._courses.get(key), self._registry.clock.monotonic()
            if course is not None and course.take_hint(now):
                requeue(key, course.hint - now)

        return self._connected.failures.subscribe(hear)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._clusters.peek("", key[3])
        cluster = decode(entry) if entry is not None else None
        if cluster is None or "deletionTimestamp" in metadata(cluster):
            self._forget(key)
            return await self._removal.remove(cluster) if cluster is not None else None
        reference = self._reference(cluster)
        if reference is None:
            self._forget(key)
            await self._let_go(key, cluster)
            return None
        course = self._course(key, cluster, reference)
        if course.next <= self._registry.clock.monotonic():
            wait = await self._next(key, cluster, course)
            course.due = self._registry.clock.monotonic() + wait
        return max(0.0, course.next - self._registry.clock.monotonic())

    def _reference(self, cluster: Object) -> Reference | None:
        """Where the cluster's kubeconfig is, if it is one to look at."""
        if dig(cluster, "spec.networkPeer") or dig(cluster, "spec.local"):
            return None
        return cluster_reference(cluster, self._system_namespace)

    def _course(self, key: Key, cluster: Object, reference: Reference) -> Course:
        secret = self._secrets.peek(reference.namespace, reference.name)
        meta = metadata(cluster)
        identity = (meta["uid"], meta.get("generation", 0), secret.revision if secret is not None else 0)
        course = self._courses.get(key)
        if course is None or course.identity != identity:
            known_before = course is None and dig(cluster, "status.lastProbeTime")
            spread = random.uniform(0, START_SPREAD) if known_before else 0.0
            now = self._registry.clock.monotonic()
            course = Course(identity, now + spread, now if course is None else course.began)
            self._courses[key] = course
        return course

    async def _next(self, key: Key, cluster: Object, course: Course) -> float:
        """Looks once, and says in how many seconds to look again."""
        upstream, found = await self._look(key[3], course)
        if upstream is None and not dig(cluster, "status.lastProbeTime"):
            settling = course.began + SETTLE_SECONDS - self._registry.clock.monotonic()
            if settling > 0:
                return settling
        # An API server that has just started may refuse what it accepts a moment later.
        doubtful = found.trouble is not None and (dig(cluster, "status.online") or not found.trouble.lasting)
        if doubtful and course.failures == 1:
            return RETRY
        await self._report(cluster, course, upstream, found)
        return pause(found, upstream is not None)

    async def _look(self, name: str, course: Course) -> tuple[Upstream | None, Found]:
        try:
            upstream = self._connected.health(name)
        except NotConnected as error:
            found = not_reached(error, (Probe("config", False, error.message),))
            course.note(found, True)
            return None, found
        now = self._registry.clock.monotonic()
        dials = course.begin(now)
        if dials:
            upstream.close_idle()
        # What somebody has to put right is asked for each time, so that it is noticed soon.
        fresh = now - course.details_at < DETAILS_SECONDS and not (course.details and course.details.missing_rights)
        found = await look(upstream, course.details if fresh else None)
        if found.trouble is None and not found.shaky and not fresh:
            course.details, course.details_at = found.details, now
        course.note(found, dials)
        return upstream, found

    async def _report(self, cluster: Object, course: Course, upstream: Upstream | None, found: Found) -> None:
        twin = self._twin(cluster, found.details.uid) if found.trouble is None else ""
        bound = None
        is_well = upstream is not None and found.trouble is None and not found.shaky
        if is_well and not await self._removal.hold(cluster):
            return
        if upstream is not None and is_well and not twin:
            bound = await self._bind(cluster, course, upstream, found.details.uid)
        now = timestamp(self._registry.clock.now())
        before = cluster.get("status") or {}
        after = told(cluster, found, twin, bound, now)
        rested = self._registry.clock.monotonic() - course.written_at < REWRITE_SECONDS
        if rested and same_but_for_times(before, after):
            return

        def edit(current: Object) -> Object:
            """What was found holds for the cluster as it was then. One that has changed is looked at anew."""
            meta = metadata(current)
            if (meta["uid"], meta.get("generation", 0)) != course.identity[:2]:
                return current
            return {**current, "status": told(current, found, twin, bound, now)}

        with suppress(NotFound):  # somebody has deleted it
            await self._clusters.modify("", name_of(cluster), edit, by_the_server("status"))
            course.written_at = self._registry.clock.monotonic()
            await self._tell(cluster, before, after)

    async def _tell(self, cluster: Object, before: Object, after: Object) -> None:
        """An Event about a transition."""
        if (before.get("phase", ""), before.get("reason", "")) == (after["phase"], after["reason"]):
            return
        well = after["phase"] == INITIALIZED and not after["reason"]
        reason = after["reason"] or "Connected"
        message = after["message"] or "the cluster is connected"
        await record(self._registry, cluster, reason, message, type="Normal" if well else "Warning")

    async def _bind(
        self, cluster: Object, course: Course, upstream: Upstream, uid: str
    ) -> AdministratorsBinding | None:
        """Binds administrators at the first connection of this very cluster; what was refused is tried now and then."""
        status, now = cluster.get("status"), self._registry.clock.monotonic()
        same = not uid or dig(status, "clusterUID") == uid
        if (is_settled(status, self._names) and same) or now - course.bound_at < BINDING_SECONDS:
            return None
        course.bound_at = now
        if is_true(status, BOUND) and same:
            return await rename_administrators(upstream, self._names, bound_group(status))
        return await bind_administrators(upstream, self._names)

    def _twin(self, cluster: Object, uid: str) -> str:
        """The oldest other Cluster object that stands for the same cluster, if it is older than this one."""
        eldest = _age(cluster)
        name = ""
        for key in self._index.by_uid.get(uid, ()) if uid else ():
            entry = self._clusters.peek("", key[3])
            other = decode(entry) if entry is not None else None
            if other is not None and _age(other) < eldest:
                eldest, name = _age(other), key[3]
        return name

    def _other(self, cluster: Object) -> str:
        """Another Cluster object for the same cluster that is not being deleted."""
        own, uid = name_of(cluster), dig(cluster, "status.clusterUID") or ""
        for key in sorted(self._index.by_uid.get(uid, ()) if uid else ()):
            entry = self._clusters.peek("", key[3])
            if key[3] != own and entry is not None and "deletionTimestamp" not in metadata(decode(entry)):
                return key[3]
        return ""

    async def _let_go(self, key: Key, cluster: Object) -> None:
        """A status that says what was found once would go on saying so. One that we never wrote stays as it is."""
        if not dig(cluster, "status.probes"):
            return
        now = timestamp(self._registry.clock.now())

        def edit(current: Object) -> Object:
            if self._reference(current) is not None:
                return current
            return {**current, "status": let_go(current, now)}

        with suppress(NotFound):
            await self._clusters.modify("", key[3], edit, by_the_server("status"))

    def _forget(self, key: Key) -> None:
        self._courses.pop(key, None)
        with suppress(NotConnected):  # asking is how it notices that there is nothing to be connected to
            self._connected.cluster(key[3])


def _age(cluster: Object) -> tuple[str, str]:
    meta = metadata(cluster)
    return meta["creationTimestamp"], meta["uid"]
