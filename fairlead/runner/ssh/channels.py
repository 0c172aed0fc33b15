"""The channels of an SSH connection that the runner serves itself: commands, terminals, sftp, and forwarded ports.

asyncssh calls the methods of a session when something arrives, and wants no waiting in them. So a `ChannelInput` keeps
what has arrived, bounded, until the process or port inside has taken it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import asyncssh

from fairlead.core.waiting import Signal, background_task
from fairlead.runner.engines.contract import ByteReader, ByteStream, ByteWriter, EngineError, ExecOptions
from fairlead.runner.ssh.access import Access, Command
from fairlead.runner.ssh.limits import ChannelSlot
from fairlead.runner.ssh.messages import MAX_PATH_CHARS, MAX_TERMINAL, NO_AGENT, Ended, NewConnection
from fairlead.runner.ssh.variables import TERMINAL, select_variables

READ_BYTES = 32 * 1024
PAUSE_BYTES = 256 * 1024
MAX_COMMAND_CHARS = 256 * 1024
NO_SFTP = (
    "this workspace has no sftp-server, which scp and sftp need; install it in the image (package openssh-sftp-server "
    "or openssh-server), or copy with tar\n"
)


class Channel(Protocol):
    """What is used of the channels of asyncssh."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: bytes, datatype: int | None = None) -> None: ...

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool: ...


