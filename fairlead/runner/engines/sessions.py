"""Processes inside workspaces: what ssh sessions, commands and downloads are made of.

In a container, `podman exec` starts them, and leaves them running when it is killed itself. So each carries a mark in
its environment, by which the host finds it, and with it everything that it started.
"""

import asyncio
import contextlib
import os
import signal
import termios
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from fairlead.core.waiting import run_to_end
from fairlead.runner.engines.descriptors import Pipe, Terminal
from fairlead.runner.engines.measurement import Scans
from fairlead.runner.engines.process_trees import EndRequests, ListPids, MarkedProcesses

BOOT_ID = uuid.uuid4().hex
"""That of this runner: sessions with another one were left by an earlier runner."""
START_SECONDS = 10.0
"""Within this time, podman has started a process, also on a busy machine. Before that, there is nothing to kill."""
NOTICE_SECONDS = 2.0
"""Within this time, podman notices that its process has ended, and cleans up."""
KILL_SECONDS = 10.0
"""How long processes are waited for that were killed. One that is frozen in a control group ends when it is thawed."""
REST_SHARE = 1.0
"""How long a workspace waits after each search for its processes, in times of what that took: searches of one that has
very many, or starts them faster than they end, leave threads and interpreter to the others."""
MIN_REST_SECONDS = 0.02
POLL_SECONDS = 0.1
_searches: "Scans[_Search]" = Scans()


@dataclass(slots=True)
class Session:
    """One process inside, and the podman that connects to it."""

    podman: asyncio.subprocess.Process
    processes: MarkedProcesses
    stdin: Pipe
    stdout: Pipe
    stderr: Pipe
    terminal: Terminal | None = None

    async def resize(self, columns: int, rows: int) -> None:
        if self.terminal is not None and self.terminal.descriptor >= 0:
            self.terminal.resize(columns, rows)

    async def send_signal(self, name: str) -> None:
        number = getattr(signal, f"SIG{name.removeprefix('SIG')}", None)
        if isinstance(number, signal.Signals):
            deadline = time.monotonic() + NOTICE_SECONDS
            await _search(self.processes.uid, lambda: self.processes.signal(number), deadline)

    async def wait(self) -> int:
        code = await self.podman.wait()
        return code if code >= 0 else 128 - code

    async def kill(self) -> None:
        """To its end, also if the caller is cancelled meanwhile: else the process would stay."""
        await run_to_end(self._end())

    async def _end(self) -> None:
        """Whatever a search for its processes meets, neither podman nor the descriptors stay with the runner."""
        try:
            await self._end_processes()
        finally:
            try:
                if self.podman.returncode is None:
                    self.podman.kill()
                    await self.podman.wait()
                await end_trees(self.processes)
            finally:
                for each in (self.stdin, self.stdout, self.stderr):
                    await each.release()

    async def _end_processes(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.podman.returncode is None and time.monotonic() < deadline:
            if await end_trees(self.processes):
                deadline = min(deadline, time.monotonic() + NOTICE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.podman.wait(), 0.1)

    def take_descriptors(self) -> list[int]:
        if self.terminal is not None:
            return [os.dup(self.terminal.descriptor)]  # the other one is for changes of its size
        return [self.stdin.detach(), self.stdout.detach(), self.stderr.detach()]


async def start_session(
    command: Sequence[str],
    processes: MarkedProcesses,
    environment: Mapping[str, str],
    size: tuple[int, int] | None = None,
    descriptors: Sequence[int] = (),
    is_passed_on: bool = False,
) -> Session:
    """With a size, columns and rows, the process gets a terminal of its own. `is_passed_on`: it is podman, which has
    another terminal inside, and passes on size and bytes. The process inherits the descriptors."""
    if size is None:
        return await _start_whole(_start(command, processes, environment, descriptors))
    return await _start_whole(_start_terminal(command, processes, environment, size, descriptors, is_passed_on))


async def _start_whole(starting: Coroutine[None, None, Session]) -> Session:
    """A caller that is cancelled meanwhile leaves no process behind that nothing knows of."""
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await (await task).kill()
        raise


async def _start(
    command: Sequence[str], processes: MarkedProcesses, environment: Mapping[str, str], descriptors: Sequence[int]
) -> Session:
    """The ends of the process block, those of the runner do not."""
    with contextlib.ExitStack() as given:
        guest_stdin, stdin = _open_pipe(given, is_input=True)
        guest_stdout, stdout = _open_pipe(given)
        guest_stderr, stderr = _open_pipe(given)
        own = Pipe(stdin), Pipe(stdout), Pipe(stderr)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment),
                pass_fds=descriptors,
                stdin=guest_stdin,
                stdout=guest_stdout,
                stderr=guest_stderr,
                start_new_session=True,
            )
        except BaseException:
            for each in own:
                await each.release()
            raise
    return Session(process, processes, *own)


