"""The coordinator as a worker sees it: the limits of a server with one process, by calls to the coordinator.

If it cannot be reached, streams and logins are rejected with 503 and Retry-After. That is short: without its
coordinator, the whole server is restarted.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from fairlead.core.framed_socket import FramedConnection, connect_framed
from fairlead.core.user import User
from fairlead.server.flow.attempts import MAX_NAME_LENGTH, Attempt, client_network
from fairlead.server.flow.streams import IsComponent, StreamLimits, StreamOwner
from fairlead.server.metrics.aggregation import encode_families
from fairlead.server.metrics.endpoint import WorkerPages
from fairlead.server.workers.channel import MAX_FRAME_BYTES, Channel, Method
from fairlead.server.workers.coordinator import FAILED, SUCCEEDED, WITHDRAWN, decode_pages

EncodePage = Callable[[str], Awaitable[bytes]]
"""Encodes the metrics of this process; the argument is the name of the worker."""


class CoordinatorClient:
    """The connection of one worker. `worker` is its number, and `worker_count` how many there are."""

    def __init__(self, worker: int, worker_count: int, connection: FramedConnection) -> None:
        self.worker = worker
        self.worker_count = worker_count
        methods: dict[str, Method] = {"encode_metrics": self._encode_metrics, "receive": self._receive}
        self._channel = Channel(connection, methods, lambda: None)
        self._numbers = count(1)
        self._encode_page: EncodePage | None = None
        self._receivers: dict[str, Callable[[Any], None]] = {}

    @classmethod
    async def connect(cls, path: Path, worker: int, worker_count: int) -> "CoordinatorClient":
        """Raises OSError if there is no coordinator."""
        clients: list[CoordinatorClient] = []

        def build_handler(connection: FramedConnection) -> Channel:
            clients.append(cls(worker, worker_count, connection))
            return clients[0]._channel

        await connect_framed(path, build_handler, MAX_FRAME_BYTES)
        return clients[0]

    async def close(self) -> None:
        await self._channel.close()

    async def wait_closed(self) -> None:
        """Waits until the connection ends. A worker is of no use without it."""
        await self._channel.wait_closed()

    def limit_streams(self, is_component: IsComponent) -> StreamLimits:
        return SharedStreamLimiter(self._channel, self._numbers, is_component)

    @asynccontextmanager
    async def attempt(self, user: str, client: str) -> AsyncIterator[Attempt]:
        """Throttles attempts, as in `AttemptThrottle`."""
        number = next(self._numbers)
        attempt = Attempt()
        outcome = WITHDRAWN
        try:
            await self._channel.call("begin_attempt", number, user[:MAX_NAME_LENGTH], client_network(client))
            yield attempt
            outcome = FAILED
        finally:
            self._channel.notify("end_attempt", number, SUCCEEDED if attempt.succeeded else outcome)

    async def charge_events(self, cluster: str, events: int) -> None:
        """The quota for the reports of agents, as in `ReportCounts`."""
        await self._channel.call("add_events", cluster, events)

    def charge_bytes(self, cluster: str, count: int) -> None:
        self._channel.notify("charge_bytes", cluster, count)

    def exchange(self, topic: str, receive: Callable[[Any], None]) -> Callable[[Any], None]:
        """A function that sends values to the other workers. `receive` is called with those that they send."""
        self._receivers[topic] = receive
        return partial(self._channel.notify, "share", topic)

    def _receive(self, topic: str, value: Any) -> None:
        receive = self._receivers.get(topic)
        if receive is not None:
            receive(value)

    def provide_metrics(self, encode_page: EncodePage) -> None:
        """Sets the function that encodes the metrics of this process."""
        self._encode_page = encode_page

    async def collect_metrics(self) -> WorkerPages:
        """The metrics of all workers."""
        return WorkerPages(*decode_pages(await self._channel.call("collect_metrics")))

    async def _encode_metrics(self) -> bytes:
        name = str(self.worker)
        return await self._encode_page(name) if self._encode_page is not None else encode_families(name, ())


class SharedStreamLimiter:
    """Stream limits for all workers together."""

    def __init__(self, channel: Channel, numbers: "count[int]", is_component: IsComponent) -> None:
        self._channel = channel
        self._numbers = numbers
        self._is_component = is_component

    async def require_room(self, user: User) -> None:
        owner = StreamOwner.of(user, self._is_component)
        await self._channel.call("require_stream_room", owner.flow, owner.is_privileged)

    def count_stream(self, user: User) -> Callable[[], None]:
        stream = next(self._numbers)
        self._channel.notify("count_stream", stream, user.flow_distinguisher)
        return partial(self._channel.notify, "close_stream", stream)

    @asynccontextmanager
    async def admit(self, user: User) -> AsyncIterator[None]:
        stream = next(self._numbers)
        owner = StreamOwner.of(user, self._is_component)
        try:
            await self._channel.call("open_stream", stream, owner.flow, owner.is_privileged)
            yield
        finally:
            self._channel.notify("close_stream", stream)
