"""server.http.unsent: limits on unread responses and unfinished bodies, and clients that are disconnected."""

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
"""Room for one large response per connection, two per user and three in total."""


def build_request(
    user: str, client: str, method: str = "GET", length: int = 0, gateway: RequestInfo | None = None
) -> Call:
    headers = {"content-length": str(length)} if length else {}
    request = call(method=method, headers=headers, target=RequestInfo(method.lower(), "/", gateway=gateway))
    request.user, request.client = User(user), client
    return request


async def get_response(
    limiter: ClientMemoryLimiter, user: str, client: str, method: str = "GET", body: bytes = LARGE
) -> Reply:
    return await serve_limited(limiter, build_request(user, client, method), always_reply(Reply(200, body)))


async def serve_limited(limiter: ClientMemoryLimiter, request: Call, serve: Handler) -> Reply:
    pipeline = Pipeline((limiter.check_limits,), serve, (limiter.reserve,), (limiter.release_body,))
    return raise_for_status(await pipeline(request))


def build_large_body() -> bytes:
    """A large body that is not shared."""
    return bytes(bytearray(LARGE))


async def test_a_client_with_unread_responses_is_rejected() -> None:
    limiter = ClientMemoryLimiter(response_limits=LIMITS)
    replies = [await get_response(limiter, "ann", "a:1", body=build_large_body())]
    with pytest.raises(TooManyRequests, match=r"unread responses .* for one connection; complete them") as error:
        await get_response(limiter, "ann", "a:1")
    assert error.value.details.retry_after
    replies.append(await get_response(limiter, "ann", "a:2", body=build_large_body()))
    with pytest.raises(TooManyRequests, match="for one user"):
        await get_response(limiter, "ann", "a:3", body=b"small")
    assert (await get_response(limiter, "bob", "b:1", body=b"small")).status == 200
    replies.clear()
    assert (await get_response(limiter, "ann", "a:1")).status == 200


async def test_a_single_response_may_be_larger_than_the_limit() -> None:
    reply = await get_response(ClientMemoryLimiter(response_limits=LIMITS), "ann", "a:1", body=bytes(LIMITS.total * 2))
    assert reply.status == 200


async def test_a_running_read_is_rejected_when_the_memory_is_used_up() -> None:
    limiter, released = ClientMemoryLimiter(response_limits=LIMITS), asyncio.Event()

    async def reply_later(call: Call) -> Reply:
        await released.wait()
        return Reply(200, build_large_body())

    def start_request(method: str) -> "asyncio.Task[Reply]":
        return asyncio.ensure_future(serve_limited(limiter, build_request("ann", "a:1", method), reply_later))

    first, second, write = start_request("GET"), start_request("GET"), start_request("POST")
    await asyncio.sleep(0)
    released.set()
    results = await asyncio.gather(first, second, write, return_exceptions=True)
    assert [type(result) for result in results] == [Reply, TooManyRequests, Reply]


async def test_incoming_bodies_are_limited_and_released_when_they_are_done() -> None:
    limiter, released = ClientMemoryLimiter(body_limits=LIMITS), asyncio.Event()

    async def reply_when_released(call: Call) -> Reply:
        await released.wait()
        return Reply(201)

    def start_request(client: str, gateway: RequestInfo | None = None) -> "asyncio.Task[Reply]":
        upload = build_request("ann", client, "POST", 50_000, gateway)
        return asyncio.ensure_future(serve_limited(limiter, upload, reply_when_released))

    first = start_request("a:1")
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="incoming request bodies"):
        await start_request("a:1")
    gateway_upload = start_request("a:1", RequestInfo("get", "/"))
    released.set()
    assert (await first).status == (await gateway_upload).status == 201
    assert (await start_request("a:1")).status == 201


async def test_a_body_of_unknown_length_counts_as_the_body_limit() -> None:
    limiter = ClientMemoryLimiter(body_limit=50_000, body_limits=LIMITS)

    def upload_in_chunks() -> Call:
        upload = build_request("ann", "a:1", "POST")
        upload.headers = call(headers={"transfer-encoding": "chunked"}).headers
        return upload

    async def upload_again(call: Call) -> Reply:
        with pytest.raises(TooManyRequests):
            await serve_limited(limiter, upload_in_chunks(), always_reply(Reply(201)))
        return Reply(201)

    assert (await serve_limited(limiter, upload_in_chunks(), upload_again)).status == 201


async def test_an_upload_that_is_cancelled_releases_its_reservation() -> None:
    limiter = ClientMemoryLimiter(body_limits=LIMITS)

    async def read_forever(call: Call) -> Reply:
        await asyncio.Event().wait()
        return Reply(201)

    task = asyncio.ensure_future(serve_limited(limiter, build_request("ann", "a:1", "POST", 50_000), read_forever))
    await asyncio.sleep(0)
    assert limiter._body_budget.total.size
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not limiter._body_budget.total.size


