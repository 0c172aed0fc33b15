"""The audit log writer: a bounded queue, and one thread that writes batches of events to a sink.

Most events are rendered on the event loop, in batches. Events with bodies are rendered in the writer thread.

No event is ever dropped. While the queue is full, new requests wait before they have any effect. If a write fails, the
thread retries every second with the remaining bytes, and `stage.py` rejects requests that must not go unrecorded. The
limits are checked before a request starts, so events of requests in flight are always accepted.
"""

import asyncio
import threading
from threading import get_ident
from typing import Protocol

import structlog

from fairlead.core.concurrency import SWITCH_INTERVAL
from fairlead.core.errors import Details, Unavailable
from fairlead.core.thread_activity import track_thread

RENDER_BATCH_SIZE = 32
"""Events rendered in one batch: back to back, each takes half the time."""
BATCH_DELAY_SECONDS = 0.02
"""How long events are collected before a batch is rendered, and again before it is written: waking the thread for each
event would cost more than writing it."""
RETRY_SECONDS = 1.0
CLOSE_TIMEOUT_SECONDS = 5.0
"""How long shutdown waits for a disk or pipe that accepts no data."""
WRITE_BATCH_BYTES = 1024 * 1024
MAX_QUEUED_EVENTS = 10_000
MAX_QUEUED_BYTES = 64 * 1024 * 1024
RETRY_AFTER_SECONDS = 5
UNRENDERABLE_EVENT = (
    b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","annotations":{"service.sh/unreadable":"see the log"}}\n'
)

log = structlog.get_logger(__name__)


class LazyEvent(Protocol):
    """An event that is rendered later."""

    def render(self) -> bytes: ...


class SizedLazyEvent(LazyEvent, Protocol):
    """An event that is rendered in the writer thread. `size` is its memory until then."""

    @property
    def size(self) -> int: ...


class Sink(Protocol):
    """The destination of the lines. `prepare_write` and `write` may raise OSError; the writer then retries."""

    def prepare_write(self, size: int) -> None:
        """Called before a batch of this many bytes: reopens or rotates the file if necessary."""

    def write(self, data: memoryview) -> int:
        """Returns the number of bytes written."""

    def end_write(self) -> None:
        """Called after a batch. It is not called while a line is written only in part: then the writer continues."""

    def close(self) -> None: ...


