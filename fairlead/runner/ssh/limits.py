"""How many channels may be open, of one connection and of all connections to a workspace, and how fast they may come.

Each may cost the host a process, so a channel counts from the request for it until it is closed and all of its tasks
have ended.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

import structlog

MAX_CHANNELS = 128
MAX_WORKSPACE_CHANNELS = 256
REQUEST_BURST, REQUESTS_PER_SECOND = 128.0, 20.0
"""Each costs the event loop of the runner some milliseconds: it looks for the processes of the session."""

log = structlog.get_logger(__name__)


class TooManyChannels(Exception):
    pass


@dataclass(slots=True)
class WorkspaceChannels:
    """The channels of all connections to one workspace."""

    count: int = 0
    agents: set[int] = field(default_factory=set)
    """The numbers of forwarded agents."""


@dataclass(slots=True)
class ConnectionChannels:
    """The channels of one connection, and their tasks."""

    workspace: WorkspaceChannels
    _open: "set[ChannelSlot]" = field(default_factory=set)
    _is_closed: bool = False

    def take(self) -> "ChannelSlot":
        """Raises TooManyChannels."""
        if self._is_closed:
            raise TooManyChannels("the connection has ended")
        if len(self._open) >= MAX_CHANNELS:
            raise TooManyChannels(f"{MAX_CHANNELS} channels of this connection are open")
        if self.workspace.count >= MAX_WORKSPACE_CHANNELS:
            raise TooManyChannels(f"{MAX_WORKSPACE_CHANNELS} channels of this workspace are open")
        slot = ChannelSlot(self)
        self._open.add(slot)
        self.workspace.count += 1
        return slot

    def free(self, slot: "ChannelSlot") -> None:
        if slot in self._open:
            self._open.remove(slot)
            self.workspace.count -= 1

    def close(self) -> None:
        self._is_closed = True
        for slot in tuple(self._open):
            slot.close()

    async def wait_ended(self) -> None:
        """Waits for the tasks of all channels."""
        while tasks := [task for slot in self._open for task in slot.tasks]:
            await asyncio.wait(tasks)


@dataclass(slots=True, eq=False)
class ChannelSlot:
    """The place of one channel."""

    channels: ConnectionChannels
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    is_closed: bool = False

    def start(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(_report_failure(work))
        self.tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def close(self) -> None:
        """Cancels the tasks, once: they may need time to end their processes."""
        if not self.is_closed:
            self.is_closed = True
            for task in self.tasks:
                task.cancel()
        self._free_if_ended()

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        self._free_if_ended()

    def _free_if_ended(self) -> None:
        if self.is_closed and not self.tasks:
            self.channels.free(self)


async def _report_failure(work: Awaitable[None]) -> None:
    """A fault of one channel does not end the others."""
    try:
        await work
    except Exception as error:
        log.error("a channel of SSH has failed", exc_info=error)


@dataclass(slots=True)
class RequestRate:
    """How often a process may request something of the runner: some at once, and then so many per second."""

    burst: float = REQUEST_BURST
    per_second: float = REQUESTS_PER_SECOND
    _left: float = field(init=False)
    _checked_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._left = self.burst

    async def wait(self) -> None:
        """Waits for a turn, and takes it."""
        now = time.monotonic()
        self._left = min(self.burst, self._left + (now - self._checked_at) * self.per_second)
        self._checked_at = now
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self.per_second)
