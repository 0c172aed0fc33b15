"""Tests of `fairlead.server.http.tls_port`: real TLS, and the HTTP server behind it."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead.core.call import CLIENT, FRONT_PROXY, Reply, Upgrade, WebSocket
from fairlead.server.http import tls_port
from fairlead.server.http.proxy_protocol import SIGNATURE
from fairlead.server.http.tls_port import TlsPortOptions
from tests.harness.certificates import create_authority
from tests.harness.eventually import eventually
from tests.server.http.relayed_port import CLIENT_AUTH, REQUEST, Port, create_port, read_trust_files, serving


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return create_port(tmp_path)


async def test_the_application_learns_the_certificate_of_the_connection(port: Port) -> None:
    alice = port.clients.issue("alice", "alice", ("devs", "ops"), usage=CLIENT_AUTH)
    async with serving(port):
        assert (await port.get(alice)).startswith(b"HTTP/1.1 200 ")
        assert (await port.get()).startswith(b"HTTP/1.1 200 ")
    (with_certificate, without) = port.calls
    peer = with_certificate.peer
    assert peer is not None and without.peer is None
    assert (peer.purpose, peer.common_name, peer.organizations) == (CLIENT, "alice", ("devs", "ops"))
    assert with_certificate.client.startswith("127.0.0.1:") and with_certificate.client != without.client
    assert with_certificate.headers.get("x-remote-user") == without.headers.get("x-remote-user") == ""


async def test_headers_of_a_front_proxy_arrive_only_on_its_port(port: Port) -> None:
    proxy = port.clients.issue("proxy", "front-proxy", usage=CLIENT_AUTH)
    async with serving(port, TlsPortOptions(FRONT_PROXY, is_required=True)):
        await port.get(proxy)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await port.get()
    (call,) = port.calls
    assert call.peer is not None and call.peer.purpose == FRONT_PROXY
    assert call.headers.get("x-remote-user") == "root"


async def test_certificates_that_are_not_valid_are_refused(port: Port) -> None:
    other = create_authority(port.folder / "other", "Client CA")
    refused = [
        other.issue("alice", "alice", usage=CLIENT_AUTH),
        port.server.issue("alice", "alice", usage=CLIENT_AUTH),
        port.clients.issue("expired", "alice", usage=CLIENT_AUTH, lifetime=timedelta(seconds=-10)),
        port.clients.issue("for-servers", "alice", usage=ExtendedKeyUsageOID.SERVER_AUTH),
        port.clients.issue("no-name", "", ("devs",), usage=CLIENT_AUTH),
        port.clients.issue("control-character", "ali\nce", usage=CLIENT_AUTH),
    ]
    async with serving(port):
        for files in refused:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await port.get(files)
        # As in Kubernetes, a certificate without extended key usages is for everything.
        await port.get(port.clients.issue("any-usage", "alice", usage=None))
    assert len(port.calls) == 1


async def test_a_request_on_a_connection_that_was_not_relayed_is_rejected(port: Port) -> None:
    """Another process of the same user could connect to the Unix socket."""
    async with serving(port):
        (path,) = [each for each in port.folder.iterdir() if each.name.endswith(".http")]
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(REQUEST % b"")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        writer.close()
    (call,) = port.calls
    assert call.malformed_reason and call.peer is None and call.headers.get("x-remote-user") == ""


async def test_requests_on_one_connection_and_large_bodies_pass_unchanged(port: Port) -> None:
    alice, body = port.clients.issue("alice", "alice", usage=CLIENT_AUTH), os.urandom(700_000)
    async with serving(port):
        reader, writer = await port.connect(alice)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await asyncio.wait_for(reader.readexactly(len(body)), 20) == body
        writer.close()
    assert len({call.client for call in port.calls}) == 1


async def test_a_stream_arrives_piece_by_piece_and_ends_when_the_client_leaves(port: Port) -> None:
    closed, go_on = asyncio.Event(), asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"one\n"
        await go_on.wait()
        yield b"two\n"
        await asyncio.sleep(3600)

    port.reply = Reply(200, stream=chunks(), on_close=(closed.set,))
    async with serving(port):
        reader, writer = await port.connect(port.clients.issue("alice", "alice", usage=CLIENT_AUTH))
        writer.write(REQUEST % b"")
        await asyncio.wait_for(reader.readuntil(b"one\n"), 20)
        go_on.set()
        await asyncio.wait_for(reader.readuntil(b"two\n"), 20)
        assert port.backend is not None and len(port.backend.connections) == 1
        writer.transport.abort()
        await asyncio.wait_for(closed.wait(), 20)
        await eventually(lambda: not port.backend.connections, 20)  # type: ignore[union-attr]


async def test_a_client_that_does_not_read_is_not_buffered_for(port: Port) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield b"x" * 32_000
            sent += 32_000

    port.reply = Reply(200, stream=chunks())
    async with serving(port):
        _, writer = await port.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST % b"")
        before = -1
        async with asyncio.timeout(30):
            while sent != before:
                before = sent
                await asyncio.sleep(0.5)
        assert 0 < sent < 32 * 2**20
        writer.transport.abort()


async def test_websockets_work(port: Port) -> None:
    async def echo(websocket: WebSocket) -> None:
        message = await websocket.receive()
        await websocket.send(message or b"")

    port.reply = Reply(101, upgrade=Upgrade("", echo))
    async with serving(port):
        reader, writer = await port.connect(port.clients.issue("alice", "alice", usage=CLIENT_AUTH))
        writer.write(
            REQUEST % b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 101 ")
        writer.write(b"\x81\x82\x00\x00\x00\x00hi")  # a masked text frame
        assert await asyncio.wait_for(reader.readexactly(4), 20) == b"\x81\x02hi"
        # The whole close frame, and the end: otherwise the server is stopped while it sends them.
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"\x88")
        writer.close()
    assert port.calls[0].peer is not None and port.calls[0].is_websocket


async def test_a_handshake_that_stalls_is_ended(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_port, "HANDSHAKE_SECONDS", 0.3)
    async with serving(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"\x16\x03\x01")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        await port.get()


@pytest.mark.parametrize("limit", ["MAX_HANDSHAKES", "MAX_HANDSHAKES_PER_NETWORK"])
async def test_connections_that_send_nothing_do_not_close_the_port_to_others(
    port: Port, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The oldest handshake makes room for a new one, also for one of the same address."""
    monkeypatch.setattr(tls_port, limit, 3)
    async with serving(port):
        idle = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(3)]
        await port.get()
        assert await asyncio.wait_for(idle[0][0].read(), 20) == b""
        assert not idle[1][0].at_eof() and not idle[2][0].at_eof()
        assert port.evictions == 1
        await port.get()
        for _, writer in idle:
            writer.transport.abort()


