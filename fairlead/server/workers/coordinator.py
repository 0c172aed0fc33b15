"""The coordinator: what the workers of one server count together. It runs in one process, and workers connect to it.

It is exact, because it is one: a call is decided and counted in one step. What a worker holds is released when its
connection ends, however that happens. An attempt to log in that had no outcome by then stays counted as a failure: a
request that crashes a worker must not give an attacker free guesses.

Metrics: it asks all workers for their encoded pages and passes them on without reading them, since the same process may
also serve the store. The last page of each worker is kept, so that counters do not decrease when a worker ends.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from fairlead.core.clock import Clock
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.core.errors import ApiError
from fairlead.core.framed_socket import FramedConnection, serve_framed
from fairlead.server.audit.agent_reports import ReportCounts
from fairlead.server.flow.attempts import AttemptThrottle, PendingAttempt
from fairlead.server.flow.streams import StreamCounts, StreamOwner
from fairlead.server.metrics.aggregation import encode_families, merge_ended
from fairlead.server.metrics.families import process_families
from fairlead.server.workers.channel import MAX_FRAME_BYTES, Channel

OWN_WORKER_LABEL = "owner"
"""The label of the coordinating process in metrics of processes."""
PAGE_TIMEOUT_SECONDS = 2.0
"""How long to wait for the metrics of a worker. Shorter than the worker waits that has asked for all of them."""
MAX_ENDED_PAGES = 4
"""Pages of ended workers that are kept before they are merged into one."""


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Limits for all workers together."""

    max_streams: int
    max_streams_per_user: int


class Coordinator:
    """The state that all workers share."""

    def __init__(self, limits: SharedLimits, clock: Clock) -> None:
        self.streams = StreamCounts(limits.max_streams, limits.max_streams_per_user)
        self.attempts = AttemptThrottle(clock)
        self.reports = ReportCounts(clock)
        self._sessions: set[WorkerSession] = set()
        self._ended_pages: list[bytes] = []
        self._collection: asyncio.Task[bytes] | None = None

    def accept(self, connection: FramedConnection) -> Channel:
        session = WorkerSession(self, connection)
        self._sessions.add(session)
        return session.channel

    def remove(self, session: "WorkerSession") -> None:
        self._sessions.discard(session)
        if session.last_page:
            self._ended_pages.append(session.last_page)

    def notify_others(self, sender: "WorkerSession", method: str, *arguments: object) -> None:
        for session in self._sessions:
            if session is not sender:
                session.channel.notify(method, *arguments)

    async def collect_metrics(self) -> bytes:
        """The encoded pages of all workers. Concurrent calls share one collection."""
        if self._collection is None:
            self._collection = asyncio.ensure_future(self._collect_pages())
            self._collection.add_done_callback(self._on_collected)
        return await asyncio.shield(self._collection)

    def _on_collected(self, task: "asyncio.Task[bytes]") -> None:
        self._collection = None

    async def _collect_pages(self) -> bytes:
        await self._merge_ended_pages()
        sessions = list(self._sessions)
        await asyncio.gather(*(session.refresh_page() for session in sessions))
        own = await COMPUTE_POOL.run(0, _encode_own_page)
        # A worker that has ended since then is in the other list.
        running = [own, *(session.last_page for session in sessions if session in self._sessions and session.last_page)]
        return encode_pages(running, self._ended_pages)

    async def _merge_ended_pages(self) -> None:
        pages = self._ended_pages[:]
        if len(pages) > MAX_ENDED_PAGES:
            merged = await COMPUTE_POOL.run(sum(map(len, pages)), merge_ended, pages)
            self._ended_pages[: len(pages)] = [merged]


class WorkerSession:
    """The connection of one worker, and what it holds."""

    def __init__(self, coordinator: Coordinator, connection: FramedConnection) -> None:
        self._coordinator = coordinator
        self._flow_by_stream: dict[int, str] = {}
        self._attempts: dict[int, PendingAttempt] = {}
        self.last_page = b""
        methods = (
            self.require_stream_room,
            self.open_stream,
            self.count_stream,
            self.close_stream,
            self.begin_attempt,
            self.end_attempt,
            self.share,
            coordinator.reports.add_events,
            coordinator.reports.charge_bytes,
            coordinator.collect_metrics,
        )
        self.channel = Channel(connection, {method.__name__: method for method in methods}, self._on_closed)

    def require_stream_room(self, flow: str, is_privileged: bool) -> None:
        self._coordinator.streams.require_room(StreamOwner(flow, is_privileged))

    def open_stream(self, stream: int, flow: str, is_privileged: bool) -> None:
        self.require_stream_room(flow, is_privileged)
        self.count_stream(stream, flow)

    def count_stream(self, stream: int, flow: str) -> None:
        self._coordinator.streams.add(flow)
        self._flow_by_stream[stream] = flow

    def close_stream(self, stream: int) -> None:
        """Also called for a stream that was rejected: its worker may not have waited for the result."""
        flow = self._flow_by_stream.pop(stream, None)
        if flow is not None:
            self._coordinator.streams.remove(flow)

    def begin_attempt(self, attempt: int, user: str, network: str) -> None:
        self._attempts[attempt] = self._coordinator.attempts.begin(user, network)

    def end_attempt(self, attempt: int, outcome: str) -> None:
        pending = self._attempts.pop(attempt, None)
        if pending is None:
            return
        if outcome == SUCCEEDED:
            self._coordinator.attempts.record_success(pending)
        elif outcome == WITHDRAWN:
            self._coordinator.attempts.withdraw(pending)

    def share(self, topic: str, value: object) -> None:
        """Passes a value on to the other workers."""
        self._coordinator.notify_others(self, "receive", topic, value)

    async def refresh_page(self) -> None:
        """Asks the worker for its metrics. If it does not respond in time, its last page stays."""
        try:
            self.last_page = await self.channel.call("encode_metrics", seconds=PAGE_TIMEOUT_SECONDS)
        except ApiError:
            return

    def _on_closed(self) -> None:
        for flow in self._flow_by_stream.values():
            self._coordinator.streams.remove(flow)
        self._flow_by_stream.clear()
        self._coordinator.remove(self)


SUCCEEDED, FAILED, WITHDRAWN = "succeeded", "failed", "withdrawn"
"""Outcomes of an attempt. One that is withdrawn does not count, as if it had not been made."""


def _encode_own_page() -> bytes:
    return encode_families(OWN_WORKER_LABEL, process_families())


def encode_pages(running: Sequence[bytes], ended: Sequence[bytes]) -> bytes:
    """The pages as one: their lengths, and their contents."""
    lengths = [[len(page) for page in pages] for pages in (running, ended)]
    return b"".join((orjson.dumps(lengths), b"\n", *running, *ended))


def decode_pages(content: bytes) -> tuple[list[bytes], list[bytes]]:
    """The pages of running and of ended workers."""
    header, _, body = content.partition(b"\n")
    start, decoded = 0, []
    for lengths in orjson.loads(header):
        pages = []
        for length in lengths:
            pages.append(body[start : start + length])
            start += length
        decoded.append(pages)
    running, ended = decoded
    return running, ended


@asynccontextmanager
async def serve_coordinator(path: Path, limits: SharedLimits, clock: Clock) -> AsyncIterator[Coordinator]:
    """Coordinates the workers that connect to the socket at `path`."""
    coordinator = Coordinator(limits, clock)
    async with serve_framed(path, coordinator.accept, MAX_FRAME_BYTES):
        yield coordinator