@dataclass(slots=True)
class ChannelInput:
    """What has arrived on a channel and was not taken yet, and whether the client takes what is sent."""

    channel: Channel
    _chunks: deque[bytes] = field(default_factory=deque)
    _size: int = 0
    _has_ended: bool = False
    _is_paused: bool = False
    _changed: Signal = field(default_factory=Signal)
    _is_writable: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._is_writable.set()

    def add(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size >= PAUSE_BYTES and not self._is_paused:
            self._is_paused = True
            self.channel.pause_reading()
        self._changed.wake()

    def end(self) -> None:
        self._has_ended = True
        self._changed.wake()

    def stall(self) -> None:
        self._is_writable.clear()

    def resume(self) -> None:
        self._is_writable.set()

    async def copy_to(self, writer: ByteWriter) -> None:
        """Passes on what arrives, up to its end."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                await writer.write(chunk)
                self._size -= len(chunk)
                if self._is_paused and self._size < PAUSE_BYTES // 2:
                    self._is_paused = False
                    self.channel.resume_reading()
            if self._has_ended:
                await writer.close()
                return
            await self._changed.wait()

    async def copy_from(self, reader: ByteReader, datatype: int | None = None) -> None:
        """Sends what is read, as fast as the client takes it."""
        while data := await reader.read(READ_BYTES):
            await self._is_writable.wait()
            if self.channel.is_closing():
                return
            self.channel.write(data, datatype)


@dataclass(frozen=True, slots=True)
class Target:
    """The workspace of a connection."""

    access: Access
    uid: str
    connection: NewConnection


@dataclass(slots=True)
class ForwardedAgent:
    """The number of the agent that a client forwards, if it does."""

    number: int = NO_AGENT


class CommandSession(asyncssh.SSHServerSession[bytes]):
    """A shell, a command or sftp, with or without a terminal. It ends with its process, and its process with it."""

    def __init__(self, target: Target, slot: ChannelSlot, agent: ForwardedAgent) -> None:
        self._target = target
        self._slot = slot
        self._agent = agent
        self._channel: Any = None
        self._input: ChannelInput | None = None
        self._command: Command | None = None
        self._signalling: asyncio.Task[None] | None = None
        self._resizing: asyncio.Task[None] | None = None
        self._new_size: tuple[int, int] | None = None

    def connection_made(self, chan: Any) -> None:
        self._channel = chan
        self._input = ChannelInput(chan)

    def pty_requested(self, term_type: str, term_size: Any, term_modes: Any) -> bool:
        return True

    def shell_requested(self) -> bool:
        return self._start(())

    def exec_requested(self, command: str) -> bool:
        is_valid = len(command) <= MAX_COMMAND_CHARS and "\0" not in command
        return is_valid and self._start((self._target.connection.shell, "-c", command))

    def subsystem_requested(self, subsystem: str) -> bool:
        if subsystem != "sftp":
            return False
        path = self._target.connection.sftp_server
        return self._start((path,)) if path else self._start(None)

    def _start(self, command: Sequence[str] | None) -> bool:
        self._slot.start(self._run(command))
        return True

    async def _run(self, command: Sequence[str] | None) -> None:
        channel = self._channel
        if command is None:
            channel.write_stderr(NO_SFTP.encode())
            channel.exit(1)
            return
        try:
            options = self._exec_options(channel)
            self._command = started = await self._target.access.start(command, options, self._agent.number)
        except EngineError as error:
            channel.write_stderr(f"{error.message}\n".encode())
            channel.exit(1)
            return
        try:
            ended = await self._serve(started)
        finally:
            await started.kill()
        if channel.is_closing():
            return
        if ended.message:
            channel.write_stderr(f"{ended.message}\r\n".encode())
        channel.exit(ended.code)

    async def _serve(self, command: Command) -> Ended:
        assert self._input is not None
        async with background_task(self._input.copy_to(command.stdin)), asyncio.TaskGroup() as group:
            group.create_task(self._input.copy_from(command.stdout))
            group.create_task(self._input.copy_from(command.stderr, asyncssh.EXTENDED_DATA_STDERR))
            ended = group.create_task(command.wait())
        return ended.result()

    def _exec_options(self, channel: Any) -> ExecOptions:
        """In the home of the user, with the terminal of the client, and the variables of it that sshd accepts, too."""
        term = channel.get_terminal_type()
        home = self._target.connection.home
        folder = home if len(home) <= MAX_PATH_CHARS else ""
        given = channel.get_environment()
        if term is None:
            return ExecOptions(environment=select_variables(given), folder=folder)
        columns, rows, _, _ = channel.get_terminal_size()
        return ExecOptions(
            tty=True,
            columns=_clamp(columns) or 80,
            rows=_clamp(rows) or 24,
            environment=select_variables({**given, TERMINAL: term}, has_terminal=True),
            folder=folder,
        )

    def data_received(self, data: bytes, datatype: int | None) -> None:
        assert self._input is not None
        self._input.add(data)

    def eof_received(self) -> bool:
        assert self._input is not None
        self._input.end()
        return True  # the output goes on

    def pause_writing(self) -> None:
        if self._input is not None:
            self._input.stall()

    def resume_writing(self) -> None:
        if self._input is not None:
            self._input.resume()

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """While a change is under way, only the newest one waits."""
        self._new_size = (_clamp(width), _clamp(height))
        if self._command is not None and (self._resizing is None or self._resizing.done()):
            self._resizing = self._slot.start(self._resize(self._command))

    async def _resize(self, command: Command) -> None:
        while self._new_size is not None:
            size, self._new_size = self._new_size, None
            await command.resize(*size)

    def signal_received(self, signal: str) -> None:
        """Signals that arrive while one is under way are dropped."""
        if self._command is not None and (self._signalling is None or self._signalling.done()):
            self._signalling = self._slot.start(self._command.send_signal(signal[:16]))

    def break_received(self, msec: int) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._input is not None:
            self._input.resume()
        self._slot.close()


class PortSession(asyncssh.SSHTCPSession[bytes]):
    """A connection to a port of the workspace."""

    def __init__(self, port: ByteStream, slot: ChannelSlot) -> None:
        self._port = port
        self._slot = slot
        self._input: ChannelInput | None = None

    def connection_made(self, chan: Any) -> None:
        self._input = ChannelInput(chan)
        self._slot.start(self._serve(chan, self._input))

    async def _serve(self, channel: Any, input: ChannelInput) -> None:
        async def copy_output() -> None:
            await input.copy_from(self._port.reader)
            if not channel.is_closing():
                channel.write_eof()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(input.copy_to(self._port.writer))
                group.create_task(copy_output())
        finally:
            await self._port.abort()
            channel.close()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        assert self._input is not None
        self._input.add(data)

    def eof_received(self) -> bool:
        assert self._input is not None
        self._input.end()
        return True

    def pause_writing(self) -> None:
        if self._input is not None:
            self._input.stall()

    def resume_writing(self) -> None:
        if self._input is not None:
            self._input.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.close()


def _clamp(size: int) -> int:
    return min(max(size, 0), MAX_TERMINAL)