def _open_pipe(given: contextlib.ExitStack, is_input: bool = False) -> tuple[int, int]:
    """The end of the process, which is closed with the stack, and that of the runner."""
    reader, writer = os.pipe()
    guest, own = (reader, writer) if is_input else (writer, reader)
    given.callback(os.close, guest)
    os.set_blocking(own, False)
    return guest, own


async def _start_terminal(
    command: Sequence[str],
    processes: MarkedProcesses,
    environment: Mapping[str, str],
    size: tuple[int, int],
    descriptors: Sequence[int],
    is_passed_on: bool,
) -> Session:
    host, guest = os.openpty()
    os.set_blocking(host, False)
    terminal = Terminal(host)
    try:
        if is_passed_on:
            pass_input_on(guest)
        terminal.resize(*size)
        process = await asyncio.create_subprocess_exec(
            "/usr/bin/setsid",
            "--ctty",
            "--wait",
            *command,
            env=dict(environment),
            pass_fds=descriptors,
            stdin=guest,
            stdout=guest,
            stderr=guest,
        )
    except BaseException:  # a command or a variable that no process can have, for example
        await terminal.release()
        raise
    finally:
        os.close(guest)
    return Session(
        podman=process, processes=processes, stdin=terminal, stdout=terminal, stderr=Pipe(-1), terminal=terminal
    )


def pass_input_on(terminal: int) -> None:
    """Lets a terminal interpret nothing of what arrives: the one inside does. Podman does the same, but only a moment
    after its start. What arrives before would be echoed twice, and an end of input become a NUL."""
    attributes = termios.tcgetattr(terminal)
    attributes[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def new_mark(uid: str) -> str:
    return f"{uid}.{BOOT_ID}.{uuid.uuid4().hex[:12]}"


def find_session(mark: str, list_pids: ListPids) -> MarkedProcesses:
    """The first processes of the session with this mark."""
    uid, _, _ = mark.partition(".")
    return MarkedProcesses(uid, list_pids, lambda found: found == mark)


def find_stale_sessions(uid: str, list_pids: ListPids) -> MarkedProcesses:
    """First processes of sessions that an earlier runner left in a container."""
    return MarkedProcesses(uid, list_pids, lambda found: found.startswith(f"{uid}.") and f".{BOOT_ID}." not in found)


async def end_trees(processes: MarkedProcesses) -> bool:
    """Kills the processes and all that descend from them. Says whether there were any. What the workspace starts
    faster than it can be found is left alone after a while: it ends with the container."""
    deadline = time.monotonic() + KILL_SECONDS
    had_any = False
    while (search := await _search(processes.uid, processes.kill, deadline)).has_found:
        had_any = True
        await search.rest(MIN_REST_SECONDS)
    return had_any


async def request_end(uid: str, requests: EndRequests, seconds: float) -> None:
    """Signals processes to end, and waits until they have, at most so long. Those that start meanwhile end as well."""
    deadline = time.monotonic() + seconds
    while (search := await _search(uid, requests.send, deadline)).has_found:
        await search.rest(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class _Search:
    has_found: bool
    seconds: float
    """What it took."""

    async def rest(self, at_least: float) -> None:
        await asyncio.sleep(max(REST_SHARE * self.seconds, at_least))


async def _search(uid: str, search: Callable[[], bool], deadline: float) -> _Search:
    """Runs a search in a thread, when those before it of the same workspace are done. After the deadline, it has found
    nothing."""

    def run() -> _Search:
        began = time.monotonic()
        has_found = search()
        return _Search(has_found, time.monotonic() - began)

    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await _searches.run_after(uid, run)
    except TimeoutError:
        return _Search(False, 0.0)
