"""How a runner dials the server: delays between attempts, errors, and when it stops."""

import asyncio

import pytest

from fairlead.links import dialing
from fairlead.links.connection import Link
from fairlead.links.contract import GOING_AWAY, SUPERSEDED, MessageTransport, Stream
from fairlead.links.dialing import DialError, LinkAddress, LinkObserver, Superseded, keep_link
from fairlead.links.requests import OpenRequest, Refused
from tests.links.pipes import pipe_pair

ADDRESS = LinkAddress("wss://fairlead.example.com/link", "secret-key", None)


async def refuse(request: OpenRequest, stream: Stream) -> None:
    raise Refused(501, "not here")


class Server:
    """Accepts connections, and ends each with the next of `codes`; a DialError is raised instead."""

    def __init__(self, *codes: int | DialError) -> None:
        self.codes = list(codes)
        self.boot_ids: list[str] = []
        self.dialed_at: list[float] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def dial(self, address: LinkAddress) -> MessageTransport:
        self.dialed_at.append(asyncio.get_running_loop().time())
        code = self.codes.pop(0)
        if isinstance(code, DialError):
            raise code
        server_pipe, runner_pipe = pipe_pair()
        self.tasks.append(asyncio.create_task(self._serve(Link(server_pipe, boot_id="server", is_dialer=False), code)))
        return runner_pipe

    async def _serve(self, link: Link, code: int) -> None:
        running = asyncio.create_task(link.run())
        await link.wait_ready()
        self.boot_ids.append(link.peer_boot_id)
        await link.close(code, "the server restarts" if code == GOING_AWAY else "another process has connected")
        await running


async def test_a_runner_dials_again_until_it_is_superseded(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(GOING_AWAY, DialError("no route"), GOING_AWAY, SUPERSEDED)
    monkeypatch.setattr(dialing, "dial", server.dial)
    ups: list[Link] = []
    reasons: list[str] = []
    with pytest.raises(Superseded, match="another process"):
        await keep_link(lambda: ADDRESS, refuse, "boot-7", LinkObserver(ups.append, reasons.append))
    assert reasons == ["the server restarts", "no route", "the server restarts"]
    assert server.boot_ids == ["boot-7"] * 3
    assert len(ups) == 3
    waits = [later - earlier for earlier, later in zip(server.dialed_at, server.dialed_at[1:], strict=False)]
    assert all(0.5 <= wait <= 35 for wait in waits)


def test_the_key_is_not_in_the_representation_of_an_address() -> None:
    assert "secret-key" not in repr(ADDRESS)


async def test_cancelling_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = pipe_pair()

    async def dial(address: LinkAddress) -> MessageTransport:
        return near

    monkeypatch.setattr(dialing, "dial", dial)
    keeping = asyncio.create_task(keep_link(lambda: ADDRESS, refuse, "boot"))
    assert await far.receive() is not None
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert await far.receive() is None
