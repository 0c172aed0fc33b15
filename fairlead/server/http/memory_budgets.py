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

from fairlead.server.http.disconnect import DESCRIPTORS, hold
from fairlead.server.http.slow_clients import unacknowledged

REQUEST_BYTES = 4 * 1024
"""Approximate memory of an in-flight request besides its content."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per connection, per user over all connections, and in total."""

    connection: int
    user: int
    total: int


@dataclass(slots=True, eq=False)
class Held:
    """The memory of one request: `cost` bytes of its own, and `content`, which other requests may share.

    `chunks_sent` counts the chunks that were sent. `unsent.py` uses it and the other fields to track progress.
    """

    user: str
    client: str
    cost: int
    content: bytes
    began: float
    due: float
    sent: int = 0
    sent_before: int = 0
    moved: float = 0.0


class _Account:
    """The reservations of one connection, of one user, or all of them."""

    __slots__ = ("contents", "held", "size")

    def __init__(self) -> None:
        self.size = 0
        self.held: dict[Held, None] = {}
        self.contents: dict[int, int] = {}
        """Reference count of each content, by object identity."""

    def add(self, held: Held) -> None:
        self.held[held] = None
        self.size += held.cost
        if held.content:
            key = id(held.content)
            sharing = self.contents.get(key, 0)
            self.contents[key] = sharing + 1
            if not sharing:
                self.size += len(held.content)

    def remove(self, held: Held) -> None:
        del self.held[held]
        self.size -= held.cost
        if held.content:
            key = id(held.content)
            sharing = self.contents[key] - 1
            if sharing:
                self.contents[key] = sharing
            else:
                del self.contents[key]
                self.size -= len(held.content)


class Holding:
    """Owns a reservation in a budget. It is released at the latest when the handle is garbage collected, so a response
    that a stage drops on its way out does not leak its reservation."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: "Budget", held: Held) -> None:
        self._budget: Budget | None = budget
        self.held = held
        budget.add(held)

    def replace_content(self, content: bytes) -> None:
        """Replaces the content of the same response, for example by its compressed form."""
        if self._budget is not None and content is not self.held.content:
            self._budget.remove(self.held)
            self.held.content = content
            self._budget.add(self.held)

    def release(self) -> None:
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.remove(self.held)

    __del__ = release


class Budget:
    """The accounts. Empty ones are removed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._total = _Account()
        self._users: dict[str, _Account] = {}
        self._connections: dict[str, _Account] = {}

    @property
    def size(self) -> int:
        """Bytes reserved in total."""
        return self._total.size

    @property
    def is_exhausted(self) -> bool:
        return self._total.size >= self._limits.total

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

    def add(self, held: Held) -> None:
        """Called by `ReservationHandle`."""
        self._total.add(held)
        self._users.setdefault(held.user, _Account()).add(held)
        self._connections.setdefault(held.client, _Account()).add(held)

    def remove(self, held: Held) -> None:
        """Called by `ReservationHandle`, once."""
        self._total.remove(held)
        for accounts, name in ((self._users, held.user), (self._connections, held.client)):
            account = accounts[name]
            account.remove(held)
            if not account.held:
                del accounts[name]

    def all_held(self) -> list[Held]:
        """Oldest first."""
        return list(self._total.held)

    def held_for(self, client: str) -> list[Held]:
        account = self._connections.get(client)
        return list(account.held) if account is not None else []

    def find_oldest_of_largest_user(self) -> Held | None:
        """The reservation to evict when the total limit is reached."""
        if not self._users:
            return None
        largest = max(self._users.values(), key=lambda account: account.size)
        return next(iter(largest.held))


WHOLE_BYTES = 512 * 1024
"""The largest response that is passed to the HTTP server whole."""
MOST = 64
"""Connections that may have an unread whole response: 32 MiB in total."""
SETTLED_SECONDS = 1.0
"""After this time the HTTP server has written a response to the socket, as far as its buffer has room."""
LOOK_SECONDS = 5.0
"""Minimum interval between two checks of the sockets."""


class WholeAnswers:
    """HTTP/1.1 connections that may have an unread response which was passed to the HTTP server whole.

    Passing a large response whole costs the HTTP server half as much as chunks do. It copies the response, keeps the
    copy until the client has read it, and does not report when that is. But an HTTP/1.1 connection has one response at
    a time: if the next request arrives, the last response was read. So the memory is bounded by the number of
    connections without a further request, `MAX_UNREAD_CONNECTIONS`. At that number, further responses are sent in
    chunks (`unsent.py`), and the kernel is asked which of the connections have read theirs or are closed.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.unread: dict[str, float] = {}
        """By connection: when its response was passed on, in monotonic seconds."""
        self._looking: asyncio.Task[None] | None = None
        self._look_again = 0.0
        # Without /proc the sockets cannot be checked, and no entry would ever be removed.
        self._most = MOST if os.path.isdir(DESCRIPTORS) else 0

    def admit(self, client: str, size: int) -> bool:
        """Whether a response of this size may be passed on whole. The caller has removed any earlier entry."""
        if size > WHOLE_BYTES:
            return False
        if len(self.unread) >= self._most:
            self._look()
            return False
        self.unread[client] = self._now()
        return True

    def _look(self) -> None:
        now = self._now()
        if self._looking is None and now >= self._look_again:
            self._look_again = now + LOOK_SECONDS
            settled = [client for client, since in self.unread.items() if now - since >= SETTLED_SECONDS]
            self._looking = asyncio.get_running_loop().create_task(self._forget_readers(settled))
            self._looking.add_done_callback(self._looked)

    def _looked(self, task: "asyncio.Task[None]") -> None:
        self._looking = None

    async def _forget_readers(self, clients: Iterable[str]) -> None:
        """Removes connections that have read everything, or are closed."""
        before = {client: self.unread[client] for client in clients}
        for client, connection in zip(before, await asyncio.gather(*map(hold, before)), strict=True):
            has_unread = connection is not None and unacknowledged(connection) > 0
            if connection is not None:
                connection.close()
            # It may have received another whole response in the meantime.
            if not has_unread and self.unread.get(client) == before[client]:
                del self.unread[client]
