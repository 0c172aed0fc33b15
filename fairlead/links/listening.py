"""The link to a runner that listens: the server connects, and both ends authenticate before the first frame.

1. The server compares the fingerprint of the runner's certificate with the one it expects, and sends nothing before.
2. It sends a token. The runner verifies it, and replies with a JSON object: `{"error": ""}`, or why it rejects it.
3. From then on, the frames are those of any link; the server is the end that has opened the connection.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import structlog

from fairlead.core.crypto.pinned_certificates import PinnedCertificate, build_pinning_context, fingerprint_of
from fairlead.links.connection import Link
from fairlead.links.contract import CLOSED, SUPERSEDED, OpenHandler
from fairlead.links.dialing import DialError, Superseded
from fairlead.links.sockets import SocketTransport
from fairlead.links.tls_sockets import TlsError, TlsLimits, connect_tls, serve_tls

CONNECT_SECONDS = 10.0
AUTHENTICATION_SECONDS = 10.0
MAX_HANDSHAKES, MAX_CONNECTIONS = 8, 32
MAX_REPLY_BYTES = 2048

log = structlog.get_logger(__name__)

Verify = Callable[[str], Awaitable[str]]
"""Returns why a token is rejected; empty if it is valid."""


class FingerprintMismatch(DialError):
    """The runner has another certificate."""


class _Reply(msgspec.Struct):
    error: str


async def connect_runner(
    address: tuple[str, int], fingerprint: str, issue_token: Callable[[], Awaitable[str]]
) -> SocketTransport:
    """The server's end. Raises DialError."""
    try:
        transport, certificate = await connect_tls(address, build_pinning_context(), "", CONNECT_SECONDS)
    except TlsError as error:
        raise DialError(f"cannot connect: {error}") from None
    try:
        found = fingerprint_of(certificate)
        if found != fingerprint:
            raise FingerprintMismatch(f"the certificate has the fingerprint {found}, and not the expected one")
        async with asyncio.timeout(AUTHENTICATION_SECONDS):
            await transport.send((await issue_token()).encode())
            reply = await transport.receive()
        _check_reply(reply)
    except TimeoutError:
        await transport.close()
        raise DialError(f"the runner did not respond within {AUTHENTICATION_SECONDS:g} seconds") from None
    except BaseException:
        await transport.close()
        raise
    return transport


def _check_reply(reply: bytes | None) -> None:
    try:
        error = msgspec.json.decode((reply or b"")[:MAX_REPLY_BYTES], type=_Reply).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise DialError("the runner has closed the connection, or does not speak this protocol") from None
    if error:
        raise DialError(f"the runner rejects the connection: {error}")


@dataclass(frozen=True, slots=True)
class Listening:
    """What a runner listens with."""

    listener: socket.socket
    certificate: PinnedCertificate
    verify: Verify


async def serve_runner(listening: Listening, on_open: OpenHandler, boot_id: str) -> None:
    """The runner's end, for ever. A new connection of the server replaces the former. Raises Superseded."""
    async with _LinkServer(listening, on_open, boot_id).serve() as superseded:
        raise Superseded(await superseded)


class _LinkServer:
    def __init__(self, listening: Listening, on_open: OpenHandler, boot_id: str) -> None:
        self._listening = listening
        self._on_open = on_open
        self._boot_id = boot_id
        self._current: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._superseded: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["asyncio.Future[str]"]:
        certificate = self._listening.certificate

        async def find_context() -> ssl.SSLContext:
            return certificate.context

        limits = TlsLimits(MAX_HANDSHAKES, MAX_CONNECTIONS, queued_frames=1)
        try:
            async with serve_tls(self._listening.listener, find_context, self._accept, limits):
                yield self._superseded
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, transport: SocketTransport) -> None:
        task = asyncio.create_task(self._run(transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, transport: SocketTransport) -> None:
        is_authenticated = False
        try:
            is_authenticated = await self._authenticate(transport)
        finally:
            if not is_authenticated:
                await transport.close()
        if is_authenticated:
            await self._run_link(transport)

    async def _authenticate(self, transport: SocketTransport) -> bool:
        try:
            async with asyncio.timeout(AUTHENTICATION_SECONDS):
                token = await transport.receive()
                if token is None:
                    return False
                error = await self._listening.verify(token.decode(errors="replace"))
                await transport.send(msgspec.json.encode(_Reply(error[: MAX_REPLY_BYTES // 2])))
        except TimeoutError:
            return False
        if error:
            log.warning("a connection was rejected", reason=error)
        else:
            transport.trust()
        return not error

    async def _run_link(self, transport: SocketTransport) -> None:
        link = Link(transport, self._on_open, boot_id=self._boot_id, is_dialer=False)
        former, self._current = self._current, link
        if former is not None:
            former.close_soon(CLOSED, "replaced by a new connection of the server")
        log.info("the server has connected")
        end = await link.run()
        log.info("the connection of the server has ended", reason=end.reason)
        if end.code == SUPERSEDED and not self._superseded.done():
            self._superseded.set_result(end.reason)
