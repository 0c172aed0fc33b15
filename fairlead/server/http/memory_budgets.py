"""Memory accounting for clients: bytes reserved per connection, per user and in total.

`unsent.py` has two budgets: one for responses that clients have not read yet, one for incoming request bodies. A budget
rejects nothing itself; it reports which limit is reached. As long as a limit is not reached, a request of any size is
admitted. So a list that exceeds a limit can still be read, one at a time.

Responses may share their content: an object that a thousand clients read is in memory once, and counts once in each
account.

`WholeResponses` bounds the responses that bypass this accounting, because they are passed to the HTTP server whole.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairlead.server.http.disconnect import DESCRIPTOR_DIRECTORY, dup_connection
from fairlead.server.http.slow_clients import bytes_unacknowledged

REQUEST_OVERHEAD_BYTES = 4 * 1024
"""Approximate memory of an in-flight request besides its content."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes per connection, per user over all connections, and in total."""

    connection: int
    user: int
    total: int


@dataclass(slots=True, eq=False)
class Reservation:
    """The memory of one request: `cost` bytes of its own, and `content`, which other requests may share.

    `chunks_sent` counts the chunks that were sent. `unsent.py` uses it and the other fields to track progress.
    """

    user: str
    client: str
    cost: int
    content: bytes
    created_at: float
    deadline: float
    chunks_sent: int = 0
    chunks_sent_at_last_check: int = 0
    last_progress: float = 0.0


class _Account:
    """The reservations of one connection, of one user, or all of them."""

    __slots__ = ("content_references", "reservations", "size")

    def __init__(self) -> None:
        self.size = 0
        self.reservations: dict[Reservation, None] = {}
        self.content_references: dict[int, int] = {}
        """Reference count of each content, by object identity."""

    def add(self, reservation: Reservation) -> None:
        self.reservations[reservation] = None
        self.size += reservation.cost
        if reservation.content:
            key = id(reservation.content)
            sharing = self.content_references.get(key, 0)
            self.content_references[key] = sharing + 1
            if not sharing:
                self.size += len(reservation.content)

    def remove(self, reservation: Reservation) -> None:
        del self.reservations[reservation]
        self.size -= reservation.cost
        if reservation.content:
            key = id(reservation.content)
            sharing = self.content_references[key] - 1
            if sharing:
                self.content_references[key] = sharing
            else:
                del self.content_references[key]
                self.size -= len(reservation.content)


class ReservationHandle:
    """Owns a reservation in a budget. It is released at the latest when the handle is garbage collected, so a response
    that a stage drops on its way out does not leak its reservation."""

    __slots__ = ("_budget", "reservation")

    def __init__(self, budget: "MemoryBudget", reservation: Reservation) -> None:
        self._budget: MemoryBudget | None = budget
        self.reservation = reservation
        budget.add(reservation)

    def replace_content(self, content: bytes) -> None:
        """Replaces the content of the same response, for example by its compressed form."""
        if self._budget is not None and content is not self.reservation.content:
            self._budget.remove(self.reservation)
            self.reservation.content = content
            self._budget.add(self.reservation)

    def release(self) -> None:
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.remove(self.reservation)

    __del__ = release


