"""How many bytes are held in memory for clients at once: for one connection, for one user, and in all.

`unsent.py` keeps two of these: one for answers that their clients have not read yet, one for request bodies that are
on their way in. A budget refuses nobody by itself. It says which limit is reached, and a single request is always
taken, however large it is: so a list that is larger than a limit can still be read, if only one at a time.

Many answers may share their content: an object that a thousand clients read is in memory once, and counts once in
each account.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairlead.server.http.disconnect import DESCRIPTORS, hold
from fairlead.server.http.slow_clients import unacknowledged

REQUEST_BYTES = 4 * 1024
"""What a request that is under way costs beside its content, roughly."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes for one connection, for all connections of one user, and for everybody."""

    connection: int
    user: int
    total: int


@dataclass(slots=True, eq=False)
class Held:
    """What is held for one request: `cost` for itself, and a `content` that it may share with others.

    `sent` grows whenever some of it has left; the rest is what `unsent.py` remembers of it.
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
    """What is held for one connection, one user, or everybody."""

    __slots__ = ("contents", "held", "size")

    def __init__(self) -> None:
        self.size = 0
        self.held: dict[Held, None] = {}
        self.contents: dict[int, int] = {}
        """By the identity of each content: how many requests share it."""

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
    """A handle on what is held. It is released at the latest when nobody refers to the handle any more, so an answer
    that is dropped on its way out, by whichever stage and for whatever reason, is not counted for ever."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: "Budget", held: Held) -> None:
        self._budget: Budget | None = budget
        self.held = held
        budget.add(held)

    def replace_content(self, content: bytes) -> None:
        """The same answer in another form, such as compressed."""
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
    """The accounts. Those that nothing is held for are not kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._total = _Account()
        self._users: dict[str, _Account] = {}
        self._connections: dict[str, _Account] = {}

    @property
    def size(self) -> int:
        """Bytes held for everybody."""
        return self._total.size

    @property
    def is_exhausted(self) -> bool:
        return self._total.size >= self._limits.total

    def find_reached_limit(self, user: str, client: str) -> str:
        """Which limit leaves no room for another request, in words; empty where there is room."""
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
        """Called by the handle."""
        self._total.add(held)
        self._users.setdefault(held.user, _Account()).add(held)
        self._connections.setdefault(held.client, _Account()).add(held)

    def remove(self, held: Held) -> None:
        """Called by the handle, once."""
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
        """Whose turn it is to give way when everything is held."""
        if not self._users:
            return None
        largest = max(self._users.values(), key=lambda account: account.size)
        return next(iter(largest.held))


# DOC-MERGED server/whole_answers
# Large answers that are handed to the HTTP server whole, because that costs it half of what pieces do.
#
# It copies such an answer and keeps the copy until the client has read it, and nobody hears when that was. But over
# HTTP/1.1 it has one answer at a time for each connection, and reads the next request of the connection when that one
# has left. So a connection that asks again has its last answer, and what remains is bounded by the number of connections
# that have not asked again: `MOST` of them. While there are as many, further answers go in pieces (`unsent.py`), and the
# kernel is asked which of the connections have read theirs or are gone.


WHOLE_BYTES = 512 * 1024
"""The largest answer that is handed over whole."""
MOST = 64
"""Connections that may have one of them unread: 32 MiB in all."""
SETTLED_SECONDS = 1.0
"""After so much time an answer has been written to the socket, as far as there is room."""
LOOK_SECONDS = 5.0
"""How long it takes until the kernel is asked again."""


class WholeAnswers:
    """The connections that may not have read theirs. `now` tells seconds that never go backwards."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.unread: dict[str, float] = {}
        """By connection, since when."""
        self._looking: asyncio.Task[None] | None = None
        self._look_again = 0.0
        # Where the kernel cannot be asked, nobody would ever be found to have read anything.
        self._most = MOST if os.path.isdir(DESCRIPTORS) else 0

    def admit(self, client: str, size: int) -> bool:
        """Whether an answer of this size may be handed over whole. The connection has read all others of its own."""
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
        """Forgets those that have read everything, or are gone."""
        before = {client: self.unread[client] for client in clients}
        for client, connection in zip(before, await asyncio.gather(*map(hold, before)), strict=True):
            has_unread = connection is not None and unacknowledged(connection) > 0
            if connection is not None:
                connection.close()
            # It may have been handed another one meanwhile.
            if not has_unread and self.unread.get(client) == before[client]:
                del self.unread[client]
