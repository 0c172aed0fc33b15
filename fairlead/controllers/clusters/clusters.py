"""Probes connected clusters and maintains their status. Deletes nothing because of lost contact.

Each cluster is probed about every five seconds (see `probe_schedule.py`), and at once when a request through a gateway
fails. After a first failure it is probed again a second later before it is reported offline: a loss is reported within
15 seconds, a return within five. Permanent errors of a cluster that was not online (a bad kubeconfig, an untrusted
certificate) are reported at once. A reconcile mostly waits for the network, so hundreds run concurrently.

Not probed are clusters without a secret, those with `spec.networkPeer` whose agent was never expected, and the local
cluster.
"""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from fairlead.controllers.clusters.admin_binding import (
    bind_administrators,
    bound_group,
    is_binding_done,
    rename_administrators,
)
from fairlead.controllers.clusters.identity import Installation, claim_identity
from fairlead.controllers.clusters.probe import OwnServer, probe_cluster, unreachable_result
from fairlead.controllers.clusters.probe_schedule import RETRY_SECONDS, ProbeSchedule, probe_interval
from fairlead.controllers.clusters.removal import ClusterRemoval
from fairlead.controllers.clusters.status import (
    ADMINISTRATORS_BOUND,
    INITIALIZED,
    AdministratorsBinding,
    Probe,
    ProbeResult,
    disconnected_status,
    equal_ignoring_times,
    next_status,
    with_history,
)
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.cluster_identity import ClusterIdentityMapper, find_identity_conflict
from fairlead.registry.codec import decode
from fairlead.registry.conditions import is_true, record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import (
    CLUSTERS,
    AgentRef,
    NotConnected,
    TransportRef,
    UpstreamRegistry,
    cluster_transport_ref,
)
from fairlead.upstream.upstream import Upstream

IndexKey = TypeVar("IndexKey")

STATUS_REFRESH_SECONDS, DETAILS_TTL_SECONDS, BINDING_RETRY_SECONDS = 300.0, 60.0, 300.0
"""How long a status is not rewritten if only its times differ, how long details of a probe are reused, and the retry
interval for binding the administrators."""
START_JITTER_SECONDS = 2.0
"""After a start, the first probes of known clusters are spread over so many seconds."""
SECRET_GRACE_SECONDS = 3.0
"""How long a new cluster may be without a usable secret before that is reported: the objects of a manifest are created
in any order."""


class ClusterIndex:
    """Clusters by the secret that they name, and by the uid of the remote cluster."""

    def __init__(self) -> None:
        self.by_secret: dict[tuple[str, str], set[Key]] = {}
        self.by_uid: dict[str, set[Key]] = {}
        self._indexed: dict[Key, tuple[tuple[str, str] | None, str]] = {}

    def update(self, key: Key, secret: tuple[str, str] | None, uid: str) -> None:
        before_secret, before_uid = self._indexed.pop(key, (None, ""))
        if before_secret:
            _discard(self.by_secret, before_secret, key)
        if before_uid:
            _discard(self.by_uid, before_uid, key)
        if secret:
            self.by_secret.setdefault(secret, set()).add(key)
        if uid:
            self.by_uid.setdefault(uid, set()).add(key)
        if secret or uid:
            self._indexed[key] = (secret, uid)


def _discard(index: dict[IndexKey, set[Key]], name: IndexKey, key: Key) -> None:
    index[name].discard(key)
    if not index[name]:
        del index[name]


