"""Finds the processes of sessions among those of a workspace, and signals them.

How many processes there are, what their environments look like, and how fast they start others, is the choice of the
workspace. So each search has limits on processes and time, and is one of a thread.

Within seconds, a workspace can also have the kernel give the pid of an ended process to another one, anywhere on the
machine. So a process is its pid together with the moment of its start, candidates come from the workspace's own control
group, and a signal goes to what a descriptor refers to, not to a number.
"""

import errno
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from fairlead.runner.engines.measurement import ProcessSample, read_nested_pids, read_process, read_start_ticks

MARK = "FAIRLEAD_SESSION"
MAX_ENVIRONMENT_BYTES = 256 << 10
"""What is read of the environment of a process. A process can declare all of its address space to be that."""
SEARCH_SECONDS = 1.0
"""How long one search looks at environments, and at parents. What it does not come to is left to the next one."""
MAX_ROUNDS = 16
"""How often one search looks for processes that were started by those that it was just stopping."""
ListPids = Callable[[], list[int]]
Members = Mapping[int, ProcessSample]
"""Processes of a workspace, by pid."""

log = structlog.get_logger(__name__)


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
        roots = self._find_roots(read_members(self.list_pids), TimeLimit())
        for root in roots:
            send(root, number)
        return bool(roots)

    def kill(self) -> bool:
        """Kills them and all that descend from them. Says whether there were any, or may be some that were not looked
        at in time. All are stopped first, so that none starts another one that would be missed, and none stays stopped
        only. That has a limit of time, too: what starts others faster is left to the next search."""
        limit = TimeLimit()
        new = self._find_roots(read_members(self.list_pids), limit)
        stopped: dict[int, ProcessSample] = {}
        rounds = TimeLimit()
        for _ in range(MAX_ROUNDS):
            for each in new:
                send(each, signal.SIGSTOP)
                stopped[each.pid] = each
            found = find_trees(stopped.values(), read_members(self.list_pids)) if new else []
            new = [each for each in found if not _is_same(stopped.get(each.pid), each)]
            if not new or rounds.is_over():
                break
        for each in (*stopped.values(), *new):
            send(each, signal.SIGKILL)
        return bool(stopped) or limit.is_over()

    def _find_roots(self, members: Members, limit: TimeLimit) -> list[ProcessSample]:
        """In no particular order, so that what one search does not come to is not missed by each."""
        marked = {}
        for each in random.sample(list(members.values()), len(members)):
            if limit.is_over():
                break
            if self.is_wanted(read_mark(each.pid)):
                marked[each.pid] = each
        return list(marked.values()) if self.has_detached else _find_first(marked)


@dataclass(slots=True)
class EndRequests:
    """Asks processes to end, each once, also those that start later."""

    list_pids: ListPids
    select: Callable[[Members], list[ProcessSample]]
    """Those of the workspace that shall end."""
    _sent: set[tuple[int, int, signal.Signals]] = field(default_factory=set)

    def send(self) -> bool:
        """Says whether there are any left."""
        found = self.select(read_members(self.list_pids))
        requests = {(each.pid, each.start_ticks, _choose_signal(each)): each for each in found}
        self._sent &= requests.keys()
        for request, each in requests.items():
            if request not in self._sent:
                send(each, request[-1])
                self._sent.add(request)
        return bool(found)


def read_members(list_pids: ListPids) -> dict[int, ProcessSample]:
    """The processes that are listed, without those that have ended.

    What is read of a pid counts only if it is listed afterwards as well. Else it may be of another process, which has
    got the pid since it was listed first, and which is not of the workspace."""
    found = {pid: process for pid in list_pids() if (process := read_process(pid)) is not None}
    still_listed = set(list_pids())
    return {pid: process for pid, process in found.items() if pid in still_listed}


def _find_first(marked: Members) -> list[ProcessSample]:
    """Those that no other one started. One that lost its parent detached itself, as tmux does, and is left alone: the
    first process of its container, or of the machine, is its parent then."""
    limit = TimeLimit()
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
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:  # the process has ended; its pid may be that of a thread now, which is another error
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            log.error("a process of a workspace is not signalled", error=error.strerror)
        return
    try:
        if read_start_ticks(pid) == start_ticks:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _choose_signal(process: ProcessSample) -> signal.Signals:
    """Shells at a terminal ignore TERM, not HUP."""
    return signal.SIGHUP if process.is_shell and process.terminal else signal.SIGTERM


def _is_same(known: ProcessSample | None, process: ProcessSample) -> bool:
    return known is not None and known.start_ticks == process.start_ticks
