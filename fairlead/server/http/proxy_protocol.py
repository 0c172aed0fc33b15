"""The PROXY protocol, versions 1 and 2: a header before the first byte of a connection, in which a load balancer names
the client. Only `tls_port.py` can read it: the HTTP server of the main port has its own accept loop.

https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt
"""

import asyncio
import ipaddress
import socket

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1_BYTES = 107
MAX_V2_BYTES = 4 * 1024
"""Addresses and extensions (TLVs) of a version 2 header. Load balancers send a few hundred bytes."""
_V2_HEADER_BYTES = 16
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}
"""Bytes of an address by family and protocol: TCP over IPv4 and over IPv6."""


class ProxyHeaderError(Exception):
    """A connection does not begin with a valid header."""


async def read_proxy_header(connection: socket.socket, seconds: float) -> str:
    """Reads the header, and nothing beyond it. Returns the address of the client.

    It is empty if the load balancer itself has opened the connection, for a health check. Raises ProxyHeaderError.
    """
    try:
        async with asyncio.timeout(seconds):
            start = await _receive(connection, len(SIGNATURE))
            return await (_read_v2(connection) if start == SIGNATURE else _read_v1(connection, start))
    except TimeoutError:
        raise ProxyHeaderError("no PROXY protocol header arrived in time") from None


async def _read_v1(connection: socket.socket, start: bytes) -> str:
    line = start
    while not line.endswith(b"\r\n"):
        if len(line) >= MAX_V1_BYTES or not line.startswith(b"PROXY "[: len(line)]):
            raise ProxyHeaderError("the connection does not begin with a PROXY protocol header")
        line += await _receive(connection, 1)
    return parse_v1(line)


def parse_v1(line: bytes) -> str:
    """The address in a header of version 1."""
    parts = line.removesuffix(b"\r\n").decode("ascii", errors="replace").split(" ")
    if parts[:2] == ["PROXY", "UNKNOWN"]:
        return ""
    if len(parts) != 6 or parts[0] != "PROXY" or parts[1] not in ("TCP4", "TCP6"):
        raise ProxyHeaderError("malformed PROXY protocol header")
    try:
        address = ipaddress.ip_address(parts[2])
    except ValueError:
        raise ProxyHeaderError("malformed address in the PROXY protocol header") from None
    if address.version != int(parts[1][-1]):
        raise ProxyHeaderError("malformed address in the PROXY protocol header")
    return _format(address)


async def _read_v2(connection: socket.socket) -> str:
    head = await _receive(connection, _V2_HEADER_BYTES - len(SIGNATURE))
    length = int.from_bytes(head[2:4], "big")
    if length > MAX_V2_BYTES:
        raise ProxyHeaderError("the PROXY protocol header is too long")
    return parse_v2(head, await _receive(connection, length))


def parse_v2(head: bytes, body: bytes) -> str:
    """The address in a header of version 2: `head` is what follows the signature, up to the length."""
    version, command = head[0] >> 4, head[0] & 0x0F
    if version != 2 or command > 1:
        raise ProxyHeaderError("malformed PROXY protocol header")
    if command == 0:  # LOCAL: a health check
        return ""
    size = _ADDRESS_BYTES.get(head[1])
    if size is None:
        if head[1] == 0:  # UNSPEC
            return ""
        raise ProxyHeaderError("the PROXY protocol header is not for a TCP connection")
    if len(body) < 2 * size + 4:
        raise ProxyHeaderError("the PROXY protocol header is too short")
    return _format(ipaddress.ip_address(body[:size]))


def _format(address: "ipaddress.IPv4Address | ipaddress.IPv6Address") -> str:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop, received = asyncio.get_running_loop(), b""
    while len(received) < size:
        data = await loop.sock_recv(connection, size - len(received))
        if not data:
            raise ProxyHeaderError("the connection has ended within its PROXY protocol header")
        received += data
    return received