class AuditLogWriter:
    """Accepts events from any thread, and writes them in its own. Must be created on the server's event loop."""

    def __init__(self, sink: Sink, max_events: int = MAX_QUEUED_EVENTS, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._sink = sink
        self._max_events, self._max_bytes = max_events, max_bytes
        self._lazy_events: list[LazyEvent] = []
        self._pending: list[bytearray | SizedLazyEvent] = []
        self._pending_events = self._total_events = self._pending_bytes = self._waiters = 0
        # Reentrant: a finalizer may add an event in any thread, even while that thread holds the lock.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._has_space = asyncio.Event()
        self._loop_thread_id = get_ident()
        self.failure = ""
        """Why the last write failed; empty if it succeeded. Set in the writer thread, read on the event loop."""
        self._thread = threading.Thread(target=self._run, name="fairlead-audit", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        return (
            self._pending_events + len(self._lazy_events) >= self._max_events or self._pending_bytes >= self._max_bytes
        )

    @property
    def total_events(self) -> int:
        """The number of events since the start."""
        return self._total_events + len(self._lazy_events)

    def add_lazy(self, event: LazyEvent) -> None:
        """Adds an event that is cheap to render. It is rendered on the event loop, in a batch."""
        if get_ident() != self._loop_thread_id:
            # The finalizer of an abandoned stream runs in whichever thread collects the garbage.
            self._loop.call_soon_threadsafe(self.add_lazy, event)
            return
        gathered = self._lazy_events
        gathered.append(event)
        if len(gathered) >= RENDER_BATCH_SIZE:
            self._render_batch()
        elif len(gathered) == 1:
            self._loop.call_later(BATCH_DELAY_SECONDS, self._render_batch)

    def _render_batch(self) -> None:
        gathered, self._lazy_events = self._lazy_events, []
        if gathered:
            self._enqueue(b"".join(map(_render_safely, gathered)), len(gathered))

    def add(self, event: bytes | SizedLazyEvent) -> None:
        """Adds a rendered event, or one that is rendered in the writer thread."""
        self._render_batch()
        self._enqueue(event, 1)

    def _enqueue(self, entry: bytes | SizedLazyEvent, event_count: int) -> None:
        with self._lock:
            pending = self._pending
            was_empty = not pending
            if not isinstance(entry, bytes):
                pending.append(entry)
                self._pending_bytes += entry.size
            else:
                # Append to one buffer: thousands of separate lines cost four times as much, because of allocations.
                last = pending[-1] if pending else None
                if not isinstance(last, bytearray):
                    last = bytearray()
                    pending.append(last)
                last += entry
                self._pending_bytes += len(entry)
            self._pending_events += event_count
            self._total_events += event_count
        if was_empty:
            self._wake.set()

    async def wait_for_space(self, seconds: float) -> bool:
        """Waits until the queue has space; False on timeout."""
        self._waiters += 1
        try:
            async with asyncio.timeout(seconds):
                while self.is_full:
                    self._has_space.clear()
                    await self._has_space.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters -= 1
        return True

    def unavailable_error(self) -> Unavailable:
        reason = self.failure or "the disk is too slow for the request rate"
        message = f"the audit log cannot be written ({reason}), so the request was rejected; try again later"
        return Unavailable(message, Details(retry_after=RETRY_AFTER_SECONDS))

    async def check_writable(self) -> None:
        """The /readyz check: raises while the log cannot be written."""
        if self.failure:
            raise Unavailable(f"the audit log cannot be written: {self.failure}")

    async def close(self) -> None:
        """Writes the remaining events and stops the thread. Gives up after a timeout."""
        self._render_batch()
        self._stopping.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_SECONDS)
        if self._pending_events:
            log.error("the server stops with audit events that could not be written", events=self._pending_events)

    def _run(self) -> None:
        activity = track_thread()  # kept as long as the thread runs
        is_running = True
        while is_running and not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            self._stopping.wait(BATCH_DELAY_SECONDS)
            with SWITCH_INTERVAL:
                is_running = self._write_pending()
        if is_running:
            self._write_pending()
        self._sink.close()
        del activity

    def _write_pending(self) -> bool:
        with self._lock:
            entries, self._pending = self._pending, []
            count, size = self._pending_events, self._pending_bytes
        data = bytearray()
        for entry in entries:
            data += entry if isinstance(entry, bytearray) else entry.render()
            if len(data) >= WRITE_BATCH_BYTES:
                if not self._write_all(data):
                    return False
                data = bytearray()
        if data and not self._write_all(data):
            return False
        with self._lock:
            self._pending_events -= count
            self._pending_bytes -= size
        if self._waiters:
            self._loop.call_soon_threadsafe(self._has_space.set)
        return True

    def _write_all(self, data: bytearray) -> bool:
        """Writes all data and retries until it succeeds; False if the last attempt during shutdown failed."""
        rest, ready = memoryview(data), False
        while rest:
            last = self._stopping.is_set()
            try:
                if not ready:
                    self._sink.prepare_write(len(rest))
                    ready = True
                rest = rest[self._sink.write(rest) :]
            except OSError as error:
                self._record_failure(error)
                if last:
                    return False
                ready = len(rest) < len(data)  # a partly written line must continue in the same file
                if not ready:
                    self._sink.end_write()
                self._stopping.wait(RETRY_SECONDS)
        self._sink.end_write()
        if self.failure:
            log.info("the audit log can be written again")
            self.failure = ""
        return True

    def _record_failure(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        if reason != self.failure:
            log.error("the audit log cannot be written; rejecting writes and reads of credentials", reason=reason)
        self.failure = reason


def _render_safely(event: LazyEvent) -> bytes:
    try:
        return event.render()
    except Exception:  # one event that cannot be rendered must not lose the rest of its batch
        log.exception("an audit event could not be rendered")
        return UNRENDERABLE_EVENT
