"""A command in its own session, which goes on when the runner ends, and which the next runner finds again.

Its folder has everything: `pid` of the leader of the session (`leader.py`), `out`, `log` (what it writes to stderr)
and, when it has ended, `exit`. With the pid is written when the process started, and the boot of the machine: a process
of a workspace that has got the pid since is not mistaken for it, whatever it pretends to be.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.runner.engines.devcontainer.isolation.holder import PYTHON
from fairlead.runner.engines.devcontainer.layout import write_file
from fairlead.runner.engines.devcontainer.leader import MAX_OUT_BYTES
from fairlead.runner.engines.measurement import read_boot_id, read_process, read_start_ticks
from fairlead.runner.engines.process_trees import send

LEADER = (PYTHON, "-IS", str(Path(__file__).with_name("leader.py")))
POLL_SECONDS = 0.1
OFFSET = "offset"
"""The file with the position up to which the log was passed on."""
FREED_BYTES = 16 << 20
MAX_LINE_BYTES = PASS_BYTES = 1 << 20
"""Of a line, and of what is read before the position is saved."""
SLICE_SECONDS = 0.01
"""How long lines are handled before other tasks get their turn, for at least as long: the command may print faster than
it is read, in any number of lines. It waits then."""
HandleLine = Callable[[bytes], Iterable[object] | None]
"""Handles a line of the log, at once or in the steps of what it returns."""
PUNCH_HOLE = 0x01 | 0x02
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE."""


@dataclass(slots=True)
class Pace:
    """Leaves the event loop to others."""

    _began: float = field(default_factory=time.monotonic)

    @property
    def is_rest_due(self) -> bool:
        return time.monotonic() - self._began >= SLICE_SECONDS

    async def rest(self) -> None:
        await asyncio.sleep(time.monotonic() - self._began)
        self.begin()

    def begin(self) -> None:
        self._began = time.monotonic()


@dataclass(frozen=True, slots=True)
class DetachedCommand:
    folder: Path

    def read_task_id(self) -> str:
        """The task that started the command; empty if there is none."""
        try:
            return (self.folder / "task").read_text()
        except FileNotFoundError:
            return ""

    def start(self, task_id: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts the command. Its pid is written here, so that it can be killed at once, and by the command itself, in
        case this process is killed first."""
        write_file(self.folder / "task", task_id.encode())
        started = subprocess.Popen(
            [*LEADER, str(self.folder), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # It may outlive this process. If not, its exit status is taken from the kernel as soon as it ends.
        threading.Thread(target=started.wait, name=f"wait-{started.pid}", daemon=True).start()
        described = f"{started.pid} {read_start_ticks(started.pid)} {read_boot_id()}"
        write_file(self.folder / "pid", described.encode())

    def read_exit_code(self) -> int | None:
        try:
            return int((self.folder / "exit").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def find_leader(self) -> int | None:
        """The pid of the running leader."""
        try:
            pid, start_ticks, boot_id = (self.folder / "pid").read_text().split()
            is_alive = int(start_ticks) > 0 and read_start_ticks(int(pid)) == int(start_ticks)
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if is_alive and boot_id == read_boot_id() else None

    def read_output(self) -> bytes:
        """The begin of it, if it is too long."""
        try:
            with (self.folder / "out").open("rb") as file:
                return file.read(MAX_OUT_BYTES)
        except FileNotFoundError:
            return b""

    async def follow(self, on_line: HandleLine) -> int | None:
        """Passes on complete lines of the log until the command has ended. Returns its exit code, or None if it ended
        without one: it was killed, or the machine restarted. Goes on where an earlier runner stopped reading."""
        offset = self._read_offset()
        started, freed, pace = False, 0, Pace()
        while True:
            code = self.read_exit_code()
            leader = self.find_leader()
            started = started or leader is not None or code is not None
            before = offset
            offset = await self._pass_lines(offset, on_line, pace)
            freed = self._free_space(freed, offset)
            if offset - before >= PASS_BYTES:
                await pace.rest()
                continue
            if code is not None:
                return code
            if started and leader is None:
                return self.read_exit_code()
            started = started or await self._wait_for_start()
            if not started:
                return None
            await asyncio.sleep(POLL_SECONDS)
            pace.begin()

    def _read_offset(self) -> int:
        """Where an earlier runner stopped reading. A crash of the machine may leave the file empty: then lines are
        passed on again, which is better than that they are lost."""
        try:
            return int((self.folder / OFFSET).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _free_space(self, freed: int, offset: int) -> int:
        """Gives the disk back what was read of the log, which the command waits for when it has printed too much.
        Offsets stay what they are."""
        if offset - freed < FREED_BYTES:
            return freed
        with contextlib.suppress(OSError), (self.folder / "log").open("r+b") as log:
            ctypes.CDLL(None).fallocate(log.fileno(), PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(offset))
        return offset

    async def kill(self) -> None:
        """Ends the whole session, and waits until it is gone."""
        while (leader := self.find_leader()) is not None:
            await asyncio.to_thread(_kill_session, leader)
            _reap(leader)
            await asyncio.sleep(0.02)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _wait_for_start(self) -> bool:
        for _ in range(100):
            if (self.folder / "pid").exists():
                return True
            await asyncio.sleep(0.05)
        return False

    async def _pass_lines(self, offset: int, on_line: HandleLine, pace: Pace) -> int:
        """Returns the position of what it did not pass on, which it saves: there is more if this is far from the given
        one."""
        end = offset + PASS_BYTES
        try:
            with (self.folder / "log").open("rb") as file:
                file.seek(offset)
                while offset < end:
                    line = file.readline(MAX_LINE_BYTES)
                    if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                        break
                    for _ in on_line(line) or ():
                        if pace.is_rest_due:
                            await pace.rest()
                    offset += len(line)
                    if pace.is_rest_due:
                        await pace.rest()
        except FileNotFoundError:
            pass
        finally:
            with contextlib.suppress(FileNotFoundError):  # the workspace was deleted meanwhile
                write_file(self.folder / OFFSET, b"%d" % offset)
        return offset


def _kill_session(leader: int) -> None:
    """Kills all processes of the session that this process leads, the leader last."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    for pid in (*(each for each in pids if each != leader and _find_session(each) == leader), leader):
        process = read_process(pid)
        if process is not None and process.session == leader:
            send(process, signal.SIGKILL)


def _find_session(pid: int) -> int:
    """0 if there is no such process."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
