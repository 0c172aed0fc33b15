"""Servers as forks of a process that has already imported the program, which takes longer than everything else.

One such process serves a test session. `fork_program` asks it for a process that does what `python -m PROGRAM` does,
with its own arguments, environment and streams. Tests of the start itself, and
programs that need variables of the interpreter or of the dynamic linker, use `subprocess`. Programs that change the
server before it is imported are forks of a process that has imported nothing.

The two talk over a socket: a request is one message with the descriptors of the streams and of another socket, on which
the process ID and, when the process has ended, its exit code are returned.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
MAX_REQUEST_BYTES = 1 << 20
SERVER = "fairlead"


class ForkedProcess:
    """What `subprocess.Popen` is for a child process."""

    def __init__(self, args: Sequence[str], status: socket.socket, stdout: IO[bytes]) -> None:
        self.args = args
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status
        self.pid = int(self._receive())

    def poll(self) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self.returncode = os.waitstatus_to_exitcode(int(self._receive()))
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            self._has_ended(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills the process if it still runs, and waits for its end."""
        self.kill()
        self.wait()
        self.stdout.close()

    def _has_ended(self, timeout: float | None) -> bool:
        poll = select.poll()  # unlike `select`, it takes descriptors above 1024
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _receive(self) -> bytes:
        data = self._status.recv(64)
        if not data:
            raise ChildProcessError("the fork server has ended")
        return data


def fork_program(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stderr: IO[bytes],
    stdout: IO[bytes] | None = None,
) -> ForkedProcess:
    """Runs a module as a program in the root folder of the project, with a pipe or a file as its standard output."""
    sys.audit("tests.fork_program", program)  # as `subprocess` does: `tests/harness/times.py` counts the processes
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    readable, writable = os.pipe()
    if stdout is not None:
        os.dup2(stdout.fileno(), writable)  # nothing is written to the pipe
    with theirs, open(os.devnull, "rb") as stdin:
        request = json.dumps({"command": [program, *arguments], "environment": dict(environment)}).encode()
        descriptors = [stdin.fileno(), writable, stderr.fileno(), theirs.fileno()]
        socket.send_fds(_fork_server(program == SERVER), [request], descriptors)
    os.close(writable)
    return ForkedProcess((program, *arguments), ours, open(readable, "rb"))


@cache
def _fork_server(has_imported: bool) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_REQUEST_BYTES)
    command = [sys.executable, "-m", __name__, str(theirs.fileno()), *(["--import"] if has_imported else [])]
    with theirs:
        # Nothing is written to the pipe, but Python remembers of what kind its standard output is.
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )

    def stop() -> None:
        ours.close()  # it ends when nothing can ask it any more
        process.communicate()

    atexit.register(stop)
    return ours


class _Forks:
    """The fork server: it forks, and reports how its children end."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._statuses: dict[int, socket.socket] = {}

    def serve(self) -> Sequence[str] | None:
        """Returns the command in a child, and None in the fork server when there are no more requests."""
        woken, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        while True:
            readable = select.select([self._requests, woken], [], [])[0]
            if woken in readable:
                woken.recv(4096)
                self._report_ends()
            if self._requests in readable:
                data, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, 4)
                if not data:
                    return None
                request: dict[str, Any] = json.loads(data)
                pid = os.fork()
                if pid == 0:
                    for each in (self._requests, woken, wake, *self._statuses.values()):
                        each.close()
                    _become(descriptors, request["environment"])
                    return tuple(request["command"])
                self._add(pid, descriptors)

    def _add(self, pid: int, descriptors: Sequence[int]) -> None:
        for each in descriptors[:3]:
            os.close(each)
        self._statuses[pid] = socket.socket(fileno=descriptors[3])
        self._send(self._statuses[pid], str(pid))

    def _report_ends(self) -> None:
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._statuses.pop(pid) as connection:
                self._send(connection, str(status))

    def _send(self, connection: socket.socket, message: str) -> None:
        with suppress(BrokenPipeError):  # the test has ended without waiting for it
            connection.send(message.encode())


def _become(descriptors: Sequence[int], environment: Mapping[str, str]) -> None:
    """What a new process would have had from its start."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, stream)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)


def _import_server() -> None:
    import fairlead.app.workers.supervisor
    import fairlead.cli.server.event_loop
    import fairlead.cli.server.serve
    import fairlead.cli.server.up
    import fairlead.runner.process  # noqa: F401

    with suppress(ImportError):  # what the parser of arguments imports with the first one: pydantic, with its types
        importlib.import_module("typer._adapters")
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if "--import" in sys.argv:
        _import_server()
    command = _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    if command is not None:
        gc.unfreeze()
        sys.argv = list(command)
        runpy.run_module(command[0], run_name="__main__")
