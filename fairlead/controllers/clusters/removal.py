"""Finalizes a deleted Cluster: cleans up the remote cluster, then removes the finalizer. Used by `clusters.py`.

A Cluster gets its finalizer before anything is created in the remote cluster; one that was never reached has none. The
only object to clean up is the ClusterRoleBinding of the administrators. Spaces and virtual clusters have finalizers of
their own; if some are left, an Event names them. An unreachable cluster is retried: the condition `Ready` and an Event
report that, and name the annotation that skips the cleanup.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from fairlead.controllers.clusters.admin_binding import NAME, bound_group, unbind_administrators
from fairlead.controllers.clusters.probe import SECONDS
from fairlead.controllers.clusters.status import BOUND, READY, STALLED
from fairlead.controllers.instances.remote_instance import ABANDON, is_abandoned
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, dig, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, condition, is_true, with_conditions, without_conditions
from fairlead.registry.events import record
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.upstream.clusters import CLUSTERS, Connected, NotConnected
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

FINALIZER: Final = "service.sh/cluster"
DELETING: Final = "Deleting"
BINDING: Final = f'the ClusterRoleBinding "{NAME}"'
INSTANCES = (("spaceinstances", "space"), ("virtualclusterinstances", "virtual cluster"))
RETRY_SECONDS = 5.0
LISTED = 8
"""How many instances an Event lists."""


class _NotRemovedError(Exception):
    """The cluster refused to delete the binding. `reason` is a condition reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClusterRemoval:
    def __init__(
        self, registry: Registry, api_group: str, connected: Connected, find_other: Callable[[Object], str]
    ) -> None:
        """`find_duplicate` returns the name of another Cluster for the same remote cluster, or an empty string."""
        self._registry = registry
        self._group = api_group
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._connected = connected
        self._find_other = find_other

    async def hold(self, cluster: Object) -> bool:
        """Adds the finalizer. False if the Cluster is deleted or being deleted: then nothing may be created there."""
        if has_finalizer(cluster, FINALIZER):
            return True
        uid = metadata(cluster)["uid"]
        is_added = False

        def edit(current: Object) -> Object:
            nonlocal is_added
            is_added = metadata(current)["uid"] == uid and "deletionTimestamp" not in metadata(current)
            return add_finalizer(current, FINALIZER) if is_added else current

        with suppress(NotFound):
            await self._clusters.modify("", name_of(cluster), edit, by_the_server())
        return is_added

    async def remove(self, cluster: Object) -> float | None:
        """Continues a deletion. Returns the seconds until the next try; None when the finalizer is removed."""
        if not has_finalizer(cluster, FINALIZER):
            return None
        try:
            left_behind = await self._clean_up(cluster)
        except (UpstreamError, _NotRemovedError) as error:
            await self._wait(cluster, error.reason, error.message)
            return RETRY_SECONDS
        if others := self._instances(name_of(cluster)):
            left_behind = [*left_behind, _say_instances(others)]
        if left_behind:
            await record(self._registry, cluster, "LeftBehind", "; ".join(left_behind), type="Warning")
        await self._release(cluster)
        return None

    async def _clean_up(self, cluster: Object) -> list[str]:
        """Deletes the binding. Returns messages about what is left. Raises UpstreamError and _NotRemovedError."""
        if not is_true(cluster.get("status"), BOUND):
            return []
        if is_abandoned(cluster):
            return [f"{BINDING} was left in the cluster, as the annotation {ABANDON} requests"]
        if other := self._find_other(cluster):
            return [f'{BINDING} was kept for the Cluster "{other}", which is the same cluster']
        try:
            upstream = self._connected.open_departing(name_of(cluster))
        except NotConnected as error:
            return [f"{BINDING} was left in the cluster, which cannot be reached any more: {error.message}"]
        try:
            async with asyncio.timeout(SECONDS):
                message = await _remove_binding(upstream, bound_group(cluster.get("status")))
        except TimeoutError:
            raise _NotRemovedError("TimedOut", f"the cluster did not answer within {SECONDS:.0f} seconds") from None
        finally:
            await upstream.close()
        return [message] if message else []

    async def _wait(self, cluster: Object, reason: str, why: str) -> None:
        """Reports what the deletion waits for, and how to skip that."""
        now = timestamp(self._registry.clock.now())
        message = (
            f"waiting for the deletion of {BINDING} in the cluster, which fails ({reason}): {why}; to leave the "
            f"binding there, annotate this Cluster with {ABANDON}=true"
        )

        def edit(current: Object) -> Object:
            status = without_conditions(current.get("status"), STALLED)
            ready = condition(READY, FALSE, DELETING, message, "Warning")
            status = with_conditions(status, (ready,), now, metadata(current).get("generation"))
            return {**current, "status": {**status, "reason": DELETING, "message": message, "online": False}}

        if dig(cluster, "status.message") == message:
            return
        with suppress(NotFound):
            await self._clusters.modify("", name_of(cluster), edit, by_the_server("status"))
        if dig(cluster, "status.reason") != DELETING:
            await record(self._registry, cluster, "DeletionBlocked", message, type="Warning")

    async def _release(self, cluster: Object) -> None:
        with suppress(NotFound):
            await self._clusters.modify(
                "", name_of(cluster), lambda current: remove_finalizer(current, FINALIZER), by_the_server()
            )

    def _instances(self, cluster: str) -> list[str]:
        """The instances that name the cluster, each with its remote namespace."""
        found = []
        for plural, word in INSTANCES:
            for entry in self._registry.view.entries(self._group, plural):
                if entry.fields.get("spec.clusterRef.cluster") == cluster:
                    namespace = dig(decode(entry), "spec.clusterRef.namespace") or "none yet"
                    found.append(f"{word} {entry.key[2]}/{entry.key[3]} (namespace {namespace})")
        return found


def _say_instances(instances: Sequence[str]) -> str:
    more = f" and {len(instances) - LISTED} more" if len(instances) > LISTED else ""
    return f"objects of these instances were left in the cluster: {', '.join(instances[:LISTED])}{more}"


async def _remove_binding(upstream: Upstream, group: str) -> str:
    """Removes the group from the binding. Returns a message if the binding itself is kept."""
    outcome = await unbind_administrators(upstream, group)
    if outcome.refused:
        raise _refusal(outcome.status, outcome.refused)
    return f"{BINDING} was left in the cluster, since {outcome.stays}" if outcome.stays else ""


def _refusal(status: int, verb: str) -> _NotRemovedError:
    if status == 401:
        return _NotRemovedError("Unauthorized", "the cluster rejects the stored credential; store a new one")
    if status == 403:
        message = f"the stored credential may not {verb} it; grant that permission, or delete the binding yourself"
        return _NotRemovedError("Forbidden", message)
    return _NotRemovedError("Unhealthy", f"the cluster returns HTTP status {status}; check its API server")
