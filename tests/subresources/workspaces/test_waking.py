"""Tests of `fairlead.subresources.workspaces.waking`: who wakes a workspace, and the stream of one that wakes up."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import Unavailable
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.requests import ResponseHead
from fairlead.links.streams import Data, Eof, Exit, Message, StreamReset
from fairlead.subresources.workspaces.waking import QUIET_SECONDS, ReconnectGuard, WakingStream, find_obstacle
from tests.harness.virtual_time import LoopClock, on_virtual_time

PREFIX = "sleepmode.service.sh/"


class ScriptedStream:
    """Receives what it is given, and keeps what is sent."""

    def __init__(self, *messages: Message) -> None:
        self.details: dict[str, Any] = {}
        self.messages = list(messages)
        self.sent: list[Message] = []
        self.end = ""

    async def accept(self, details: dict[str, Any]) -> None: ...

    async def receive(self) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    async def send(self, channel: int, data: bytes) -> None:
        self.sent.append(Data(channel, data))

    async def send_head(self, head: ResponseHead) -> None: ...

    async def send_eof(self, channel: int) -> None:
        self.sent.append(Eof(channel))

    async def send_exit(self, code: int) -> None:
        self.sent.append(Exit(code))

    async def reset(self, reason: str) -> None:
        self.end = reason

    def abandon(self, reason: str) -> None:
        self.end = reason


def asleep(sleep_type: str = "inactivitySleep", **parts: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"{PREFIX}sleep-type": sleep_type}}, **parts}


def test_a_person_wakes_what_is_idle() -> None:
    assert find_obstacle(asleep(), {}, False) == ""
    assert find_obstacle(asleep(), {"wake": True}, True) == ""


@pytest.mark.parametrize(
    ("workspace", "options", "is_reconnect"),
    [
        (asleep("scheduledSleep"), {"wake": True}, False),
        ({"metadata": {"annotations": {f"{PREFIX}force": "true"}}}, {"wake": True}, False),
        (asleep(spec={"preventWakeUpOnConnection": True}), {"wake": True}, False),
        (asleep(status={"instance": {"preventWakeUpOnConnection": True}}), {}, False),
        (asleep(), {"wake": False}, False),
        (asleep(), {}, True),
    ],
)
def test_others_do_not(workspace: dict[str, Any], options: dict[str, Any], is_reconnect: bool) -> None:
    assert find_obstacle(workspace, options, is_reconnect)


@on_virtual_time
async def test_a_client_that_tries_again_and_again_never_becomes_a_person() -> None:
    guard = ReconnectGuard(LoopClock())
    assert not guard.is_reconnect("u", "ada")
    guard.note("u", "ada")
    for _ in range(100):
        await asyncio.sleep(QUIET_SECONDS - 1)
        assert guard.is_reconnect("u", "ada")
        guard.note("u", "ada")
    assert not guard.is_reconnect("u", "bob")
    await asyncio.sleep(QUIET_SECONDS)
    assert not guard.is_reconnect("u", "ada")


async def open_stream(waking: ScriptedStream, session: Stream) -> WakingStream:
    async def open_session() -> Stream:
        return session

    return WakingStream(waking, open_session)


async def receive_all(stream: WakingStream) -> list[Message]:
    found: list[Message] = []
    while (message := await stream.receive()) is not None:
        found.append(message)
        if isinstance(message, Exit):
            break
    return found


async def test_the_log_is_split_into_lines_without_control_characters() -> None:
    log = b'{"message":"step Clone"}\n{"message":"\\u001b[2Jred\\u0007"}\nnot JSON\n{"message":7}\n[1]\n{"mess'
    waking = ScriptedStream(Data(STDOUT, log), Data(STDERR, b'age":"rest"}\n'), Eof(STDOUT), Exit(0))
    session = ScriptedStream(Data(STDOUT, b"SSH-2.0"), Exit(0))
    found = await receive_all(await open_stream(waking, session))
    texts = [each.content for each in found if isinstance(each, Data) and each.channel == STDERR]
    assert b"".join(texts) == b"waking the workspace up\nstep Clone\n[2Jred\nrest\n"
    assert found[-2:] == [Data(STDOUT, b"SSH-2.0"), Exit(0)]


async def test_a_line_without_an_end_is_not_kept_whole() -> None:
    waking = ScriptedStream(*(Data(STDOUT, bytes(16_000)) for _ in range(100)), Exit(0))
    stream = await open_stream(waking, ScriptedStream(Exit(0)))
    await receive_all(stream)
    assert len(stream._line) <= 16 * 1024


async def test_what_the_client_sends_waits_for_the_session() -> None:
    session = ScriptedStream(Exit(0))
    stream = await open_stream(ScriptedStream(Exit(0)), session)
    sending = asyncio.create_task(stream.send(STDIN, b"early"))
    await asyncio.sleep(0)
    assert session.sent == []
    await receive_all(stream)
    await sending
    assert session.sent == [Data(STDIN, b"early")]


async def test_a_workspace_that_does_not_wake_up_ends_the_stream_with_its_exit_code() -> None:
    session = ScriptedStream(Exit(0))
    stream = await open_stream(ScriptedStream(Exit(3)), session)
    assert (await receive_all(stream))[-1] == Exit(3)
    with pytest.raises(StreamReset):
        await stream.send(STDIN, b"late")
    assert session.messages


async def test_a_runner_that_is_lost_meanwhile_ends_the_stream_with_a_reason() -> None:
    async def open_session() -> Stream:
        raise Unavailable("the runner is not connected")

    stream = WakingStream(ScriptedStream(Exit(0)), open_session)
    await stream.receive()
    with pytest.raises(StreamReset, match="not connected"):
        await stream.receive()
    stream = WakingStream(ScriptedStream(), open_session)
    await stream.receive()
    with pytest.raises(StreamReset, match="did not wake up"):
        await stream.receive()


async def test_a_reset_ends_both_streams_and_what_waits() -> None:
    waking, session = ScriptedStream(Exit(0)), ScriptedStream(Exit(0))
    stream = await open_stream(waking, session)
    sending = asyncio.create_task(stream.send(STDIN, b"x"))
    await asyncio.sleep(0)
    await stream.reset("gone")
    with pytest.raises(StreamReset):
        await sending
    assert waking.end == "gone"
    stream = await open_stream(waking, session)
    await receive_all(stream)
    stream.abandon("gone, too")
    assert session.end == "gone, too"
