"""The end of a Cluster: what this server made in the cluster goes first, then the object. For the controller beside it.

A finalizer holds every Cluster that was connected once, from before anything is made there. One that was never reached
has none and goes at once. All that is made for the cluster itself is the binding of its administrators; spaces and
virtual clusters have finalizers of their own, and where some are left, an Event says so. A cluster that cannot be
reached is waited for, which the condition `Ready` and an Event tell together with the way out: an annotation.
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
"""How many instances an Event names."""


class _NotRemovedError(Exception):
    """The cluster answered that it does not remove the binding; `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClusterRemoval:
    def __init__(
        self, registry: Registry, api_group: str, connected: Connected, find_other: Callable[[Object], str]
    ) -> None:
        """`find_other` names another Cluster that stands for the same cluster, or gives an empty text."""
        self._registry = registry
        self._group = api_group
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._connected = connected
        self._find_other = find_other

    async def hold(self, cluster: Object) -> bool:
        """Sets the finalizer. False where the Cluster is gone or going: then nothing may be made any more."""
        if has_finalizer(cluster, FINALIZER):
            return True
        uid = metadata(cluster)["uid"]
        held = False

        def edit(current: Object) -> Object:
            nonlocal held
            held = metadata(current)["uid"] == uid and "deletionTimestamp" not in metadata(current)
            return add_finalizer(current, FINALIZER) if held else current

        with suppress(NotFound):
            await self._clusters.modify("", name_of(cluster), edit, by_the_server())
        return held

    async def remove(self, cluster: Object) -> float | None:
        """Gets on with a deletion. Returns the seconds after which to try again; None when the object is let go."""
        if not has_finalizer(cluster, FINALIZER):
            return None
        try:
            left = await self._clean_up(cluster)
        except (UpstreamError, _NotRemovedError) as error:
            await self._wait(cluster, error.reason, error.message)
            return RETRY_SECONDS
        if others := self._instances(name_of(cluster)):
            left = [*left, _say_instances(others)]
        if left:
            await record(self._registry, cluster, "LeftBehind", "; ".join(left), type="Warning")
        await self._release(cluster)
        return None

    async def _clean_up(self, cluster: Object) -> list[str]:
        """What is left in the cluster, and why. Raises UpstreamError and _NotRemovedError."""
        if not is_true(cluster.get("status"), BOUND):
            return []
        if is_abandoned(cluster):
            return [f"{BINDING} stays in the cluster, as the annotation {ABANDON} asks for"]
        if other := self._find_other(cluster):
            return [f'{BINDING} stays for the Cluster "{other}", which is the same cluster']
        try:
            upstream = self._connected.open_departing(name_of(cluster))
        except NotConnected as error:
            return [f"{BINDING} stays in the cluster, which nobody can reach any more: {error.message}"]
        try:
            async with asyncio.timeout(SECONDS):
                why = await _remove_binding(upstream, bound_group(cluster.get("status")))
        except TimeoutError:
            raise _NotRemovedError("TimedOut", f"the cluster did not answer within {SECONDS:.0f} seconds") from None
        finally:
            await upstream.close()
        return [why] if why else []

    async def _wait(self, cluster: Object, reason: str, why: str) -> None:
        """Says what the deletion waits for, and the way out."""
        now = timestamp(self._registry.clock.now())
        message = (
            f"this Cluster is deleted as soon as {BINDING} in the cluster is, which fails ({reason}): {why}; or "
            f"annotate this Cluster with {ABANDON}=true to leave that binding there"
        )

        def edit(current: Object) -> Object:
            status = without_conditions(current.get("status"), STALLED)
            told = condition(READY, FALSE, DELETING, message, "Warning")
            status = with_conditions(status, (told,), now, metadata(current).get("generation"))
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
        """Those that name the cluster, each with its namespace there."""
        found = []
        for plural, word in INSTANCES:
            for entry in self._registry.view.entries(self._group, plural):
                if entry.fields.get("spec.clusterRef.cluster") == cluster:
                    namespace = dig(decode(entry), "spec.clusterRef.namespace") or "none yet"
                    found.append(f"{word} {entry.key[2]}/{entry.key[3]} (namespace {namespace})")
        return found


def _say_instances(instances: Sequence[str]) -> str:
    more = f" and {len(instances) - LISTED} more" if len(instances) > LISTED else ""
    return f"what belongs to instances stays in the cluster: {', '.join(instances[:LISTED])}{more}"


async def _remove_binding(upstream: Upstream, group: str) -> str:
    """Takes the group out of the binding of administrators. Returns why the binding stays, if it does."""
    outcome = await unbind_administrators(upstream, group)
    if outcome.refused:
        raise _refusal(outcome.status, outcome.refused)
    return f"{BINDING} stays in the cluster, since {outcome.stays}" if outcome.stays else ""


def _refusal(status: int, verb: str) -> _NotRemovedError:
    if status == 401:
        return _NotRemovedError("Unauthorized", "the cluster does not accept the stored credential; store a new one")
    if status == 403:
        why = f"the stored credential may not {verb} it; give it that right, or delete the binding yourself"
        return _NotRemovedError("Forbidden", why)
    return _NotRemovedError("Unhealthy", f"the cluster answers with status {status}; see how its API server is")
