"""Ends of pipes, terminals and sockets, for processes and ports inside workspaces.

They read only when called, so a slow reader slows the process down instead of filling memory, and nothing is lost when
the descriptor is given to another process.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, field

BUFFER = 1 << 16


@dataclass(slots=True)
class Pipe:
    """One end of a pipe, both reader and writer. It owns the descriptor, which does not block. -1: it has none."""

    descriptor: int
    _waiting: set[asyncio.Event] = field(default_factory=set)

    async def read(self, n: int = -1, /) -> bytes:
        """At most n bytes; b"" at the end. Other tasks get their turn, also if there is always something to read."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while self.descriptor >= 0:
            try:
                return os.read(self.descriptor, BUFFER if n < 0 else n)
            except BlockingIOError:
                await self._wait_until_ready(loop.add_reader, loop.remove_reader)
        return b""

    async def write(self, data: bytes, /) -> None:
        """Bytes after the end of the other side are dropped."""
        loop = asyncio.get_running_loop()
        while data and self.descriptor >= 0:
            try:
                data = data[os.write(self.descriptor, data) :]
            except BlockingIOError:
                await self._wait_until_ready(loop.add_writer, loop.remove_writer)
            except OSError:
                return

    async def close(self) -> None:
        """Sends the end to a reader on the other side."""
        await self.release()

    async def release(self) -> None:
        descriptor = self.detach()
        if descriptor >= 0:
            os.close(descriptor)

    def detach(self) -> int:
        """The descriptor, which the caller owns from now on. A task that waits for it here finds the end."""
        descriptor, self.descriptor = self.descriptor, -1
        for ready in self._waiting:
            ready.set()
        if self._waiting:
            loop = asyncio.get_running_loop()
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)
        return descriptor

    async def _wait_until_ready(
        self, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]
    ) -> None:
        ready = asyncio.Event()
        descriptor = self.descriptor
        add(descriptor, ready.set)
        self._waiting.add(ready)
        try:
            await ready.wait()
        finally:
            self._waiting.discard(ready)
            if self.descriptor == descriptor:  # else it may be that of another file already
                remove(descriptor)


@dataclass(slots=True)
class Terminal(Pipe):
    """The host's side of a pseudo terminal."""

    async def read(self, n: int = -1, /) -> bytes:
        try:
            return await Pipe.read(self, n)
        except OSError:  # how a terminal tells that nothing has it open any more
            return b""

    async def close(self) -> None:
        """A terminal has no end of its own: this is what a user types."""
        await self.write(b"\x04")

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@dataclass(slots=True)
class Connection(Pipe):
    """A connected socket; `ByteStream` of the contract."""

    @property
    def reader(self) -> "Connection":
        return self

    @property
    def writer(self) -> "Connection":
        return self

    async def close(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.descriptor)) as connected:
                connected.shutdown(socket.SHUT_WR)

    async def abort(self) -> None:
        await self.release()

    def take_descriptors(self) -> list[int]:
        return [self.detach()]


def open_pipe() -> tuple[int, int]:
    """Both ends of a new pipe: the one to read from, and the one to write to. Neither blocks."""
    return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
