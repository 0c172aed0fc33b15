"""Answers that nobody reads and bodies that nobody finishes: who is refused, and who loses his connection."""

import asyncio
from typing import Any

import pytest

from fairlead.core.call import Call, Handler, Reply, RequestInfo
from fairlead.core.errors import TooManyRequests
from fairlead.core.user import User
from fairlead.server.http import unsent
from fairlead.server.http.memory_budgets import MemoryLimits, ReservationHandle
from fairlead.server.http.slow_clients import StallDetector
from fairlead.server.http.unsent import (
    MAX_BODY_CHUNK_BYTES,
    MAX_SMALL_BYTES,
    TAIL_CHUNKS,
    ClientMemoryLimiter,
    send_in_chunks,
)
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import always_reply, call, raise_for_status

LARGE = b"x" * (MAX_SMALL_BYTES + 1)
LIMITS = MemoryLimits(connection=36_000, user=72_000, total=120_000)
"""Room for one such answer on a connection, two for a user, three in all."""


def asked(user: str, client: str, method: str = "GET", length: int = 0, via: RequestInfo | None = None) -> Call:
    headers = {"content-length": str(length)} if length else {}
    made = call(method=method, headers=headers, target=RequestInfo(method.lower(), "/", gateway=via))
    made.user, made.client = User(user), client
    return made


async def answered(
    bound: ClientMemoryLimiter, user: str, client: str, method: str = "GET", body: bytes = LARGE
) -> Reply:
    return await serve_limited(bound, asked(user, client, method), always_reply(Reply(200, body)))


async def serve_limited(bound: ClientMemoryLimiter, request: Call, serve: Handler) -> Reply:
    pipeline = Pipeline((bound.check_limits,), serve, (bound.reserve,), (bound.release_body,))
    return raise_for_status(await pipeline(request))


def own() -> bytes:
    """A large content that is shared with nobody."""
    return bytes(bytearray(LARGE))


async def test_who_has_read_nothing_gets_nothing_more() -> None:
    bound = ClientMemoryLimiter(response_limits=LIMITS)
    kept = [await answered(bound, "ann", "a:1", body=own())]
    with pytest.raises(TooManyRequests, match=r"unread responses .* for one connection; complete them") as refusal:
        await answered(bound, "ann", "a:1")
    assert refusal.value.details.retry_after
    kept.append(await answered(bound, "ann", "a:2", body=own()))
    with pytest.raises(TooManyRequests, match="for one user"):
        await answered(bound, "ann", "a:3", body=b"small")
    assert (await answered(bound, "bob", "b:1", body=b"small")).status == 200
    kept.clear()
    assert (await answered(bound, "ann", "a:1")).status == 200


async def test_a_single_answer_may_be_larger_than_the_limit() -> None:
    reply = await answered(ClientMemoryLimiter(response_limits=LIMITS), "ann", "a:1", body=bytes(LIMITS.total * 2))
    assert reply.status == 200


async def test_a_read_is_refused_that_was_under_way_when_the_room_ran_out() -> None:
    bound, begin = ClientMemoryLimiter(response_limits=LIMITS), asyncio.Event()

    async def later(call: Call) -> Reply:
        await begin.wait()
        return Reply(200, own())

    def ask(method: str) -> "asyncio.Task[Reply]":
        return asyncio.ensure_future(serve_limited(bound, asked("ann", "a:1", method), later))

    first, second, write = ask("GET"), ask("GET"), ask("POST")
    await asyncio.sleep(0)
    begin.set()
    done = await asyncio.gather(first, second, write, return_exceptions=True)
    assert [type(each) for each in done] == [Reply, TooManyRequests, Reply]


async def test_bodies_under_way_are_bounded_and_forgotten_when_they_are_done() -> None:
    bound, end = ClientMemoryLimiter(body_limits=LIMITS), asyncio.Event()

    async def reading(call: Call) -> Reply:
        await end.wait()
        return Reply(201)

    def ask(client: str, via: RequestInfo | None = None) -> "asyncio.Task[Reply]":
        upload = asked("ann", client, "POST", 50_000, via)
        return asyncio.ensure_future(serve_limited(bound, upload, reading))

    first = ask("a:1")
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="incoming request bodies"):
        await ask("a:1")
    through = ask("a:1", RequestInfo("get", "/"))
    end.set()
    assert (await first).status == (await through).status == 201
    assert (await ask("a:1")).status == 201


async def test_a_body_of_unknown_length_counts_as_much_as_it_may_be() -> None:
    bound = ClientMemoryLimiter(body_limit=50_000, body_limits=LIMITS)

    def upload_in_chunks() -> Call:
        upload = asked("ann", "a:1", "POST")
        upload.headers = call(headers={"transfer-encoding": "chunked"}).headers
        return upload

    async def reading(call: Call) -> Reply:
        with pytest.raises(TooManyRequests):
            await serve_limited(bound, upload_in_chunks(), always_reply(Reply(201)))
        return Reply(201)

    assert (await serve_limited(bound, upload_in_chunks(), reading)).status == 201


