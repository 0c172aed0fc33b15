"""Bounds the memory that clients can occupy: responses they do not read, and request bodies they do not finish.

The HTTP server copies a response into its own memory until the client has read it, and does not report when that is. An
HTTP/2 client that never opens its window would pin one copy per request. So only small responses are passed on whole.
Larger ones are sent in chunks, with back pressure: the next chunk waits until the client has read. Responses with the
same content share it in memory. Each one is reserved in three accounts: its connection, its user, and the total.

- If the account of a user or connection is full, further requests are rejected with 429 before any work is done. A read
  that completes at that point is rejected as well; a completed write is always answered.
- If the total is full, the user with the largest account loses its oldest connection.
- A client that reads nothing for five seconds, or more slowly than `MIN_SEND_RATE`, is disconnected.

`asgi.py` sends the responses; `server/pipeline.py` runs the stages.
"""

import asyncio
from functools import partial

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Details, TooManyRequests
from fairlead.server.api.errors import render_error
from fairlead.server.http.disconnect import close_connection
from fairlead.server.http.memory_budgets import (
    MAX_UNREAD_CONNECTIONS,
    REQUEST_OVERHEAD_BYTES,
    MemoryBudget,
    MemoryLimits,
    Reservation,
    ReservationHandle,
    WholeResponses,
)
from fairlead.server.http.slow_clients import StallDetector
from fairlead.server.http.websocket import Send

MIB = 2**20
MAX_SMALL_BYTES = 16 * 1024
"""Responses up to this size are passed on whole. An HTTP/2 connection can have a hundred of them unread."""
MAX_SMALL_HTTP1_BYTES = 64 * 1024
"""The same for HTTP/1.1, where a connection has one response at a time."""
MAX_BODY_CHUNK_BYTES = 64 * 1024
"""Bytes of a larger response that are sent at once."""
TAIL_CHUNKS = 5
"""One more than the HTTP server queues: once it has accepted them all, everything before them was written."""
MAX_CHUNKS_IN_FLIGHT = TAIL_CHUNKS + 1
"""Chunks of one response that are copied at most: those in the queue, and one on either side of it."""
RESPONSE_LIMITS = MemoryLimits(connection=32 * MIB, user=96 * MIB, total=256 * MIB)
REQUEST_BODY_LIMITS = MemoryLimits(connection=16 * MIB, user=32 * MIB, total=128 * MIB)

PROGRESS_CHECK_SECONDS = 1.0
"""How often in-flight responses are checked for progress."""
STALLED_SECONDS = 5.0
"""After this time without progress, the socket of a connection is checked."""
MAX_STALL_SECONDS = 60.0
"""A response without progress for this long is aborted, even if others on its connection make progress."""
GRACE_SECONDS, MIN_SEND_RATE = 60.0, 16 * 1024
"""The time a response may take: this many seconds, plus one for every `MIN_SEND_RATE` bytes."""
MIN_EVICTION_AGE_SECONDS = 1.0
"""Younger responses are not evicted: they may be about to finish."""
RETRY_AFTER_SECONDS = 1
ROOM_POLL_SECONDS = 0.25
"""How often a stream that waits for memory checks the limits."""
CHUNKS_PER_YIELD = 64
"""`send` does not suspend while the client is fast, or disconnected. So yield to the event loop this often."""