async def test_a_stream_waits_for_room_before_its_next_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "ROOM_POLL_SECONDS", 0.001)
    limiter, watch = ClientMemoryLimiter(response_limits=LIMITS), build_request("ann", "a:1")
    assert not limiter.has_reservations
    handle = limiter.reserve_chunk(watch, build_large_body())
    waiting = asyncio.ensure_future(limiter.wait_for_room(watch))
    await limiter.wait_for_room(build_request("bob", "b:1"))
    results, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not results
    handle.release()
    await asyncio.wait_for(waiting, 40)


class Disconnects(list[str]):
    """Records the clients that were disconnected, and drops their replies, as the HTTP server does."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.called = asyncio.Event()

    def __call__(self, client: str) -> None:
        self.append(client)
        self.called.set()
        self.replies.pop(client, None)


@pytest.fixture
def disconnects(monkeypatch: pytest.MonkeyPatch) -> Disconnects:
    disconnects = Disconnects()
    monkeypatch.setattr(unsent, "close_connection", disconnects)
    return disconnects


async def test_at_the_total_limit_the_oldest_connection_of_the_largest_user_is_closed(
    monkeypatch: pytest.MonkeyPatch, disconnects: Disconnects
) -> None:
    limiter = ClientMemoryLimiter(response_limits=LIMITS)
    for user, client in (("bob", "b:1"), ("ann", "a:1"), ("ann", "a:2"), ("eve", "e:1")):
        disconnects.replies[client] = await get_response(limiter, user, client, "POST", build_large_body())
    with pytest.raises(TooManyRequests, match="for all users"):
        await get_response(limiter, "dan", "d:1")
    assert not disconnects  # they may all be reading
    monkeypatch.setattr(unsent, "MIN_EVICTION_AGE_SECONDS", 0.0)
    assert (await get_response(limiter, "dan", "d:1", body=b"small")).status == 200
    assert disconnects == ["a:1"]


@pytest.mark.parametrize("limit", ["STALLED_SECONDS", "MAX_STALL_SECONDS", "GRACE_SECONDS"])
async def test_a_client_that_reads_nothing_or_too_little_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, disconnects: Disconnects, limit: str
) -> None:
    async def is_making_progress(detector: StallDetector) -> bool:
        return False

    monkeypatch.setattr(StallDetector, "is_making_progress", is_making_progress)
    monkeypatch.setattr(unsent, "PROGRESS_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(unsent, limit, -10.0)
    disconnects.replies["a:1"] = await get_response(ClientMemoryLimiter(), "ann", "a:1")
    await asyncio.wait_for(disconnects.called.wait(), 40)
    assert set(disconnects) == {"a:1"}


async def test_a_client_that_makes_progress_is_not_disconnected(
    monkeypatch: pytest.MonkeyPatch, disconnects: Disconnects
) -> None:
    checks, checked_often = list[StallDetector](), asyncio.Event()

    async def is_making_progress(detector: StallDetector) -> bool:
        checks.append(detector)
        if len(checks) > 5:
            checked_often.set()
        return True

    monkeypatch.setattr(StallDetector, "is_making_progress", is_making_progress)
    monkeypatch.setattr(unsent, "PROGRESS_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(unsent, "STALLED_SECONDS", 0.0)
    reply = await get_response(ClientMemoryLimiter(), "ann", "a:1")
    await asyncio.wait_for(checked_often.wait(), 40)
    assert reply.memory_reservation is not None and not disconnects


class FakeClient:
    """The HTTP server with a client that reads on demand: it queues a few chunks, and then waits."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(TAIL_CHUNKS - 1)
        self.has_ended = False

    async def send(self, message: dict[str, Any]) -> None:
        if message["more_body"]:
            await self.queue.put(message["body"])
        else:
            self.has_ended = True


async def test_a_response_is_reserved_until_all_but_its_last_chunks_are_read() -> None:
    client, limiter = FakeClient(), ClientMemoryLimiter()
    content = bytes(range(256)) * (3 * MAX_BODY_CHUNK_BYTES // 256) + b"end"
    reply = Reply(200, content)
    handle = limiter.reserve_reply(build_request("ann", "a:1"), reply)
    sending = asyncio.ensure_future(send_in_chunks(client.send, content, handle))
    received = b""
    while len(content) - len(received) > TAIL_CHUNKS:
        assert not sending.done() and limiter._response_budget.total.size > len(content)
        received += await client.queue.get()
        await asyncio.sleep(0)
    while not (client.has_ended and client.queue.empty()):
        received += await client.queue.get()
        await asyncio.sleep(0)
    assert received == content
    await sending
    assert not limiter._response_budget.total.size


async def test_a_compressed_response_is_reserved_at_its_compressed_size() -> None:
    limiter = ClientMemoryLimiter()
    reply = await get_response(limiter, "ann", "a:1")
    reply.body = b"packed"
    assert isinstance(reply.memory_reservation, ReservationHandle)
    assert limiter.reserve_reply(build_request("ann", "a:1"), reply) is reply.memory_reservation
    assert reply.memory_reservation.reservation.content == b"packed"
