"""Serves what the process for SSH of one workspace requests of the runner: commands in that workspace, and its ports.

The process reads what clients send, and may be in their hands. So a request names neither workspace nor user, has
limits, and waits its turn: at most so many per second, and so many under way.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from fairlead.core.waiting import background_task
from fairlead.runner.engines.contract import (
    ByteStream,
    Engine,
    EngineError,
    ExecOptions,
    Process,
    Reason,
    Transferable,
    find_sockets,
)
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.ssh.limits import MAX_WORKSPACE_CHANNELS, RequestRate
from fairlead.runner.ssh.messages import (
    FIRST_OPEN_PORT,
    MAX_CONTROL_BYTES,
    MAX_REQUEST_BYTES,
    NO_AGENT,
    TOO_LONG,
    AgentRequest,
    CommandRequest,
    Ended,
    InvalidMessage,
    ListenRequest,
    MessageSocket,
    PortRequest,
    Reply,
    ResizeRequest,
    SignalRequest,
    close_all,
    open_message_sockets,
)
from fairlead.runner.ssh.pumps import pump_port, pump_process
from fairlead.runner.ssh.stopping import MESSAGE, has_stopped
from fairlead.runner.ssh.variables import select_variables

TOO_MANY = f"{MAX_WORKSPACE_CHANNELS} commands and ports of this workspace are open"
FAILED = "the runner could not start it; its log has the reason"
NO_SOCKETS = "workspaces of this engine have no sockets for forwarded agents and -R"
AGENT_VARIABLE = "SSH_AUTH_SOCK"
Request = CommandRequest | PortRequest | AgentRequest | ListenRequest
Control = SignalRequest | ResizeRequest
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_CONTROLS: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class WorkspaceRequests:
    """The requests of one process."""

    engine: Engine
    uid: str
    control: MessageSocket
    rate: RequestRate = field(default_factory=RequestRate)
    _under_way: int = 0
    _agents: dict[int, str] = field(default_factory=dict)
    """The paths of the sockets for forwarded agents, by their numbers."""

    async def serve(self) -> None:
        """Up to the end of the process. Then everything that it has started ends. Raises InvalidMessage."""
        async with asyncio.TaskGroup() as group:
            running: set[asyncio.Task[None]] = set()
            try:
                while (request := await self._receive()) is not None:
                    if self._under_way >= MAX_WORKSPACE_CHANNELS:
                        await self._reply(Reply(request.number, TOO_MANY))
                        continue
                    self._under_way += 1
                    task = group.create_task(self._serve_request(request))
                    running.add(task)
                    task.add_done_callback(running.discard)
            finally:
                for task in running:
                    task.cancel()

    async def _receive(self) -> Request | None:
        await self.rate.wait()
        content, _ = await self.control.receive(MAX_REQUEST_BYTES)
        if not content:
            return None
        try:
            return _REQUESTS.decode(content)
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"a request is invalid: {error}") from None

    async def _serve_request(self, request: Request) -> None:
        try:
            if isinstance(request, CommandRequest):
                await self._run(request)
            elif isinstance(request, PortRequest):
                await self._open_port(request)
            else:
                await self._listen(request)
        except EngineError as error:
            await self._reply(Reply(request.number, error.message))
        except OSError as error:  # the process has ended meanwhile, or this one has too many open files
            log.warning("a request of a process for SSH failed", uid=self.uid, error=str(error))
            await self._reply(Reply(request.number, TOO_LONG if error.errno == errno.E2BIG else FAILED))
        finally:
            self._under_way -= 1

    async def _reply(self, reply: Reply, descriptors: Sequence[int] = ()) -> None:
        try:
            await self.control.send(reply, descriptors)
        except ConnectionError:
            return  # it has ended; so does this

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _run(self, request: CommandRequest) -> None:
        variables = select_variables(request.environment, has_terminal=request.tty)
        path = self._agents.get(request.agent) if request.agent != NO_AGENT else None
        agent = {AGENT_VARIABLE: path} if path is not None else {}
        options = ExecOptions(
            tty=request.tty,
            columns=request.columns or 80,
            rows=request.rows or 24,
            environment={**variables, **agent},
            folder=request.folder,
        )
        process = await self.engine.exec(self.uid, request.words, options)
        try:
            if isinstance(process, Transferable):
                await self._attend(request, process, process.take_descriptors())
            else:
                async with pump_process(process) as descriptors:
                    await self._attend(request, process, descriptors)
        finally:
            await process.kill()

    async def _attend(self, request: CommandRequest, process: Process, descriptors: Sequence[int]) -> None:
        """Passes the process on, and waits until the other side has closed its end."""
        try:
            ours, theirs = open_message_sockets()
        except OSError:  # too many open files
            close_all(descriptors)
            raise
        try:
            with theirs:
                try:
                    await self._reply(Reply(request.number), [theirs.fileno(), *descriptors])
                finally:
                    close_all(descriptors)
            async with background_task(self._report_end(process, ours)):
                await self._obey(process, ours)
        finally:
            ours.close()

    async def _report_end(self, process: Process, session: MessageSocket) -> None:
        code = await process.wait()
        is_stopped = code != 0 and await has_stopped(self.engine, self.uid, code)
        try:
            await session.send(Ended(code, MESSAGE if is_stopped else ""))
        except ConnectionError:
            return

    async def _obey(self, process: Process, session: MessageSocket) -> None:
        while (content := (await session.receive(MAX_CONTROL_BYTES))[0]) != b"":
            await self.rate.wait()
            try:
                wanted = _CONTROLS.decode(content)
            except msgspec.MsgspecError as error:
                raise InvalidMessage(f"a request of a session is invalid: {error}") from None
            if isinstance(wanted, SignalRequest):
                await process.send_signal(wanted.name)
            else:
                await process.resize(wanted.columns, wanted.rows)

    # --- ports --------------------------------------------------------------------------------------------------------

    async def _open_port(self, request: PortRequest) -> None:
        """A socket that is passed on needs no attention any more. Other streams are pumped to their end."""
        stream = await self.engine.open_port(self.uid, request.port)
        if isinstance(stream, Transferable):
            descriptors = stream.take_descriptors()
            try:
                await self._reply(Reply(request.number), descriptors)
            finally:
                close_all(descriptors)
            return
        await self._pump_port(request, stream)

    async def _listen(self, request: AgentRequest | ListenRequest) -> None:
        """The process accepts connections itself. Nothing of the socket stays here."""
        engine = find_sockets(self.engine)
        if engine is None:
            raise EngineError(Reason.NOT_RUNNING, NO_SOCKETS)
        if isinstance(request, AgentRequest):
            opened = await engine.listen(self.uid, f"agent-{request.agent}")
            self._agents[request.agent] = opened.path
            listening = opened.socket
        elif request.port == 0 or request.port >= FIRST_OPEN_PORT:
            listening = await engine.listen_port(self.uid, request.port)
        else:
            raise InvalidMessage(f"port {request.port} is one of root")
        with listening:
            await self._reply(Reply(request.number), [listening.fileno()])

    async def _pump_port(self, request: PortRequest, stream: ByteStream) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        os.set_blocking(theirs.fileno(), False)
        try:
            with theirs:
                await self._reply(Reply(request.number), [theirs.fileno()])
        except BaseException:
            await stream.abort()
            ours.close()
            raise
        await pump_port(stream, Connection(ours.detach()))
