"""Large answers that are handed to the HTTP server whole, because that costs it half of what pieces do.

It copies such an answer and keeps the copy until the client has read it, and nobody hears when that was. But over
HTTP/1.1 it has one answer at a time for each connection, and reads the next request of the connection when that one
has left. So a connection that asks again has its last answer, and what remains is bounded by the number of connections
that have not asked again: `MOST` of them. While there are as many, further answers go in pieces (`unsent.py`), and the
kernel is asked which of the connections have read theirs or are gone.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable

from fairlead.server.connections import DESCRIPTORS, hold
from fairlead.server.lingering import unacknowledged

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
