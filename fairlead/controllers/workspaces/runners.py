"""Maintains the conditions of runners. The phase is reported by the runner: `Initialized` once it has started.

Until then, the server reports what is missing. A runner whose cluster was deleted, or that does not report, keeps its
workspaces: nothing is ever deleted because of lost contact.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from fairlead.controllers.workspaces.scheduling import READY, RECONCILING, STALLED
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, with_conditions, without_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

CLUSTERS = "clusters"
DEPLOYED = "Deployed"
CLUSTER_NOT_FOUND, NOT_REPORTED, REPORTED = "ClusterNotFound", "NotReported", "Reported"


class RunnerController:
    name, workers = "runners", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, RUNNERS), (api_group, CLUSTERS))
        self._registry = registry
        self._runners = registry.resource(api_group, RUNNERS)
        self._clusters = registry.resource(api_group, CLUSTERS)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == RUNNERS:
            return (key,)
        entries = self._registry.view.entries(key[0], RUNNERS)
        return [each.key for each in entries if _cluster_name(decode(each)) == key[3]]

    async def reconcile(self, key: Key) -> float | None:
        entry = self._runners.get_cached("", key[3])
        if entry is None:
            return None
        runner, now = decode(entry), timestamp(self._registry.clock.now())

        def edit(current: Object) -> Object:
            cluster = _cluster_name(current)
            cluster_missing = bool(cluster) and self._clusters.get_cached("", cluster) is None
            return {**current, "status": next_status(current, cluster_missing, now)}

        if edit(runner) != runner:
            with suppress(NotFound):  # it was deleted meanwhile
                options = server_write_options("status")
                await self._runners.modify("", name_of(runner), edit, options)
        return None


def _cluster_name(runner: Object) -> str:
    return str(get_path(runner, "spec.clusterRef.cluster") or "")


def next_status(runner: Object, cluster_missing: bool, now: str) -> Object:
    """The desired status of the runner. `cluster_missing`: it names a cluster that does not exist."""
    generation = metadata(runner).get("generation")
    status = {**(runner.get("status") or {}), **_phase_fields(runner, cluster_missing)}
    conditions = (_deployed_condition(runner, status, cluster_missing), *_ready_conditions(status))
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
    name = name_of(runner)
    message = f"the runner has not reported yet; start it with the key that `fairlead runner key {name}` prints"
    return {"phase": "", "reason": NOT_REPORTED, "message": message}


def _deployed_condition(runner: Object, status: Object, cluster_missing: bool) -> Object:
    if cluster_missing:
        return condition(
            DEPLOYED, FALSE, CLUSTER_NOT_FOUND, f'cluster "{_cluster_name(runner)}" is not connected', "Error"
        )
    if status.get("phase"):
        return condition(DEPLOYED, TRUE, REPORTED, "the runner has reported")
    return condition(DEPLOYED, FALSE, NOT_REPORTED, status.get("message") or "", "Info")


def _ready_conditions(status: Object) -> Iterator[Object]:
    phase, message = status.get("phase"), status.get("message") or ""
    reason = status.get("reason") or phase or NOT_REPORTED
    if phase == "Initialized":
        yield condition(READY, TRUE, REPORTED, message)
    elif phase == "Failed":
        yield condition(READY, FALSE, reason, message, "Error")
        yield condition(STALLED, TRUE, reason, message)
    else:
        yield condition(READY, FALSE, reason, message, "Info")
        yield condition(RECONCILING, TRUE, reason, message)
