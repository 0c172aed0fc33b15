"""Where the objects of one workspace are; waits for them, says what they wait for themselves, and removes them.

Objects are read again and again. A cluster that gives no answer meanwhile is no reason to fail: the deadline of the
step decides.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fairlead.client.client import build_path
from fairlead.core.objects import Object, metadata
from fairlead.runner.engines.contract import EngineError, Reason, TaskContext
from fairlead.runner.engines.devcontainer.grant import UID_LABEL
from fairlead.runner.engines.kubernetes.cluster import Cluster, is_unavailable
from fairlead.runner.engines.kubernetes.manifests import INSTALLATION_LABEL, object_name, source_pod_name
from fairlead.runner.engines.kubernetes.observation import Obstacle, find_obstacle, has_ended, is_terminating
from fairlead.runner.engines.kubernetes.settings import Settings

CORE, NETWORKING = "/api/v1", "/apis/networking.k8s.io/v1"
PODS, CLAIMS, SECRETS, POLICIES, EVENTS = "pods", "persistentvolumeclaims", "secrets", "networkpolicies", "events"


@dataclass(frozen=True, slots=True)
class Place:
    cluster: Cluster
    namespace: str
    uid: str

    def collection(self, plural: str) -> str:
        return build_path(NETWORKING if plural == POLICIES else CORE, self.namespace, plural)

    def path(self, plural: str) -> str:
        """The path of the workspace's own object of this kind."""
        return f"{self.collection(plural)}/{object_name(self.uid)}"

    @property
    def source_pod_path(self) -> str:
        return f"{self.collection(PODS)}/{source_pod_name(self.uid)}"

    async def get_pod(self) -> Object | None:
        return await self.cluster.get(self.path(PODS))

    async def list_pods(self) -> tuple[Object | None, Object | None]:
        """The Pod of the workspace, and the one that fetches its source."""
        listed = await self.cluster.list(self.collection(PODS), labelSelector=f"{UID_LABEL}={self.uid}")
        by_name = {each["metadata"]["name"]: each for each in listed}
        return by_name.get(object_name(self.uid)), by_name.get(source_pod_name(self.uid))


async def list_labelled(cluster: Cluster, namespace: str, selector: str) -> dict[str, list[Object]]:
    """All objects of workspaces with these labels, by plural; in all namespaces if it is empty.

    Also Secrets and policies: they may be all that is left of a workspace. If the runner may not list them, those of a
    workspace whose Pod or claim is left are still deleted by name.
    """
    found: dict[str, list[Object]] = {}
    for plural in (CLAIMS, PODS, SECRETS, POLICIES):
        group = NETWORKING if plural == POLICIES else CORE
        path = build_path(group, namespace, plural) if namespace else f"{group}/{plural}"
        try:
            found[plural] = await cluster.list(path, labelSelector=selector)
        except EngineError:
            if plural in (CLAIMS, PODS):
                raise
    return found


def find_installations(listed: Mapping[str, Iterable[Object]]) -> dict[str, str | None]:
    """The installations of workspaces by uid. None if it is not known: an earlier version has made the objects."""
    found: dict[str, str | None] = {}
    for each in (each for objects in listed.values() for each in objects):
        meta = metadata(each)
        uid = str((meta.get("labels") or {}).get(UID_LABEL) or "")
        installation = (meta.get("annotations") or {}).get(INSTALLATION_LABEL)
        if uid and (installation is not None or uid not in found):
            found[uid] = installation
    return found


# --- waiting ----------------------------------------------------------------------------------------------------------

EVENT_SECONDS = 10.0
"""How often Events are read while a Pod says nothing itself, as when a volume cannot be mounted."""

Result = TypeVar("Result")


