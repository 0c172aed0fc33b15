"""What the runner and its processes for SSH tell each other.

Over the control socket, the runner passes connections, and the process requests commands and ports. The runner replies
with descriptors: those of the command or port itself, so that no byte of a session takes a way around, and for a
command before these one end of a socket of its own, for signals and its exit code. When that is closed, the command
ends. Descriptors pass in this direction only: the runner takes none.
"""

import array
import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_MESSAGE_BYTES = 64 * 1024
"""Of messages of the runner."""
MAX_REQUEST_BYTES = 384 * 1024
"""Of requests for commands. The kernel keeps a message in one piece if twice `SEND_BUFFER_BYTES` are enough for it."""
SEND_BUFFER_BYTES = 208 * 1024
MAX_CONTROL_BYTES = 4096
"""Of signals and changes of size."""
MAX_DESCRIPTORS = 4
MAX_TERMINAL = 4096
MAX_VARIABLES = 32
MAX_VALUE_CHARS = 4096
MAX_PATH_CHARS = 4096
MAX_AGENTS = 32
"""Forwarded agents of one workspace, one for each connection that wants it."""
NO_AGENT = -1
FIRST_OPEN_PORT = 1024
"""Ports below it are for root, which the user of sessions need not be."""
TOO_LONG = "the command is too long"


class ServerSettings(msgspec.Struct, frozen=True):
    """The first message to the process."""

    uid: str
    host_key: str


class NewConnection(msgspec.Struct, frozen=True, tag="connection"):
    """Comes with the socket of a connection. Without a `user`, any name may log in: the user inside has none."""

    authorities: tuple[str, ...]
    user: str
    home: str
    shell: str
    sftp_server: str


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """To the request with this number. Without an error, it comes with descriptors."""

    number: int
    error: str = ""


Size = Annotated[int, Meta(ge=0, le=MAX_TERMINAL)]
Text = Annotated[str, Meta(max_length=MAX_REQUEST_BYTES, pattern=r"^[^\x00]*$")]
Path = Annotated[str, Meta(max_length=MAX_PATH_CHARS, pattern=r"^[^\x00]*$")]
Value = Annotated[str, Meta(max_length=MAX_VALUE_CHARS, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Meta(ge=0, lt=2**53)]


class CommandRequest(msgspec.Struct, frozen=True, tag="command"):
    """Starts a command in the workspace, as the user of sessions. Without words, it is the user's shell."""

    number: Number
    words: Annotated[tuple[Text, ...], Meta(max_length=3)]
    folder: Path = ""
    environment: Annotated[dict[str, Value], Meta(max_length=MAX_VARIABLES + 1)] = {}
    tty: bool = False
    columns: Size = 80
    rows: Size = 24
    agent: Annotated[int, Meta(ge=NO_AGENT, lt=MAX_AGENTS)] = NO_AGENT
    """The forwarded agent that it can use."""


class AgentRequest(msgspec.Struct, frozen=True, tag="agent"):
    """Opens a socket for a forwarded agent. The number of the agent is part of its name, which so stays the same for a
    user who connects again."""

    number: Number
    agent: Annotated[int, Meta(ge=0, lt=MAX_AGENTS)]


class ListenRequest(msgspec.Struct, frozen=True, tag="listen"):
    """Listens on a port of the workspace; 0 for any."""

    number: Number
    port: Annotated[int, Meta(ge=0, le=65535)]


class PortRequest(msgspec.Struct, frozen=True, tag="port"):
    """Connects to a port of the workspace."""

    number: Number
    port: Annotated[int, Meta(ge=1, le=65535)]


class SignalRequest(msgspec.Struct, frozen=True, tag="signal"):
    name: Annotated[str, Meta(max_length=16, pattern=r"^[A-Z0-9]+$")]


class ResizeRequest(msgspec.Struct, frozen=True, tag="resize"):
    columns: Size
    rows: Size


class Ended(msgspec.Struct, frozen=True):
    """The exit code of a command, and a message for the user about its end."""

    code: int
    message: str = ""


class InvalidMessage(Exception):
    """The other side does not keep to this protocol."""


class MessageTooLarge(Exception):
    pass


@dataclass(slots=True)
class MessageSocket:
    """One end of a socket that keeps messages apart. One task receives, any number may send."""

    socket: socket.socket
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def receive(self, max_bytes: int, max_descriptors: int = 0) -> tuple[bytes, list[int]]:
        """The next message with its descriptors; empty at the end. Raises InvalidMessage if either is too much."""
        space = socket.CMSG_SPACE(4 * max_descriptors) if max_descriptors else 0
        while True:
            try:
                content, ancillary, flags, _ = self.socket.recvmsg(max_bytes, space, socket.MSG_CMSG_CLOEXEC)
                break
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _wait_until_ready(loop.add_reader, loop.remove_reader, self.socket)
            except ConnectionError:
                return b"", []
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            close_all(descriptors)
            raise InvalidMessage("a message has more bytes or descriptors than allowed")
        return content, list(descriptors)

    async def send(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> None:
        """Waits until the other side takes messages. Raises OSError if it does not exist any more, MessageTooLarge."""
        content = msgspec.msgpack.encode(message)
        if len(content) > MAX_REQUEST_BYTES:
            raise MessageTooLarge
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self.socket, [content], descriptors)
                    return
                except BlockingIOError:
                    loop = asyncio.get_running_loop()
                    await _wait_until_ready(loop.add_writer, loop.remove_writer, self.socket)

    def close(self) -> None:
        self.socket.close()


def open_message_sockets() -> tuple[MessageSocket, socket.socket]:
    """A pair: one end for this process, and one to be passed on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    for each in (ours, theirs):
        each.setblocking(False)
    return MessageSocket(ours), theirs


def close_all(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


async def _wait_until_ready(
    add: Callable[[socket.socket, Callable[[], None]], object],
    remove: Callable[[socket.socket], object],
    waited: socket.socket,
) -> None:
    ready = asyncio.Event()
    add(waited, ready.set)
    try:
        await ready.wait()
    finally:
        remove(waited)
