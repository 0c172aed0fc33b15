"""Strangers at the port for other replicas: garbage and silence at each step, floods, certificates of other kinds.

`tests/subresources/workspaces/test_replica_peers.py` has what replicas do with each other, and expired certificates.
"""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.crypto.peer_certificates import build_peer_contexts, create_peer_authority
from fairlead.links import frames
from fairlead.links.frames import Hello
from fairlead.links.requests import OpenRequest
from fairlead.links.sockets import SocketTransport
from fairlead.links.tls_sockets import TlsLimits, connect_tls, serve_tls
from tests.harness.eventually import BUSY_SECONDS, TIMEOUT_SECONDS, eventually
from tests.harness.replicas import read_log, running_replicas
from tests.harness.server_process import MANAGEMENT, Server
from tests.security.conftest import assert_healthy

DAY = timedelta(days=1)
LISTENING = "other replicas reach this one"
PROJECTS = f"{MANAGEMENT}/apis/management.service.sh/v1/projects"
MEMORY_BYTES = 60 << 20
"""How much more memory the server may use during a flood."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings: dict[str, str | int] = {"replica_address": "127.0.0.1", "replica_port": 0}
    with running_replicas("etcd", tmp_path_factory.mktemp("replica-port"), 1, **settings) as group:
        yield group.servers[0]


@pytest.fixture
def address(server: Server) -> Iterator[tuple[str, int]]:
    """Of the port. After the test the server is healthy."""
    offset = len(server.log.read_text())
    found = next(line["address"] for line in read_log(server) if line.get("event") == LISTENING)
    yield "127.0.0.1", int(found.rpartition(":")[2])
    assert_healthy(server, offset)


# --- certificates -----------------------------------------------------------------------------------------------------


def anonymous_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def with_own_authority(folder: Path) -> ssl.SSLContext:
    """A CA of the same name as that of the replicas, with another key."""
    contexts = build_peer_contexts(create_peer_authority(datetime.now(UTC), DAY), "x", datetime.now(UTC), DAY, folder)
    contexts.client.check_hostname = False
    contexts.client.verify_mode = ssl.CERT_NONE
    return contexts.client


def with_certificate_of_the_server(folder: Path) -> ssl.SSLContext:
    """What the server serves its clients with: its key is in the data folder, as a stolen disk has it."""
    context, tls = anonymous_context(), folder / "replica1" / "tls"
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    return context


def with_self_signed_certificate(folder: Path) -> ssl.SSLContext:
    context = anonymous_context()
    certificates = ensure_certificates(folder / "own", ("x.fairlead.internal",))
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    return context


async def say_hello(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """What the server says after a hello and a request. Raises OSError if it rejects the connection."""
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="x.fairlead.internal")
    for message in (frames.encode_hello(Hello(1, 1, "x")), frames.encode_open(1, OpenRequest("locate", "local"))):
        writer.write(len(message).to_bytes(4, "little") + message)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "build",
    [lambda _: anonymous_context(), with_own_authority, with_certificate_of_the_server, with_self_signed_certificate],
)
async def test_only_a_certificate_of_the_replicas_own_authority_is_accepted(
    server: Server, address: tuple[str, int], build: object
) -> None:
    assert callable(build)
    context = build(server.log.parent)
    said = b""
    with suppress(OSError):
        said = await say_hello(address, context)
    assert said == b""


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1])
async def test_an_older_version_of_tls_is_refused(address: tuple[str, int], version: ssl.TLSVersion) -> None:
    context = anonymous_context()
    context.maximum_version = version
    context.minimum_version = version
    with pytest.raises(OSError):
        await say_hello(address, context)


def issue(folder: Path, purpose: x509.ObjectIdentifier) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context of a replica, and a client's with a certificate of the same CA for another purpose."""
    now, authority = datetime.now(UTC), create_peer_authority(datetime.now(UTC), DAY)
    contexts = build_peer_contexts(authority, "one", now, DAY, folder)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    chain = key.private_bytes(*formats) + certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "chain.pem").write_bytes(chain)
    client = anonymous_context()
    client.load_cert_chain(folder / "chain.pem")
    return contexts.server, client


async def test_a_certificate_for_another_purpose_gets_no_link(tmp_path: Path) -> None:
    context, client = issue(tmp_path, ExtendedKeyUsageOID.EMAIL_PROTECTION)
    async with listening(context) as (address, accepted):
        said = b""
        with suppress(OSError):
            said = await say_hello(address, client)
        assert said == b"" and accepted == []


