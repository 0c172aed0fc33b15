"""The stage with real calls: what runs at once, who pays, what holds seats, and what is answered in the end."""

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
from fairlead.server.flow.levels import BULK, EXEMPT, INTERACTIVE
from fairlead.server.flow.stage import MAX_PROBES_PER_ITERATION
from tests.harness.calls import read_stream
from tests.server.flow.stage_fixture import ADA, BEN, CREATE, DONE, GET, HEALTH, LIST, THROUGH, Wire, request, started


async def test_an_answer_that_is_there_at_once_stays_that_while_nothing_waits() -> None:
    wire = Wire()
    assert await wire.ask(request(GET)) is DONE
    assert wire.counted(INTERACTIVE, "users") == 1


async def test_what_is_refused_later_is_raised_as_it_is() -> None:
    wire = Wire()

    def refuse(call: Call) -> Awaitable[Reply]:
        raise Forbidden("no")

    with pytest.raises(Forbidden):
        await wire.ask(request(GET), refuse)
    wire.use_up_turn()
    with pytest.raises(Forbidden):
        await wire.ask(request(GET), refuse)


async def test_a_quiet_user_is_answered_before_a_loud_one_who_came_first() -> None:
    wire, order = Wire(), []

    def answer(call: Call) -> Awaitable[Reply]:
        assert call.user is not None
        order.append(call.user.name)
        return DONE

    wire.use_up_turn()
    loud = [started(wire.ask(request(GET, ADA), answer)) for _ in range(300)]
    quiet = started(wire.ask(request(GET, BEN), answer))
    await asyncio.gather(*loud, quiet)
    assert order.index("ben") < 60, "he waits for what fits into a turn, not for all that came before"
    assert len(order) == 301


async def test_who_had_to_wait_is_asked_again_who_he_is() -> None:
    wire, first, second = Wire(), request(GET), request(GET)
    await wire.ask(first)
    wire.use_up_turn()
    await wire.ask(second)
    assert wire.renewed == [second]


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
async def test_large_answers_are_bulk(rows: int, size: int, target: RequestInfo, accept: str, is_bulk: bool) -> None:
    wire = Wire(rows, size)
    asked = request(target, accept=accept)
    assert (wire.stage._deps.costs.estimate_read(asked) > MIN_BULK_COST) == is_bulk
    assert (await wire.ask(asked)) is DONE
    assert wire.counted(BULK if is_bulk else INTERACTIVE, "users") == 1


async def test_a_limit_makes_a_list_small() -> None:
    wire, asked = Wire(50_000), request(LIST)
    asked.query = {"limit": ["500"]}
    await wire.ask(asked)
    assert wire.counted(INTERACTIVE, "users") == 1


async def test_one_user_has_one_large_request_at_a_time_and_others_small_ones_go_on() -> None:
    wire, running, go = Wire(rows=100_000), [], asyncio.Event()

    async def work(call: Call) -> Reply:
        running.append(call.user.name if call.user else "")
        await go.wait()
        return DONE

    large = [started(wire.ask(request(LIST, user), work)) for user in (ADA, ADA, ADA, BEN, User("cyd"))]
    for _ in range(5):
        await asyncio.sleep(0)
    assert running == ["ada", "ben"]
    assert await wire.ask(request(GET, User("dan"))) is DONE
    assert await wire.ask(request(GET, ADA)) is DONE, "the same user's small requests go on, too"
    go.set()
    await asyncio.gather(*large)
    assert len(running) == 5
    assert wire.held(BULK) == 0


async def test_a_write_holds_seats_from_its_body_to_its_answer() -> None:
    wire, body, go, asked = Wire(), asyncio.Event(), asyncio.Event(), request(CREATE, content_length="5")

    async def read() -> bytes:
        await body.wait()
        return b"12345"

    async def create(call: Call) -> Reply:
        await call.read_body()
        await go.wait()
        return DONE

    asked.read_body = read
    task = started(wire.ask(asked, create))
    await asyncio.sleep(0)
    assert wire.held() == 0, "who sends slowly holds nothing"
    body.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.held() == 4
    go.set()
    await task
    assert wire.held() == 0


async def test_a_write_that_is_cancelled_or_fails_gives_back_its_seats() -> None:
    wire = Wire()

    async def fail(call: Call) -> Reply:
        await call.read_body()
        raise Forbidden("no")

    async def hang(call: Call) -> Reply:
        await call.read_body()
        await asyncio.Event().wait()
        return DONE

    with pytest.raises(Forbidden):
        await wire.ask(request(CREATE), fail)
    task = started(wire.ask(request(CREATE), hang))
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.held() > 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (wire.held(), wire.control.seats.in_use) == (0, 0)