async def test_behind_a_load_balancer_handshakes_are_counted_by_client(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_port, "MAX_HANDSHAKES_PER_NETWORK", 2)

    async def connect(source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"PROXY TCP4 %s 10.0.0.1 4711 443\r\n" % source.encode())
        return reader, writer

    async with serving(port, TlsPortOptions(CLIENT, False, lambda host: host == "127.0.0.1")):
        silent = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(3)]
        other, stalled = await connect("192.0.2.2"), [await connect("192.0.2.1") for _ in range(3)]
        done, _ = await asyncio.wait(
            [asyncio.create_task(reader.read()) for reader, _ in stalled],
            timeout=20,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert (len(done), port.evictions) == (1, 1)
        await other[1].start_tls(port.context(), server_hostname="localhost")
        for _, writer in (*silent, *stalled, other):
            writer.transport.abort()
        assert port.evictions == 1


async def test_a_load_balancer_names_the_client_with_the_proxy_protocol(port: Port) -> None:
    async with serving(port, TlsPortOptions(CLIENT, False, lambda host: host == "127.0.0.1")):
        raw = socket.create_connection(("127.0.0.1", port.number), 20)
        raw.sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n")

        def send() -> bytes:
            with port.context().wrap_socket(raw, server_hostname="localhost") as connection:
                connection.sendall(REQUEST % b"X-Forwarded-For: 203.0.113.9\r\n")
                return connection.recv(65536)

        assert (await asyncio.to_thread(send)).startswith(b"HTTP/1.1 200 ")
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await port.get()  # without the header
    (call,) = port.calls
    assert (call.source, call.proxies) == ("192.0.2.7:0", ("127.0.0.1",))
    assert call.client.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\x00\x00\x00", SIGNATURE + b"\x21\x00\x00\x00"]
)
async def test_without_an_address_in_the_proxy_protocol_no_header_names_the_client(port: Port, header: bytes) -> None:
    async with serving(port, TlsPortOptions(CLIENT, False, lambda host: host == "127.0.0.1")):

        def send() -> bytes:
            raw = socket.create_connection(("127.0.0.1", port.number), 20)
            raw.sendall(header)
            with port.context().wrap_socket(raw, server_hostname="localhost") as connection:
                connection.sendall(REQUEST % b"X-Forwarded-For: 203.0.113.9\r\n")
                return connection.recv(65536)

        assert (await asyncio.to_thread(send)).startswith(b"HTTP/1.1 200 ")
    (call,) = port.calls
    assert call.source == call.client and call.proxies == ()


async def test_with_the_proxy_protocol_only_load_balancers_may_connect(port: Port) -> None:
    async with serving(port, TlsPortOptions(CLIENT, False, lambda host: False)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n")
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        writer.close()


async def test_comments_in_the_ca_file_do_not_matter(port: Port) -> None:
    commented = "# Zertifizierungsstelle für alle\n".encode() + port.clients.file.read_bytes() + b"\n# end\n"
    port.clients.file.write_bytes(commented)
    port.files = read_trust_files(*port.server.issue("server"), port.clients.file)
    async with serving(port):
        await port.get(port.clients.issue("alice", "alice", usage=CLIENT_AUTH))
    assert port.calls[0].peer is not None
