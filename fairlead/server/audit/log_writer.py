"""The way from the event loop to the file: a bounded queue, and one thread that writes in batches.

Most events are put into words on the event loop, some at a time; those that take long, in the thread.

Nothing is ever dropped to make room. When the queue is full, requests wait before anything is done for them; when
nothing can be written, the thread tries again every second with the very bytes that are missing, and `stage.py` refuses
what must not happen unrecorded. The bounds are checked before a request, so events of requests under way always fit.
"""

import asyncio
import threading
from typing import Protocol

import structlog

from fairlead.core.errors import Details, Unavailable

GROUP = 32
"""How many events are put into words together: in a row, each takes half as long as now and then."""
LINGER_SECONDS = 0.02
"""How long events are let to gather, first for that and then in the thread: waking it up for each would cost more than
writing them."""
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
"""How long the end of the server waits for a disk or a reader that takes nothing."""
BATCH_BYTES = 1024 * 1024
QUEUE_EVENTS = 10_000
QUEUE_BYTES = 64 * 1024 * 1024
RETRY_AFTER = 5
UNREADABLE = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","annotations":{"service.sh/unreadable":"see the log"}}\n'

log = structlog.get_logger(__name__)


class Words(Protocol):
    """An event, and what it says."""

    def line(self) -> bytes: ...


class Draft(Words, Protocol):
    """An event that is finished in the thread."""

    @property
    def size(self) -> int: ...


class Sink(Protocol):
    """Where lines go. Both raise OSError, and are then called again."""

    def make_ready(self, size: int) -> None:
        """Before a batch of so many bytes."""

    def write(self, data: memoryview) -> int:
        """How many of the bytes were written."""

    def close(self) -> None: ...


class Trail:
    """Takes events from any thread; starts its own at once. Made on the event loop whose requests may have to wait."""

    def __init__(self, sink: Sink, events: int = QUEUE_EVENTS, size: int = QUEUE_BYTES) -> None:
        self._sink = sink
        self._most_events, self._most_bytes = events, size
        self._gathered: list[Words] = []
        self._pending: list[bytearray | Draft] = []
        self._count = self._total = self._bytes = self._waiting = 0
        # An event may be added by a finalizer, in the middle of whatever this thread is doing: so it is reentrant.
        self._lock = threading.RLock()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._loop, self._room = asyncio.get_running_loop(), asyncio.Event()
        self._loops_thread = threading.get_ident()
        self.failure = ""
        """Why the last attempt to write failed; empty while all is well. Set in the thread, read in the loop."""
        self._thread = threading.Thread(target=self._run, name="fairlead-audit", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        return self._count + len(self._gathered) >= self._most_events or self._bytes >= self._most_bytes

    @property
    def total(self) -> int:
        """How many events there were since the start."""
        return self._total + len(self._gathered)

    def gather(self, entry: Words) -> None:
        """Takes an event that is quickly put into words, which is done together with others of the same moment."""
        if threading.get_ident() != self._loops_thread:
            # Streams that were forgotten are noticed in whichever thread cleans up.
            self._loop.call_soon_threadsafe(self.gather, entry)
            return
        gathered = self._gathered
        gathered.append(entry)
        if len(gathered) >= GROUP:
            self._put_into_words()
        elif len(gathered) == 1:
            self._loop.call_later(LINGER_SECONDS, self._put_into_words)

    def _put_into_words(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._add(b"".join(map(_line, gathered)), len(gathered))

    def add(self, entry: bytes | Draft) -> None:
        """Takes an event that is finished, or is finished in the thread."""
        self._put_into_words()
        self._add(entry, 1)

    def _add(self, entry: bytes | Draft, events: int) -> None:
        with self._lock:
            pending = self._pending
            asleep = not pending
            if not isinstance(entry, bytes):
                pending.append(entry)
                self._bytes += entry.size
            else:
                # Into one buffer: keeping thousands of lines apart costs four times as much, for fresh memory.
                last = pending[-1] if pending else None
                if not isinstance(last, bytearray):
                    last = bytearray()
                    pending.append(last)
                last += entry
                self._bytes += len(entry)
            self._count += events
            self._total += events
        if asleep:
            self._wake.set()

    async def room(self, seconds: float) -> bool:
        """Waits until there is room for more, and tells whether there is."""
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self.is_full:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    def unavailable(self) -> Unavailable:
        why = self.failure or "more happens than the disk takes"
        message = f"the audit log cannot be written ({why}), and nothing is done that it could not have; try again"
        return Unavailable(message, Details(retry_after=RETRY_AFTER))

    async def check(self) -> None:
        """For /readyz: raises while the log cannot be written."""
        if self.failure:
            raise Unavailable(f"the audit log cannot be written: {self.failure}")

    async def close(self) -> None:
        """Writes what is left, as far as that is possible in time, and ends the thread."""
        self._put_into_words()
        self._stopping.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        if self._count:
            log.error("the server ends with audit events that could not be written", events=self._count)

    def _run(self) -> None:
        going = True
        while going and not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            self._stopping.wait(LINGER_SECONDS)
            going = self._write_pending()
        if going:
            self._write_pending()
        self._sink.close()

    def _write_pending(self) -> bool:
        with self._lock:
            entries, self._pending = self._pending, []
            count, size = self._count, self._bytes
        data = bytearray()
        for entry in entries:
            data += entry if isinstance(entry, bytearray) else entry.line()
            if len(data) >= BATCH_BYTES:
                if not self._written(data):
                    return False
                data = bytearray()
        if data and not self._written(data):
            return False
        with self._lock:
            self._count -= count
            self._bytes -= size
        if self._waiting:
            self._loop.call_soon_threadsafe(self._room.set)
        return True

    def _written(self, data: bytearray) -> bool:
        """Writes all of it, however long that takes; False if the server ends and the last attempt failed, too."""
        rest, ready = memoryview(data), False
        while rest:
            last = self._stopping.is_set()
            try:
                if not ready:
                    self._sink.make_ready(len(rest))
                    ready = True
                rest = rest[self._sink.write(rest) :]
            except OSError as error:
                self._fail(error)
                if last:
                    return False
                ready = len(rest) < len(data)  # a line that has begun goes on in the same place
                self._stopping.wait(RETRY_SECONDS)
        if self.failure:
            log.info("the audit log is written again")
            self.failure = ""
        return True

    def _fail(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        if reason != self.failure:
            log.error("the audit log cannot be written; writes and reads of credentials are refused", reason=reason)
        self.failure = reason


def _line(entry: Words) -> bytes:
    try:
        return entry.line()
    except Exception:  # one that cannot be put into words must not take its neighbours along
        log.exception("an audit event could not be put into words")
        return UNREADABLE
