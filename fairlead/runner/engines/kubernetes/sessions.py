"""Processes inside a workspace, over `pods/exec`.

The cluster starts them as the user of the container, without a folder or variables, and leaves them running when the
connection ends. So each begins as a shell script, which writes down the number of its process, and a second one ends
it with everything that it started.

Messages of the WebSocket have a channel as their first byte. Version 5 of the protocol can end stdin alone. With
version 4, of clusters before Kubernetes 1.29, the end of stdin is not passed on, and a process that waits for it ends
with the session.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.json import decode, encode
from fairlead.core.objects import get_path
from fairlead.core.waiting import end_tasks
from fairlead.runner.engines.contract import EngineError, ExecOptions, Reason
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.manifests import WORKSPACE
from fairlead.runner.engines.kubernetes.place import PODS, Place
from fairlead.runner.engines.kubernetes.scripts import SessionScript, build_header, build_session, with_variables
from fairlead.runner.engines.kubernetes.settings import Folders
from fairlead.runner.engines.sessions import BOOT_ID, new_mark
from fairlead.upstream.websocket import UpstreamWebSocket

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE_STDIN = bytes((255, STDIN))
MAX_BUFFERED_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 32 * 1024
PING_SECONDS = 15.0
FAILED_CODE = 255
"""The exit code of a process whose real one is unknown, because the connection broke off."""
INTERRUPTED = b"the connection to the workspace was interrupted\n"


class Pipe:
    """A `ByteReader` over received data. `feed` waits while too much of it is unread."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False
        self._changed = asyncio.Condition()

    async def feed(self, data: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < MAX_BUFFERED_BYTES or self._is_ended)
            if not self._is_ended and data:
                self._chunks.append(data)
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    async def read(self, n: int = -1, /) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._chunks) or self._is_ended)
            if not self._chunks:
                return b""
            data = self._chunks.popleft()
            if 0 <= n < len(data):
                self._chunks.appendleft(data[n:])
                data = data[:n]
            self._size -= len(data)
            self._changed.notify_all()
            return data


class PodConnection:
    """A WebSocket to the node of a Pod, and the tasks that serve it."""

    def __init__(self, websocket: UpstreamWebSocket) -> None:
        self._websocket = websocket
        self._tasks: list[asyncio.Task[None]] = []
        self._start(self._ping())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=type(self).__name__))

    async def release(self) -> None:
        """Closes the connection. What runs inside does not notice."""
        await end_tasks(*self._tasks)
        await self._websocket.close(1000, "")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._websocket.ping()


class ExecConnection(PodConnection):
    """One exec: its streams, and how it ended. It is its own writer, for stdin."""

    def __init__(self, websocket: UpstreamWebSocket, *, has_terminal: bool) -> None:
        super().__init__(websocket)
        self.stdout = Pipe()
        self.stderr = Pipe()
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._has_terminal = has_terminal
        self._has_reported = False
        self._failure = INTERRUPTED
        self._start(self._receive())

    @property
    def has_reported(self) -> bool:
        """Whether the exit code is that of the process, and not made up."""
        return self._has_reported

    async def write(self, data: bytes, /) -> None:
        for start in range(0, len(data), MAX_MESSAGE_BYTES):
            await self._websocket.send(bytes((STDIN,)) + data[start : start + MAX_MESSAGE_BYTES])

    async def close(self) -> None:
        """The end of stdin. A terminal has none of its own: this is what a user types."""
        if self._has_terminal:
            await self.write(b"\x04")
        elif self._websocket.subprotocol == V5:
            await self._websocket.send(CLOSE_STDIN)

    async def resize(self, columns: int, rows: int) -> None:
        if self._has_terminal:
            await self._websocket.send(bytes((RESIZE,)) + encode({"Width": columns, "Height": rows}))

    async def release(self) -> None:
        await self.stdout.end()
        await self.stderr.end()
        await super().release()

    async def _receive(self) -> None:
        try:
            while (message := await self._websocket.receive()) is not None:
                data = message.encode() if isinstance(message, str) else message
                match data[:1]:
                    case b"\x01":
                        await self.stdout.feed(data[1:])
                    case b"\x02":
                        await self.stderr.feed(data[1:])
                    case b"\x03":
                        self._report(data[1:])
        finally:
            if not self.exit_code.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.stderr.feed(self._failure)
                self.exit_code.set_result(FAILED_CODE)
            await self.stdout.end()
            await self.stderr.end()

    def _report(self, content: bytes) -> None:
        code, message = parse_exit(content)
        if code is None:
            self._failure = f"{message}\n".encode()
        elif not self.exit_code.done():
            self.exit_code.set_result(code)
            self._has_reported = True


def parse_exit(content: bytes) -> tuple[int | None, str]:
    """The exit code in the Status that ends an exec; None with a message if the process could not run."""
    try:
        status: Any = decode(content)
    except Malformed:
        return None, "the cluster sent no valid status"
    if get_path(status, "status") == "Success":
        return 0, ""
    for cause in get_path(status, "details.causes") or ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"]), ""
    return None, str(get_path(status, "message") or "the process could not be started")


