"""Slot: the place of one process. The supervisor keeps a process running in each.

A process that ends soon after its start is started again after a delay, which doubles each time. A process whose event
loop is stuck is found by its heartbeat.
"""

import socket
from dataclasses import dataclass

from fairlead.app.workers.child_process import ChildProcess
from fairlead.core.backoff import BackoffPolicy

STABLE_SECONDS = 10.0
"""A process that ran for so long was not in a crash loop."""
RESTART = BackoffPolicy(first_seconds=0.25, max_seconds=10.0, free_attempts=2)
STUCK_CHECKS = 30
"""Consecutive checks, a second apart, without a heartbeat after which the event loop counts as stuck. Counted and not
timed, so that a machine that was suspended does not matter. An overloaded loop is late by far less."""
MAX_QUEUE_SECONDS = 3.0
"""Connections wait in the queue of a worker for its replacement, unless that will take longer than this."""


@dataclass(slots=True, eq=False)
class Slot:
    """`number` is 0 for the owner, and the index of the worker otherwise."""

    number: int
    name: str
    listener: socket.socket | None = None
    child: ChildProcess | None = None
    is_ready: bool = False
    start_error: str = ""
    """Why the process could not start, in its own words."""
    start_at: float = 0.0
    """When the next process may be started, on the monotonic clock."""
    _started_at: float = 0.0
    _start_seconds: float = 0.0
    _failures: int = 0
    _last_heartbeat: int = 0
    _missed_heartbeats: int = 0

    def occupy(self, child: ChildProcess, now: float) -> None:
        self.child = child
        self.is_ready = False
        self.start_error = ""
        self._started_at = now
        self._missed_heartbeats = 0

    def set_ready(self, now: float) -> None:
        self.is_ready = True
        self._start_seconds = now - self._started_at

    def release(self, now: float) -> float:
        """Records that the process has ended. Returns the delay after which the next one is started."""
        was_ready = self.is_ready
        self._failures = 0 if was_ready and now - self._started_at >= STABLE_SECONDS else self._failures + 1
        delay = RESTART.delay(self._failures)
        self.clear(now + delay)
        if not was_ready or delay + self._start_seconds > MAX_QUEUE_SECONDS:
            self._stop_listening()
        return delay

    def clear(self, start_at: float) -> None:
        """Empties the slot until another process is started."""
        self.child = None
        self.is_ready = False
        self.start_at = start_at

    def close_listener(self) -> None:
        """Leaves no new connections to the worker, which stops."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def _stop_listening(self) -> None:
        """Leaves new connections to the other workers. The next worker listens again when it is ready.

        Only while the slot is empty: a worker would not notice. And only if it listens: Linux remembers the shutdown of
        a socket that does not, and would shut down every connection that it accepts later.
        """
        if self.listener is not None and self.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self.listener.shutdown(socket.SHUT_RDWR)

    def is_stuck(self, heartbeat: int) -> bool:
        """Compares the heartbeat with that of the last check. Called once a second."""
        has_missed = self.is_ready and heartbeat == self._last_heartbeat
        self._missed_heartbeats = self._missed_heartbeats + 1 if has_missed else 0
        self._last_heartbeat = heartbeat
        return self._missed_heartbeats >= STUCK_CHECKS
