"""Streams: one event when they begin and one when they are over, however they end."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.call import Call, Reply, Upgrade, WebSocket
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.server.audit.policy import METADATA, RECEIVED, STARTED, Policy, PolicyRule
from fairlead.server.http.asgi import AsgiApp
from tests.harness.audit import AuditFixture, open_audit, place
from tests.harness.calls import read_stream

CONFIGMAPS = place(CONFIGMAP)
BOTH = ["ResponseStarted", "ResponseComplete"]


async def watch(call: Call) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one\n"
        yield b"two\n"

    return Reply(200, stream=chunks())


async def endless(call: Call) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one\n"
        await asyncio.sleep(3600)

    return Reply(200, stream=chunks())


def stages(desk: AuditFixture) -> list[str]:
    return [event["stage"] for event in desk.events]


async def opened(desk: AuditFixture, method: str = "GET") -> Any:
    return read_stream(await desk(method, CONFIGMAPS, query="watch=1"))


async def written(desk: AuditFixture, count: int) -> None:
    """Waits until the thread has written so many events."""
    for _ in range(1_000):
        if len(desk.events) >= count:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{count} events were expected, not {desk.events}")


async def test_a_stream_is_recorded_when_it_begins_and_when_it_ends() -> None:
    async with open_audit(watch) as desk:
        stream = await opened(desk)
        await written(desk, 1)
        assert stages(desk) == ["ResponseStarted"]
        assert [chunk async for chunk in stream] == [b"one\n", b"two\n"]
        await written(desk, 2)
        assert stages(desk) == BOTH
    assert stages(desk) == BOTH
    started, complete = desk.events
    assert started["verb"] == complete["verb"] == "watch"
    assert {event["responseStatus"]["code"] for event in desk.events} == {200}
    assert started["stageTimestamp"] < complete["stageTimestamp"]
    assert started["requestReceivedTimestamp"] == complete["requestReceivedTimestamp"]


async def test_the_beginning_can_be_left_out() -> None:
    async with open_audit(watch, Policy((PolicyRule(METADATA, omit_stages=frozenset({RECEIVED, STARTED})),))) as desk:
        assert [chunk async for chunk in await opened(desk)]
    assert stages(desk) == ["ResponseComplete"]


async def test_a_stream_that_fails_is_over() -> None:
    async def failing(call: Call) -> Reply:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise ValueError

        return Reply(200, stream=chunks())

    async with open_audit(failing) as desk:
        with pytest.raises(ValueError):
            assert [chunk async for chunk in await opened(desk)]
    assert stages(desk) == BOTH


async def test_a_reader_that_is_cancelled_ends_it() -> None:
    async with open_audit(endless) as desk:
        stream = await opened(desk)

        async def reading() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(reading())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await written(desk, 2)
    assert stages(desk) == BOTH


async def test_who_asks_for_the_head_of_a_stream_has_all_there_is() -> None:
    async with open_audit(endless) as desk:
        await opened(desk, "HEAD")
        await written(desk, 1)
    assert stages(desk) == ["ResponseComplete"]


async def test_streams_that_are_open_when_the_server_ends_are_recorded_as_over() -> None:
    async with open_audit(endless) as desk:
        stream = await opened(desk)
        assert await anext(stream) == b"one\n"
    assert stages(desk) == BOTH
    await stream.aclose()
    assert stages(desk) == BOTH


class Client:
    """What the HTTP server hands over, with a client that leaves when it is told to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.arrived, self.leaves = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message.get("body"):
            self.taken.append(message["body"])
            self.arrived.set()


SCOPE = {
    "type": "http",
    "http_version": "1.1",
    "method": "GET",
    "path": CONFIGMAPS,
    "raw_path": CONFIGMAPS.encode(),
    "query_string": b"watch=1",
    "client": ("192.0.2.7", "4711"),
    "headers": [(b"host", b"x")],
}


async def test_a_stream_ends_although_the_client_left_before_its_first_chunk() -> None:
    async def fail_to_send(message: dict[str, Any]) -> None:
        raise ConnectionError

    async with open_audit(endless) as desk:
        with pytest.raises(ConnectionError):
            await AsgiApp(desk.run, 1024)(SCOPE, Client().receive, fail_to_send)
        await written(desk, 2)
    assert stages(desk) == BOTH


@pytest.mark.parametrize("serve", [endless, watch])
async def test_through_the_front_a_stream_ends_once_without_waiting_for_anything(serve: Any) -> None:
    gc.disable()
    try:
        async with open_audit(serve) as desk:
            client = Client()
            serving = asyncio.create_task(AsgiApp(desk.run, 1024)(SCOPE, client.receive, client.send))
            await asyncio.wait((serving, asyncio.create_task(client.arrived.wait())), return_when="FIRST_COMPLETED")
            client.leaves.set()
            await serving
            assert client.taken
            await written(desk, 2)
        assert stages(desk) == BOTH
    finally:
        gc.enable()


async def test_a_websocket_is_recorded_when_it_begins_and_when_it_is_over() -> None:
    async def going_on(call: Call) -> Reply:
        async def run(socket: WebSocket) -> None:
            return None

        return Reply(101, upgrade=Upgrade("v5.channel.k8s.io", run))

    async with open_audit(going_on) as desk:
        reply = await desk("GET", CONFIGMAPS)
        await written(desk, 1)
        assert stages(desk) == ["ResponseStarted"]
        assert reply.upgrade is not None and reply.upgrade.subprotocol == "v5.channel.k8s.io"
        for close in reply.on_close:
            close()
        await written(desk, 2)
    assert stages(desk) == BOTH
    assert {event["responseStatus"]["code"] for event in desk.events} == {101}
