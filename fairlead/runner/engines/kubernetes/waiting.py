"""Waits for objects in the cluster, and says what they wait for themselves.

Objects are read again and again. A cluster that gives no answer meanwhile is no reason to fail: the deadline of the
step decides.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fairlead.core.objects import Object, metadata
from fairlead.runner.engines.contract import EngineError, Reason, TaskContext
from fairlead.runner.engines.kubernetes.cluster import is_unavailable
from fairlead.runner.engines.kubernetes.observation import Obstacle, find_obstacle, has_ended, is_terminating
from fairlead.runner.engines.kubernetes.place import EVENTS, Place
from fairlead.runner.engines.kubernetes.settings import Settings

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
