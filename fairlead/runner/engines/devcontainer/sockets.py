"""Sockets of the runner that programs in a workspace can connect to, by a name in its private folder."""

import os
import socket
from functools import partial

from fairlead.runner.engines.contract import EngineError, ListeningSocket, Reason
from fairlead.runner.engines.devcontainer.grant import PRIVATE_FOLDER
from fairlead.runner.engines.devcontainer.inside import bind_socket
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT, INSIDE_TARGET, PYTHON, Holder
from fairlead.runner.engines.devcontainer.ports import run_in_network
from fairlead.runner.engines.devcontainer.programs import last_line, run_program

BACKLOG = 16
BIND = (PYTHON, "-IS", os.path.join(INSIDE_TARGET, os.path.basename(bind_socket.__file__)))


async def listen_inside(holder: Holder, name: str) -> ListeningSocket:
    """A program in the holder gives the socket its name, and gets a copy of it for that: so it belongs to the network
    of the workspace, or that program could connect it to abstract sockets of the machine. No descriptor comes from
    there. Raises EngineError and OSError."""
    created = await run_in_network(holder.pid, _create_socket, on_unused=socket.socket.close)
    try:
        command = holder.enter([*BIND, str(created.fileno()), name])
        result = await run_program(command, ENVIRONMENT, descriptors=(created.fileno(),))
        if result.code != 0:
            message = f"no socket can be created in the workspace: {last_line(result.errors)}"
            raise EngineError(Reason.NOT_RUNNING, message)
        created.listen(BACKLOG)
    except BaseException:
        created.close()
        raise
    return ListeningSocket(created, f"{PRIVATE_FOLDER}/sockets/{name}")


async def listen_on_port(holder: Holder, port: int) -> socket.socket:
    """The socket is created in the network of the workspace, and keeps it. Raises EngineError."""
    try:
        return await run_in_network(holder.pid, partial(_listen, port), on_unused=socket.socket.close)
    except OSError as error:
        message = f"nothing can listen on port {port} of the workspace: {error.strerror}"
        raise EngineError(Reason.NOT_RUNNING, message) from error


def _listen(port: int) -> socket.socket:
    created = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        created.setblocking(False)
        created.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        created.bind(("127.0.0.1", port))
        created.listen(BACKLOG)
    except BaseException:
        created.close()
        raise
    return created


def _create_socket() -> socket.socket:
    created = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    created.setblocking(False)
    return created
