"""A body on its way back through a gateway, piece by piece, for as long as whoever asked may have it.

The pieces are taken from the cluster as fast as the client takes them from here. A watch or a log may last for hours,
so a timer beside the stream asks every few seconds whether the key and the rights still hold; a stream that is never
begun, or left standing by a client that is gone, ends the same way. There is one timer and no task for each stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.core.errors import ApiError, BadGateway
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.response import Response
from fairlead.upstream.shares import Share

RECHECK_SECONDS = 5.0
LEFT_LOOKS = 60
"""After so many looks at a piece that nobody has come to fetch the rest for, nobody will. A client on a slow network
may take minutes for the pieces before; one that takes nothing is noticed by the server much earlier."""


class Guard:
    """Looks after one stream, and cuts it off at the cluster when it is over."""

    __slots__ = ("_closing", "_fetched", "_looks", "_recheck", "_response", "_share", "_timer", "ended")

    def __init__(self, response: Response, recheck: Callable[[], None], share: Share) -> None:
        """`share` is given back when the stream is over."""
        share.keep()
        self._share = share
        self.ended: ApiError | None = None
        self._response = response
        self._recheck = recheck
        self._fetched = False
        self._looks = 0
        self._closing: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._look)

    def fetching(self) -> None:
        """Somebody waits for the next piece."""
        self._fetched = True

    def fetched(self) -> None:
        """Somebody has a piece, and is busy with it."""
        self._fetched, self._looks = False, 0

    def stop(self) -> None:
        self._timer.cancel()
        self._share.give_back()

    def _look(self) -> None:
        try:
            self._recheck()
        except ApiError as error:
            self._cut(error)
            return
        self._looks = 0 if self._fetched else self._looks + 1
        if self._looks >= LEFT_LOOKS:
            self._cut(BadGateway("nobody has come for the rest of this answer"))
            return
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._look)

    def _cut(self, error: ApiError) -> None:
        self.ended = error
        self._share.give_back()
        self._closing = asyncio.get_running_loop().create_task(self._response.close())


async def relayed(response: Response, guard: Guard, *, is_watch: bool) -> AsyncIterator[bytes]:
    """The body until its end. Raises where it breaks off, or where the guard has ended it.

    A watch that the cluster breaks off just ends. It has no end of its own that could be missed, its clients begin
    another whenever it is over, and to break it off would cut whatever else they have on the same connection.
    """
    try:
        guard.fetching()
        while (chunk := await response.next()) and guard.ended is None:
            guard.fetched()
            yield chunk
            guard.fetching()
    except UpstreamError:
        if guard.ended is None and not is_watch:
            raise
    finally:
        guard.stop()
        await response.close()
    if guard.ended is not None:
        raise guard.ended
