"""TCP ports inside a container, seen through its network namespace: the container's own 127.0.0.1."""

import asyncio
import contextlib
import ctypes
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, ListeningPort, Reason
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.engines.process_trees import ListPids

LISTENING = "0A"
CONNECT_SECONDS = 10.0
MAX_SOCKETS = 65_536
MAX_PROCESSES = 4096
MAX_DESCRIPTORS = 65_536
SCAN_SECONDS = 2.0
"""Limits of one list of ports. Beyond them, ports have no name of a process."""


def list_listening(pid: int, list_pids: ListPids) -> list[ListeningPort]:
    """Ports on which processes in the network namespace of this process listen. Of the given processes, it tells the
    names."""
    found: dict[int, tuple[str, str]] = {}
    for name in ("tcp", "tcp6"):
        for port, address, inode in _read_table(Path(f"/proc/{pid}/net/{name}")):
            found.setdefault(port, (address, inode))
    owners = _find_owners(pid, list_pids, {inode for _, inode in found.values()})
    return [ListeningPort(port, address, owners.get(inode, "")) for port, (address, inode) in sorted(found.items())]


async def connect(pid: int, port: int) -> Connection:
    """The socket is created inside the namespace, by a thread that enters it and then ends; nothing else of the runner
    enters it."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            opened = await _open_in_namespace(pid)
            try:
                await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
            except BaseException:
                opened.close()
                raise
    except (OSError, TimeoutError) as error:
        raise EngineError(Reason.NOT_RUNNING, f"nothing answers on port {port} of the workspace") from error
    return Connection(opened.detach())


async def _open_in_namespace(pid: int) -> socket.socket:
    """A socket of the network. The thread that enters it only opens the socket: a port that does not answer keeps no
    thread waiting."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[socket.socket] = loop.create_future()

    def open_socket() -> None:
        try:
            enter_network(pid)
            found = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            loop.call_soon_threadsafe(_set_exception, opened, error)
            return
        loop.call_soon_threadsafe(_set_result, opened, found)

    start_thread(open_socket, "port")
    return await opened


def start_thread(target: Callable[[], None], name: str) -> None:
    """Raises OSError if the machine, or the unit of the runner, has no room for another one."""
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error


def enter_network(pid: int) -> None:
    """For the calling thread only."""
    enter_network_of(f"/proc/{pid}/ns/net")


def enter_network_of(path: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if library.setns(descriptor, 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


def _set_result(future: asyncio.Future[socket.socket], connected: socket.socket) -> None:
    if future.done():
        connected.close()
    else:
        future.set_result(connected)


def _set_exception(future: asyncio.Future[socket.socket], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


def _read_table(path: Path) -> Iterator[tuple[int, str, str]]:
    """The kernel lists the sockets that listen first."""
    try:
        with path.open() as lines:
            yield from parse_listening(islice(lines, 1, MAX_SOCKETS))
    except (FileNotFoundError, ProcessLookupError):
        return


def parse_listening(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Ports, addresses and inodes of the sockets in `/proc/net/tcp` that listen. Other lines are ignored."""
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTENING:
            address, _, port = fields[1].partition(":")
            try:
                found = int(port, 16), _format_address(address), fields[9]
            except (ValueError, OSError):
                continue
            yield found


def _format_address(text: str) -> str:
    """The kernel writes words of four bytes in its own byte order."""
    data = b"".join(bytes.fromhex(text[index : index + 8])[::-1] for index in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def _find_owners(pid: int, list_pids: ListPids, inodes: set[str]) -> dict[str, str]:
    """Names of the processes that hold these sockets, as far as they are found within the limits."""
    owners: dict[str, str] = {}
    namespace = _read_link(f"/proc/{pid}/ns/net")
    budget = ScanBudget()
    for each in list_pids():
        if len(owners) == len(inodes) or not budget.has_time():
            break
        if _read_link(f"/proc/{each}/ns/net") != namespace:
            continue
        if not budget.take_process():
            break
        with contextlib.suppress(OSError):
            held = _find_sockets(each, inodes - owners.keys(), budget)
            if held:
                owners |= dict.fromkeys(held, Path(f"/proc/{each}/comm").read_text(errors="replace").strip())
    return owners


@dataclass(slots=True)
class ScanBudget:
    """What one scan may still cost."""

    processes: int = field(default_factory=lambda: MAX_PROCESSES)
    descriptors: int = field(default_factory=lambda: MAX_DESCRIPTORS)
    ends_at: float = field(default_factory=lambda: time.monotonic() + SCAN_SECONDS)

    def take_process(self) -> bool:
        self.processes -= 1
        return self.processes >= 0

    def take_descriptor(self) -> bool:
        self.descriptors -= 1
        return self.descriptors >= 0 and self.has_time()

    def has_time(self) -> bool:
        return time.monotonic() < self.ends_at


def _find_sockets(pid: int, inodes: set[str], budget: ScanBudget) -> set[str]:
    """Those of these sockets that the process holds."""
    found: set[str] = set()
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            if len(found) == len(inodes) or not budget.take_descriptor():
                break
            inode = _read_link(entry.path).removeprefix("socket:[").removesuffix("]")
            if inode in inodes:
                found.add(inode)
    return found


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