async def test_waiting_for_a_cluster_holds_no_seats_and_what_it_sends_is_paid_for() -> None:
    wire, go = Wire(), asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 100_000

    async def forward(call: Call) -> Reply:
        await go.wait()
        return Reply(200, stream=chunks())

    tasks = [started(wire.ask(request(THROUGH), forward)) for _ in range(200)]
    await asyncio.sleep(0)
    assert wire.control.seats.in_use == 0
    assert await wire.ask(request(GET, BEN)) is DONE
    go.set()
    reply, *_ = await asyncio.gather(*tasks)
    flow = wire.clients.for_call(request(GET, ADA)).regular_lane.flow
    before = flow.virtual_time
    assert len([chunk async for chunk in read_stream(reply)]) == 10
    assert flow.virtual_time - before == pytest.approx(10)


async def test_streams_through_gateways_and_sockets_count_for_their_user() -> None:
    wire, go = Wire(), asyncio.Event()
    watch = replace(THROUGH, verb="watch")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{}"
        await go.wait()

    async def talk(socket: WebSocket) -> None:
        await go.wait()

    async def forward(call: Call) -> Reply:
        if call.is_websocket:
            return Reply(101, upgrade=Upgrade("", talk))
        return Reply(200, stream=chunks())

    first, second = request(watch), request(THROUGH)
    second.is_websocket = True
    stream, socket = read_stream(await wire.ask(first, forward)), await wire.ask(second, forward)
    assert await anext(stream) == b"{}"
    with pytest.raises(TooManyRequests, match="you have 2 watches and other streams open"):
        await wire.ask(request(watch), forward)
    with pytest.raises(TooManyRequests):
        await wire.ask(second, forward)
    assert (await wire.ask(request(THROUGH))).status == 200, "a response without a stream does not count"
    assert (await wire.ask(request(watch, BEN), forward)).status == 200
    go.set()
    for close in socket.on_close:
        close()
    assert [chunk async for chunk in stream] == []
    assert (await wire.ask(request(watch), forward)).status == 200


async def test_strangers_wait_for_their_401_like_everybody_else() -> None:
    wire, order = Wire(), []

    def refuse(call: Call) -> Awaitable[Reply]:
        order.append("stranger" if call.user is None else call.user.name)
        if call.user is None:
            raise Unauthorized
        return DONE

    wire.use_up_turn()
    strangers = [started(wire.ask(request(LIST, None), refuse)) for _ in range(50)]
    ada = [started(wire.ask(request(GET, ADA), refuse)) for _ in range(10)]
    await asyncio.gather(*ada)
    assert order.count("stranger") < 40
    answers = await asyncio.gather(*strangers, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unauthorized}


async def test_health_is_told_however_busy_the_server_is_but_not_for_ever_in_one_turn() -> None:
    wire = Wire()
    wire.use_up_turn()
    answers = [await wire.ask(request(HEALTH, None)) for _ in range(MAX_PROBES_PER_ITERATION)]
    assert answers == [DONE] * MAX_PROBES_PER_ITERATION
    assert wire.counted(EXEMPT, "probes") == MAX_PROBES_PER_ITERATION
    one_more = wire.ask(request(HEALTH, None))
    assert isinstance(one_more.send(None), asyncio.Future), "it is queued like any other request"
    one_more.close()


async def test_what_a_request_takes_on_the_event_loop_is_charged_to_its_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, time = Wire(), [0.0]
    monkeypatch.setattr(wire.control, "now", lambda: time[0])

    def let_pass(seconds: float) -> None:
        time[0] += seconds

    async def work(call: Call) -> Reply:
        for _ in range(4):
            let_pass(0.010)
            asyncio.get_running_loop().call_soon(let_pass, 5.0)  # somebody else's time, while this one waits
            await asyncio.sleep(0)
        return DONE

    await started(wire.ask(request(GET), work))
    assert wire.clients.for_call(request(GET)).regular_lane.flow.virtual_time == pytest.approx(
        4 * 0.010 / UNIT_SECONDS, rel=0.01
    )


@pytest.mark.parametrize("is_busy", [False, True])
async def test_nothing_is_left_for_the_garbage_collector(is_busy: bool) -> None:
    """Cycles are only found by looking at everything there is, which stops the event loop: a flood must make none."""
    wire = Wire()
    wire.clients.for_call(request(GET))

    def refuse(call: Call) -> Awaitable[Reply]:
        if call.deferred_error is not None:
            raise call.pop_deferred_error()
        raise Forbidden("no")

    async def create(call: Call) -> Reply:
        await call.read_body()
        raise Forbidden("no")

    async def ask(target: RequestInfo, user: User | None, then: Callable[[Call], Awaitable[Reply]]) -> None:
        if is_busy:
            wire.use_up_turn()
        asked = request(target, user)
        if user is None:
            try:
                raise Unauthorized
            except Unauthorized as error:
                asked.defer_error(error)
        with suppress(Forbidden, Unauthorized):
            await wire.ask(asked, then)

    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await ask(GET, ADA, refuse)
            await ask(GET, None, refuse)
            await ask(CREATE, ADA, refuse)
            await ask(CREATE, ADA, create)
        before = len([each for each in gc.get_objects() if isinstance(each, Call)])
        gc.collect()
        after = len([each for each in gc.get_objects() if isinstance(each, Call)])
    finally:
        gc.enable()
    assert before == after
