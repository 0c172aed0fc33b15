"""What the process for SSH can do with its workspace: request commands and ports of the runner.

It has no engine. The runner gives it descriptors, so that it reads and writes itself.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from fairlead.runner.engines.contract import EngineError, ExecOptions, Reason
from fairlead.runner.engines.descriptors import Connection, Pipe, Terminal
from fairlead.runner.ssh.messages import (
    FIRST_OPEN_PORT,
    MAX_CONTROL_BYTES,
    NO_AGENT,
    TOO_LONG,
    AgentRequest,
    CommandRequest,
    Ended,
    ListenRequest,
    MessageSocket,
    MessageTooLarge,
    PortRequest,
    Reply,
    ResizeRequest,
    SignalRequest,
    close_all,
)

NO_CODE = 255


@dataclass(slots=True)
class Command:
    """A command in the workspace."""

    session: MessageSocket
    stdin: Pipe
    stdout: Pipe
    stderr: Pipe

    async def resize(self, columns: int, rows: int) -> None:
        await self._request(ResizeRequest(columns, rows))

    async def send_signal(self, name: str) -> None:
        """Names that are none are ignored."""
        word = name.removeprefix("SIG")
        if word.isascii() and word.isalnum():
            await self._request(SignalRequest(word.upper()[:16]))

    async def wait(self) -> Ended:
        content, _ = await self.session.receive(MAX_CONTROL_BYTES)
        return msgspec.msgpack.decode(content, type=Ended) if content else Ended(NO_CODE)

    async def kill(self) -> None:
        """Returns when the runner has ended the command, and everything that it started."""
        for each in (self.stdin, self.stdout, self.stderr):
            await each.release()
        try:
            self.session.socket.shutdown(socket.SHUT_WR)
            while (await self.session.receive(MAX_CONTROL_BYTES))[0]:
                pass
        except OSError:
            pass  # the runner has closed its end already
        finally:
            self.session.close()

    async def _request(self, request: ResizeRequest | SignalRequest) -> None:
        try:
            await self.session.send(request)
        except OSError:
            return  # it has ended


@dataclass(slots=True)
class Access:
    """The requests of this process to the runner."""

    control: MessageSocket
    _number: int = 0
    _expected: "dict[int, asyncio.Future[list[int]]]" = field(default_factory=dict)

    async def start(self, words: Sequence[str], options: ExecOptions, agent: int = NO_AGENT) -> Command:
        """Raises EngineError. A caller that is cancelled meanwhile leaves no command behind."""
        starting = asyncio.ensure_future(self._start(words, options, agent))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(EngineError):
                await (await starting).kill()
            raise

    async def open_port(self, port: int) -> Connection:
        """Raises EngineError."""
        if not 0 < port < 65536:
            raise EngineError(Reason.NOT_RUNNING, "ports have numbers from 1 to 65535")
        (descriptor,) = await self._request(PortRequest(self._next_number(), port))
        return Connection(descriptor)

    async def open_agent(self, agent: int) -> socket.socket:
        """A socket in the workspace that listens, for the agent with this number. Raises EngineError."""
        (descriptor,) = await self._request(AgentRequest(self._next_number(), agent))
        return socket.socket(fileno=descriptor)

    async def listen(self, port: int) -> socket.socket:
        """Raises EngineError."""
        if port != 0 and not FIRST_OPEN_PORT <= port < 65536:
            raise EngineError(Reason.NOT_RUNNING, f"ports have numbers from {FIRST_OPEN_PORT} to 65535")
        (descriptor,) = await self._request(ListenRequest(self._next_number(), port))
        return socket.socket(fileno=descriptor)

    def handle_reply(self, reply: Reply, descriptors: list[int]) -> None:
        expected = self._expected.pop(reply.number, None)
        if expected is None or expected.done():
            close_all(descriptors)
        elif reply.error:
            expected.set_exception(EngineError(Reason.NOT_RUNNING, reply.error))
        else:
            expected.set_result(descriptors)

    async def _start(self, words: Sequence[str], options: ExecOptions, agent: int) -> Command:
        request = CommandRequest(
            number=self._next_number(),
            words=tuple(words),
            folder=options.folder,
            environment=dict(options.environment),
            tty=options.tty,
            columns=options.columns,
            rows=options.rows,
            agent=agent,
        )
        session, *descriptors = await self._request(request)
        streams = MessageSocket(socket.socket(fileno=session))
        if len(descriptors) == 1:
            terminal = Terminal(descriptors[0])
            return Command(streams, terminal, terminal, Pipe(-1))
        stdin, stdout, stderr = descriptors
        return Command(streams, Pipe(stdin), Pipe(stdout), Pipe(stderr))

    async def _request(self, request: CommandRequest | PortRequest | AgentRequest | ListenRequest) -> list[int]:
        expected: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._expected[request.number] = expected
        try:
            await self.control.send(request)
            return await expected
        except MessageTooLarge:
            raise EngineError(Reason.NOT_RUNNING, TOO_LONG) from None
        except OSError as error:
            raise EngineError(Reason.NOT_RUNNING, "the runner does not respond") from error
        finally:
            self._expected.pop(request.number, None)

    def _next_number(self) -> int:
        self._number += 1
        return self._number
