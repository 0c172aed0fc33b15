"""The supervisor: the parent process of a server with several workers.

It forks the owner of the store and the workers, and keeps them running. It serves no requests, has no second thread and
opens no store, because the memory of a process with threads cannot be forked safely.

| event | what it does |
|---|---|
| the owner or the first worker cannot start at the first attempt | stops everything, and raises StartError |
| a worker ends, or its event loop is stuck | starts another one in its place |
| the owner ends | kills all workers, whose views may be ahead of the store, and starts all processes again |
| SIGINT or SIGTERM | stops the workers, then the owner, and returns |

The processes share memory, an anonymous mapping that forked processes inherit:

    0      the newest revision of the store, written by the owner
    64     one heartbeat of 8 bytes for each process, written by that process

Each word has one writer, is aligned and is written at once, so no lock is needed.

They also inherit a lock on the data folder, in which they have the sockets through which they talk. So it is free when
the last of them has ended. If only the supervisor was killed, the kernel is just killing the others, and the next
server waits for that.
"""

import fcntl
import gc
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import structlog

from fairlead.app import STREAM_CLOSE_TIMEOUT, StartedServer
from fairlead.app.start_checks import check_before_start
from fairlead.app.workers.child_process import STOP_SIGNALS, Message, Serve, fork_child
from fairlead.app.workers.context import WorkerContext, WorkerSockets
from fairlead.app.workers.owner import run_owner, run_worker
from fairlead.app.workers.slots import Slot
from fairlead.controllers.runtime.leader import new_identity
from fairlead.server.http.listeners import bind_listener, free_port
from fairlead.settings import Settings, StartError
from fairlead.storage.open import is_shared, scheme_of
from fairlead.storage.socket import SharedRevision

HEARTBEATS = 64
"""Where the heartbeats begin. The revision has a cache line of its own, because every request reads it."""
WORD_BYTES = 8


class SharedMemory:
    def __init__(self, processes: int) -> None:
        buffer = memoryview(mmap.mmap(-1, HEARTBEATS + WORD_BYTES * processes))
        self.revision = SharedRevision(buffer[: SharedRevision.SIZE])
        self._heartbeats = buffer[HEARTBEATS:].cast("Q")

    def beat(self, process: int) -> None:
        """Shows that the event loop of this process still runs."""
        self._heartbeats[process] += 1

    def heartbeat(self, process: int) -> int:
        return self._heartbeats[process]