@dataclass(slots=True)
class Waiter:
    place: Place
    settings: Settings
    task: TaskContext
    said: str = ""
    """The last thing that was said about what is waited for."""

    async def wait_for_pod(self, path: str, is_done: Callable[[Object], bool]) -> Object:
        """The Pod, as soon as it is done or has ended. Raises EngineError if that cannot happen any more."""
        clock = asyncio.get_running_loop().time
        pull_failed_at, looked_at = 0.0, clock()
        while True:
            pod = await self.read(partial(self.place.cluster.get, path))
            if pod is None or is_terminating(pod):
                raise EngineError(Reason.START_FAILED, "the Pod was deleted while the workspace came up")
            if is_done(pod) or has_ended(pod):
                return pod
            obstacle = find_obstacle(pod)
            if obstacle is not None and obstacle.is_pull:
                pull_failed_at = pull_failed_at or clock()
            has_given_up = pull_failed_at and clock() - pull_failed_at >= self.settings.deadlines.image_pull
            if obstacle is not None:
                self.say(_shorten(obstacle.message))
                if obstacle.is_final or (has_given_up and obstacle.is_pull):
                    raise EngineError(obstacle.reason, _describe(obstacle))
            elif clock() - looked_at >= EVENT_SECONDS:
                looked_at = clock()
                self.say(await self._read_warning(pod))
            await asyncio.sleep(self.settings.poll_seconds)

    async def wait_until_gone(self, *paths: str, on_wait: Callable[[float], Awaitable[None]] | None = None) -> None:
        """`on_wait` is called with the seconds that have passed."""
        began = asyncio.get_running_loop().time()
        for path in paths:
            while (found := await self.read(partial(self.place.cluster.get, path))) is not None:
                finalizers = ", ".join(metadata(found).get("finalizers") or ())
                waits_for = f" for {finalizers}" if finalizers else ""
                self.said = f"{path.rpartition('/')[2]} is being deleted, and waits{waits_for}"
                if on_wait is not None:
                    await on_wait(asyncio.get_running_loop().time() - began)
                await asyncio.sleep(self.settings.poll_seconds)

    async def read(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Repeats a request until the cluster answers it."""
        while True:
            try:
                return await call()
            except EngineError as error:
                if not is_unavailable(error):
                    raise
                self.say(error.message)
            await asyncio.sleep(max(1.0, self.settings.poll_seconds))

    def say(self, text: str) -> None:
        if text and text != self.said:
            self.said = text
            self.task.log(f"waiting: {text}\n".encode())

    async def _read_warning(self, pod: Object) -> str:
        """The last warning about the Pod; empty if there is none, or if Events may not be read."""
        selector = f"involvedObject.uid={metadata(pod).get('uid')},type=Warning"
        try:
            events = await self.place.cluster.list(self.place.collection(EVENTS), fieldSelector=selector)
        except EngineError:
            return ""
        latest = max(events, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""), default={})
        return _shorten(f"{latest.get('reason')}: {latest.get('message')}") if latest else ""

    @asynccontextmanager
    async def step(self, name: str, seconds: float) -> AsyncIterator[None]:
        """A step of the task. If its deadline passes, the error says what it waited for."""
        self.said = ""
        try:
            async with self.task.step(name, seconds):
                yield
        except EngineError as error:
            if error.reason == Reason.STEP_TIMED_OUT and self.said:
                raise EngineError(error.reason, f"{error.message}; {self.said}", error.step) from error
            raise


def _describe(obstacle: Obstacle) -> str:
    advice = "; check the name of the image, and the option imagePullSecret of the template" if obstacle.is_pull else ""
    return _shorten(obstacle.message) + advice


def _shorten(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:500]


# --- removal, in every state ------------------------------------------------------------------------------------------

NOW: Object = {"gracePeriodSeconds": 0}
SOON: Object = {"gracePeriodSeconds": 1}
"""A Pod whose files will be deleted, too, has nothing to finish. The node still confirms its end, unlike with 0."""


async def request_pod_removal(place: Place, options: Object | None = None) -> None:
    """Deletes the Pods and the Secret, and does not wait for their end."""
    for path in (place.source_pod_path, place.path(PODS)):
        await place.cluster.delete(path, options)
    await place.cluster.delete(place.path(SECRETS))


async def remove_pods(waiter: Waiter) -> None:
    """Returns when no process of the workspace runs any more."""
    place = waiter.place
    await request_pod_removal(place)
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
