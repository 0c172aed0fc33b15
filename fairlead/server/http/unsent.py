"""Bounds the memory that clients can occupy: responses they do not read, and request bodies they do not finish.

The HTTP server copies a response into its own memory until the client has read it, and does not report when that is. An
HTTP/2 client that never opens its window would pin one copy per request. So only small responses are passed on whole.
Larger ones are sent in chunks, with back pressure: the next chunk waits until the client has read. Responses with the
same content share it in memory. Each one is reserved in three accounts: its connection, its user, and the total.

- If the account of a user or connection is full, further requests are rejected with 429 before any work is done. A read
  that completes at that point is rejected as well; a completed write is always answered.
- If the total is full, the user with the largest account loses its oldest connection.
- A client that reads nothing for five seconds, or more slowly than `MIN_SEND_RATE`, is disconnected.

`asgi.py` sends the responses; `app/http.py` adds the stage to the pipeline.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Details, TooManyRequests
from fairlead.server.http.disconnect import sever
from fairlead.server.http.memory_budgets import REQUEST_BYTES, Budget, Held, Holding, Limits
from fairlead.server.http.pipeline import Proceed
from fairlead.server.http.slow_clients import SlowClient
from fairlead.server.http.websocket import Send

MIB = 2**20
SMALL_BYTES = 16 * 1024
"""Responses up to this size are passed on whole. An HTTP/2 connection can have a hundred of them unread."""
SINGLE_BYTES = 64 * 1024
"""The same for HTTP/1.1, where a connection has one response at a time."""
PIECE_BYTES = 64 * 1024
"""Bytes of a larger response that are sent at once."""
LAST_PIECES = 5
"""One more than the HTTP server queues: once it has accepted them all, everything before them was written."""
PIECES_UNDER_WAY = LAST_PIECES + 1
"""Chunks of one response that are copied at most: those in the queue, and one on either side of it."""
ANSWERS = Limits(connection=32 * MIB, user=96 * MIB, total=256 * MIB)
BODIES = Limits(connection=16 * MIB, user=32 * MIB, total=128 * MIB)

LOOK_SECONDS = 1.0
"""How often in-flight responses are checked for progress."""
STALLED_SECONDS = 5.0
"""After this time without progress, the socket of a connection is checked."""
LONGEST_STALL = 60.0
"""A response without progress for this long is aborted, even if others on its connection make progress."""
GRACE_SECONDS, LEAST_RATE = 60.0, 16 * 1024
"""The time a response may take: this many seconds, plus one for every `MIN_SEND_RATE` bytes."""
YOUNG_SECONDS = 1.0
"""Younger responses are not evicted: they may be about to finish."""
RETRY_SECONDS = 1
ROOM_SECONDS = 0.25
"""How often a stream that waits for memory checks the limits."""
YIELD_PIECES = 64
"""`send` does not suspend while the client is fast, or disconnected. So yield to the event loop this often."""


class Unsent:
    """Tracks unread responses and incoming request bodies of all clients, and enforces the limits."""

    def __init__(self, body_limit: int = 3 * MIB, answers: Limits = ANSWERS, bodies: Limits = BODIES) -> None:
        self._answers = Budget(answers)
        self._bodies = Budget(bodies)
        self._body_limit = body_limit
        self._timer: asyncio.TimerHandle | None = None
        self._judging: dict[str, asyncio.Task[None]] = {}

    def bounded(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        """The stage that rejects clients over their limits. It runs after authentication."""
        if self._answers.size:
            self._require_room(self._answers, call, "unread responses")
        if call.method != "GET" and call.target.via is None and (expected := self._expected_body(call)) > SMALL_BYTES:
            return self._with_body(call, proceed, expected)
        answer = proceed(call)
        if not isinstance(answer, Reply):
            return self._later(call, answer)
        if len(answer.body) > SMALL_BYTES:
            self._admit(call, answer)
        return answer

    async def _later(self, call: Call, answer: Awaitable[Reply]) -> Reply:
        reply = await answer
        if len(reply.body) > SMALL_BYTES:
            self._admit(call, reply)
        return reply

    async def _with_body(self, call: Call, proceed: Proceed, expected: int) -> Reply:
        """Serves a request with a large body, which is reserved until the request is done."""
        self._require_room(self._bodies, call, "incoming request bodies")
        handle = Holding(self._bodies, self._describe(call, expected, b""))
        try:
            return await self._later(call, proceed(call))
        finally:
            handle.release()

    def _expected_body(self, call: Call) -> int:
        """The Content-Length, capped by the body limit; the limit itself for a chunked body."""
        length = call.headers.get("content-length")
        if length.isdecimal():
            return min(int(length), self._body_limit) if len(length) < 20 else self._body_limit
        return self._body_limit if call.headers.get("transfer-encoding") else 0

    def _require_room(self, budget: Budget, call: Call, what: str) -> None:
        user, client = _user_name(call), call.client
        reached = budget.find_reached_limit(user, client)
        if not reached:
            return
        if budget is self._answers and budget.is_exhausted:
            self._make_room()
            if not budget.find_reached_limit(user, client):
                return
        message = f"{what} have reached the memory limit of {reached}; complete them, or try again later"
        raise TooManyRequests(message, Details(retry_after=RETRY_SECONDS))

    def _admit(self, call: Call, reply: Reply) -> None:
        """Reserves memory for a reply. Rejects a read if a limit has been reached in the meantime."""
        if call.method == "GET" and self._answers.size:
            try:
                self._require_room(self._answers, call, "unread responses")
            except TooManyRequests:
                reply.body = b""  # the traceback may keep the reply alive until the next garbage collection
                raise
        reply.holding = self.hold_reply(call, reply)

    def hold_reply(self, call: Call, reply: Reply) -> Holding:
        """Reserves memory for a reply, or updates its reservation if the body has changed, as by compression."""
        if isinstance(reply.holding, Holding):
            reply.holding.replace_content(reply.body)
            return reply.holding
        return self._hold(call, min(len(reply.body), PIECES_UNDER_WAY * PIECE_BYTES), reply.body)

    def hold_chunk(self, call: Call, content: bytes) -> Holding:
        """Reserves memory for a chunk of a stream, regardless of the limits: it is already allocated, and so is the
        data that it was built from."""
        return self._hold(call, len(content), content)

    def _hold(self, call: Call, cost: int, content: bytes) -> Holding:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        return Holding(self._answers, self._describe(call, cost, content))

    @property
    def is_used(self) -> bool:
        """Whether any response is reserved. Usually none is, so callers check this first."""
        return self._answers.size > 0

    async def wait_for_room(self, call: Call) -> None:
        """Waits until the limits allow another chunk of a stream. Other clients read on, or are disconnected."""
        user = _user_name(call)
        while self._answers.find_reached_limit(user, call.client):
            if self._answers.is_exhausted:
                self._make_room()
            await asyncio.sleep(ROOM_SECONDS)

    def _describe(self, call: Call, cost: int, content: bytes) -> Held:
        now = asyncio.get_running_loop().time()
        due = now + GRACE_SECONDS + len(content) / LEAST_RATE
        return Held(_user_name(call), call.client, REQUEST_BYTES + cost, content, now, due, moved=now)

    def _look(self) -> None:
        """Periodic check: records progress, and disconnects clients that make none."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for reservation in self._answers.all_held():
            if reservation.sent != reservation.sent_before:
                reservation.sent_before, reservation.moved = reservation.sent, now
            if now > reservation.due or now - reservation.moved > LONGEST_STALL:
                self._cut(reservation.client)
            elif now - reservation.moved >= STALLED_SECONDS and reservation.client not in self._judging:
                task = loop.create_task(self._judge(reservation.client))
                self._judging[reservation.client] = task
                task.add_done_callback(partial(self._judged, reservation.client))
        if self._answers.size:
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def _judged(self, client: str, task: "asyncio.Task[None]") -> None:
        del self._judging[client]

    async def _judge(self, client: str) -> None:
        """Closes a connection whose peer acknowledges no more data."""
        detector = SlowClient(client)
        try:
            while self._is_stalled(client):
                if not await detector.takes_enough():
                    if self._is_stalled(client):
                        self._cut(client)
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            detector.close()

    def _is_stalled(self, client: str) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            reservation.sent == reservation.sent_before and now - reservation.moved >= STALLED_SECONDS
            for reservation in self._answers.held_for(client)
        )

    def _make_room(self) -> None:
        """Closes the connection with the oldest response of the user who has reserved most."""
        oldest = self._answers.find_oldest_of_largest_user()
        if oldest is not None and asyncio.get_running_loop().time() - oldest.began >= YOUNG_SECONDS:
            self._cut(oldest.client)

    def _cut(self, client: str) -> None:
        """Closes a connection. Its reservations end once the HTTP server notices, as `send` then never waits."""
        sever(client)


def _user_name(call: Call) -> str:
    """The authenticated user, behind any impersonation."""
    return (call.user.impersonator or call.user).name if call.user is not None else ""


async def send_in_pieces(send: Send, content: bytes, holding: Holding) -> None:
    """Sends a response body in chunks, at the pace at which the client reads, and releases its reservation.

    The HTTP server does not report when a chunk was written, only that its queue has room for the next. So the last
    `TAIL_CHUNKS` bytes are sent one by one: once the last is accepted, the rest of the body was written.
    """
    reservation, whole = holding.held, len(content) - LAST_PIECES
    try:
        for at in range(0, whole, PIECE_BYTES):
            piece = content[at : min(at + PIECE_BYTES, whole)]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            reservation.sent += 1
            if reservation.sent % YIELD_PIECES == 0:
                await asyncio.sleep(0)
        for at in range(whole, len(content)):
            await send({"type": "http.response.body", "body": content[at : at + 1], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        holding.release()
