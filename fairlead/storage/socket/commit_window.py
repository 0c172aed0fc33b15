"""Bounds the commits of one worker: those that it has sent without a response yet, and those that wait for that.

The window is large enough to fill a transaction of the owner. Commits beyond it wait in a queue, in order. When the
queue is long, or its first commit has already waited long, another one would wait as long or longer, so it is refused
at once: the client should retry later, and the server must not collect work that it cannot do.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic as current_time

from fairlead.storage.commit import PreparedCommit
from fairlead.storage.contract import StoreUnavailable

MAX_SENT_COMMITS = 512
MAX_SENT_BYTES = 4 * 1024 * 1024
"""A larger commit is sent alone."""
MAX_QUEUED_COMMITS = 5_000
MAX_WAIT_SECONDS = 0.25

BUSY_MESSAGE = "too many writes are waiting for the store; retry later"


@dataclass(slots=True)
class CommitCall:
    """A commit that waits for its response. Not frozen, for speed."""

    commit: PreparedCommit
    body: bytes
    done: asyncio.Future[int]
    queued_at: float = 0.0


class CommitWindow:
    """`send` is called for each commit when it is its turn."""

    def __init__(self, send: Callable[[CommitCall], None]) -> None:
        self._send = send
        self._sent_commits = 0
        self._sent_bytes = 0
        self.queue: deque[CommitCall] = deque()
        """Commits that were not sent yet."""

    def submit(self, call: CommitCall) -> None:
        """Send a commit now or later. Raises StoreUnavailable if it would wait too long."""
        if not self.queue and self._has_room(call):
            self._start(call)
            return
        now = current_time()
        if len(self.queue) >= MAX_QUEUED_COMMITS or (self.queue and now - self.queue[0].queued_at > MAX_WAIT_SECONDS):
            raise StoreUnavailable(BUSY_MESSAGE)
        call.queued_at = now
        self.queue.append(call)

    def release(self, call: CommitCall) -> None:
        """A response has arrived: the next commits can be sent."""
        self._sent_commits -= 1
        self._sent_bytes -= len(call.body)
        while self.queue and (self.queue[0].done.done() or self._has_room(self.queue[0])):
            waiting = self.queue.popleft()
            if not waiting.done.done():  # its caller was not cancelled
                self._start(waiting)

    def _has_room(self, call: CommitCall) -> bool:
        return self._sent_commits == 0 or (
            self._sent_commits < MAX_SENT_COMMITS and self._sent_bytes + len(call.body) <= MAX_SENT_BYTES
        )

    def _start(self, call: CommitCall) -> None:
        self._sent_commits += 1
        self._sent_bytes += len(call.body)
        self._send(call)
