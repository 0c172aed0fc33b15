"""server.audit.stage: a stream is recorded once when it begins and once when it ends, however it ends."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.call import Call, Reply, Upgrade, WebSocket
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.server.audit.policy import METADATA, RECEIVED, STARTED, Policy, PolicyRule
from fairlead.server.http.asgi import AsgiApp
from tests.harness.audit import AuditFixture, object_path, open_audit
from tests.harness.calls import read_stream
from tests.harness.eventually import TIMEOUT_SECONDS, eventually

CONFIGMAPS = object_path(CONFIGMAP)
STARTED_AND_COMPLETE = ["ResponseStarted", "ResponseComplete"]


async def watch(call: Call) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one\n"
        yield b"two\n"

    return Reply(200, stream=chunks())


async def watch_forever(call: Call) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one\n"
        await asyncio.sleep(3600)

    return Reply(200, stream=chunks())


def list_stages(audit: AuditFixture) -> list[str]:
    return [event["stage"] for event in audit.events]


async def open_stream(audit: AuditFixture, method: str = "GET") -> Any:
    return read_stream(await audit(method, CONFIGMAPS, query="watch=1"))


async def wait_for_events(audit: AuditFixture, count: int) -> None:
    """Waits until the writer thread has written that many events."""
    await eventually(lambda: len(audit.events) >= count, TIMEOUT_SECONDS)


async def test_a_stream_is_recorded_when_it_begins_and_when_it_ends() -> None:
    async with open_audit(watch) as audit:
        stream = await open_stream(audit)
        await wait_for_events(audit, 1)
        assert list_stages(audit) == ["ResponseStarted"]
        assert [chunk async for chunk in stream] == [b"one\n", b"two\n"]
        await wait_for_events(audit, 2)
        assert list_stages(audit) == STARTED_AND_COMPLETE
    assert list_stages(audit) == STARTED_AND_COMPLETE
    started, complete = audit.events
    assert started["verb"] == complete["verb"] == "watch"
    assert {event["responseStatus"]["code"] for event in audit.events} == {200}
    assert started["stageTimestamp"] < complete["stageTimestamp"]
    assert started["requestReceivedTimestamp"] == complete["requestReceivedTimestamp"]


async def test_the_started_stage_can_be_omitted() -> None:
    async with open_audit(watch, Policy((PolicyRule(METADATA, omit_stages=frozenset({RECEIVED, STARTED})),))) as audit:
        assert [chunk async for chunk in await open_stream(audit)]
    assert list_stages(audit) == ["ResponseComplete"]


async def test_a_stream_that_fails_is_complete() -> None:
    async def watch_and_fail(call: Call) -> Reply:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise ValueError

        return Reply(200, stream=chunks())

    async with open_audit(watch_and_fail) as audit:
        with pytest.raises(ValueError):
            assert [chunk async for chunk in await open_stream(audit)]
    assert list_stages(audit) == STARTED_AND_COMPLETE


async def test_a_stream_whose_reader_is_cancelled_is_complete() -> None:
    async with open_audit(watch_forever) as audit:
        stream = await open_stream(audit)

        async def read_chunks() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read_chunks())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await wait_for_events(audit, 2)
    assert list_stages(audit) == STARTED_AND_COMPLETE


async def test_a_head_request_for_a_stream_is_complete_at_once() -> None:
    async with open_audit(watch_forever) as audit:
        await open_stream(audit, "HEAD")
        await wait_for_events(audit, 1)
    assert list_stages(audit) == ["ResponseComplete"]


async def test_streams_that_are_open_at_shutdown_are_recorded_as_complete() -> None:
    async with open_audit(watch_forever) as audit:
        stream = await open_stream(audit)
        assert await anext(stream) == b"one\n"
    assert list_stages(audit) == STARTED_AND_COMPLETE
    await stream.aclose()
    assert list_stages(audit) == STARTED_AND_COMPLETE


class FakeClient:
    """A fake HTTP server with a client that disconnects when `disconnects` is set."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.arrived, self.disconnects = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.disconnects.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message.get("body"):
            self.received.append(message["body"])
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


async def test_a_stream_is_complete_if_the_client_disconnects_before_its_first_chunk() -> None:
    async def fail_to_send(message: dict[str, Any]) -> None:
        raise ConnectionError

    async with open_audit(watch_forever) as audit:
        with pytest.raises(ConnectionError):
            await AsgiApp(audit.run, 1024)(SCOPE, FakeClient().receive, fail_to_send)
        await wait_for_events(audit, 2)
    assert list_stages(audit) == STARTED_AND_COMPLETE


@pytest.mark.parametrize("serve", [watch_forever, watch])
async def test_a_stream_through_asgi_is_completed_once_without_garbage_collection(serve: Any) -> None:
    gc.disable()
    try:
        async with open_audit(serve) as audit:
            client = FakeClient()
            task = asyncio.create_task(AsgiApp(audit.run, 1024)(SCOPE, client.receive, client.send))
            await asyncio.wait((task, asyncio.create_task(client.arrived.wait())), return_when="FIRST_COMPLETED")
            client.disconnects.set()
            await task
            assert client.received
            await wait_for_events(audit, 2)
        assert list_stages(audit) == STARTED_AND_COMPLETE
    finally:
        gc.enable()


async def test_a_websocket_is_recorded_when_it_begins_and_when_it_ends() -> None:
    async def upgrade(call: Call) -> Reply:
        async def run(socket: WebSocket) -> None:
            return None

        return Reply(101, upgrade=Upgrade("v5.channel.k8s.io", run))

    async with open_audit(upgrade) as audit:
        reply = await audit("GET", CONFIGMAPS)
        await wait_for_events(audit, 1)
        assert list_stages(audit) == ["ResponseStarted"]
        assert reply.upgrade is not None and reply.upgrade.subprotocol == "v5.channel.k8s.io"
        for close in reply.on_close:
            close()
        await wait_for_events(audit, 2)
    assert list_stages(audit) == STARTED_AND_COMPLETE
    assert {event["responseStatus"]["code"] for event in audit.events} == {101}
