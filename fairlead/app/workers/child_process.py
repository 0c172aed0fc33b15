"""A child process of the supervisor: how it is forked, and how the two talk.

They share a pair of sockets. The child sends one line of JSON: that it is ready, or why it could not start. The end of
its stream means that it has ended. The supervisor sends nothing; it closes its end to stop the child.

Children ignore SIGINT and SIGTERM, which terminals and service managers send to all processes of a group: workers must
stop before the owner of the store does, so the supervisor stops them. When the supervisor dies, the kernel kills its
children.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import orjson
import structlog

from fairlead.core.files import FileProblem
from fairlead.settings import StartError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
HEARTBEAT_SECONDS = 1.0
MAX_COMMAND_NAME_BYTES = 15

Message = Mapping[str, Any]
Serve = Callable[[asyncio.Event, Callable[[Message], None]], Coroutine[Any, Any, None]]
"""The work of a child: serves until the event is set, and sends a message when it is ready."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ChildProcess:
    """A running child, as the supervisor sees it."""

    pid: int
    control: socket.socket
    _received: bytearray = field(default_factory=bytearray)

    def receive(self) -> list[Message] | None:
        """The messages that have arrived; None when the child has ended."""
        try:
            data = self.control.recv(65_536)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        *lines, rest = (bytes(self._received) + data).split(b"\n")
        self._received[:] = rest
        return [orjson.loads(line) for line in lines]

    def request_stop(self) -> None:
        with suppress(OSError):  # it has ended meanwhile
            self.control.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Waits for the end of the process. Returns its exit code, negative for a signal."""
        self.control.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork_child(
    name: str, serve: Serve, beat: Callable[[], None], inherited: Iterable[socket.socket] = ()
) -> ChildProcess:
    """Starts a child. It closes its copies of the `inherited` sockets, which belong to the supervisor and to others."""
    ours, theirs = socket.socketpair()
    supervisor = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise the child would write what is buffered once more
    with _blocked_signals():
        pid = os.fork()
        if pid == 0:
            ours.close()
            for each in inherited:
                each.close()
            _run_child(name, supervisor, lambda: _run_event_loop(theirs, serve, beat))
    theirs.close()
    ours.setblocking(False)
    return ChildProcess(pid, ours)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Keeps signals from the child until it has replaced the handlers of the supervisor."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_child(name: str, supervisor: int, main: Callable[[], int]) -> NoReturn:
    """Runs in the child, and ends it: nothing of the supervisor's call stack may run here."""
    code = 1
    try:
        _die_with(supervisor)
        for number in STOP_SIGNALS:
            # Not SIG_IGN, which programs that the child starts would inherit.
            signal.signal(number, _ignore_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        _set_command_name(f"fairlead-{name}")
        structlog.contextvars.bind_contextvars(process=name)
        code = main()
    except BaseException:
        log.error("this process ends because of an internal error", exc_info=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with(supervisor: int) -> None:
    """Has the kernel kill this process when its supervisor ends, however that happens."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != supervisor:  # it has ended before the call
        os._exit(1)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    pass


def _set_command_name(name: str) -> None:
    """Sets the name that `ps -o comm` and `top` show."""
    with suppress(OSError):
        Path("/proc/self/comm").write_bytes(name.encode()[:MAX_COMMAND_NAME_BYTES])


def _run_event_loop(control: socket.socket, serve: Serve, beat: Callable[[], None]) -> int:
    """Runs the work of the child until the supervisor closes the control socket. Returns the exit code."""
    import uvloop

    stop = asyncio.Event()

    def send(message: Message) -> None:
        with suppress(OSError):  # the supervisor has ended, and this process is about to be killed
            control.sendall(orjson.dumps(message) + b"\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()

        def on_control_closed() -> None:
            loop.remove_reader(control)
            stop.set()

        def beat_regularly() -> None:
            beat()
            loop.call_later(HEARTBEAT_SECONDS, beat_regularly)

        loop.add_reader(control, on_control_closed)
        loop.call_soon(beat_regularly)
        try:
            runner.run(serve(stop, send))
        except (StartError, FileProblem) as error:
            send({"error": str(error)})
            return 1
    return 0