class ClientMemoryLimiter:
    """Tracks unread responses and incoming request bodies of all clients, and enforces the limits."""

    def __init__(
        self,
        body_limit: int = 3 * MIB,
        response_limits: MemoryLimits = RESPONSE_LIMITS,
        body_limits: MemoryLimits = REQUEST_BODY_LIMITS,
        max_unread_connections: int = MAX_UNREAD_CONNECTIONS,
    ) -> None:
        self.whole_responses = WholeResponses(max_unread=max_unread_connections)
        self._response_budget = MemoryBudget(response_limits)
        self._body_budget = MemoryBudget(body_limits)
        self.message_limits = body_limits
        """The limits of unfinished messages on WebSockets (`websocket.py`)."""
        self._body_limit = body_limit
        self._timer: asyncio.TimerHandle | None = None
        self._stall_checks: dict[str, asyncio.Task[None]] = {}

    def check_limits(self, call: Call) -> None:
        """The stage that rejects clients over their limits, and reserves memory for a large body. It runs after
        authentication."""
        if self._response_budget.total.size:
            self._require_room(self._response_budget, call, "unread responses")
        if (
            call.method != "GET"
            and call.target.gateway is None
            and (expected := self._expected_body_size(call)) > MAX_SMALL_BYTES
        ):
            self._require_room(self._body_budget, call, "incoming request bodies")
            call.body_reservation = ReservationHandle(self._body_budget, self._new_reservation(call, expected, b""))

    def reserve(self, call: Call, reply: Reply) -> Reply | None:
        """The stage that reserves memory for a large response. A read is rejected if a limit has been reached in the
        meantime; a completed write is always answered."""
        if call.body_reservation is not None:
            self.release_body(call)
        if len(reply.body) <= MAX_SMALL_BYTES:
            return None
        if call.method == "GET" and self._response_budget.total.size:
            try:
                self._require_room(self._response_budget, call, "unread responses")
            except TooManyRequests as error:
                return render_error(call, error)
        reply.memory_reservation = self.reserve_reply(call, reply)
        return None

    def release_body(self, call: Call) -> None:
        """Releases the memory reserved for the body of a request."""
        if isinstance(call.body_reservation, ReservationHandle):
            call.body_reservation.release()
            call.body_reservation = None

    def _expected_body_size(self, call: Call) -> int:
        """The Content-Length, capped by the body limit; the limit itself for a chunked body."""
        length = call.headers.get("content-length")
        if length.isdecimal():
            return min(int(length), self._body_limit) if len(length) < 20 else self._body_limit
        return self._body_limit if call.headers.get("transfer-encoding") else 0

    def _require_room(self, budget: MemoryBudget, call: Call, subject: str) -> None:
        user, client = _requester_name(call), call.client
        reached = budget.find_reached_limit(user, client)
        if not reached:
            return
        if budget is self._response_budget and budget.is_exhausted:
            self._evict_oldest()
            if not budget.find_reached_limit(user, client):
                return
        message = f"{subject} have reached the memory limit of {reached}; complete them, or try again later"
        raise TooManyRequests(message, Details(retry_after=RETRY_AFTER_SECONDS))

    def reserve_reply(self, call: Call, reply: Reply) -> ReservationHandle:
        """Reserves memory for a reply, or updates its reservation if the body has changed, as by compression."""
        if isinstance(reply.memory_reservation, ReservationHandle):
            reply.memory_reservation.replace_content(reply.body)
            return reply.memory_reservation
        return self._reserve(call, min(len(reply.body), MAX_CHUNKS_IN_FLIGHT * MAX_BODY_CHUNK_BYTES), reply.body)

    def reserve_chunk(self, call: Call, content: bytes) -> ReservationHandle:
        """Reserves memory for a chunk of a stream, regardless of the limits: it is already allocated, and so is the
        data that it was built from."""
        return self._reserve(call, len(content), content)

    def _reserve(self, call: Call, cost: int, content: bytes) -> ReservationHandle:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PROGRESS_CHECK_SECONDS, self._check_progress)
        return ReservationHandle(self._response_budget, self._new_reservation(call, cost, content))

    @property
    def has_reservations(self) -> bool:
        """Whether any response is reserved. Usually none is, so callers check this first."""
        return self._response_budget.total.size > 0

    async def wait_for_room(self, call: Call) -> None:
        """Waits until the limits allow another chunk of a stream. Other clients read on, or are disconnected."""
        user = _requester_name(call)
        while self._response_budget.find_reached_limit(user, call.client):
            if self._response_budget.is_exhausted:
                self._evict_oldest()
            await asyncio.sleep(ROOM_POLL_SECONDS)

    def _new_reservation(self, call: Call, cost: int, content: bytes) -> Reservation:
        now = asyncio.get_running_loop().time()
        due = now + GRACE_SECONDS + len(content) / MIN_SEND_RATE
        return Reservation(
            user=_requester_name(call),
            client=call.client,
            cost=REQUEST_OVERHEAD_BYTES + cost,
            content=content,
            created_at=now,
            deadline=due,
            last_progress=now,
        )

    def _check_progress(self) -> None:
        """Periodic check: records progress, and disconnects clients that make none."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for reservation in self._response_budget.list_reservations():
            if reservation.chunks_sent != reservation.chunks_sent_at_last_check:
                reservation.chunks_sent_at_last_check, reservation.last_progress = reservation.chunks_sent, now
            if now > reservation.deadline or now - reservation.last_progress > MAX_STALL_SECONDS:
                self._close_connection(reservation.client)
            elif now - reservation.last_progress >= STALLED_SECONDS and reservation.client not in self._stall_checks:
                task = loop.create_task(self._close_if_stalled(reservation.client))
                self._stall_checks[reservation.client] = task
                task.add_done_callback(partial(self._on_stall_check_done, reservation.client))
        if self._response_budget.total.size:
            self._timer = loop.call_later(PROGRESS_CHECK_SECONDS, self._check_progress)

    def _on_stall_check_done(self, client: str, task: "asyncio.Task[None]") -> None:
        del self._stall_checks[client]

    async def _close_if_stalled(self, client: str) -> None:
        """Closes a connection whose peer acknowledges no more data."""
        detector = StallDetector(client)
        try:
            while self._is_stalled(client):
                if not await detector.is_making_progress():
                    if self._is_stalled(client):
                        self._close_connection(client)
                    return
                await asyncio.sleep(PROGRESS_CHECK_SECONDS)
        finally:
            detector.close()

    def _is_stalled(self, client: str) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            reservation.chunks_sent == reservation.chunks_sent_at_last_check
            and now - reservation.last_progress >= STALLED_SECONDS
            for reservation in self._response_budget.list_reservations_of(client)
        )

    def _evict_oldest(self) -> None:
        """Closes the connection with the oldest response of the user who has reserved most."""
        oldest = self._response_budget.find_oldest_of_largest_user()
        if oldest is not None and asyncio.get_running_loop().time() - oldest.created_at >= MIN_EVICTION_AGE_SECONDS:
            self._close_connection(oldest.client)

    def _close_connection(self, client: str) -> None:
        """Closes a connection. Its reservations end once the HTTP server notices, as `send` then never waits."""
        close_connection(client)


def _requester_name(call: Call) -> str:
    """The authenticated user, behind any impersonation."""
    return (call.user.impersonator or call.user).name if call.user is not None else ""


async def send_in_chunks(send: Send, content: bytes, handle: ReservationHandle) -> None:
    """Sends a response body in chunks, at the pace at which the client reads, and releases its reservation.

    The HTTP server does not report when a chunk was written, only that its queue has room for the next. So the last
    `TAIL_CHUNKS` bytes are sent one by one: once the last is accepted, the rest of the body was written.
    """
    reservation, whole = handle.reservation, len(content) - TAIL_CHUNKS
    try:
        for at in range(0, whole, MAX_BODY_CHUNK_BYTES):
            piece = content[at : min(at + MAX_BODY_CHUNK_BYTES, whole)]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            reservation.chunks_sent += 1
            if reservation.chunks_sent % CHUNKS_PER_YIELD == 0:
                await asyncio.sleep(0)
        for at in range(whole, len(content)):
            await send({"type": "http.response.body", "body": content[at : at + 1], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        handle.release()
