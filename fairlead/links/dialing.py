"""The runner's end of the connection: dials the server's WebSocket, and dials again whenever the link ends.

    address = LinkAddress("wss://fairlead.example.com/.../runners/local/link", key, ssl_context)
    await keep_link(address, on_open, boot_id)

A link that ends changes nothing on the runner: tasks, containers and logs are not part of it.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from fairlead.core.backoff import Backoff, BackoffPolicy
from fairlead.core.waiting import background_task
from fairlead.links.connection import CLOSE_SECONDS, Link
from fairlead.links.contract import SUPERSEDED, LinkEnd, OpenHandler
from fairlead.links.frames import MAX_FRAME_BYTES, clean_text

DIAL_SECONDS = 20.0
REDIAL = BackoffPolicy(first_seconds=1.0, max_seconds=30.0, jitter=0.5)
"""With jitter: after a restart of the server, runners must not all dial at once."""
STABLE_SECONDS = 60.0
"""After a link that lasted this long, the next one is dialed as after the first failure."""
MAX_SHOWN_BODY_BYTES = 300

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """Where to dial, and the key to sign in with."""

    url: str
    key: str = field(repr=False)
    """An access key; empty for an agent, which has a proof among the `headers`."""
    ssl_context: ssl.SSLContext | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class DialError(Exception):
    """The server cannot be reached, or does not accept the link. `status` is the HTTP status, or 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Superseded(Exception):
    """Another process has signed in with the same key, and this one must stop working."""


class WebSocketTransport:
    """A `MessageTransport` on a client's WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> bytes | None:
        try:
            message = await self._connection.recv()
        except ConnectionClosed:
            return None
        return message if isinstance(message, bytes) else message.encode()

    async def send(self, message: bytes) -> None:
        try:
            await self._connection.send(message)
        except ConnectionClosed:
            return  # `receive` reports it

    async def close(self) -> None:
        await self._connection.close()


class _DirectConnect(connect):
    """Goes where the operator of the runner said, and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def dial(address: LinkAddress) -> WebSocketTransport:
    """Opens the WebSocket. Raises DialError."""
    try:
        connection = await _DirectConnect(
            address.url,
            ssl=address.ssl_context,
            additional_headers={**_authorization(address), **address.headers},
            compression=None,
            max_size=MAX_FRAME_BYTES,
            ping_interval=None,  # the link has its own keepalive
            open_timeout=DIAL_SECONDS,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as error:
        response = error.response
        body = clean_text(bytes(response.body or b"")[:MAX_SHOWN_BODY_BYTES].decode(errors="replace"))
        message = f"the server rejects the connection with status {response.status_code}: {body}"
        raise DialError(message, response.status_code) from None
    except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as error:
        raise DialError(f"cannot connect to the server: {str(error) or type(error).__name__}") from None
    return WebSocketTransport(connection)


def _authorization(address: LinkAddress) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.key}"} if address.key else {}


@dataclass(frozen=True, slots=True)
class LinkObserver:
    """What is called when a link is up (with the link), and when it is down or cannot be dialed (with the reason)."""

    on_up: Callable[[Link], None] = lambda link: None
    on_down: Callable[[str], None] = lambda reason: None


async def keep_link(
    address: Callable[[], LinkAddress], on_open: OpenHandler, boot_id: str, observer: LinkObserver | None = None
) -> None:
    """Keeps a link until it is cancelled. Raises Superseded. `address` is called for each attempt: keys may change."""
    observer = observer or LinkObserver()
    backoff = Backoff(REDIAL)
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            end = await _run_link(address(), on_open, boot_id, observer)
            reason = end.reason
            if end.code == SUPERSEDED:
                raise Superseded(reason)
        except DialError as error:
            reason = str(error)
        observer.on_down(reason)
        if loop.time() - began >= STABLE_SECONDS:
            backoff.reset()
        delay = backoff.next_delay()
        log.warning("no connection to the server", reason=reason, retry_seconds=round(delay, 1))
        await asyncio.sleep(delay)


async def _run_link(address: LinkAddress, on_open: OpenHandler, boot_id: str, observer: LinkObserver) -> LinkEnd:
    link = Link(await dial(address), on_open, boot_id=boot_id, is_dialer=True)
    async with background_task(link.run()) as running:
        if await link.wait_ready():
            observer.on_up(link)
        return await running
