"""A server that was broken into, against a real runner process: over the link, and with templates of its own.

`tests/links` has the rules of the protocol one by one.
"""

import asyncio
import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from fairlead.links import frames
from fairlead.links.frames import FrameType
from fairlead.links.requests import OpenRequest
from tests.live.runner_process import PROCESS_ENGINE
from tests.security.attacked_runner import Streams, attacked, wait_for, wait_for_task, wait_served
from tests.security.hostile_server import (
    LINK,
    UID,
    Answer,
    build_workspace,
    hostile_server,
    victim_of,
)


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, stream) + payload


DATA = b"\x00x"
VIOLATIONS: dict[str, list[bytes]] = {
    "data for a stream that is not open": [frame(FrameType.DATA, 2, DATA)],
    "a stream with a number of the runner": [frames.encode_open(1, OpenRequest("status"))],
    "the same stream twice": [frames.encode_open(2, OpenRequest("status"))] * 2,
    "a stream number with the highest bit": [frame(FrameType.OPEN, 2**32 - 2, b'{"action":"status"}')],
    "a message of 3 MB": [b"\x05" * 3_000_000],
    "a request that is a list": [frame(FrameType.OPEN, 2, b"[]")],
    "a request with options that are a list": [frame(FrameType.OPEN, 2, b'{"action":"up","options":[1]}')],
    "a request with a number as uid": [frame(FrameType.OPEN, 2, b'{"action":"up","uid":7}')],
    "a request that is nested deeply": [frame(FrameType.OPEN, 2, b'{"options":' + b'{"a":' * 3_000)],
    "a flood of pings": [frame(FrameType.PING, 0, b"12345678")] * 6_000,
    "a flood of requests": [frames.encode_open(2 * n, OpenRequest("status")) for n in range(1, 6_000)],
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_of_the_protocol_ends_the_link_and_the_runner_dials_again(tmp_path: Path, name: str) -> None:
    async with attacked(tmp_path) as (server, _, link):
        sending = asyncio.create_task(link.send(*VIOLATIONS[name]))
        received = await link.wait_ended()
        await asyncio.gather(sending, return_exceptions=True)
        assert any(kind is FrameType.GOAWAY for kind, _, _ in received) or "MB" in name
        await wait_served(await server.next_link(), Streams())


async def test_the_link_is_not_dialed_where_the_server_redirects_to(tmp_path: Path) -> None:
    async with hostile_server(tmp_path) as server, hostile_server(tmp_path) as elsewhere:
        server.answers = {("GET", LINK): Answer(b"\x1b]0;x\x07", 307, (f"location: {elsewhere.url}/elsewhere",))}
        async with victim_of(server, tmp_path / "runner") as victim:
            await wait_for(lambda: "status 307" in victim.process.read_log())
            assert victim.is_alive() and elsewhere.requests == []
            assert "\\u001b" not in victim.process.read_log() and "\x1b" not in victim.process.read_log()


STRANGE_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("exec", {"command": ["sh", "-c", "a\0b"], "tty": True}),
    ("exec", {"command": ["true"], "tty": True, "columns": 10**9}),
    ("exec", {"command": ["true"], "tty": True, "columns": -1}),
    ("exec", {"command": ["true"], "columns": "x"}),
    ("exec", {"command": ["true"], "columns": [1]}),
    ("exec", {"command": 7}),
    ("exec", {"command": {"a": 1}}),
    ("exec", {"command": "'"}),
    ("exec", {"command": ["x" * 15_000]}),
    ("exec", {"command": ["true"], "environment": {"A=B": "x"}}),
    ("exec", {"command": ["true"], "environment": {"A\n": "x"}}),
    ("exec", {"command": ["true"], "environment": [1]}),
    ("exec", {"command": ["true"], "folder": "\0"}),
    ("exec", {"command": ["true"], "user": "--privileged"}),
    ("resize", {"session": "x", "columns": "x"}),
    ("port", {"port": 10**9}),
    ("port", {"port": "22"}),
    ("port", {"port": True}),
    ("download", {"path": "\0"}),
    ("download", {"path": ["x"]}),
    ("log", {"offset": "x"}),
    ("log", {"offset": [1]}),
    ("cancel", {}),
    ("no-such-action", {}),
    ("__init__", {}),
]


async def test_strange_options_of_a_stream_cost_neither_the_link_nor_descriptors(tmp_path: Path) -> None:
    """With the engine `process`, which really starts processes."""
    source = tmp_path / "source"
    source.mkdir()
    workspace = build_workspace()
    workspace["status"]["instance"]["provider"]["name"] = "process"
    workspace["metadata"]["annotations"] = {"service.sh/workspace-source": f"local:{source}"}
    async with attacked(tmp_path, workspace, engine=PROCESS_ENGINE) as (_, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        await link.converse(OpenRequest("up", uid=UID, detach=True), streams.next())
        assert (await wait_for_task(link, streams))["status"] == "Succeeded"
        assert await link.converse(
            OpenRequest("exec", uid=UID, options={"command": ["echo", "hi"]}), streams.next()
        ) == (
            0,
            b"hi\n",
        )
        for rounds in range(2):
            if rounds == 1:
                before = victim.count_descriptors()
            for action, options in STRANGE_OPTIONS * 3:
                code, output = await link.converse(OpenRequest(action, uid=UID, options=options), streams.next())
                assert code != 0, (action, options, output)
        await wait_for(lambda: victim.count_descriptors() <= before)
        assert (await link.converse(OpenRequest("exec", uid=UID, options={"command": ["true"]}), streams.next()))[
            0
        ] == 0


async def test_requests_that_wait_for_a_task_are_bounded(tmp_path: Path) -> None:
    """Each would have a log of its own, and a place in the journal."""
    async with attacked(tmp_path) as (_, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        for number in range(100):
            request = OpenRequest(("stop", "delete")[number % 2], uid=UID, detach=True)
            await link.converse(request, streams.next())
        logs = list((victim.folder / "state" / "logs" / UID).iterdir())
        assert len(logs) < 40


# --- what the operator did not allow ----------------------------------------------------------------------------------


async def bring_up(
    folder: Path, workspace: dict[str, Any], flags: tuple[str, ...] = (), options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The task of an `up`, and its result."""
    async with attacked(folder, workspace, flags=flags) as (_, _, link):
        streams = Streams()
        await wait_served(link, streams)
        await link.converse(OpenRequest("up", uid=UID, options=options or {}, detach=True), streams.next())
        task = await wait_for_task(link, streams)
        result: dict[str, Any] = json.loads(base64.b64decode(task["result"]))
        return task | result


@pytest.mark.parametrize("allow", ["privileged", "capAdd,mounts", " privileged ", "unknown"])
async def test_a_permission_that_the_operator_does_not_allow_is_refused(tmp_path: Path, allow: str) -> None:
    workspace = build_workspace()
    workspace["status"]["instance"]["provider"]["options"] = {"allow": {"value": allow}}
    task = await bring_up(tmp_path, workspace, ("--allow", "gpu"))
    assert (task["status"], task["reason"]) == ("Failed", "PolicyViolation")
    assert "--allow" in task["message"]
