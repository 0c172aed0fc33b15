"""`fairlead workspace ssh` and `ssh-config`, and the commands that ssh itself runs: `ssh-proxy` and `ssh-prepare`.

OpenSSH does the work. `ssh-proxy` is its ProxyCommand: it carries the connection over the server to the workspace.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.resources.ssh_files import (
    SUFFIX,
    WORKSPACES,
    Place,
    SshFiles,
    build_config,
    build_options,
    include_config,
)
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import text_of
from fairlead.cli.ui.flags import ContextFlag, ProjectFilterFlag, RequiredProjectFlag, flag, options_from
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.cli.ui.session import Session, open_session, project_namespace, project_namespace_prefix
from fairlead.client import ClientError
from fairlead.client.contexts import contexts_path
from fairlead.core.files import ensure_private_folder, write_file
from fairlead.core.objects import name_of

if TYPE_CHECKING:
    from fairlead.client.workspace_streams import WorkspaceStream

READ_BYTES = 32 * 1024
DRAIN_SECONDS = 2.0
"""How long the end of a connection may take once ssh is gone."""

NameArgument = Annotated[
    str, typer.Argument(help="Name of the workspace.", autocompletion=complete_names(WORKSPACES, "project"))
]

NamespaceFlag = Annotated[
    str,
    typer.Option("--namespace", help="Namespace of the project. Without it, the server is asked.", hidden=True),
]


@dataclass(frozen=True, slots=True)
class SshOptions:
    name: NameArgument
    project: RequiredProjectFlag
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run instead of a shell; after `--`.", show_default=False)
    ] = None
    forward_agent: Annotated[
        bool, typer.Option("--forward-agent", "-A", help="Let the workspace use your SSH agent.")
    ] = False
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Use a terminal also for a command.")] = False
    option: Annotated[
        list[str] | None,
        flag(
            "--option",
            "-O",
            help="Option of ssh, as in `ssh -o`, like LocalForward='8080 localhost:80'. Repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None
    context: ContextFlag = None


@options_from(SshOptions)
def ssh(options: SshOptions) -> None:
    """Open a shell in a workspace, or run a command there. Exits with the code of the command.

    It runs `ssh` with a key and a certificate that are valid for five minutes and removed at the end. For scp, sftp,
    rsync and editors, see `fairlead workspace ssh-config`.
    """
    place = Place(options.name, options.project, options.context)
    with open_session(options.context) as session, tempfile.TemporaryDirectory(prefix="fairlead-ssh-") as folder:
        program = find_ssh()
        files = SshFiles(Path(folder), place.host)
        namespace = project_namespace(session, options.project)
        user = files.request_certificate(session.client, options.name, namespace)
        chosen = dict(build_options(files, replace(place, namespace=namespace).command("ssh-proxy", "--wake")))
        if options.forward_agent:
            chosen["ForwardAgent"] = "yes"
        arguments = [program, "-F", "none", *(("-t",) if options.tty else ()), *(("-l", user) if user else ())]
        for each in (*(options.option or ()), *(f"{name}={value}" for name, value in chosen.items())):
            arguments += ["-o", each]
        code = run_ssh([*arguments, "--", place.host, *(options.command or ())])
    raise typer.Exit(code)


def find_ssh() -> str:
    found = shutil.which("ssh")
    if found is None:
        raise ClientError("there is no ssh on this machine; install the OpenSSH client")
    return found


def run_ssh(arguments: list[str]) -> int:
    """Runs ssh to its end, whatever signal comes: the files are removed after it."""
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: object) -> None:
        if process is not None and number != signal.SIGINT:  # a terminal sends that to both
            process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        process = subprocess.Popen(arguments)
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


# --- for the configuration of ssh -------------------------------------------------------------------------------------


def ssh_config(
    project: ProjectFilterFlag = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write it, and include it in ~/.ssh/config, instead of printing it.")
    ] = False,
    context: ContextFlag = None,
) -> None:
    """Print a configuration for ssh, with a host NAME.PROJECT.fairlead for each of your workspaces.

    With it, ssh, scp, sftp, rsync and editors reach workspaces by that name. Run it again for new workspaces.
    """
    with open_session(context) as session:
        pinned = session.name or None
        places = list_places(session, project, pinned)
        if not places:
            raise ClientError("you have no workspaces; create one with `fairlead workspace create`")
        folder = config_folder()
        text = build_config(places, folder)
        if not write:
            print(text, end="")
            return
        ensure_private_folder(folder)
        write_file(folder / "config", text.encode())
        is_new = include_config(Path.home() / ".ssh" / "config", folder / "config")
        print_note(f"wrote {folder / 'config'}" + (", and included it in ~/.ssh/config" if is_new else ""))
        print_note(f"connect with `ssh {places[0].host}`")


def config_folder() -> Path:
    return contexts_path().parent / "ssh"


def list_places(session: Session, project: str | None, context: str | None) -> list[Place]:
    prefix = project_namespace_prefix(session.client)
    namespace = prefix + project if project else ""
    places = []
    for each in session.client.list(WORKSPACES, namespace=namespace):
        found = text_of(each, "metadata.namespace")
        if found.startswith(prefix):
            places.append(Place(name_of(each), found.removeprefix(prefix), context, found))
    return sorted(places, key=lambda place: place.host)


def ssh_prepare(
    name: NameArgument, project: RequiredProjectFlag, namespace: NamespaceFlag = "", context: ContextFlag = None
) -> None:
    """Fetch a certificate and the host keys of a workspace. The configuration of ssh runs it before each connection."""
    with open_session(context) as session:
        files = SshFiles(ensure_private_folder(config_folder()), Place(name, project, context).host)
        files.request_certificate(session.client, name, namespace or project_namespace(session, project))


def ssh_proxy(
    name: NameArgument,
    project: RequiredProjectFlag,
    namespace: NamespaceFlag = "",
    wake: Annotated[bool, typer.Option("--wake", help="Wake it up: a person connects.", hidden=True)] = False,
    context: ContextFlag = None,
) -> None:
    """Carry an SSH connection to a workspace, as the ProxyCommand of ssh.

    Without --wake, the server decides whether it is a person who connects, or an editor that reconnects by itself.
    """
    with open_session(context) as session:
        namespace = namespace or project_namespace(session, project)
        path = session.client.path(WORKSPACES, name, "ssh", namespace=namespace)
        try:
            asyncio.run(_carry(session, path, {"wake": True} if wake else {}))
        except ClientError as error:
            raise ClientError(f"the connection to {name}.{project}.{SUFFIX} has ended: {error}") from None


async def _carry(session: Session, path: str, options: Mapping[str, bool]) -> None:
    from fairlead.client.workspace_streams import open_stream
    from fairlead.core.waiting import end_tasks

    async with open_stream(session.login, path, options) as stream:
        reader, writer = await _open_standard_streams()
        feeding = asyncio.create_task(_feed(reader, stream))
        writing = asyncio.create_task(_write_output(stream, writer))
        try:
            await asyncio.wait((feeding, writing), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                await asyncio.wait((writing,), timeout=DRAIN_SECONDS)
            if writing.done():
                writing.result()
        finally:
            await end_tasks(feeding, writing)


async def _open_standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Of descriptors of their own: asyncio closes them, and messages are still to be written."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(os.dup(1), "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _feed(reader: asyncio.StreamReader, stream: "WorkspaceStream") -> None:
    """Returns when ssh has closed its side."""
    while data := await reader.read(READ_BYTES):
        await stream.send(data)
    await stream.send_eof()


async def _write_output(stream: "WorkspaceStream", writer: asyncio.StreamWriter) -> None:
    """Returns when the workspace has closed its side, or ssh is gone."""
    while (output := await stream.receive()) is not None:
        if output.is_error:
            _show(output.content)
            continue
        try:
            writer.write(output.content)
            await writer.drain()
        except ConnectionError:
            return


def _show(content: bytes) -> None:
    """Messages about the connection. The terminal may be in raw mode, where a line needs a carriage return."""
    for line in content.decode(errors="replace").splitlines():
        sys.stderr.write(f"fairlead: {escape_control(line)}\r\n")
    sys.stderr.flush()


def add_ssh_commands(group: typer.Typer) -> None:
    group.command("ssh")(ssh)
    group.command("ssh-config")(ssh_config)
    group.command("ssh-prepare", hidden=True)(ssh_prepare)
    group.command("ssh-proxy", hidden=True)(ssh_proxy)
