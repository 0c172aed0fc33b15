"""Processes inside a workspace, over `pods/exec`.

The cluster starts them as the user of the container, without a folder or variables, and leaves them running when the
connection ends. So each begins as a shell script, which writes down the number of its process, and a second one ends
it with everything that it started.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.runner.engines.contract import EngineError, ExecOptions, Reason
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.exec_protocol import V4, V5, ExecConnection, Pipe
from fairlead.runner.engines.kubernetes.manifests import WORKSPACE
from fairlead.runner.engines.kubernetes.place import PODS, Place
from fairlead.runner.engines.kubernetes.scripts import SessionScript, build_header, build_session, with_variables
from fairlead.runner.engines.kubernetes.settings import Folders
from fairlead.runner.engines.sessions import BOOT_ID, new_mark

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
    has_terminal: bool
    is_killed: bool = False

    @property
    def stdin(self) -> "SessionInput":
        return SessionInput(self.connection, self.has_terminal)

    @property
    def stdout(self) -> Pipe:
        return self.connection.stdout

    @property
    def stderr(self) -> Pipe:
        return self.connection.stderr

    async def resize(self, columns: int, rows: int) -> None:
        if self.has_terminal:
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
class SessionInput:
    connection: ExecConnection
    has_terminal: bool

    async def write(self, data: bytes, /) -> None:
        await self.connection.write(data)

    async def close(self) -> None:
        """A terminal has no end of its own: this is what a user types."""
        if self.has_terminal:
            await self.connection.write(b"\x04")
        else:
            await self.connection.close()


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
            return PodSession(self, connection, script.mark, False)
        path = f"{self.folders.private}/{script.mark}.sh"
        result = await self.run_script(scripts.WRITE_FILE, {"FILE": path, "TEXT": f"rm -f {path}\n{text}"})
        if result.code != 0:
            raise EngineError(Reason.NOT_RUNNING, f"the session could not be prepared: {result.errors!r}")
        connection = await self._open([scripts.ENTER_FILE, "session", path], tty=True)
        await connection.resize(options.columns, options.rows)
        return PodSession(self, connection, script.mark, True)

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
        return ExecConnection(await self.place.cluster.open_websocket(f"{self.place.path(PODS)}/exec", query, (V5, V4)))


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
