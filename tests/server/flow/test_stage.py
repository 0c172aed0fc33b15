"""server.flow.stage: which requests run at once, which flow is charged, which requests hold seats."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from fairlead.core.call import Call, Reply, RequestInfo, Upgrade, WebSocket
from fairlead.core.errors import Forbidden, TooManyRequests, Unauthorized
from fairlead.core.user import User
from fairlead.server.flow.classify import MIN_BULK_COST
from fairlead.server.flow.control import UNIT_SECONDS
from fairlead.server.flow.fair_queue import BULK, EXEMPT, INTERACTIVE
from fairlead.server.flow.stage import MAX_PROBES_PER_RESET
from tests.harness.calls import read_stream
from tests.server.flow.stage_fixture import (
    ADA,
    BEN,
    CREATE,
    DONE,
    GATEWAY,
    GET,
    HEALTH,
    LIST,
    FlowFixture,
    build_request,
    start_request,
)


async def test_a_request_is_served_at_once_while_nothing_is_queued() -> None:
    fixture = FlowFixture()
    assert await fixture.send(build_request(GET)) is DONE
    assert fixture.count_dispatched(INTERACTIVE, "users") == 1


async def test_an_error_of_the_handler_is_raised_unchanged() -> None:
    fixture = FlowFixture()

    def reject(call: Call) -> Awaitable[Reply]:
        raise Forbidden("no")

    with pytest.raises(Forbidden):
        await fixture.send(build_request(GET), reject)
    fixture.use_up_budget()
    with pytest.raises(Forbidden):
        await fixture.send(build_request(GET), reject)


async def test_a_light_user_is_served_before_an_earlier_heavy_user() -> None:
    fixture, order = FlowFixture(), []

    def serve(call: Call) -> Awaitable[Reply]:
        assert call.user is not None
        order.append(call.user.name)
        return DONE

    fixture.use_up_budget()
    heavy = [start_request(fixture.send(build_request(GET, ADA), serve)) for _ in range(300)]
    light = start_request(fixture.send(build_request(GET, BEN), serve))
    await asyncio.gather(*heavy, light)
    assert order.index("ben") < 60, "it waits for one iteration, not for all earlier requests"
    assert len(order) == 301


async def test_a_queued_request_is_authenticated_again() -> None:
    fixture, first, second = FlowFixture(), build_request(GET), build_request(GET)
    await fixture.send(first)
    fixture.use_up_budget()
    await fixture.send(second)
    assert fixture.reauthenticated == [second]


async def test_a_queued_request_of_another_pipeline_is_authenticated_again_by_that_one() -> None:
    fixture = FlowFixture()
    authenticated: list[Call] = []
    fixture.stage = fixture.stage.with_authentication(authenticated.append)
    request = build_request(GET)
    fixture.use_up_budget()
    await fixture.send(request)
    assert (authenticated, fixture.reauthenticated) == ([request], [])


@pytest.mark.parametrize(
    ("rows", "size", "target", "accept", "is_bulk"),
    [
        (10, 100, GET, "application/json", False),
        (10, 5_000_000, GET, "application/json", False),
        (10, 1_000_000, GET, "application/yaml", True),
        (10, 1_000_000, GET, "Table", True),
        (10, 100, LIST, "application/json", False),
        (50_000, 100, LIST, "application/json", True),
        (1_000, 100, LIST, "Table", True),
        (100, 100, LIST, "application/yaml", True),
    ],
)
async def test_large_responses_are_bulk(rows: int, size: int, target: RequestInfo, accept: str, is_bulk: bool) -> None:
    fixture = FlowFixture(rows, size)
    request = build_request(target, accept=accept)
    assert (fixture.stage._deps.costs.estimate_read(request) > MIN_BULK_COST) == is_bulk
    assert (await fixture.send(request)) is DONE
    assert fixture.count_dispatched(BULK if is_bulk else INTERACTIVE, "users") == 1


async def test_a_large_list_with_a_limit_is_not_bulk() -> None:
    fixture, request = FlowFixture(50_000), build_request(LIST)
    request.query = {"limit": ["500"]}
    await fixture.send(request)
    assert fixture.count_dispatched(INTERACTIVE, "users") == 1


async def test_a_user_has_one_large_request_at_a_time_and_small_ones_continue() -> None:
    fixture, running, released = FlowFixture(rows=100_000), [], asyncio.Event()

    async def work(call: Call) -> Reply:
        running.append(call.user.name if call.user else "")
        await released.wait()
        return DONE

    large = [start_request(fixture.send(build_request(LIST, user), work)) for user in (ADA, ADA, ADA, BEN, User("cyd"))]
    for _ in range(5):
        await asyncio.sleep(0)
    assert running == ["ada", "ben"]
    assert await fixture.send(build_request(GET, User("dan"))) is DONE
    assert await fixture.send(build_request(GET, ADA)) is DONE, "small requests of the same user continue, too"
    released.set()
    await asyncio.gather(*large)
    assert len(running) == 5
    assert fixture.seats_in_use(BULK) == 0


async def test_a_write_holds_seats_from_its_body_to_its_response() -> None:
    fixture, body_sent, released, request = (
        FlowFixture(),
        asyncio.Event(),
        asyncio.Event(),
        build_request(CREATE, content_length="5"),
    )

    async def read() -> bytes:
        await body_sent.wait()
        return b"12345"

    async def create(call: Call) -> Reply:
        await call.read_body()
        await released.wait()
        return DONE

    request.read_body = read
    task = start_request(fixture.send(request, create))
    await asyncio.sleep(0)
    assert fixture.seats_in_use() == 0, "a slow upload holds no seats"
    body_sent.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert fixture.seats_in_use() == 4
    released.set()
    await task
    assert fixture.seats_in_use() == 0


async def test_a_write_that_is_cancelled_or_fails_releases_its_seats() -> None:
    fixture = FlowFixture()

    async def fail(call: Call) -> Reply:
        await call.read_body()
        raise Forbidden("no")

    async def hang(call: Call) -> Reply:
        await call.read_body()
        await asyncio.Event().wait()
        return DONE

    with pytest.raises(Forbidden):
        await fixture.send(build_request(CREATE), fail)
    task = start_request(fixture.send(build_request(CREATE), hang))
    for _ in range(3):
        await asyncio.sleep(0)
    assert fixture.seats_in_use() > 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (fixture.seats_in_use(), fixture.control.seats.in_use) == (0, 0)


async def test_a_gateway_request_holds_no_seats_and_is_charged_for_its_response() -> None:
    fixture, released = FlowFixture(), asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 100_000

    async def forward(call: Call) -> Reply:
        await released.wait()
        return Reply(200, stream=chunks())

    tasks = [start_request(fixture.send(build_request(GATEWAY), forward)) for _ in range(200)]
    await asyncio.sleep(0)
    assert fixture.control.seats.in_use == 0
    assert await fixture.send(build_request(GET, BEN)) is DONE
    released.set()
    reply, *_ = await asyncio.gather(*tasks)
    flow = fixture.clients.for_call(build_request(GET, ADA)).regular_lane.flow
    before = flow.virtual_time
    assert len([chunk async for chunk in read_stream(reply)]) == 10
    assert flow.virtual_time - before == pytest.approx(10)


async def test_gateway_streams_and_websockets_count_toward_the_limit_of_their_user() -> None:
    fixture, released = FlowFixture(), asyncio.Event()
    watch = replace(GATEWAY, verb="watch")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{}"
        await released.wait()

    async def run_websocket(socket: WebSocket) -> None:
        await released.wait()

    async def forward(call: Call) -> Reply:
        if call.is_websocket:
            return Reply(101, upgrade=Upgrade("", run_websocket))
        return Reply(200, stream=chunks())

    first, second = build_request(watch), build_request(GATEWAY)
    second.is_websocket = True
    stream, socket = read_stream(await fixture.send(first, forward)), await fixture.send(second, forward)
    assert await anext(stream) == b"{}"
    with pytest.raises(TooManyRequests, match="you have 2 watches and other streams open"):
        await fixture.send(build_request(watch), forward)
    with pytest.raises(TooManyRequests):
        await fixture.send(second, forward)
    assert (await fixture.send(build_request(GATEWAY))).status == 200, "a response without a stream does not count"
    assert (await fixture.send(build_request(watch, BEN), forward)).status == 200
    released.set()
    for close in socket.on_close:
        close()
    assert [chunk async for chunk in stream] == []
    assert (await fixture.send(build_request(watch), forward)).status == 200


async def test_anonymous_requests_are_queued_like_any_other_before_their_401() -> None:
    fixture, order = FlowFixture(), []

    def reject(call: Call) -> Awaitable[Reply]:
        order.append("anonymous" if call.user is None else call.user.name)
        if call.user is None:
            raise Unauthorized
        return DONE

    fixture.use_up_budget()
    anonymous = [start_request(fixture.send(build_request(LIST, None), reject)) for _ in range(50)]
    ada = [start_request(fixture.send(build_request(GET, ADA), reject)) for _ in range(10)]
    await asyncio.gather(*ada)
    assert order.count("anonymous") < 40
    replies = await asyncio.gather(*anonymous, return_exceptions=True)
    assert {type(reply) for reply in replies} == {Unauthorized}


async def test_health_checks_bypass_the_queues_up_to_a_limit_per_iteration() -> None:
    fixture = FlowFixture()
    fixture.use_up_budget()
    replies = [await fixture.send(build_request(HEALTH, None)) for _ in range(MAX_PROBES_PER_RESET)]
    assert replies == [DONE] * MAX_PROBES_PER_RESET
    assert fixture.count_dispatched(EXEMPT, "probes") == MAX_PROBES_PER_RESET
    pending = fixture.send(build_request(HEALTH, None))
    assert isinstance(pending.send(None), asyncio.Future), "it is queued like any other request"
    pending.close()


async def test_other_requests_do_not_use_up_the_limit_of_health_checks() -> None:
    fixture = FlowFixture()
    for _ in range(10):
        fixture.use_up_budget()
        await asyncio.sleep(0)
        await fixture.send(build_request(GET, ADA))
        for _ in range(MAX_PROBES_PER_RESET):
            await fixture.send(build_request(HEALTH, None))
    assert fixture.count_dispatched(EXEMPT, "probes") == 10 * MAX_PROBES_PER_RESET


async def test_time_on_the_event_loop_is_charged_to_the_flow_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture, time = FlowFixture(), [0.0]
    monkeypatch.setattr(fixture.control, "now", lambda: time[0])

    def advance(seconds: float) -> None:
        time[0] += seconds

    async def work(call: Call) -> Reply:
        for _ in range(4):
            advance(0.010)
            asyncio.get_running_loop().call_soon(advance, 5.0)  # the time of another request, while this one waits
            await asyncio.sleep(0)
        return DONE

    await start_request(fixture.send(build_request(GET), work))
    assert fixture.clients.for_call(build_request(GET)).regular_lane.flow.virtual_time == pytest.approx(
        4 * 0.010 / UNIT_SECONDS, rel=0.01
    )


@pytest.mark.parametrize("is_busy", [False, True])
async def test_requests_create_no_reference_cycles(is_busy: bool) -> None:
    """Only a full collection finds cycles, and it blocks the event loop: many requests must not create any."""
    fixture = FlowFixture()
    fixture.clients.for_call(build_request(GET))

    def reject(call: Call) -> Awaitable[Reply]:
        if call.deferred_error is not None:
            raise call.pop_deferred_error()
        raise Forbidden("no")

    async def create(call: Call) -> Reply:
        await call.read_body()
        raise Forbidden("no")

    async def send_and_ignore_errors(
        target: RequestInfo, user: User | None, serve: Callable[[Call], Awaitable[Reply]]
    ) -> None:
        if is_busy:
            fixture.use_up_budget()
        request = build_request(target, user)
        if user is None:
            try:
                raise Unauthorized
            except Unauthorized as error:
                request.defer_error(error)
        with suppress(Forbidden, Unauthorized):
            await fixture.send(request, serve)

    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await send_and_ignore_errors(GET, ADA, reject)
            await send_and_ignore_errors(GET, None, reject)
            await send_and_ignore_errors(CREATE, ADA, reject)
            await send_and_ignore_errors(CREATE, ADA, create)
        before = len([obj for obj in gc.get_objects() if isinstance(obj, Call)])
        gc.collect()
        after = len([obj for obj in gc.get_objects() if isinstance(obj, Call)])
    finally:
        gc.enable()
    assert before == after
