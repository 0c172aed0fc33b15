"""Watches, while tests use real containers, that no program that reads a repository, or what clients of SSH send, runs
as root of the machine."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fairlead.runner.engines.measurement import read_parent
from fairlead.runner.ssh.confinement import PROCESS_NAME
from tests.runner.harness.processes import list_pids

PROGRAMS = frozenset(
    {"podman", "conmon", "runc", "crun", "node", "git", "git-remote-http", "tar", "devcontainer", "sshd", PROCESS_NAME}
)
HARNESS_VARIABLE = "STARTED_BY_THE_HARNESS"
"""In the environment of programs that the tests themselves start, to make repositories for example."""
SECONDS = 0.02
MAX_BYTES = 1 << 17


@dataclass(slots=True)
class Watch:
    root: int
    found: set[str] = field(default_factory=set)
    samples: int = 0
    seen: set[str] = field(default_factory=set)
    """Programs of the list that ran at all, as whomever."""

    def sample(self) -> None:
        """Reads the names of all processes, and more only of those of the list: it runs for as long as the tests do."""
        self.samples += 1
        for pid in list_pids():
            name = _read(pid, "comm").strip()
            if name in PROGRAMS and (self._is_below_root(pid) or "/fairlead-" in _read(pid, "cgroup")):
                self._look_at(pid, name)

    def _is_below_root(self, pid: int) -> bool:
        """What lost its parent is found by its control group."""
        while pid > 1 and pid != self.root:
            pid = read_parent(pid)
        return pid == self.root

    def _look_at(self, pid: int, name: str) -> None:
        self.seen.add(name)
        status = _read(pid, "status")
        owners = next((line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")), [])
        variables = _read(pid, "environ")
        command = _read(pid, "cmdline")
        has_ended = not command  # its environment cannot be read any more
        is_harmless = HARNESS_VARIABLE in variables or command.endswith("--version\0")
        if "0" in owners and not has_ended and not is_harmless:
            self.found.add(command.replace("\0", " ")[:200])


@contextmanager
def watch_root_programs(root: int) -> Iterator[Watch]:
    """Fails at the end if one of the programs ran as root, in the tree of this process or in a holder."""
    watch, has_ended = Watch(root), threading.Event()

    def run() -> None:
        while not has_ended.wait(SECONDS):
            watch.sample()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        has_ended.set()
        thread.join()
    assert not watch.found, f"ran as root of the machine: {sorted(watch.found)}"


def _read(pid: int, name: str) -> str:
    """Without an object for the file, which would take most of the time."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MAX_BYTES).decode(errors="replace")
    except OSError:  # it has just ended
        return ""
    finally:
        os.close(descriptor)
