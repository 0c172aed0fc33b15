"""Removes objects of workspaces, in every state."""

from functools import partial

from fairlead.core.objects import Object
from fairlead.runner.engines.contract import TaskContext
from fairlead.runner.engines.kubernetes.place import CLAIMS, PODS, POLICIES, SECRETS, Place
from fairlead.runner.engines.kubernetes.settings import Settings
from fairlead.runner.engines.kubernetes.waiting import Waiter

NOW: Object = {"gracePeriodSeconds": 0}
SOON: Object = {"gracePeriodSeconds": 1}
"""A Pod whose files will be deleted, too, has nothing to finish. The node still confirms its end, unlike with 0."""


async def request_pod_removal(place: Place, options: Object | None = None) -> None:
    """Deletes the Pods and the Secret, and does not wait for their end."""
    for path in (place.source_pod_path, place.path(PODS)):
        await place.cluster.delete(path, options)
    await place.cluster.delete(place.path(SECRETS))


async def remove_pods(waiter: Waiter, options: Object | None = None) -> None:
    """Returns when no process of the workspace runs any more."""
    place = waiter.place
    await request_pod_removal(place, options)
    await waiter.wait_until_gone(place.source_pod_path, place.path(PODS))


async def remove_everything(place: Place, settings: Settings, task: TaskContext) -> None:
    """Returns when nothing is left. A Pod on a node that does not respond is removed without its confirmation."""
    waiter = Waiter(place, settings, task)
    async with waiter.step("Delete", settings.deadlines.delete):
        await request_pod_removal(place, SOON)
        await place.cluster.delete(place.path(POLICIES))
        await place.cluster.delete(place.path(CLAIMS))
        forced: set[str] = set()

        async def force(path: str, seconds: float) -> None:
            if seconds >= settings.deadlines.forced_deletion and path not in forced:
                forced.add(path)
                task.log(b"the node does not confirm the end of the Pod; removing it without that\n")
                await place.cluster.delete(path, NOW)

        for path in (place.source_pod_path, place.path(PODS)):
            await waiter.wait_until_gone(path, on_wait=partial(force, path))
        await waiter.wait_until_gone(place.path(SECRETS), place.path(POLICIES), place.path(CLAIMS))
