"""A hostile runner against a real server: forged frames on its link. Other runners and clients must not notice.

`tests/links/test_mux_violations.py` has the rules of the protocol one by one, also those about floods.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from fairlead.links import frames
from fairlead.links.frames import FrameType
from fairlead.links.limits import INITIAL_WINDOW, MAX_STREAMS
from fairlead.links.requests import OpenRequest
from fairlead.links.streams import ResetCode
from tests.harness.server_process import TIMEOUT_SECONDS, Server, build_tls_context, running_server
from tests.live.workspace_setup import WORKSPACE, M, create_object, create_workspace
from tests.security.conftest import assert_healthy
from tests.security.hostile_runner import HELLO, HostileRunner, hostile_runner


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, stream) + payload


def opening(stream: int) -> bytes:
    return frames.encode_open(stream, OpenRequest("status"))


DATA = b"\x01x"
VIOLATIONS: dict[str, list[bytes]] = {
    "data for a stream that was never opened": [frame(FrameType.DATA, 2, DATA)],
    "data for a stream of its own that was never opened": [frame(FrameType.DATA, 1, DATA)],
    "credit for a stream that was never opened": [frames.encode_credit(4, 1)],
    "an end of a stream that was never opened": [frames.encode_exit(2, 0)],
    "a reset of a stream that was never opened": [frames.encode_reason(FrameType.RESET, 2**31 - 1, 1, "")],
    "an acceptance that nobody waits for": [frames.encode_accept(2, {})],
    "a refusal that nobody waits for": [frames.encode_refuse(2, 500, "")],
    "a stream that belongs to the server": [opening(2)],
    "the same stream twice": [opening(1), opening(1)],
    "streams in descending order": [opening(5), opening(3)],
    "a stream number with the highest bit": [frame(FrameType.DATA, 2**32 - 1, DATA)],
    "a second hello": [HELLO],
    "a hello for a stream": [frame(FrameType.HELLO, 1, HELLO[5:])],
    "an unknown type": [frame(0, 0)],
    "the last type": [frame(255, 1)],
    "an empty message": [b""],
    "half a header": [b"\x05\x00\x00"],
    "a ping without content": [frame(FrameType.PING, 0)],
    "a ping for a stream": [frame(FrameType.PING, 1, b"12345678")],
    "a message above the limit": [frame(FrameType.DATA, 1, b"\x01" + b"x" * frames.MAX_PAYLOAD_BYTES)],
    "a message of megabytes": [b"\x05" * 3_000_000],
    "an open request that is no JSON": [frame(FrameType.OPEN, 1, b"\xff\xfe{")],
    "an open request that is deeply nested": [frame(FrameType.OPEN, 1, b'{"options":' + b'{"a":' * 3000)],
    "an open request with a number of 16 KB": [frame(FrameType.OPEN, 1, b'{"action":' + b"9" * 16_000 + b"}")],
    "a goaway that is too long": [frame(FrameType.GOAWAY, 0, b"\0\0" + b"x" * 2000)],
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, str]]:
    """A server with the workspace `dev` on the hostile runner, and a second runner. Returns both keys."""
    with running_server(tmp_path_factory.mktemp("links") / "data") as server, server.client() as client:
        key = create_workspace(client)
        create_object(client, f"{M}/runners", "Runner", "other")
        yield server, key, client.get(f"{M}/runners/other/accesskey").json()["accessKey"]


@pytest.fixture
async def bystander(linked: tuple[Server, str, str]) -> AsyncIterator[HostileRunner]:
    """Another runner, which behaves. After the test it is still connected, and the server is healthy."""
    server, _, key = linked
    offset = len(server.log.read_text())
    async with hostile_runner(server, key, "other") as other:
        answering = asyncio.create_task(other.answer_pings())
        yield other
        assert not answering.done(), "the link of another runner has ended"
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    assert_healthy(server, offset)


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_ends_the_link_of_that_runner_only(
    linked: tuple[Server, str, str], bystander: HostileRunner, name: str
) -> None:
    async with hostile_runner(linked[0], linked[1]) as runner:
        sending = asyncio.create_task(runner.send(*VIOLATIONS[name]))
        received = await runner.read_until_closed()
        await asyncio.gather(sending, return_exceptions=True)
    goaways = [payload for kind, _, payload in received if kind is FrameType.GOAWAY]
    assert goaways, "the server says what was wrong"


async def ask(server: Server, path: str = f"{WORKSPACE}/tasks") -> httpx.Response:
    async with server.async_client() as client:
        return await client.get(path, timeout=TIMEOUT_SECONDS)


async def converse(
    linked: tuple[Server, str, str], answer: list[bytes], path: str = f"{WORKSPACE}/tasks"
) -> httpx.Response:
    """The response to a client, when the runner answers its stream with these frames. They get its number."""
    async with hostile_runner(linked[0], linked[1]) as runner:
        await asyncio.sleep(0)
        asking = asyncio.create_task(ask(linked[0], path))
        while True:
            opened = asyncio.create_task(runner.receive(FrameType.OPEN))
            await asyncio.wait((asking, opened), return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                break
            opened.cancel()
            assert asking.result().status_code == 503, asking.result().text  # it is being registered
            asking = asyncio.create_task(ask(linked[0], path))
        stream = opened.result()[0]
        for each in answer:
            await runner.send(each[:1] + stream.to_bytes(4, "big") + each[5:])
        return await asking


ACCEPT, EXIT = frames.encode_accept(0, {}), frames.encode_exit(0, 0)


def output(content: bytes, channel: int = 1) -> list[bytes]:
    parts = [content[at : at + 16_000] for at in range(0, len(content), 16_000)]
    return [ACCEPT, *(frames.encode_data(0, channel, part) for part in parts)]


HUGE_NUMBER = b'{"tasks":[{"id":' + b"9" * 15_000 + b',"type":"","status":""}]}'
ANSWERS: dict[str, tuple[list[bytes], int]] = {
    "no UTF-8": ([*output(b'{"tasks":[{"id":"\xff\xfe","type":"","status":""}]}'), EXIT], 502),
    "deeply nested": ([*output(b'{"tasks":' + b"[" * 100_000), EXIT], 502),
    "a huge number": ([*output(HUGE_NUMBER), EXIT], 502),
    "another shape": ([*output(b'{"tasks": {"id": 1}}'), EXIT], 502),
    "nothing": ([ACCEPT, EXIT], 502),
    "data before the acceptance": ([frames.encode_data(0, 1, b"x")], 502),
    "a channel that does not exist": ([ACCEPT, frame(FrameType.DATA, 0, b"\x09x")], 502),
    "more than its credit": (
        [ACCEPT, *[frames.encode_data(0, 1, b" " * 16_000)] * (INITIAL_WINDOW // 4_000), EXIT],
        502,
    ),
    "more than the limit of a response": (output(b" " * 6_000_000), 502),
    "credit without bounds": ([ACCEPT, *[frames.encode_credit(0, 2**32 - 1)] * 3], 502),
    "an exit code without a stream": ([EXIT], 502),
    "data after the exit": ([ACCEPT, EXIT, frames.encode_data(0, 1, b"x")], 502),
    "a refusal with a status of success": ([frame(FrameType.REFUSE, 0, b'{"code": 200}')], 502),
    "a refusal with a status that signs users out": ([frames.encode_refuse(0, 401, "x")], 502),
    "a refusal with a redirect": ([frame(FrameType.REFUSE, 0, b'{"code": 302}')], 502),
    "a reset": ([frames.encode_reason(FrameType.RESET, 0, 1, "x")], 503),
    "a reset after the acceptance": ([ACCEPT, frames.encode_reason(FrameType.RESET, 0, ResetCode.LINK_LOST, "x")], 502),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_answer_of_a_runner_is_an_internal_error(
    linked: tuple[Server, str, str], bystander: HostileRunner, name: str
) -> None:
    frames_of_answer, status = ANSWERS[name]
    response = await converse(linked, frames_of_answer)
    assert response.status_code in (status, 502, 503), response.text
    assert response.json()["kind"] == "Status"


NUMBERS = b'{"a": 123456789012345678901234567890, "b": 1e400, "c": -0.0}'


@pytest.mark.parametrize("report", [NUMBERS, b"{" + b'"a":{' * 2000 + b"}" * 2001, b'{"a": "\\ud800"}', b"\xff"])
async def test_no_report_of_a_runner_is_an_internal_error(
    linked: tuple[Server, str, str], bystander: HostileRunner, report: bytes
) -> None:
    response = await converse(linked, [*output(report), EXIT], f"{WORKSPACE}/troubleshoot")
    assert response.status_code == 200, response.text


ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n[error] forged \u202eline \x9b31m"
TEXTS = {
    "refusal": [frames.encode_refuse(0, 400, ESCAPES)],
    "reset": [ACCEPT, frames.encode_reason(FrameType.RESET, 0, 1, ESCAPES)],
    "stderr": [*output(ESCAPES.encode(), channel=2), frames.encode_exit(0, 1)],
}


@pytest.mark.parametrize("name", TEXTS)
async def test_messages_of_a_runner_cannot_control_the_terminals_of_users(
    linked: tuple[Server, str, str], bystander: HostileRunner, name: str
) -> None:
    response = await converse(linked, TEXTS[name])
    message = response.json()["message"]
    assert response.status_code >= 400 and "forged" in message
    assert all(each.isprintable() or each == "\n" for each in message), message


async def test_a_runner_cannot_forge_lines_of_the_log(
    linked: tuple[Server, str, str], bystander: HostileRunner
) -> None:
    server = linked[0]
    offset = len(server.log.read_bytes())
    async with hostile_runner(server, linked[1]) as runner:
        await runner.send(frames.encode_reason(FrameType.GOAWAY, 0, 1, ESCAPES))
    async with hostile_runner(server, linked[1]) as runner:
        await runner.send(b"\xff" * 9)
        await runner.read_until_closed()
    written = server.log.read_bytes()[offset:].decode()
    assert not any(line.startswith("[error]") for line in written.splitlines())
    assert "\x1b" not in written


async def test_more_streams_than_allowed_are_refused_and_cost_no_more(
    linked: tuple[Server, str, str], bystander: HostileRunner
) -> None:
    """The server serves no streams of runners at all."""
    async with hostile_runner(linked[0], linked[1]) as runner:
        for number in range(1, 2 * MAX_STREAMS + 3, 2):
            await runner.send(opening(number))
            stream, _ = await runner.receive(FrameType.REFUSE)
            assert stream == number


async def test_a_runner_cannot_take_the_link_of_another(linked: tuple[Server, str, str]) -> None:
    server, key, other = linked
    for name, wrong in (("local", other), ("other", key)):
        async with httpx.AsyncClient(verify=build_tls_context(str(server.ca_file)), base_url=server.url) as client:
            response = await client.get(f"{M}/runners/{name}/link", headers={"Authorization": f"Bearer {wrong}"})
        assert response.status_code == 403, response.text