class MemoryBudget:
    """The accounts. Empty ones are removed."""

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self.total = _Account()
        self._users: dict[str, _Account] = {}
        self._connections: dict[str, _Account] = {}

    @property
    def is_exhausted(self) -> bool:
        return self.total.size >= self._limits.total

    def find_reached_limit(self, user: str, client: str) -> str:
        """The limit that leaves no room for another request, as text for an error message; empty if there is room."""
        limits = self._limits
        if self.is_exhausted:
            return f"{limits.total // 2**20} MiB for all users"
        account = self._users.get(user)
        if account is not None and account.size >= limits.user:
            return f"{limits.user // 2**20} MiB for one user"
        account = self._connections.get(client)
        if account is not None and account.size >= limits.connection:
            return f"{limits.connection // 2**20} MiB for one connection"
        return ""

    def add(self, reservation: Reservation) -> None:
        """Called by `ReservationHandle`."""
        self.total.add(reservation)
        self._users.setdefault(reservation.user, _Account()).add(reservation)
        self._connections.setdefault(reservation.client, _Account()).add(reservation)

    def remove(self, reservation: Reservation) -> None:
        """Called by `ReservationHandle`, once."""
        self.total.remove(reservation)
        for accounts, name in ((self._users, reservation.user), (self._connections, reservation.client)):
            account = accounts[name]
            account.remove(reservation)
            if not account.reservations:
                del accounts[name]

    def list_reservations(self) -> list[Reservation]:
        """Oldest first."""
        return list(self.total.reservations)

    def list_reservations_of(self, client: str) -> list[Reservation]:
        account = self._connections.get(client)
        return list(account.reservations) if account is not None else []

    def find_oldest_of_largest_user(self) -> Reservation | None:
        """The reservation to evict when the total limit is reached."""
        if not self._users:
            return None
        largest = max(self._users.values(), key=lambda account: account.size)
        return next(iter(largest.reservations))


MAX_WHOLE_BYTES = 512 * 1024
"""The largest response that is passed to the HTTP server whole."""
MAX_UNREAD_CONNECTIONS = 64
"""Connections that may have an unread whole response: 32 MiB in total."""
WRITE_SETTLE_SECONDS = 1.0
"""After this time the HTTP server has written a response to the socket, as far as its buffer has room."""
UNREAD_CHECK_SECONDS = 5.0
"""Minimum interval between two checks of the sockets."""


class WholeResponses:
    """HTTP/1.1 connections that may have an unread response which was passed to the HTTP server whole.

    Passing a large response whole costs the HTTP server half as much as chunks do. It copies the response, keeps the
    copy until the client has read it, and does not report when that is. But an HTTP/1.1 connection has one response at
    a time: if the next request arrives, the last response was read. So the memory is bounded by the number of
    connections without a further request, `max_unread`. At that number, further responses are sent in chunks
    (`unsent.py`), and the kernel is asked which of the connections have read theirs or are closed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_unread: int = MAX_UNREAD_CONNECTIONS) -> None:
        self._clock = clock
        self.unread_since: dict[str, float] = {}
        """By connection: when its response was passed on, in monotonic seconds."""
        self._check_task: asyncio.Task[None] | None = None
        self._next_check = 0.0
        # Without /proc the sockets cannot be checked, and no entry would ever be removed.
        self._max_unread = max_unread if os.path.isdir(DESCRIPTOR_DIRECTORY) else 0

    def admit(self, client: str, size: int) -> bool:
        """Whether a response of this size may be passed on whole. The caller has removed any earlier entry."""
        if size > MAX_WHOLE_BYTES:
            return False
        if len(self.unread_since) >= self._max_unread:
            self._start_check()
            return False
        self.unread_since[client] = self._clock()
        return True

    def _start_check(self) -> None:
        now = self._clock()
        if self._check_task is None and now >= self._next_check:
            self._next_check = now + UNREAD_CHECK_SECONDS
            written = [client for client, since in self.unread_since.items() if now - since >= WRITE_SETTLE_SECONDS]
            self._check_task = asyncio.get_running_loop().create_task(self._drop_finished(written))
            self._check_task.add_done_callback(self._on_check_done)

    def _on_check_done(self, task: "asyncio.Task[None]") -> None:
        self._check_task = None

    async def _drop_finished(self, clients: Iterable[str]) -> None:
        """Removes connections that have read everything, or are closed."""
        before = {client: self.unread_since[client] for client in clients}
        for client, connection in zip(before, await asyncio.gather(*map(dup_connection, before)), strict=True):
            has_unread = connection is not None and bytes_unacknowledged(connection) > 0
            if connection is not None:
                connection.close()
            # It may have received another whole response in the meantime.
            if not has_unread and self.unread_since.get(client) == before[client]:
                del self.unread_since[client]