@asynccontextmanager
async def listening(
    context: ssl.SSLContext, limits: TlsLimits | None = None
) -> AsyncIterator[tuple[tuple[str, int], list[SocketTransport]]]:
    listener, accepted = socket.socket(), list[SocketTransport]()
    listener.setblocking(False)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)

    async def find_context() -> ssl.SSLContext:
        return context

    async with serve_tls(listener, find_context, accepted.append, limits):
        yield listener.getsockname(), accepted


# --- garbage, silence and floods --------------------------------------------------------------------------------------


async def send_and_read(address: tuple[str, int], content: bytes, source: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
    try:
        writer.write(content)
        await writer.drain()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


def client_hello() -> bytes:
    """The first message of a handshake, as TLS sends it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    pending = anonymous_context().wrap_bio(incoming, outgoing, server_hostname="x.fairlead.internal")
    with suppress(ssl.SSLWantReadError):
        pending.do_handshake()
    return outgoing.read()


async def test_garbage_at_each_step_of_the_handshake_is_answered_by_the_end(address: tuple[str, int]) -> None:
    hello = client_hello()
    plain = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    garbage = [
        *(plain, os.urandom(4_096), b"\x16\x03\x01\xff\xff" + bytes(70_000), frames.encode_hello(Hello(1, 1, "x"))),
        *(hello[:length] + os.urandom(200) for length in (1, 5, 20, len(hello) - 1)),
        *(
            hello + os.urandom(200),
            hello + hello,
            hello + b"\x17\x03\x03\x00\x05hello",
            hello + b"\x15\x03\x03\x00\x02\x02\x28",
        ),
    ]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for answer in await asyncio.gather(*(send_and_read(address, each) for each in garbage)):
            assert b"HTTP" not in answer


FLOOD = """
import asyncio, sys

async def dawdle(port, hello):
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for each in hello[:20]:
                writer.write(bytes((each,)))
                await writer.drain()
                await asyncio.sleep(0.05)
            writer.close()
        except OSError:
            await asyncio.sleep(0.05)

async def flood(port, hello):
    await asyncio.gather(*(dawdle(port, hello) for _ in range(640)))

asyncio.run(flood(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
"""
"""Clients that send the beginning of a hello, byte by byte: twenty times as many as may shake hands."""


def test_a_flood_of_silent_and_slow_clients_costs_others_little(server: Server, address: tuple[str, int]) -> None:
    before = server.resident_bytes()
    command = [sys.executable, "-c", FLOOD, str(address[1]), client_hello().hex()]
    flood = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    durations = []
    try:
        with server.client() as client:
            for _ in range(60):
                began = time.monotonic()
                assert client.get(PROJECTS).status_code == 200
                durations.append(time.monotonic() - began)
                time.sleep(0.05)
        grown, descriptors = server.resident_bytes() - before, server.count_descriptors()
        assert flood.poll() is None
    finally:
        flood.kill()
        flood.wait()
    median, slowest = sorted(durations)[len(durations) // 2], max(durations)
    print(f"median {median:.3f} s, slowest {slowest:.3f} s, {grown >> 20} MiB, {descriptors} descriptors")
    assert slowest < 1 + BUSY_SECONDS and grown < MEMORY_BYTES and descriptors < 200


async def test_clients_that_do_not_go_on_keep_no_replica_from_connecting(tmp_path: Path) -> None:
    """They hold all places for handshakes, from another address, and take each that becomes free."""
    contexts = build_peer_contexts(
        create_peer_authority(datetime.now(UTC), DAY), "one", datetime.now(UTC), DAY, tmp_path
    )
    limits = TlsLimits(handshakes=8, handshake_seconds=3600)
    async with listening(contexts.server, limits) as (address, accepted):
        idle = [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(40)]
        connected = []
        for number in range(3):
            connected.append(await connect_tls(address, contexts.client, "one.fairlead.internal", TIMEOUT_SECONDS))
            await eventually(lambda: len(accepted) == number + 1)  # noqa: B023
            idle += [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(8)]
        for _, writer in idle:
            writer.close()
        for transport in connected:
            await transport.close()


async def test_a_slow_handshake_of_a_replica_survives_a_flood_from_another_address(tmp_path: Path) -> None:
    contexts = build_peer_contexts(
        create_peer_authority(datetime.now(UTC), DAY), "one", datetime.now(UTC), DAY, tmp_path
    )
    async with listening(contexts.server, TlsLimits(handshakes=4, handshake_seconds=3600)) as (address, accepted):
        raw = socket.create_connection(address)  # it has connected, and says nothing yet
        idle = [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(40)]
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            connected, _ = await loop.create_connection(
                asyncio.Protocol, sock=raw, ssl=contexts.client, server_hostname="one.fairlead.internal"
            )
            await eventually(lambda: len(accepted) == 1)
            connected.abort()
        for _, writer in idle:
            writer.close()
