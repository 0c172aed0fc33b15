"""Probes connected clusters and maintains their status. Deletes nothing because of lost contact.

Each cluster is probed about every five seconds (see `probe_schedule.py`), and at once when a request through a gateway
fails. After a first failure it is probed again a second later before it is reported offline: a loss is reported within
15 seconds, a return within five. Permanent errors of a cluster that was not online (a bad kubeconfig, an untrusted
certificate) are reported at once. A reconcile mostly waits for the network, so hundreds run concurrently.

Not probed are clusters without a secret, those whose agent dials in (`spec.networkPeer`), and the local cluster.
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

Name = TypeVar("Name")

REWRITE_SECONDS, DETAILS_SECONDS, BINDING_SECONDS = 30.0, 60.0, 300.0
"""How long a status is not rewritten if only its times differ, how long details of a probe are reused, and the retry
interval for binding the administrators."""
START_SPREAD = 2.0
"""After a start, the first probes of known clusters are spread over so many seconds."""
SETTLE_SECONDS = 3.0
"""How long a new cluster may be without a usable secret before that is reported: the objects of a manifest are created
in any order."""


class ClusterIndex:
    """Clusters by the secret that they name, and by the uid of the remote cluster."""

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


class Clusters:
    name, workers = "clusters", 1_000

    def __init__(
        self, registry: Registry, api_group: str, system_namespace: str, connected: Connected, names: ClusterNames
    ) -> None:
        """`names` maps identities to the names that they have in remote clusters."""
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
        """The cluster itself; for a secret, the clusters that name it."""
        if key[1] != CLUSTERS:
            return tuple(self._index.by_secret.get((key[2], key[3]), ()))
        cluster = decode(entry) if entry is not None else {}
        reference = self._reference(cluster)
        secret = (reference.namespace, reference.name) if reference else None
        self._index.note(key, secret, dig(cluster, "status.clusterUID") or "")
        return (key,)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Requeues a cluster when a request to it has failed."""

        def on_failure(key: Key) -> None:
            schedule, now = self._courses.get(key), self._registry.clock.monotonic()
            if schedule is not None and schedule.take_hint(now):
                requeue(key, schedule.hint - now)

        return self._connected.failures.subscribe(on_failure)

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
        schedule = self._course(key, cluster, reference)
        if schedule.next <= self._registry.clock.monotonic():
            wait = await self._next(key, cluster, schedule)
            schedule.due = self._registry.clock.monotonic() + wait
        return max(0.0, schedule.next - self._registry.clock.monotonic())

    def _reference(self, cluster: Object) -> Reference | None:
        """The secret with the kubeconfig; None if the cluster is not to be probed."""
        if dig(cluster, "spec.networkPeer") or dig(cluster, "spec.local"):
            return None
        return cluster_reference(cluster, self._system_namespace)

    def _course(self, key: Key, cluster: Object, reference: Reference) -> Course:
        secret = self._secrets.peek(reference.namespace, reference.name)
        meta = metadata(cluster)
        inputs = (meta["uid"], meta.get("generation", 0), secret.revision if secret is not None else 0)
        schedule = self._courses.get(key)
        if schedule is None or schedule.identity != inputs:
            known_before = schedule is None and dig(cluster, "status.lastProbeTime")
            spread = random.uniform(0, START_SPREAD) if known_before else 0.0
            now = self._registry.clock.monotonic()
            schedule = Course(inputs, now + spread, now if schedule is None else schedule.began)
            self._courses[key] = schedule
        return schedule

    async def _next(self, key: Key, cluster: Object, course: Course) -> float:
        """Probes once and reports the result. Returns the seconds until the next probe."""
        upstream, result = await self._look(key[3], course)
        if upstream is None and not dig(cluster, "status.lastProbeTime"):
            grace_left = course.began + SETTLE_SECONDS - self._registry.clock.monotonic()
            if grace_left > 0:
                return grace_left
        # An API server that has just started may reject what it accepts a moment later.
        is_doubtful = result.trouble is not None and (dig(cluster, "status.online") or not result.trouble.lasting)
        if is_doubtful and course.failures == 1:
            return RETRY
        await self._report(cluster, course, upstream, result)
        return pause(result, upstream is not None)

    async def _look(self, name: str, course: Course) -> tuple[Upstream | None, Found]:
        try:
            upstream = self._connected.health(name)
        except NotConnected as error:
            result = not_reached(error, (Probe("config", False, error.message),))
            course.note(result, True)
            return None, result
        now = self._registry.clock.monotonic()
        must_dial = course.begin(now)
        if must_dial:
            upstream.close_idle()
        # Missing rights are checked in every probe, so that a fix is noticed soon.
        is_fresh = now - course.details_at < DETAILS_SECONDS and not (course.details and course.details.missing_rights)
        result = await look(upstream, course.details if is_fresh else None)
        if result.trouble is None and not result.shaky and not is_fresh:
            course.details, course.details_at = result.details, now
        course.note(result, must_dial)
        return upstream, result

    async def _report(self, cluster: Object, course: Course, upstream: Upstream | None, found: Found) -> None:
        duplicate_of = self._twin(cluster, found.details.uid) if found.trouble is None else ""
        bound = None
        is_healthy = upstream is not None and found.trouble is None and not found.shaky
        if is_healthy and not await self._removal.hold(cluster):
            return
        if upstream is not None and is_healthy and not duplicate_of:
            bound = await self._bind(cluster, course, upstream, found.details.uid)
        now = timestamp(self._registry.clock.now())
        before = cluster.get("status") or {}
        after = told(cluster, found, duplicate_of, bound, now)
        is_recent = self._registry.clock.monotonic() - course.written_at < REWRITE_SECONDS
        if is_recent and same_but_for_times(before, after):
            return

        def edit(current: Object) -> Object:
            """The result is valid only for the cluster as it was probed. One that has changed is probed again."""
            meta = metadata(current)
            if (meta["uid"], meta.get("generation", 0)) != course.identity[:2]:
                return current
            return {**current, "status": told(current, found, duplicate_of, bound, now)}

        with suppress(NotFound):  # it was deleted meanwhile
            await self._clusters.modify("", name_of(cluster), edit, by_the_server("status"))
            course.written_at = self._registry.clock.monotonic()
            await self._tell(cluster, before, after)

    async def _tell(self, cluster: Object, before: Object, after: Object) -> None:
        """Records an Event if phase or reason has changed."""
        if (before.get("phase", ""), before.get("reason", "")) == (after["phase"], after["reason"]):
            return
        is_healthy = after["phase"] == INITIALIZED and not after["reason"]
        reason = after["reason"] or "Connected"
        message = after["message"] or "the cluster is connected"
        await record(self._registry, cluster, reason, message, type="Normal" if is_healthy else "Warning")

    async def _bind(
        self, cluster: Object, course: Course, upstream: Upstream, uid: str
    ) -> AdministratorsBinding | None:
        """Binds the administrators when this cluster is first connected. A refusal is retried now and then."""
        status, now = cluster.get("status"), self._registry.clock.monotonic()
        same = not uid or dig(status, "clusterUID") == uid
        if (is_settled(status, self._names) and same) or now - course.bound_at < BINDING_SECONDS:
            return None
        course.bound_at = now
        if is_true(status, BOUND) and same:
            return await rename_administrators(upstream, self._names, bound_group(status))
        return await bind_administrators(upstream, self._names)

    def _twin(self, cluster: Object, uid: str) -> str:
        """The oldest other Cluster object for the same remote cluster, if it is older than this one."""
        oldest = _age(cluster)
        name = ""
        for key in self._index.by_uid.get(uid, ()) if uid else ():
            entry = self._clusters.peek("", key[3])
            other = decode(entry) if entry is not None else None
            if other is not None and _age(other) < oldest:
                oldest, name = _age(other), key[3]
        return name

    def _other(self, cluster: Object) -> str:
        """Another Cluster object for the same remote cluster that is not being deleted; empty if there is none."""
        own, uid = name_of(cluster), dig(cluster, "status.clusterUID") or ""
        for key in sorted(self._index.by_uid.get(uid, ()) if uid else ()):
            entry = self._clusters.peek("", key[3])
            if key[3] != own and entry is not None and "deletionTimestamp" not in metadata(decode(entry)):
                return key[3]
        return ""

    async def _let_go(self, key: Key, cluster: Object) -> None:
        """Resets the status of a cluster that is no longer probed, if it has results of earlier probes."""
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
        with suppress(NotConnected):  # the lookup makes it drop its connections to the cluster
            self._connected.cluster(key[3])


def _age(cluster: Object) -> tuple[str, str]:
    meta = metadata(cluster)
    return meta["creationTimestamp"], meta["uid"]
