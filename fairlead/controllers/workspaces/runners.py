"""Maintains the conditions of runners. The phase is reported by the runner: `Initialized` once it has started.

Until then, the server reports what is missing. A running runner renews its Lease. If it has not done so for a minute,
its condition Ready is Unknown with the reason `Silent`, and the controller of workspaces passes that on to its
workspaces. A runner whose cluster was deleted, or that is silent, keeps its phase and its workspaces: nothing is ever
deleted because of lost contact.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from fairlead.controllers.workspaces.readiness import READY, RECONCILING, STALLED
from fairlead.core.clock import Clock, parse_rfc3339, timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.workspaces import SILENT, silence_message
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.clusters.runner import (
    HEARTBEAT_NAMESPACE,
    HEARTBEAT_PREFIX,
    LEASES,
    LEASES_GROUP,
    RUNNERS,
    heartbeat_lease,
)
from fairlead.registry.codec import decode
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    condition,
    find_condition,
    record_event,
    with_conditions,
    without_conditions,
)
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

DISK_AVAILABLE, DISK_LOW, DISK_FULL = "DiskAvailable", "DiskLow", "DiskFull"
WORKSPACES_KNOWN, ORPHANED = "WorkspacesKnown", "Orphaned"
WARNINGS = {DISK_AVAILABLE: (DISK_LOW, DISK_FULL), WORKSPACES_KNOWN: (ORPHANED,)}
"""Conditions that runners report, and those of their reasons that are warnings."""
DEPLOYED = "Deployed"
CLUSTER_NOT_FOUND, NOT_REPORTED, REPORTED = "ClusterNotFound", "NotReported", "Reported"
NOT_DEPLOYED = "NotDeployed"
"""Reason of `Deployed` until `runner_deployments.py` sets the condition, for a runner that names a cluster."""
SILENT_SECONDS = 60.0
"""A runner that has not renewed its Lease for so long is silent."""


class Heartbeats:
    """How long ago each runner renewed its Lease, by the clock of this server: those of runners may be wrong.

    A Lease that is seen for the first time, as after a restart of this server, was renewed when it says so, or now if
    that is in the future.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._renewals: dict[str, tuple[str, float]] = {}

    def seconds_since(self, runner: str, lease: Object) -> float:
        renewed = str(get_path(lease, "spec.renewTime") or "")
        known = self._renewals.get(runner)
        if known is None or known[0] != renewed:
            moment = parse_rfc3339(renewed) if known is None else None
            age = max(0.0, (self._clock.now() - moment).total_seconds()) if moment is not None else 0.0
            known = self._renewals[runner] = (renewed, self._clock.monotonic() - age)
        return self._clock.monotonic() - known[1]

    def forget(self, runner: str) -> None:
        self._renewals.pop(runner, None)


class RunnerController:
    name, workers = "runners", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, RUNNERS), (api_group, CLUSTER.plural), (LEASES_GROUP, LEASES))
        self._registry = registry
        self._group = api_group
        self._heartbeats = Heartbeats(registry.clock)
        self._reasons: dict[str, dict[str, str]] = {}
        """The last reasons of the conditions in `WARNINGS`, by runner. After a restart, Events are recorded again."""
        self._leases = registry.resource(LEASES_GROUP, LEASES)
        self._runners = registry.resource(api_group, RUNNERS)
        self._clusters = registry.resource(api_group, CLUSTER.plural)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == RUNNERS:
            return (key,)
        if key[1] == LEASES:
            is_heartbeat = key[2] == HEARTBEAT_NAMESPACE and key[3].startswith(HEARTBEAT_PREFIX)
            return ((self._group, RUNNERS, "", key[3].removeprefix(HEARTBEAT_PREFIX)),) if is_heartbeat else ()
        entries = self._registry.view.entries(key[0], RUNNERS)
        return [each.key for each in entries if _cluster_name(decode(each)) == key[3]]

    async def reconcile(self, key: Key) -> float | None:
        entry = self._runners.get_cached("", key[3])
        if entry is None:
            self._heartbeats.forget(key[3])
            self._reasons.pop(key[3], None)
            return None
        runner = decode(entry)
        now = timestamp(self._registry.clock.now())
        await self._record_warnings(runner)
        silence, recheck_after = self._check_heartbeat(runner)

        def edit(current: Object) -> Object:
            cluster = _cluster_name(current)
            cluster_missing = bool(cluster) and self._clusters.get_cached("", cluster) is None
            return {**current, "status": next_status(current, cluster_missing, silence, now)}

        if edit(runner) != runner:
            with suppress(NotFound):  # it was deleted meanwhile
                options = server_write_options("status")
                await self._runners.modify("", name_of(runner), edit, options)
                if silence and not silence_message(runner):
                    await record_event(self._registry, runner, SILENT, silence, type="Warning")
        return recheck_after

    async def _record_warnings(self, runner: Object) -> None:
        """Records a Warning when the runner reports little or too little free space, or workspaces that this server
        does not have."""
        known = self._reasons.setdefault(name_of(runner), {})
        for type, warnings in WARNINGS.items():
            found = find_condition(runner.get("status"), type) or {}
            reason = str(found.get("reason") or "")
            if reason == known.get(type, ""):
                continue
            known[type] = reason
            if reason in warnings:
                await record_event(self._registry, runner, reason, str(found.get("message") or ""), type="Warning")

    def _check_heartbeat(self, runner: Object) -> tuple[str, float | None]:
        """Since when the runner is silent, or an empty text; and after how many seconds to check again.

        Without a Lease, nothing is known: a runner that does not renew one is never silent.
        """
        name = name_of(runner)
        entry = self._leases.get_cached(HEARTBEAT_NAMESPACE, heartbeat_lease(name))
        if entry is None:
            return silence_message(runner), None
        lease = decode(entry)
        age = self._heartbeats.seconds_since(name, lease)
        if age < SILENT_SECONDS:
            return "", SILENT_SECONDS - age
        renewed = parse_rfc3339(get_path(lease, "spec.renewTime"))
        since = f" since {timestamp(renewed)}" if renewed is not None else ""
        message = (
            f'runner "{name}" has not responded{since}; what it runs goes on running. Check that its process runs and '
            "reaches this server"
        )
        return message, None


