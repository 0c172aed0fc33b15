"""Tests of `fairlead.server.http.proxy_protocol`."""

import asyncio
import socket
import struct

import pytest

from fairlead.server.http.proxy_protocol import MAX_V2_BYTES, SIGNATURE, ProxyHeaderError, read_proxy_header

IPV4 = socket.inet_aton("192.0.2.1") + socket.inet_aton("10.0.0.1") + struct.pack("!HH", 4711, 443)
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + struct.pack("!HH", 4711, 443)


def v2(body: bytes, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack("!H", len(body)) + body


async def read(sent: bytes, seconds: float = 5.0, *, is_closed: bool = True) -> tuple[str, bytes]:
    """The address, and what is left for TLS."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(sent)
        if is_closed:
            theirs.shutdown(socket.SHUT_WR)
        address = await read_proxy_header(ours, seconds)
        rest = b""
        while data := await asyncio.get_running_loop().sock_recv(ours, 100):
            rest += data
        return address, rest


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 443\r\n", "192.0.2.1"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n", "2001:db8::1"),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 4711 443\r\n", "192.0.2.1"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", ""),
        (v2(IPV4), "192.0.2.1"),
        (v2(IPV6, family=0x21), "2001:db8::1"),
        (v2(IPV4 + b"\x04\x00\x03abc"), "192.0.2.1"),
        (v2(b"", command=0x20, family=0), ""),
        (v2(b"", family=0), ""),
    ],
)
async def test_the_client_is_read_and_nothing_more(header: bytes, address: str) -> None:
    assert await read(header + b"\x16\x03\x01") == (address, b"\x16\x03\x01")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PROXY",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n",
        b"PROXY TCP4 2001:db8::1 10.0.0.1 4711 443\r\n",
        b"PROXY TCP4 nobody 10.0.0.1 4711 443\r\n",
        b"PROXY TCP4 192.0.2.1  10.0.0.1 4711 443\r\n",
        b"PROXY UDP4 192.0.2.1 10.0.0.1 4711 443\r\n",
        b"PROXY TCP4 " + b"1" * 200,
        SIGNATURE,
        v2(IPV4)[:-1],
        v2(IPV4[:-1]),
        v2(IPV4, command=0x11),
        v2(IPV4, command=0x22),
        v2(IPV4, family=0x12),
        v2(IPV4, family=0x31),
        v2(IPV4 + b"\x00" * MAX_V2_BYTES),
    ],
)
async def test_anything_else_is_refused(sent: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        await read(sent)


async def test_a_header_that_does_not_arrive_is_not_waited_for() -> None:
    with pytest.raises(ProxyHeaderError, match="in time"):
        await read(b"PROXY TCP4 192.0.2.1 ", seconds=0.05, is_closed=False)
