"""Bounds what clients make the server hold: answers that they do not read, and bodies that they do not finish.

The HTTP server copies a finished answer into memory of its own and keeps it until the client has read it, without a
word to anybody. A client of HTTP/2 that opens no window would make it keep one copy for each of its requests. So only
small answers are handed over whole. Larger ones go in pieces, as a stream does: handing over the next piece waits
until the client has read, all answers with the same content share it, and each is held on three accounts: of its
connection, of its user, and of everybody.

A user whose account is full is told to come again with his next request, before anything is done for it. A read that
was on its way meanwhile is refused, too; a write that was done is always answered. When everybody's account is full,
the user who holds most loses his oldest connection. And whoever reads nothing, or too little, loses his connection,
too: after five seconds without a byte, or when an answer takes longer than `LEAST_RATE` allows.

`asgi.py` sends what is held here, `app/http.py` has the stage.
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
"""Answers up to this size are handed over whole. A connection of HTTP/2 can have a hundred of them unread."""
SINGLE_BYTES = 64 * 1024
"""The same for HTTP/1.1, where a connection has one answer at a time."""
PIECE_BYTES = 64 * 1024
"""What is handed over at once of a larger one."""
LAST_PIECES = 5
"""One more than the HTTP server queues: when it has taken them all, it has got rid of what came before."""
PIECES_UNDER_WAY = LAST_PIECES + 1
"""So many pieces are copied at most: those in the queue, one before it and one behind."""
ANSWERS = Limits(connection=32 * MIB, user=96 * MIB, total=256 * MIB)
BODIES = Limits(connection=16 * MIB, user=32 * MIB, total=128 * MIB)

LOOK_SECONDS = 1.0
"""How often answers under way are looked at."""
STALLED_SECONDS = 5.0
"""After so much time without progress a connection is looked at closely."""
LONGEST_STALL = 60.0
"""No answer goes on after so much time without progress, even if others on its connection do."""
GRACE_SECONDS, LEAST_RATE = 60.0, 16 * 1024
"""An answer may take this long, and a second more for each so many bytes of it."""
YOUNG_SECONDS = 1.0
"""Answers younger than this are not taken away from anybody: they may just be fast ones."""
RETRY_SECONDS = 1
ROOM_SECONDS = 0.25
"""How often a stream that has to wait for room looks whether there is some."""
YIELD_PIECES = 64
"""Handing over does not wait while the client is fast, or gone: so often, others get their turn all the same."""


class Unsent:
    """Answers that are not read yet and request bodies that are not read in yet, of all clients."""

    def __init__(self, body_limit: int = 3 * MIB, answers: Limits = ANSWERS, bodies: Limits = BODIES) -> None:
        self._answers = Budget(answers)
        self._bodies = Budget(bodies)
        self._body_limit = body_limit
        self._timer: asyncio.TimerHandle | None = None
        self._judging: dict[str, asyncio.Task[None]] = {}

    def bounded(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        """The stage that refuses those who hold too much already. It stands behind those that find out who asks."""
        if self._answers.size:
            self._require_room(self._answers, call, "answers that nobody reads")
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
        """A request that brings much: it is on the account until it is done."""
        self._require_room(self._bodies, call, "request bodies under way")
        holding = Holding(self._bodies, self._describe(call, expected, b""))
        try:
            return await self._later(call, proceed(call))
        finally:
            holding.release()

    def _expected_body(self, call: Call) -> int:
        """Bytes of the body that has been announced; as many as there may be where that is left open."""
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
        message = f"{what} take up all the memory that there is for them: {reached}; read them, or try again later"
        raise TooManyRequests(message, Details(retry_after=RETRY_SECONDS))

    def _admit(self, call: Call, reply: Reply) -> None:
        """Puts a reply on the account. A read for which there is no room by now is refused."""
        if call.method == "GET" and self._answers.size:
            try:
                self._require_room(self._answers, call, "answers that nobody reads")
            except TooManyRequests:
                reply.body = b""  # the traceback refers to the reply, and may be there until garbage is collected
                raise
        reply.holding = self.hold_reply(call, reply)

    def hold_reply(self, call: Call, reply: Reply) -> Holding:
        """What is held for a reply, which may not have been on the account yet, or in another form."""
        if isinstance(reply.holding, Holding):
            reply.holding.replace_content(reply.body)
            return reply.holding
        return self._hold(call, min(len(reply.body), PIECES_UNDER_WAY * PIECE_BYTES), reply.body)

    def hold_chunk(self, call: Call, content: bytes) -> Holding:
        """What is held for a part of a stream: it is there already, so it is held whether there is room or not. What
        it was made of is there as well, as long as the stream stands still."""
        return self._hold(call, len(content), content)

    def _hold(self, call: Call, cost: int, content: bytes) -> Holding:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        return Holding(self._answers, self._describe(call, cost, content))

    @property
    def is_used(self) -> bool:
        """Whether anything is held at all; most of the time nothing is."""
        return self._answers.size > 0

    async def wait_for_room(self, call: Call) -> None:
        """Returns when there is room for another part of a stream. Those that hold it read on, or are cut off."""
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
        """Notes who has got on, and looks after those who have not."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for held in self._answers.all_held():
            if held.sent != held.sent_before:
                held.sent_before, held.moved = held.sent, now
            if now > held.due or now - held.moved > LONGEST_STALL:
                self._cut(held.client)
            elif now - held.moved >= STALLED_SECONDS and held.client not in self._judging:
                task = loop.create_task(self._judge(held.client))
                self._judging[held.client] = task
                task.add_done_callback(partial(self._judged, held.client))
        if self._answers.size:
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def _judged(self, client: str, task: "asyncio.Task[None]") -> None:
        del self._judging[client]

    async def _judge(self, client: str) -> None:
        """Cuts a connection on which nothing arrives any more."""
        slow = SlowClient(client)
        try:
            while self._is_stalled(client):
                if not await slow.takes_enough():
                    if self._is_stalled(client):
                        self._cut(client)
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            slow.close()

    def _is_stalled(self, client: str) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            held.sent == held.sent_before and now - held.moved >= STALLED_SECONDS
            for held in self._answers.held_for(client)
        )

    def _make_room(self) -> None:
        """Takes the oldest answer away from the user who holds most, with all that there is on its connection."""
        oldest = self._answers.find_oldest_of_largest_user()
        if oldest is not None and asyncio.get_running_loop().time() - oldest.began >= YOUNG_SECONDS:
            self._cut(oldest.client)

    def _cut(self, client: str) -> None:
        """What is held for a connection goes when the HTTP server has noticed: it then takes whatever is sent."""
        sever(client)


def _user_name(call: Call) -> str:
    """Whoever really asks."""
    return (call.user.impersonator or call.user).name if call.user is not None else ""


async def send_in_pieces(send: Send, content: bytes, holding: Holding) -> None:
    """Sends the body of an answer as fast as its client reads, and releases what was held for it.

    The HTTP server says nothing of a piece that it has taken; only that there is room for the next. So the last bytes
    go one by one: when it has taken the last of them, nothing but these is left of the answer.
    """
    held, whole = holding.held, len(content) - LAST_PIECES
    try:
        for at in range(0, whole, PIECE_BYTES):
            piece = content[at : min(at + PIECE_BYTES, whole)]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            held.sent += 1
            if held.sent % YIELD_PIECES == 0:
                await asyncio.sleep(0)
        for at in range(whole, len(content)):
            await send({"type": "http.response.body", "body": content[at : at + 1], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        holding.release()
