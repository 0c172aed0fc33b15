"""Bytes of the TCP connections to listening ports, in the network namespace of a process.

The kernel reports them over a netlink socket, which is what `ss` uses. The socket belongs to the namespace in which it
was created: by a thread that enters it and then ends.
"""

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.runner.engines.devcontainer.ports import enter_network, start_thread

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x1 | 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
ESTABLISHED, LISTEN = 1, 10
HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBBI48s")
MESSAGE_BYTES = 72
"""Of an inet_diag_msg: state in byte 1, ports and addresses from byte 4 on."""
ACKED_OFFSET, RECEIVED_OFFSET = 120, 128
"""Of tcpi_bytes_acked and tcpi_bytes_received in a tcp_info, both of 8 bytes."""
BUFFER_BYTES = 1 << 16
MAX_SOCKETS = 4096
TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class TcpSocket:
    state: int
    local: tuple[str, int]
    remote: tuple[str, int]
    bytes: int


async def count_connection_bytes(pid: int) -> dict[str, int]:
    """Bytes of each connection from outside to a listening port; empty if the kernel does not tell."""
    loop = asyncio.get_running_loop()
    listed: asyncio.Future[list[TcpSocket]] = loop.create_future()

    def run() -> None:
        try:
            found = _list_sockets(pid)
        except (OSError, struct.error):
            found = []
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_set_result, listed, found)

    try:
        start_thread(run, "connections")
    except OSError:
        return {}
    return select_incoming(await listed)


def select_incoming(sockets: list[TcpSocket]) -> dict[str, int]:
    """Connections within the namespace do not count: programs of the workspace talk to each other without a user."""
    ports = {each.local[1] for each in sockets if each.state == LISTEN}
    established = [each for each in sockets if each.state == ESTABLISHED]
    own = {each.local for each in established}
    return {
        f"{each.local[1]} {each.remote[0]} {each.remote[1]}": each.bytes
        for each in established
        if each.local[1] in ports and each.remote not in own
    }


def _set_result(future: "asyncio.Future[list[TcpSocket]]", found: list[TcpSocket]) -> None:
    if not future.done():
        future.set_result(found)


def _list_sockets(pid: int) -> list[TcpSocket]:
    enter_network(pid)
    found: list[TcpSocket] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(TIMEOUT_SECONDS)
            states = 1 << ESTABLISHED | 1 << LISTEN
            body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, states, b"")
            netlink.send(
                HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, family, 0) + body
            )
            for message in _receive(netlink):
                found.append(parse_socket(family, message))
                if len(found) >= MAX_SOCKETS:
                    return found
    return found


def _receive(netlink: socket.socket) -> Iterator[bytes]:
    """The messages of one reply, up to its end."""
    while True:
        data = netlink.recv(BUFFER_BYTES)
        if not data:
            return
        while len(data) >= HEADER.size:
            length, kind, _, _, _ = HEADER.unpack_from(data)
            if kind in (NLMSG_ERROR, NLMSG_DONE) or length < HEADER.size:
                return
            yield data[HEADER.size : length]
            data = data[(length + 3) & ~3 :]


def parse_socket(family: int, message: bytes) -> TcpSocket:
    """One inet_diag_msg with its attributes."""
    local_port, remote_port = struct.unpack_from(">HH", message, 4)
    size = 4 if family == socket.AF_INET else 16
    local, remote = (_format_address(message[offset : offset + size]) for offset in (8, 24))
    return TcpSocket(message[1], (local, local_port), (remote, remote_port), _read_bytes(message[MESSAGE_BYTES:]))


def _format_address(data: bytes) -> str:
    """An IPv4 address in an IPv6 socket is written like that of an IPv4 socket, so that both ends compare equal."""
    address = ipaddress.ip_address(data)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _read_bytes(attributes: bytes) -> int:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if length < 4:
            return 0
        if kind == INET_DIAG_INFO and length >= 4 + RECEIVED_OFFSET + 8:
            acked, received = struct.unpack_from("=QQ", attributes, 4 + ACKED_OFFSET)
            return int(acked + received)
        attributes = attributes[(length + 3) & ~3 :]
    return 0
