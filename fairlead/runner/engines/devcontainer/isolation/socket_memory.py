"""Ends workspaces whose sockets keep too much memory of the kernel.

What waits in a socket to be read is memory of the kernel. For netlink, pings and raw sockets, and in version 1 of
cgroups for UDP, the kernel counts it towards no control group: a few dozen sockets that nothing reads from take more
than the memory limit of the workspace, and some thousands all that the machine has. Any process can open them, and
programs need them to list the addresses of the machine, so they cannot be refused. The kernel does say what is in each
of them. It is looked at every second, and a workspace with more than any program has a use for ends, as one does whose
main process needs too much memory.

Sockets belong to the network in which they were opened. That of a workspace is the only one it has, unless its template
allows `privileged`: what is in further networks is not seen.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import structlog

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.isolation.holder import Holder, find_holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, write_file
from fairlead.runner.engines.devcontainer.settings import Settings

CHECK_SECONDS = 1.0
MAX_BYTES = 256 << 20
MAX_SOCKETS = 65_536
"""Of one kind. They are not read any further: to list them takes time of the kernel."""
NETLINK = "netlink"
INTERNET = ("icmp", "icmp6", "raw", "raw6", "udp", "udp6")
"""The tables of a network in /proc with sockets whose content is not counted, or in one version of cgroups only."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Overuse:
    """A workspace whose sockets keep too much."""

    folder: WorkspaceFolder
    holder: Holder
    problem: str


async def watch_socket_memory(settings: Settings) -> None:
    """For ever."""
    while True:
        began = time.monotonic()
        try:
            for each in await asyncio.to_thread(find_overuse, settings.state_folder):
                await _end(each)
        except (EngineError, OSError) as error:
            log.error("the memory of sockets of workspaces is not limited", error=str(error))
        taken = time.monotonic() - began
        await asyncio.sleep(max(CHECK_SECONDS, taken))  # no more than half of the time, however much there is to read


def find_overuse(state_folder: Path) -> list[Overuse]:
    """In a thread: workspaces choose how long their tables are."""
    found = []
    for folder in list_folders(state_folder):
        holder = find_holder(folder.holder)
        if holder is None:
            continue
        problem = describe_overuse(Path(f"/proc/{holder.pid}/net"))
        if problem and holder.is_alive():  # else the tables may be those of another process with the same pid
            found.append(Overuse(folder, holder, problem))
    return found


def describe_overuse(tables: Path) -> str:
    """What is too much in the sockets of a network; empty if nothing is."""
    total = 0
    for name in (NETLINK, *INTERNET):
        lines = list(_read_lines(tables / name))
        total += sum_queues(lines, is_netlink=name == NETLINK)
        if total > MAX_BYTES:
            return f"more than {MAX_BYTES >> 20} MiB wait to be read in its sockets"
        if len(lines) >= MAX_SOCKETS:
            return f"it has {MAX_SOCKETS} sockets of the kind {name}, or more"
    return ""


def sum_queues(lines: Iterable[str], is_netlink: bool) -> int:
    """The bytes in the queues of the sockets in these lines of a table. Other lines count as nothing."""
    total = 0
    for line in lines:
        fields = line.split()
        try:
            if is_netlink:
                total += int(fields[4]) + int(fields[5])
            else:
                sent, _, received = fields[4].partition(":")
                total += int(sent, 16) + int(received, 16)
        except (IndexError, ValueError):
            continue
    return total


def _read_lines(path: Path) -> Iterator[str]:
    """Without the heading. A machine without IPv6 has no tables of it."""
    try:
        with path.open() as lines:
            yield from islice(lines, 1, MAX_SOCKETS + 1)
    except OSError:
        return


async def _end(overuse: Overuse) -> None:
    log.warning("a workspace is ended", uid=overuse.folder.uid, problem=overuse.problem)
    with contextlib.suppress(OSError):  # on a full disk, the user is not told why
        write_file(overuse.folder.overuse, overuse.problem.encode())
    await overuse.holder.kill()
