"""How the runner uses its connection to the server: the address, the key, and what ends the process."""

import asyncio
from pathlib import Path

import pytest

from fairlead.links import dialing
from fairlead.links.connection import Link
from fairlead.links.contract import SUPERSEDED, MessageTransport, Stream
from fairlead.links.dialing import DialError, LinkAddress
from fairlead.links.requests import OpenRequest, Refused
from fairlead.runner.heartbeat import Replaced, RunnerIdentity
from fairlead.runner.process import address_builder, serve_link
from fairlead.runner.settings import RunnerSettings
from tests.links.pipes import pipe_pair


async def refuse(request: OpenRequest, stream: Stream) -> None:
    raise Refused(501, "not here")


def build_settings(folder: Path) -> RunnerSettings:
    (folder / "key").write_text("first\n")
    return RunnerSettings("r", "https://example.com:8443", folder, folder / "key")


def test_the_address_has_the_key_of_the_moment(tmp_path: Path) -> None:
    build_address = address_builder(build_settings(tmp_path))
    path = "/kubernetes/management/apis/management.service.sh/v1/runners/r/link"
    assert build_address().url == f"wss://example.com:8443{path}"
    assert build_address().key == "first"
    (tmp_path / "key").write_text("second\n")
    assert build_address().key == "second"


def test_a_key_that_is_missing_for_a_moment_is_an_attempt_that_failed(tmp_path: Path) -> None:
    build_address = address_builder(build_settings(tmp_path))
    (tmp_path / "key").unlink()
    with pytest.raises(DialError, match="no such file"):
        build_address()


async def test_a_superseded_runner_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = pipe_pair()
    server = Link(far, boot_id="server", is_dialer=False)

    async def dial(address: LinkAddress) -> MessageTransport:
        return near

    async def supersede() -> None:
        running = asyncio.create_task(server.run())
        await server.wait_ready()
        await server.close(SUPERSEDED, "another process has connected")
        await running

    monkeypatch.setattr(dialing, "dial", dial)
    superseding = asyncio.create_task(supersede())
    with pytest.raises(Replaced, match="another process has connected"):
        await serve_link(address_builder(build_settings(tmp_path)), RunnerIdentity("r", "machine", "boot"), refuse)
    await superseding