# --- processes --------------------------------------------------------------------------------------------------------

SCRIPT_SECONDS = 20.0
MAX_OUTPUT_BYTES = 1 << 20
"""Of each stream of a script: a workspace decides what its programs print."""
END_SECONDS = 2.0
"""How long the cluster may take to report the end of a process that was killed."""
ROOT = "0"
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ScriptResult:
    code: int
    output: bytes
    errors: bytes


@dataclass(slots=True)
class PodSession:
    """One process inside; `Process` of the contract."""

    inside: "Inside"
    connection: ExecConnection
    mark: str
    is_killed: bool = False

    @property
    def stdin(self) -> ExecConnection:
        return self.connection

    @property
    def stdout(self) -> Pipe:
        return self.connection.stdout

    @property
    def stderr(self) -> Pipe:
        return self.connection.stderr

    async def resize(self, columns: int, rows: int) -> None:
        await self.connection.resize(columns, rows)

    async def send_signal(self, name: str) -> None:
        word = name.removeprefix("SIG")
        if _SIGNAL.fullmatch(word):
            await self.inside.run_script(scripts.SIGNAL, {"MARK": self.mark, "SIGNAL": word})

    async def wait(self) -> int:
        return await asyncio.shield(self.connection.exit_code)

    async def kill(self) -> None:
        """A process that has ended leaves only those that detached themselves from it."""
        if not self.connection.has_reported and not self.is_killed:
            self.is_killed = True
            with contextlib.suppress(EngineError, TimeoutError):  # the Pod is gone, or the next runner ends the session
                await self.inside.run_script(scripts.KILL, {"MARK": self.mark})
                await asyncio.wait_for(self.wait(), END_SECONDS)
        await self.connection.release()


@dataclass(frozen=True, slots=True)
class Inside:
    """Starts processes in the Pod of one workspace."""

    place: Place
    folders: Folders

    async def start(self, script: SessionScript, options: ExecOptions) -> PodSession:
        text = build_session(script, self.folders)
        if not options.tty:
            connection = await self._open([scripts.ENTER, "session", script.mark], tty=False)
            await connection.write(build_header(text, script.mark))
            return PodSession(self, connection, script.mark)
        path = f"{self.folders.private}/{script.mark}.sh"
        result = await self.run_script(scripts.WRITE_FILE, {"FILE": path, "TEXT": f"rm -f {path}\n{text}"})
        if result.code != 0:
            raise EngineError(Reason.NOT_RUNNING, f"the session could not be prepared: {result.errors!r}")
        connection = await self._open([scripts.ENTER_FILE, "session", path], tty=True)
        await connection.resize(options.columns, options.rows)
        return PodSession(self, connection, script.mark)

    async def run_script(self, script: str, variables: Mapping[str, str]) -> ScriptResult:
        """Runs a script of the engine to its end, as the user of the container."""
        mark = new_mark("script")
        values = {"SESSIONS": f"{self.folders.private}/sessions", "BOOT": BOOT_ID, **variables}
        try:
            async with asyncio.timeout(SCRIPT_SECONDS):
                connection = await self._open([scripts.ENTER, "script", mark], tty=False)
                try:
                    await connection.write(build_header(with_variables(script, values), mark))
                    await connection.close()
                    output, errors = await asyncio.gather(_read_all(connection.stdout), _read_all(connection.stderr))
                    return ScriptResult(await connection.exit_code, output, errors)
                finally:
                    await connection.release()
        except TimeoutError:
            raise EngineError(Reason.NOT_RUNNING, "the workspace does not respond to commands") from None

    async def end_stale_sessions(self) -> None:
        await self.run_script(scripts.KILL_STALE, {})

    async def _open(self, shell_arguments: list[str], tty: bool) -> ExecConnection:
        streams = {"stdin": True, "stdout": True, "stderr": not tty, "tty": tty}
        query = [("container", WORKSPACE), *((name, str(value).lower()) for name, value in streams.items())]
        query += [("command", word) for word in ("/bin/sh", "-c", *shell_arguments)]
        websocket = await self.place.cluster.open_websocket(f"{self.place.path(PODS)}/exec", query, (V5, V4))
        return ExecConnection(websocket, has_terminal=tty)


def choose_user(wanted: str, session_user: str, container_user: str) -> str:
    """The user that a session has to become; empty if it has that user already."""
    user = wanted or session_user
    if not _USER.fullmatch(user or "root"):
        raise EngineError(Reason.NOT_RUNNING, f"{user!r} is not the name of a user")
    if container_user == ROOT:
        return "" if user in ("", "root", ROOT) else user
    if user not in ("", session_user, container_user):
        raise EngineError(Reason.NOT_RUNNING, f"processes of this workspace run as {session_user} only")
    return ""


async def _read_all(pipe: Pipe) -> bytes:
    """All output; what exceeds the limit is dropped."""
    parts: list[bytes] = []
    remaining = MAX_OUTPUT_BYTES
    while data := await pipe.read():
        if remaining > 0:
            parts.append(data[:remaining])
            remaining -= len(parts[-1])
    return b"".join(parts)