async def test_an_upload_that_is_cancelled_releases_its_reservation() -> None:
    bound = ClientMemoryLimiter(body_limits=LIMITS)

    async def read_forever(call: Call) -> Reply:
        await asyncio.Event().wait()
        return Reply(201)

    task = asyncio.ensure_future(serve_limited(bound, asked("ann", "a:1", "POST", 50_000), read_forever))
    await asyncio.sleep(0)
    assert bound._body_budget.total.size
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not bound._body_budget.total.size


async def test_a_stream_waits_for_room_before_its_next_chunk_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "ROOM_POLL_SECONDS", 0.001)
    bound, watch = ClientMemoryLimiter(response_limits=LIMITS), asked("ann", "a:1")
    assert not bound.has_reservations
    holding = bound.reserve_chunk(watch, own())
    waiting = asyncio.ensure_future(bound.wait_for_room(watch))
    await bound.wait_for_room(asked("bob", "b:1"))
    done, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not done
    holding.release()
    await asyncio.wait_for(waiting, 10)


class Cut(list[str]):
    """Whose connections were cut. What is held for them goes, as it does when the HTTP server notices."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.happened = asyncio.Event()

    def __call__(self, client: str) -> None:
        self.append(client)
        self.happened.set()
        self.replies.pop(client, None)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    made = Cut()
    monkeypatch.setattr(unsent, "close_connection", made)
    return made


async def test_when_everything_is_held_whoever_holds_most_loses_his_oldest_connection(
    monkeypatch: pytest.MonkeyPatch, cut: Cut
) -> None:
    bound = ClientMemoryLimiter(response_limits=LIMITS)
    for user, client in (("bob", "b:1"), ("ann", "a:1"), ("ann", "a:2"), ("eve", "e:1")):
        cut.replies[client] = await answered(bound, user, client, "POST", own())
    with pytest.raises(TooManyRequests, match="for all users"):
        await answered(bound, "dan", "d:1")
    assert not cut  # they may all be fast
    monkeypatch.setattr(unsent, "MIN_EVICTION_AGE_SECONDS", 0.0)
    assert (await answered(bound, "dan", "d:1", body=b"small")).status == 200
    assert cut == ["a:1"]


@pytest.mark.parametrize("limit", ["STALLED_SECONDS", "MAX_STALL_SECONDS", "GRACE_SECONDS"])
async def test_who_reads_nothing_or_too_little_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, cut: Cut, limit: str
) -> None:
    async def takes_enough(slow: StallDetector) -> bool:
        return False

    monkeypatch.setattr(StallDetector, "is_making_progress", takes_enough)
    monkeypatch.setattr(unsent, "PROGRESS_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(unsent, limit, -10.0)
    cut.replies["a:1"] = await answered(ClientMemoryLimiter(), "ann", "a:1")
    await asyncio.wait_for(cut.happened.wait(), 10)
    assert set(cut) == {"a:1"}


async def test_a_client_that_takes_a_little_is_waited_for(monkeypatch: pytest.MonkeyPatch, cut: Cut) -> None:
    looks, looked_often = list[StallDetector](), asyncio.Event()

    async def takes_enough(slow: StallDetector) -> bool:
        looks.append(slow)
        if len(looks) > 5:
            looked_often.set()
        return True

    monkeypatch.setattr(StallDetector, "is_making_progress", takes_enough)
    monkeypatch.setattr(unsent, "PROGRESS_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(unsent, "STALLED_SECONDS", 0.0)
    reply = await answered(ClientMemoryLimiter(), "ann", "a:1")
    await asyncio.wait_for(looked_often.wait(), 10)
    assert reply.memory_reservation is not None and not cut


class Reader:
    """The HTTP server with a client that reads when it is let: it queues a few pieces, and then waits."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(TAIL_CHUNKS - 1)
        self.has_ended = False

    async def send(self, message: dict[str, Any]) -> None:
        if message["more_body"]:
            await self.queue.put(message["body"])
        else:
            self.has_ended = True


async def test_an_answer_is_held_until_all_but_its_last_bytes_have_been_read() -> None:
    reader, bound = Reader(), ClientMemoryLimiter()
    content = bytes(range(256)) * (3 * MAX_BODY_CHUNK_BYTES // 256) + b"end"
    reply = Reply(200, content)
    holding = bound.reserve_reply(asked("ann", "a:1"), reply)
    sending = asyncio.ensure_future(send_in_chunks(reader.send, content, holding))
    read = b""
    while len(content) - len(read) > TAIL_CHUNKS:
        assert not sending.done() and bound._response_budget.total.size > len(content)
        read += await reader.queue.get()
        await asyncio.sleep(0)
    while not (reader.has_ended and reader.queue.empty()):
        read += await reader.queue.get()
        await asyncio.sleep(0)
    assert read == content
    await sending
    assert not bound._response_budget.total.size


async def test_an_answer_that_was_compressed_is_held_in_that_form() -> None:
    bound = ClientMemoryLimiter()
    reply = await answered(bound, "ann", "a:1")
    reply.body = b"packed"
    assert isinstance(reply.memory_reservation, ReservationHandle)
    assert bound.reserve_reply(asked("ann", "a:1"), reply) is reply.memory_reservation
    assert reply.memory_reservation.reservation.content == b"packed"
