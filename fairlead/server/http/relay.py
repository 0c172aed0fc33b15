"""Copies the bytes of a TLS connection to a connection of the HTTP server, and back, with back pressure.

Each side stops to read while the other one does not take more. When one side ends, the other one is closed after what
has arrived was sent.
"""

import asyncio
from typing import cast

BUFFER_BYTES = 64 * 1024
"""Bytes that wait for a side that does not read. Beyond that, nothing more is read from the other one."""


class RelaySide(asyncio.Protocol):
    """One side of a relayed connection. It reads nothing before it is connected to the other side."""

    __slots__ = ("_other", "closed", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._other: RelaySide | None = None
        self.closed = asyncio.Event()

    def connect(self, other: "RelaySide") -> None:
        """Begins to copy in this direction."""
        self._other = other
        if self.closed.is_set() and other.transport is not None:  # it has ended before there was another side
            other.transport.close()
        elif self.transport is not None:
            self.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.write(data)

    def pause_writing(self) -> None:
        if (source := self._source()) is not None:
            source.pause_reading()

    def resume_writing(self) -> None:
        if (source := self._source()) is not None:
            source.resume_reading()

    def eof_received(self) -> bool:
        return False  # TLS connections cannot be closed in one direction only

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        if (source := self._source()) is not None:
            source.close()

    def _source(self) -> asyncio.Transport | None:
        other = self._other
        return None if other is None or other.closed.is_set() else other.transport
