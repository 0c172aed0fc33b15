"""What users of a link see: its transport, its streams, and how it has ended."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fairlead.links.requests import OpenRequest, ResponseHead
from fairlead.links.streams import Message

CLOSED, PROTOCOL_ERROR, DEAD, GOING_AWAY, SUPERSEDED, DRAINING = range(6)
"""Codes of a GOAWAY and of a `LinkEnd`. After DRAINING, streams that are open go on; new ones are refused."""


class MessageTransport(Protocol):
    """Carries messages of at most `frames.MAX_FRAME_BYTES`, in order. A WebSocket, or a Unix socket."""

    async def receive(self) -> bytes | None:
        """The next message; None at the end of the connection."""

    async def send(self, message: bytes) -> None:
        """Returns when there is room for more."""

    async def close(self) -> None:
        """Closes the connection. May be called more than once."""


class Stream(Protocol):
    """One end of an open stream. Its methods raise StreamReset once it has ended without an exit code."""

    @property
    def details(self) -> dict[str, Any]:
        """What the other end has sent with its acceptance."""

    async def accept(self, details: dict[str, Any]) -> None:
        """Accepts a stream that the other end has opened. Every other method does so as well, without details."""

    async def receive(self) -> Message | None:
        """The next Data, Eof or Exit, and of an HTTP response first its head; None after the end."""

    async def send_head(self, head: ResponseHead) -> None:
        """The head of the response to an HTTP request, before its DATA."""

    async def send(self, channel: int, data: bytes) -> None:
        """Waits until all of it is passed on, that is, until the other end has given credit for it."""

    async def send_eof(self, channel: int) -> None: ...

    async def send_exit(self, code: int) -> None:
        """The last message. What the other end still sends is discarded."""

    async def reset(self, reason: str) -> None:
        """Ends the stream at once. Has no effect if it has ended."""

    def abandon(self, reason: str) -> None:
        """Like `reset`, for callers that cannot wait."""


OpenHandler = Callable[[OpenRequest, Stream], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Why a link has ended. The code is the one of the GOAWAY of the other end, if there was one."""

    code: int
    reason: str
