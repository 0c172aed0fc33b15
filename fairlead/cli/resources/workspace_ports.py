"""`fairlead workspace ports` and `port-forward`: the TCP ports of a workspace. They need no SSH in its image."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.resources.ssh_files import WORKSPACES
from fairlead.cli.resources.workspace_ssh import NameArgument
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, RequiredProjectFlag
from fairlead.cli.ui.output import Output, print_data, print_note, print_table
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace
from fairlead.client import ClientError

if TYPE_CHECKING:
    from fairlead.client.workspace_streams import WorkspaceStream

READ_BYTES = 32 * 1024
LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 64
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Forward:
    local: int
    remote: int


def ports(
    name: NameArgument, project: RequiredProjectFlag, context: ContextFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List the TCP ports that processes of a workspace listen on."""
    with open_session(context) as session:
        response = session.client.get(WORKSPACES, name, "ports", namespace=project_namespace(session, project))
    if output is not Output.TABLE:
        print_data(response, output)
        return
    found = [each for each in response.get("ports") or () if isinstance(each, dict)]
    rows = [[str(each.get(field) or "") for field in ("port", "address", "process")] for each in found]
    print_table(("PORT", "ADDRESS", "PROCESS"), rows, "no process listens on a port")


def port_forward(
    name: NameArgument,
    ports: Annotated[
        list[str],
        typer.Argument(help="Ports as LOCAL:REMOTE, or one number for both; local 0 is any.", metavar="[LOCAL:]REMOTE"),
    ],
    project: RequiredProjectFlag,
    context: ContextFlag = None,
) -> None:
    """Forward ports of this machine (127.0.0.1) to ports of a workspace (its own 127.0.0.1), until Ctrl-C."""
    with open_session(context) as session:
        forwards = [parse_forward(each) for each in ports]
        path = session.client.path(WORKSPACES, name, "port", namespace=project_namespace(session, project))
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_forward(session, path, forwards))


def parse_forward(text: str) -> Forward:
    local, separator, remote = text.rpartition(":")
    local = local if separator else remote
    numbers = [
        int(each) if each.isascii() and each.isdigit() and len(each) <= len(str(MAX_PORT)) else -1
        for each in (local, remote)
    ]
    if not 0 <= numbers[0] <= MAX_PORT or not 0 < numbers[1] <= MAX_PORT:
        raise UsageError(f"{text}: must be LOCAL:REMOTE, with numbers of ports, like 8080:80")
    return Forward(*numbers)


async def _forward(session: Session, path: str, forwards: list[Forward]) -> None:
    limit = asyncio.Semaphore(MAX_CONNECTIONS)
    async with contextlib.AsyncExitStack() as stack:
        for forward in forwards:
            server = await stack.enter_async_context(await _listen(session, path, forward, limit))
            local = server.sockets[0].getsockname()[1]
            print_note(f"forwarding {LOOPBACK}:{local} to port {forward.remote} of the workspace")
        await asyncio.get_running_loop().create_future()


async def _listen(session: Session, path: str, forward: Forward, limit: asyncio.Semaphore) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with limit:
            try:
                await _connect(session, path, forward.remote, reader, writer)
            except ClientError as error:
                print_note(f"port {forward.remote}: {error}")
            finally:
                writer.close()

    try:
        return await asyncio.start_server(serve, LOOPBACK, forward.local, family=socket.AF_INET)
    except OSError as error:
        raise ClientError(f"port {forward.local} of this machine cannot be used: {error.strerror or error}") from None


async def _connect(
    session: Session, path: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    from fairlead.client.workspace_streams import open_stream
    from fairlead.core.waiting import background_task

    async with open_stream(session.login, path, {"port": port}) as stream, background_task(_feed(reader, stream)):
        await _write_output(stream, writer, port)


async def _feed(reader: asyncio.StreamReader, stream: "WorkspaceStream") -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            await stream.send(data)
    await stream.send_eof()


async def _write_output(stream: "WorkspaceStream", writer: asyncio.StreamWriter, port: int) -> None:
    """The end of one direction is passed on; the other one goes on."""
    with contextlib.suppress(ConnectionError):
        while (output := await stream.receive()) is not None:
            if output.is_error and output.content:
                print_note(f"port {port}: {output.content.decode(errors='replace').strip()}")
            elif not output.is_error and output.content:
                writer.write(output.content)
                await writer.drain()
            elif not output.is_error:
                writer.write_eof()


def add_port_commands(group: typer.Typer) -> None:
    group.command("ports")(ports)
    group.command("port-forward")(port_forward)
