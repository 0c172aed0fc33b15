"""Finds the processes of sessions among those of a workspace, and signals them.

How many processes there are, what their environments look like, and how fast they start others, is the choice of the
workspace. So each search has limits on processes and time, and is one of a thread.

Within seconds, a workspace can also have the kernel give the pid of an ended process to another one, anywhere on the
machine. So a process is its pid together with the moment of its start, candidates come from the workspace's own control
group, and a signal goes to what a descriptor refers to, not to a number.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.runner.engines.measurement import ProcessSample, read_nested_pids, read_process, read_start_ticks

MARK = "FAIRLEAD_SESSION"
MAX_ENVIRONMENT_BYTES = 256 << 10
"""What is read of the environment of a process. A process can declare all of its address space to be that."""
SEARCH_SECONDS = 1.0
"""How long one search takes at most. What was not looked at by then is left to the next one."""
MAX_ROUNDS = 16
"""How often one search looks for processes that were started by those that it was just stopping."""
ListPids = Callable[[], list[int]]
Members = Mapping[int, ProcessSample]
"""Processes of a workspace, by pid."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    ends_at: float = field(default_factory=lambda: time.monotonic() + SEARCH_SECONDS)

    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_at


@dataclass(frozen=True, slots=True)
class MarkedProcesses:
    """Processes of a workspace whose marks are wanted, as they are whenever they are looked for."""

    uid: str
    """Of the workspace."""
    list_pids: ListPids
    """The processes of the workspace, up to a limit."""
    is_wanted: Callable[[str], bool]
    """By the mark."""
    has_detached: bool = False
    """With those that detached themselves, as tmux does."""

    def signal(self, number: signal.Signals) -> bool:
        """Says whether there were any."""
        limit = TimeLimit()
        members = read_members(self.list_pids, limit)
        roots = self._find_roots(members, limit)
        for root in roots:
            send(root, number)
        return bool(roots)

    def kill(self) -> bool:
        """Kills them and all that descend from them, as far as it takes no longer than a search may. Says whether there
        were any. They are stopped first, so that none starts another one that would be missed; none stays stopped
        only."""
        limit = TimeLimit()
        stopped: dict[int, ProcessSample] = {}
        for _ in range(MAX_ROUNDS):
            members = read_members(self.list_pids, limit)
            found = find_trees(self._find_roots(members, limit), members)
            new = [each for each in found if not _is_same(stopped.get(each.pid), each)]
            for each in new:
                send(each, signal.SIGSTOP)
                stopped[each.pid] = each
            if not new or limit.is_over():
                break
        for each in stopped.values():
            send(each, signal.SIGKILL)
        return bool(stopped)

    def _find_roots(self, members: Members, limit: TimeLimit) -> list[ProcessSample]:
        marked = {}
        for pid, each in members.items():
            if limit.is_over():
                break
            if self.is_wanted(read_mark(pid)):
                marked[pid] = each
        return list(marked.values()) if self.has_detached else _find_first(marked, limit)


@dataclass(slots=True)
class EndRequests:
    """Asks processes to end, each once, also those that start later."""

    list_pids: ListPids
    select: Callable[[Members], list[ProcessSample]]
    """Those of the workspace that shall end."""
    _sent: set[tuple[int, int, signal.Signals]] = field(default_factory=set)

    def send(self) -> bool:
        """Says whether there are any left."""
        limit = TimeLimit()
        found = self.select(read_members(self.list_pids, limit))
        requests = {(each.pid, each.start_ticks, _choose_signal(each)): each for each in found}
        self._sent &= requests.keys()
        for request, each in requests.items():
            if request not in self._sent and not limit.is_over():
                send(each, request[-1])
                self._sent.add(request)
        return bool(found)


def read_members(list_pids: ListPids, limit: TimeLimit) -> dict[int, ProcessSample]:
    """The processes that are listed, without those that have ended.

    What is read of a pid counts only if it is listed afterwards as well. Else it may be of another process, which has
    got the pid since it was listed first, and which is not of the workspace."""
    found: dict[int, ProcessSample] = {}
    for pid in list_pids():
        if limit.is_over():
            break
        process = read_process(pid)
        if process is not None:
            found[pid] = process
    still_listed = set(list_pids())
    return {pid: process for pid, process in found.items() if pid in still_listed}


def _find_first(marked: Members, limit: TimeLimit) -> list[ProcessSample]:
    """Those that no other one started. One that lost its parent detached itself, as tmux does, and is left alone: the
    first process of its container, or of the machine, is its parent then."""
    are_first_of_all: dict[int, bool] = {}
    found = []
    for each in marked.values():
        if limit.is_over():
            break
        if each.parent in marked:
            continue
        if each.parent not in are_first_of_all:
            are_first_of_all[each.parent] = read_nested_pids(each.parent)[-1:] == [1]
        if not are_first_of_all[each.parent]:
            found.append(each)
    return found


def find_trees(roots: Iterable[ProcessSample], members: Members) -> list[ProcessSample]:
    """The processes and all that descend from them."""
    children: dict[int, list[ProcessSample]] = {}
    for each in members.values():
        children.setdefault(each.parent, []).append(each)
    found: dict[int, ProcessSample] = {}
    pending = list(roots)
    while pending:
        each = pending.pop()
        if each.pid not in found:  # what is read one after the other may look like a circle
            found[each.pid] = each
            pending += children.get(each.pid, [])
    return list(found.values())


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


def send(process: ProcessSample, number: signal.Signals) -> None:
    """Signals a process, if it is still the one that was found."""
    send_to(process.pid, process.start_ticks, number)


def send_to(pid: int, start_ticks: int, number: signal.Signals) -> None:
    """Signals the process with this pid, if it started then. The descriptor refers to one process for as long as it is
    open; what is read of the pid meanwhile is of that process, or it has ended and gets no signal."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if read_start_ticks(pid) == start_ticks:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _choose_signal(process: ProcessSample) -> signal.Signals:
    """Shells at a terminal ignore TERM, not HUP."""
    return signal.SIGHUP if process.is_shell and process.terminal else signal.SIGTERM


def _is_same(known: ProcessSample | None, process: ProcessSample) -> bool:
    return known is not None and known.start_ticks == process.start_ticks
