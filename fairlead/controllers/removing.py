"""The end of an instance in a cluster: what was made for it there goes first, then the instance itself.

The same for spaces and virtual clusters, which hand in how their things are taken down. A cluster that is out of reach
is said in the conditions, and can be given up on: by deleting it, or by an annotation of the instance.
"""

from collections.abc import Awaitable, Callable, Sequence

from fairlead.controllers.backoff import RETRY, jittered
from fairlead.controllers.connected_instances import ABANDON, ConnectedInstances, is_abandoned, is_placed
from fairlead.controllers.far_namespace import DELETING, Place
from fairlead.controllers.far_trouble import INFO, Trouble, troubles
from fairlead.controllers.helm_turns import WAITING
from fairlead.core.objects import Object
from fairlead.kinds.instances import READY
from fairlead.registry.conditions import FALSE, condition, is_true

POLL, TURN = 2.0, 5.0
"""Seconds until the next look: at one whose namespace is going, and at one that waits for a turn with helm."""

TakeDown = Callable[[Object, Place], Awaitable[Trouble | None]]
"""Takes down what stands in a place. Returns what that waits for; None when all of it is gone. Raises Trouble."""


class Removing:
    """`synced` and `ready` are the conditions that tell how it gets on."""

    def __init__(self, instances: ConnectedInstances, take_down: TakeDown, synced: str, ready: str) -> None:
        self._instances = instances
        self._take_down = take_down
        self._synced = synced
        self._ready = ready

    async def remove(self, instance: Object, place_of: Callable[[Object], Place]) -> float | None:
        """Gets on with it. Returns the seconds after which to look again; None when the instance is let go."""
        if not is_placed(instance):
            await self._instances.let_go(instance)
            return None
        place = place_of(instance)
        where = f'namespace "{place.namespace}" in cluster "{place.cluster}"'
        if is_abandoned(instance) or self._instances.cluster(instance) is None:
            await self._instances.let_go(instance, f"{where} was not removed; if it is still there, delete it yourself")
            return None
        # Before anything is taken away: nobody is told that it can be used while it is not there any more.
        if is_true(instance.get("status"), READY):
            await self._instances.tell(instance, (self._waiting(Trouble(DELETING, "", INFO), where),), online=False)
        try:
            with troubles(place.cluster, f"delete {where}"):
                remaining = await self._take_down(instance, place)
        except Trouble as trouble:
            await self._instances.tell(instance, self._stuck(trouble, where), online=False)
            return jittered(TURN if trouble.reason == WAITING else RETRY)
        if remaining is None:
            await self._instances.let_go(instance)
            return None
        await self._instances.tell(instance, (self._waiting(remaining, where),), online=False)
        return POLL

    def _waiting(self, remaining: Trouble, where: str) -> Object:
        said = f": {remaining.message}" if remaining.message else ""
        return condition(self._ready, FALSE, remaining.reason, f"waits until {where} is gone{said}", remaining.severity)

    def _stuck(self, trouble: Trouble, what: str) -> Sequence[Object]:
        """The conditions of one whose deletion does not get on."""
        way_out = f"annotate this with {ABANDON}=true to let it go and leave {what} behind"
        told = Trouble(trouble.reason, f"{what} cannot be removed: {trouble.message}; or {way_out}", trouble.severity)
        waits = condition(self._ready, FALSE, DELETING, f"waits until {what} can be removed", INFO)
        return told.as_condition(self._synced), waits