class ClusterController:
    name, workers = "clusters", 1_000

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        system_namespace: str,
        upstreams: UpstreamRegistry,
        names: ClusterIdentityMapper,
        url: str = "",
    ) -> None:
        """`names` maps identities to the names that they have in remote clusters. `url` is that of this server, for the
        administrators of another one that uses the same names."""
        self.watches = ((api_group, CLUSTERS), ("", "secrets"))
        self._registry = registry
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._secrets = registry.resource("", "secrets")
        self._namespaces = registry.resource("", "namespaces")
        self._system_namespace = system_namespace
        self._upstreams = upstreams
        self._names = names
        self._url = url
        self._schedules: dict[Key, ProbeSchedule] = {}
        self._index = ClusterIndex()
        self._removal = ClusterRemoval(registry, api_group, upstreams, self._find_duplicate, self._installation)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The cluster itself; for a secret, the clusters that name it."""
        if key[1] != CLUSTERS:
            return tuple(self._index.by_secret.get((key[2], key[3]), ()))
        cluster = decode(entry) if entry is not None else {}
        reference = cluster_transport_ref(cluster, self._system_namespace)
        secret = (reference.namespace, reference.name) if reference else None
        self._index.update(key, secret, get_path(cluster, "status.clusterUID") or "")
        return (key,)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Requeues a cluster when a request to it has failed."""

        def on_failure(key: Key) -> None:
            schedule = self._schedules.get(key)
            now = self._registry.clock.monotonic()
            if schedule is not None and schedule.add_hint(now):
                requeue(key, schedule.hint_due - now)

        return self._upstreams.failures.subscribe(on_failure)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._clusters.get_cached("", key[3])
        cluster = decode(entry) if entry is not None else None
        if cluster is None or "deletionTimestamp" in metadata(cluster):
            self._forget(key)
            return await self._removal.finalize(cluster) if cluster is not None else None
        reference = self._transport_ref(cluster)
        if reference is None:
            self._forget(key)
            await self._write_disconnected(key, cluster)
            return None
        schedule = self._schedule_for(key, cluster, reference)
        if schedule.next_due <= self._registry.clock.monotonic():
            wait = await self._probe_and_report(key, cluster, schedule)
            schedule.due = self._registry.clock.monotonic() + wait
        return max(0.0, schedule.next_due - self._registry.clock.monotonic())

    def _transport_ref(self, cluster: Object) -> TransportRef | None:
        """The secret with the kubeconfig or with the identity of the agent; None if the cluster is not to be probed."""
        reference = cluster_transport_ref(cluster, self._system_namespace)
        if isinstance(reference, AgentRef) and self._secrets.get_cached(reference.namespace, reference.name) is None:
            return None
        return reference

    def _schedule_for(self, key: Key, cluster: Object, ref: TransportRef) -> ProbeSchedule:
        secret = self._secrets.get_cached(ref.namespace, ref.name)
        meta = metadata(cluster)
        inputs = (meta["uid"], meta.get("generation", 0), secret.revision if secret is not None else 0)
        schedule = self._schedules.get(key)
        if schedule is None or schedule.inputs != inputs:
            known_before = schedule is None and get_path(cluster, "status.lastProbeTime")
            spread = random.uniform(0, START_JITTER_SECONDS) if known_before else 0.0
            now = self._registry.clock.monotonic()
            schedule = ProbeSchedule(inputs, now + spread, now if schedule is None else schedule.created_at)
            self._schedules[key] = schedule
        return schedule

    async def _probe_and_report(self, key: Key, cluster: Object, schedule: ProbeSchedule) -> float:
        """Probes once and reports the result. Returns the seconds until the next probe."""
        upstream, result = await self._probe(key[3], schedule)
        if upstream is None and not get_path(cluster, "status.lastProbeTime"):
            grace_left = schedule.created_at + SECRET_GRACE_SECONDS - self._registry.clock.monotonic()
            if grace_left > 0:
                return grace_left
        # An API server that has just started may reject what it accepts a moment later.
        is_doubtful = result.failure is not None and (
            get_path(cluster, "status.online") or not result.failure.is_permanent
        )
        if is_doubtful and schedule.failures == 1:
            return RETRY_SECONDS
        await self._write_status(cluster, schedule, upstream, result)
        return probe_interval(result, upstream is not None)

    async def _probe(self, name: str, schedule: ProbeSchedule) -> tuple[Upstream | None, ProbeResult]:
        try:
            upstream = self._upstreams.health_upstream(name)
        except NotConnected as error:
            result = unreachable_result(error, (Probe("config", False, error.message),))
            schedule.record_result(result, True)
            return None, result
        now = self._registry.clock.monotonic()
        must_dial = schedule.begin_probe(now)
        if must_dial:
            upstream.close_idle()
        # Missing rights and another installation are checked in every probe, so that a fix is noticed soon.
        is_fresh = now - schedule.details_at < DETAILS_TTL_SECONDS and not (
            schedule.details and (schedule.details.missing_rights or schedule.details.identity)
        )
        result = await probe_cluster(upstream, schedule.details if is_fresh else None, self._own_server())
        if not is_fresh:
            result = await self._with_identity(upstream, result)
        if result.failure is None and not result.is_incomplete and not is_fresh:
            schedule.details, schedule.details_at = result.details, now
        schedule.record_result(result, must_dial)
        schedule.samples.append(result.sample(self._registry.clock.now()))
        return upstream, result

    async def _with_identity(self, upstream: Upstream, result: ProbeResult) -> ProbeResult:
        """The result of a probe with that of recording this installation in the cluster."""
        installation = self._installation()
        if installation is None or result.failure is not None or result.is_incomplete:
            return result
        claim = await claim_identity(upstream, installation, timestamp(self._registry.clock.now()))
        if claim is None:
            return replace(result, is_incomplete=True)
        identity: Object = {}
        if claim.other:
            identity = {"prefix": installation.prefix, "otherInstallation": claim.other, "otherURL": claim.other_url}
        details = replace(result.details, probes=(*result.details.probes, *claim.probes), identity=identity)
        return replace(result, details=details)

    def _installation(self) -> Installation | None:
        own = self._own_server()
        return Installation(own.uid, self._url, self._names.prefix) if own is not None else None

    def _own_server(self) -> OwnServer | None:
        entry = self._namespaces.get_cached("", self._system_namespace)
        return OwnServer(self._system_namespace, metadata(decode(entry))["uid"]) if entry is not None else None

    async def _write_status(
        self, cluster: Object, schedule: ProbeSchedule, upstream: Upstream | None, result: ProbeResult
    ) -> None:
        duplicate_of = self._find_older_duplicate(cluster, result.details.uid) if result.failure is None else ""
        bound = None
        is_healthy = upstream is not None and result.failure is None and not result.is_incomplete
        if is_healthy and not await self._removal.ensure_finalizer(cluster):
            return
        identity = {**cluster, "status": {"identity": result.details.identity}}
        if upstream is not None and is_healthy and not duplicate_of and not find_identity_conflict(identity):
            bound = await self._bind_administrators(cluster, schedule, upstream, result.details.uid)
        now = timestamp(self._registry.clock.now())
        before = cluster.get("status") or {}
        after = next_status(cluster, result, duplicate_of, bound, now)
        is_recent = self._registry.clock.monotonic() - schedule.written_at < STATUS_REFRESH_SECONDS
        if is_recent and equal_ignoring_times(before, after):
            return

        def edit(current: Object) -> Object:
            """The result is valid only for the cluster as it was probed. One that has changed is probed again."""
            meta = metadata(current)
            if (meta["uid"], meta.get("generation", 0)) != schedule.inputs[:2]:
                return current
            status = next_status(current, result, duplicate_of, bound, now)
            return {**current, "status": with_history(status, schedule.samples)}

        with suppress(NotFound):  # it was deleted meanwhile
            await self._clusters.modify("", name_of(cluster), edit, server_write_options("status"))
            schedule.written_at = self._registry.clock.monotonic()
            schedule.samples.clear()
            await self._record_transition(cluster, before, after)

    async def _record_transition(self, cluster: Object, before: Object, after: Object) -> None:
        """Records an Event if phase or reason has changed."""
        if (before.get("phase", ""), before.get("reason", "")) == (after["phase"], after["reason"]):
            return
        is_healthy = after["phase"] == INITIALIZED and not after["reason"]
        reason = after["reason"] or "Connected"
        message = after["message"] or "the cluster is connected"
        await record_event(self._registry, cluster, reason, message, type="Normal" if is_healthy else "Warning")

    async def _bind_administrators(
        self, cluster: Object, schedule: ProbeSchedule, upstream: Upstream, uid: str
    ) -> AdministratorsBinding | None:
        """Binds the administrators when this cluster is first connected. A refusal is retried now and then."""
        status = cluster.get("status")
        now = self._registry.clock.monotonic()
        same = not uid or get_path(status, "clusterUID") == uid
        if (is_binding_done(status, self._names) and same) or now - schedule.bound_at < BINDING_RETRY_SECONDS:
            return None
        schedule.bound_at = now
        if is_true(status, ADMINISTRATORS_BOUND) and same:
            return await rename_administrators(upstream, self._names, bound_group(status))
        return await bind_administrators(upstream, self._names)

    def _find_older_duplicate(self, cluster: Object, uid: str) -> str:
        """The oldest other Cluster object for the same remote cluster, if it is older than this one."""
        oldest = _creation_order(cluster)
        name = ""
        for key in self._index.by_uid.get(uid, ()) if uid else ():
            entry = self._clusters.get_cached("", key[3])
            other = decode(entry) if entry is not None else None
            if other is not None and _creation_order(other) < oldest:
                oldest, name = _creation_order(other), key[3]
        return name

    def _find_duplicate(self, cluster: Object) -> str:
        """Another Cluster object for the same remote cluster that is not being deleted; empty if there is none."""
        own = name_of(cluster)
        uid = get_path(cluster, "status.clusterUID") or ""
        for key in sorted(self._index.by_uid.get(uid, ()) if uid else ()):
            entry = self._clusters.get_cached("", key[3])
            if key[3] != own and entry is not None and "deletionTimestamp" not in metadata(decode(entry)):
                return key[3]
        return ""

    async def _write_disconnected(self, key: Key, cluster: Object) -> None:
        """Resets the status of a cluster that is no longer probed, if it has results of earlier probes."""
        if not get_path(cluster, "status.probes"):
            return
        now = timestamp(self._registry.clock.now())

        def edit(current: Object) -> Object:
            if self._transport_ref(current) is not None:
                return current
            return {**current, "status": disconnected_status(current, now)}

        with suppress(NotFound):
            await self._clusters.modify("", key[3], edit, server_write_options("status"))

    def _forget(self, key: Key) -> None:
        self._schedules.pop(key, None)
        with suppress(NotConnected):  # the lookup makes it drop its connections to the cluster
            self._upstreams.cluster_upstream(key[3])


def _creation_order(cluster: Object) -> tuple[str, str]:
    meta = metadata(cluster)
    return meta["creationTimestamp"], meta["uid"]