LOCK_NAME = "workers.lock"
WAIT_SECONDS = 10.0
INTERVAL_SECONDS = 0.02


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Raises StartError if another server with several workers uses the folder. The lock file itself stays."""
    path = folder / LOCK_NAME
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        advice = "make the folder writable for the server's user, or use another one"
        raise StartError(f"{path}: cannot be opened for writing ({error.strerror}); {advice}") from None
    try:
        _acquire(path, lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _acquire(path: Path, lock: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            if _is_running(holder) or time.monotonic() > deadline:
                advice = "stop that one, or use another data folder"
                raise StartError(
                    f"{path}: in use by another server (process {holder or 'unknown'}); {advice}"
                ) from None
        time.sleep(INTERVAL_SECONDS)


def _is_running(process: str) -> bool:
    return process.isdigit() and os.path.exists(f"/proc/{process}")


STORE_SOCKET = "store.socket"
COORDINATOR_SOCKET = "coordinator.socket"
CHECK_SECONDS = 1.0
"""Interval of the checks of heartbeats."""
STOP_MARGIN_SECONDS = 10.0
"""How much longer than its own limits a process may take to stop, before it is killed."""

log = structlog.get_logger(__name__)


def supervise(settings: Settings, on_ready: Callable[[StartedServer], None]) -> None:
    """Runs a server with several workers until the first SIGINT or SIGTERM. Raises StartError."""
    check_before_start(settings)
    with locked_folder(settings.data), _signal_pipe() as signals:
        Supervisor(settings, on_ready).run(signals)


class Supervisor:
    def __init__(self, settings: Settings, on_ready: Callable[[StartedServer], None]) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._port = free_port(settings.listen, settings.port)
        self._memory = SharedMemory(1 + settings.worker_count)
        self._sockets = WorkerSockets(
            settings.data / COORDINATOR_SOCKET,
            None if is_shared(settings.store_url) else settings.data / STORE_SOCKET,
        )
        self._identity = new_identity()
        self._owner = Slot(0, "owner")
        self._workers = [
            Slot(number, f"worker-{number}", bind_listener(settings.listen, self._port))
            for number in range(1, settings.worker_count + 1)
        ]
        self._is_announced = False
        self._is_stopping = False
        self._is_owner_stopping = False
        self._stop_deadline = 0.0
        self._next_check = 0.0

    def run(self, signals: int) -> None:
        """Runs until a byte can be read from `signals` and all processes have ended."""
        # Objects that the collector never visits stay in memory pages that all processes share.
        gc.collect()
        gc.freeze()
        try:
            while not self._is_stopping or self._running():
                self._start_processes()
                self._handle_events(signals)
                self._check_processes()
                if self._is_stopping:
                    self._advance_stop()
        finally:
            for slot in self._running():
                self._end(slot)
            for slot in self._workers:
                slot.close_listener()

    def _slots(self) -> list[Slot]:
        return [self._owner, *self._workers]

    def _running(self) -> list[Slot]:
        return [slot for slot in self._slots() if slot.child is not None]

    def _start_processes(self) -> None:
        """Starts what is due: the owner first, then one worker, then the others."""
        if self._is_stopping:
            return
        now = time.monotonic()
        if self._owner.child is None and now >= self._owner.start_at:
            self._start(self._owner)
        if self._owner.is_ready:
            # A new installation must be set up by one worker, without competition.
            for slot in self._workers if self._is_announced else self._workers[:1]:
                if slot.child is None and now >= slot.start_at:
                    self._start(slot)

    def _start(self, slot: Slot) -> None:
        serve: Serve = partial(run_owner, self._settings, self._sockets, self._memory.revision)
        if slot.listener is not None:
            serve = partial(run_worker, self._settings, self._build_context(slot.number, slot.listener))
        controls = [other.child.control for other in self._slots() if other.child is not None]
        listeners = [other.listener for other in self._workers if other.listener is not None and other is not slot]
        child = fork_child(slot.name, serve, partial(self._memory.beat, slot.number), [*controls, *listeners])
        slot.occupy(child, time.monotonic())
        log.debug("started a process", name=slot.name, pid=child.pid)

    def _handle_events(self, signals: int) -> None:
        """Waits for messages, the end of a process or a signal, but not longer than until the next check."""
        controls = {slot.child.control.fileno(): slot for slot in self._slots() if slot.child is not None}
        timeout = max(0.0, min([self._next_check, *self._pending_starts()]) - time.monotonic())
        readable = select.select([signals, *controls], [], [], timeout)[0]
        if signals in readable:
            os.read(signals, 64)
            self._begin_stop()
        for descriptor in readable:
            slot = controls.get(descriptor)
            if slot is not None and slot.child is not None:  # not killed with the owner meanwhile
                self._handle_messages(slot, slot.child.receive())

    def _pending_starts(self) -> Iterator[float]:
        if not self._is_stopping:
            candidates = self._workers if self._owner.is_ready and self._is_announced else []
            yield from (slot.start_at for slot in (self._owner, *candidates) if slot.child is None)

    def _handle_messages(self, slot: Slot, messages: list[Message] | None) -> None:
        if messages is None:
            self._on_exit(slot)
            return
        for message in messages:
            slot.start_error = message.get("error", "")
            if "ready" in message:
                slot.set_ready(time.monotonic())
                if self._is_announced:
                    self._log_ready(slot)
                if slot is not self._owner and not self._is_announced:
                    self._announce(message["ready"])

    def _announce(self, started: Message) -> None:
        self._is_announced = True
        server = StartedServer(
            url=started["url"],
            ca_file=Path(started["ca_file"]) if started["ca_file"] else None,
            new_key=started["new_key"],
            is_key_replaced=started["is_key_replaced"],
            is_key_rejected=started["is_key_rejected"],
        )
        self._on_ready(server)
        # Not before: if the server cannot start, the reason is all that it prints.
        self._log_ready(self._owner)
        self._log_ready(self._workers[0])

    def _log_ready(self, slot: Slot) -> None:
        log.info("a process is ready", name=slot.name, pid=slot.child.pid if slot.child is not None else None)

    def _on_exit(self, slot: Slot) -> None:
        assert slot.child is not None
        was_announced = self._is_announced
        error = slot.start_error
        code = slot.child.reap()
        delay = slot.release(time.monotonic())
        if self._is_stopping:
            return
        reason = error or _describe_exit(code)
        if not was_announced:
            raise StartError(error or f"the process {slot.name} {reason} while the server started; see the log")
        if slot is not self._owner:
            log.error("a worker has ended; starting another one", name=slot.name, reason=reason, delay=delay)
            return
        if scheme_of(self._settings.store_url) == "memory":
            raise StartError(f"the process with the in-memory store {reason}; all objects are lost")
        log.error("the owner of the store has ended; starting all processes again", reason=reason, delay=delay)
        for worker in self._workers:
            if worker.child is not None:
                self._end(worker)

    def _end(self, slot: Slot) -> None:
        assert slot.child is not None
        slot.child.kill()
        slot.child.reap()
        slot.clear(time.monotonic())

    def _check_processes(self) -> None:
        """Once a second, kills processes whose event loop is stuck."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        for slot in self._running():
            if slot.is_stuck(self._memory.heartbeat(slot.number)) and slot.child is not None:
                log.error("the event loop of a process is stuck; killing it", name=slot.name, pid=slot.child.pid)
                slot.child.kill()

    def _begin_stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        seconds = self._settings.shutdown_drain + self._settings.shutdown_grace
        self._stop_deadline = time.monotonic() + seconds + STREAM_CLOSE_TIMEOUT + STOP_MARGIN_SECONDS
        for slot in self._workers:
            slot.close_listener()
            if slot.child is not None:
                slot.child.request_stop()

    def _advance_stop(self) -> None:
        """Stops the owner when the workers have ended. Kills what does not stop in time."""
        now = time.monotonic()
        running = self._running()
        if self._owner.child is not None and running == [self._owner] and not self._is_owner_stopping:
            self._is_owner_stopping = True
            self._stop_deadline = now + STOP_MARGIN_SECONDS
            self._owner.child.request_stop()
        if now > self._stop_deadline:
            for slot in running:
                log.error("a process does not stop in time; killing it", name=slot.name)
                self._end(slot)

    def _build_context(self, number: int, listener: socket.socket) -> WorkerContext:
        return WorkerContext(
            index=number,
            count=len(self._workers),
            identity=f"{self._identity}-{number}",
            is_first=not self._is_announced,
            port=self._port,
            listener=listener,
            sockets=self._sockets,
            revision=self._memory.revision,
        )


def _describe_exit(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"has ended with exit code {code}"


@contextmanager
def _signal_pipe() -> Iterator[int]:
    """A file descriptor from which a byte can be read after SIGINT or SIGTERM. Later signals are ignored."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def handle(number: int, frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(writable, b".")

    for number in STOP_SIGNALS:
        signal.signal(number, handle)
    try:
        yield readable
    finally:
        # At exit Python restores the default handlers, which would kill the process; ignored signals stay ignored.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.close(readable)
        os.close(writable)