def _cluster_name(runner: Object) -> str:
    return str(get_path(runner, "spec.clusterRef.cluster") or "")


def next_status(runner: Object, cluster_missing: bool, silence: str, now: str) -> Object:
    """The desired status of the runner. `cluster_missing`: it names a cluster that does not exist. `silence`: since
    when it does not respond, if so."""
    generation = metadata(runner).get("generation")
    status = {**(runner.get("status") or {}), **_phase_fields(runner, cluster_missing)}
    conditions = (*_deployed_conditions(runner, status, cluster_missing), *_ready_conditions(status, silence))
    obsolete = {RECONCILING, STALLED} - {each["type"] for each in conditions}
    status = with_conditions(without_conditions(status, *obsolete), conditions, now, generation)
    return {**status, "observedGeneration": generation}


def _phase_fields(runner: Object, cluster_missing: bool) -> Object:
    status = runner.get("status") or {}
    if status.get("phase") and status.get("reason") != CLUSTER_NOT_FOUND:
        # The runner may have changed only the phase; then our reason for the previous phase is obsolete.
        return {"reason": "", "message": ""} if status.get("reason") == NOT_REPORTED else {}
    if status.get("phase") == "Initialized":
        return {"reason": "", "message": ""}
    if cluster_missing:
        message = f'cluster "{_cluster_name(runner)}" is not connected; connect it, or change spec.clusterRef'
        return {"phase": "Failed", "reason": CLUSTER_NOT_FOUND, "message": message}
    advice = f"start it on its machine with `fairlead runner start {name_of(runner)}`"
    if _cluster_name(runner):
        deployed = find_condition(status, DEPLOYED) or {}
        advice = str(deployed.get("message") or "it is not deployed yet")
    return {"phase": "", "reason": NOT_REPORTED, "message": f"the runner has not reported yet; {advice}"}


def _deployed_conditions(runner: Object, status: Object, cluster_missing: bool) -> Iterator[Object]:
    """The condition of a runner that the server does not deploy; `runner_deployments.py` sets that of others."""
    if cluster_missing:
        message = f'cluster "{_cluster_name(runner)}" is not connected'
        yield condition(DEPLOYED, FALSE, CLUSTER_NOT_FOUND, message, "Error")
    elif _cluster_name(runner):
        reason = (find_condition(status, DEPLOYED) or {}).get("reason")
        if reason in (None, CLUSTER_NOT_FOUND, NOT_REPORTED, REPORTED):
            yield condition(DEPLOYED, FALSE, NOT_DEPLOYED, "it is not deployed yet", "Info")
    elif status.get("phase"):
        yield condition(DEPLOYED, TRUE, REPORTED, "the runner has reported")
    else:
        yield condition(DEPLOYED, FALSE, NOT_REPORTED, status.get("message") or "", "Info")


def _ready_conditions(status: Object, silence: str) -> Iterator[Object]:
    phase = status.get("phase")
    message = status.get("message") or ""
    reason = status.get("reason") or phase or NOT_REPORTED
    if silence:
        yield condition(READY, UNKNOWN, SILENT, silence)
    elif phase == "Initialized":
        yield condition(READY, TRUE, REPORTED, message)
    elif phase == "Failed":
        yield condition(READY, FALSE, reason, message, "Error")
        yield condition(STALLED, TRUE, reason, message)
    else:
        yield condition(READY, FALSE, reason, message, "Info")
        yield condition(RECONCILING, TRUE, reason, message)
