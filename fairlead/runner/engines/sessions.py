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

from fairlead.runner.engines.descriptors import Pipe, Terminal
from fairlead.runner.engines.measurement import Scans, read_nested_pids, read_parent, read_process

MARK = "FAIRLEAD_SESSION"
BOOT_ID = uuid.uuid4().hex
"""That of this runner: sessions with another one were left by an earlier runner."""
MAX_ENVIRONMENT_BYTES = 256 << 10
"""What is read of the environment of a process. A process can declare all of its address space to be that."""
START_SECONDS = 10.0
"""Within this time, podman has started a process, also on a busy machine. Before that, there is nothing to kill."""
NOTICE_SECONDS = 2.0
"""Within this time, podman notices that its process has ended, and cleans up."""
KILL_SECONDS = 10.0
"""How long processes are waited for that were killed. One that is frozen in a control group ends when it is thawed."""
_scans: Scans[list[int]] = Scans()
"""How many processes there are, and what their environments look like, is the choice of workspaces."""


@dataclass(slots=True)
class Session:
    """One process inside, and the podman that connects to it."""

    podman: asyncio.subprocess.Process
    mark: str
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
            for pid in await _scans.run(self.mark, lambda: find_marked(self.mark)):
                send(pid, number)

    async def wait(self) -> int:
        code = await self.podman.wait()
        return code if code >= 0 else 128 - code

    async def kill(self) -> None:
        """To its end, also if the caller is cancelled meanwhile: else the process would stay."""
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _end(self) -> None:
        seconds, began = START_SECONDS, time.monotonic()
        while self.podman.returncode is None and time.monotonic() - began < seconds:
            if await _scans.run(self.mark, lambda: find_marked(self.mark)):
                seconds = time.monotonic() - began + NOTICE_SECONDS
                await end_trees(lambda: find_marked(self.mark))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.podman.wait(), 0.1)
        if self.podman.returncode is None:
            self.podman.kill()
            await self.podman.wait()
        await end_trees(lambda: find_marked(self.mark))
        for each in (self.stdin, self.stdout, self.stderr):
            await each.release()

    def take_descriptors(self) -> list[int]:
        if self.terminal is not None:
            return [os.dup(self.terminal.descriptor)]  # the other one is for changes of its size
        return [self.stdin.detach(), self.stdout.detach(), self.stderr.detach()]


async def start_session(
    command: Sequence[str],
    mark: str,
    environment: Mapping[str, str],
    size: tuple[int, int] | None = None,
    descriptors: Sequence[int] = (),
    is_passed_on: bool = False,
) -> Session:
    """With a size, columns and rows, the process gets a terminal of its own. `is_passed_on`: it is podman, which has
    another terminal inside, and passes on size and bytes. The process inherits the descriptors."""
    if size is None:
        return await _start_whole(_start(command, mark, environment, descriptors))
    return await _start_whole(_start_terminal(command, mark, environment, size, descriptors, is_passed_on))


async def _start_whole(starting: Coroutine[None, None, Session]) -> Session:
    """A caller that is cancelled meanwhile leaves no process behind that nothing knows of."""
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await (await task).kill()
        raise


async def _start(
    command: Sequence[str], mark: str, environment: Mapping[str, str], descriptors: Sequence[int]
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
    return Session(process, mark, *own)


def _open_pipe(given: contextlib.ExitStack, is_input: bool = False) -> tuple[int, int]:
    """The end of the process, which is closed with the stack, and that of the runner."""
    reader, writer = os.pipe()
    guest, own = (reader, writer) if is_input else (writer, reader)
    given.callback(os.close, guest)
    os.set_blocking(own, False)
    return guest, own


async def _start_terminal(
    command: Sequence[str],
    mark: str,
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
    return Session(podman=process, mark=mark, stdin=terminal, stdout=terminal, stderr=Pipe(-1), terminal=terminal)


def pass_input_on(terminal: int) -> None:
    """Lets a terminal interpret nothing of what arrives: the one inside does. Podman does the same, but only a moment
    after its start. What arrives before would be echoed twice, and an end of input become a NUL."""
    attributes = termios.tcgetattr(terminal)
    attributes[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def new_mark(uid: str) -> str:
    return f"{uid}.{BOOT_ID}.{uuid.uuid4().hex[:12]}"


async def end_trees(find_roots: Callable[[], list[int]]) -> None:
    """Kills the processes and all that descend from them. They are stopped first, so that none starts another one that
    would be missed."""
    deadline = time.monotonic() + KILL_SECONDS
    key = uuid.uuid4().hex
    while await _scans.run(key, lambda: _kill_trees(find_roots)):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.02)


def _kill_trees(find_roots: Callable[[], list[int]]) -> list[int]:
    """Returns what was there. A caller that is cancelled leaves none that is stopped only."""
    stopped: set[int] = set()
    while new := set(find_trees(find_roots())) - stopped:
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return list(stopped)


async def request_end(find: Callable[[], list[int]], seconds: float) -> None:
    """Signals processes to end, and waits until they have, at most so long. Those that start meanwhile end as well."""
    sent: set[tuple[int, signal.Signals]] = set()
    deadline = time.monotonic() + seconds
    while (pids := find()) and time.monotonic() < deadline:
        for request in {(pid, _choose_signal(pid)) for pid in pids} - sent:
            send(*request)
            sent.add(request)
        await asyncio.sleep(0.1)


def _choose_signal(pid: int) -> signal.Signals:
    """Shells at a terminal ignore TERM, not HUP."""
    found = read_process(pid)
    is_shell = found is not None and found.is_shell and bool(found.terminal)
    return signal.SIGHUP if is_shell else signal.SIGTERM


def find_marked(mark: str) -> list[int]:
    """The first processes of the sessions with this mark."""
    return _find_first({pid for pid in list_pids() if read_mark(pid) == mark})


def find_stale_sessions(uid: str) -> list[int]:
    """First processes of sessions that an earlier runner left in a container."""
    marks = {pid: read_mark(pid) for pid in list_pids()}
    return _find_first(
        {pid for pid, mark in marks.items() if mark.startswith(f"{uid}.") and f".{BOOT_ID}." not in mark}
    )


def _find_first(marked: set[int]) -> list[int]:
    """Those that no other one started. One that lost its parent detached itself, as tmux does, and is left alone: the
    first process of its container, or of the machine, is its parent then."""
    parents = {pid: read_parent(pid) for pid in marked}
    return [pid for pid, parent in parents.items() if parent not in marked and read_nested_pids(parent)[-1:] != [1]]


def find_trees(roots: list[int]) -> list[int]:
    """The processes and all that descend from them."""
    if not roots:
        return []
    children: dict[int, list[int]] = {}
    for pid in list_pids():
        children.setdefault(read_parent(pid), []).append(pid)
    found, pending = [], list(roots)
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending += children.get(pid, [])
    return found


def list_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def read_mark(pid: int, variable: str = MARK) -> str:
    """Empty for processes without a mark, those outside of containers included: podman itself carries none."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = file.read(MAX_ENVIRONMENT_BYTES)
    except OSError:
        return ""
    # It may have very many parts: it is not divided into them.
    _, _, after = (b"\0" + environment).partition(b"\0" + variable.encode() + b"=")
    return after.partition(b"\0")[0].decode(errors="replace")


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
