"""Tests of `fairlead.server.http.http_server`: a new certificate is used without a restart, and nothing is cut off."""

import asyncio
import socket
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.core.call import Call, Reply
from fairlead.core.crypto.certificates import CertificateFiles, read_certificate_files
from fairlead.server.http import http_server
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.http_server import HttpServerGenerations
from fairlead.server.http.listeners import bind_listener
from tests.harness.certificates import Authority, create_authority
from tests.harness.eventually import TIMEOUT_SECONDS, eventually

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
REPLACEMENTS = 5


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path)


def issue(authority: Authority, name: str) -> CertificateFiles:
    return read_certificate_files(*authority.issue(name))


class Client(threading.Thread):
    """Opens one connection after the other, and sends two requests on each."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._trust = context
        self.stopping = threading.Event()
        self.problems: list[str] = []
        self.serial_numbers: list[int] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._connect()
            except OSError as error:
                self.problems.append(repr(error))

    def _connect(self) -> None:
        with (
            socket.create_connection(("127.0.0.1", self._port), 20) as raw,
            self._trust.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            certificate = connection.getpeercert() or {}
            self.serial_numbers.append(int(str(certificate["serialNumber"]), 16))
            for _ in range(2):
                connection.sendall(REQUEST)
                answer = connection.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200 "):
                    self.problems.append(f"unexpected answer: {answer!r}")


async def serve(call: Call) -> Reply:
    return Reply(200, b"{}")


async def test_under_load_no_connection_is_reset_when_the_certificate_is_replaced(authority: Authority) -> None:
    listener = bind_listener("127.0.0.1", 0)
    servers = HttpServerGenerations(AsgiApp(serve, 1024), listener, authority.folder)
    files = issue(authority, "first")
    servers.start(files)
    context = ssl.create_default_context(cafile=authority.file)
    clients = [Client(listener.getsockname()[1], context) for _ in range(4)]
    for client in clients:
        client.start()
    used = [files.certificate.serial_number]

    def is_last_used() -> bool:
        return any(used[-1] in client.serial_numbers for client in clients)

    for number in range(REPLACEMENTS):
        await eventually(is_last_used, TIMEOUT_SECONDS)
        files = issue(authority, f"next{number}")
        await servers.replace(files)
        used.append(files.certificate.serial_number)
    await eventually(is_last_used, TIMEOUT_SECONDS)
    for client in clients:
        client.stopping.set()
        await asyncio.to_thread(client.join)
    assert [client.problems for client in clients] == [[]] * 4
    seen = {number for client in clients for number in client.serial_numbers}
    assert seen == set(used)
    await servers.stop(5.0)
    listener.close()


async def test_a_running_response_goes_on_when_its_server_was_replaced_and_stopped(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "RETIREMENT_SECONDS", 0.1)
    may_end, first, second = asyncio.Event(), issue(authority, "first"), issue(authority, "second")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"begin\n"
        await may_end.wait()
        yield b"end\n"

    async def serve_stream(call: Call) -> Reply:
        return Reply(200, stream=chunks())

    listener = bind_listener("127.0.0.1", 0)
    servers = HttpServerGenerations(AsgiApp(serve_stream, 1024), listener, authority.folder)
    servers.start(first)
    context = ssl.create_default_context(cafile=authority.file)
    port = listener.getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    writer.write(REQUEST)
    await reader.readuntil(b"begin\n")
    await servers.replace(second)
    _, other = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    assert int(other.get_extra_info("peercert")["serialNumber"], 16) == second.certificate.serial_number
    await asyncio.sleep(0.5)  # the old server was asked to stop meanwhile
    may_end.set()
    await asyncio.wait_for(reader.readuntil(b"end\n"), 40)
    for each in (writer, other):
        each.close()
    await servers.stop(5.0)
    listener.close()


async def test_a_handshake_that_has_begun_is_finished_by_the_old_server(authority: Authority) -> None:
    listener = bind_listener("127.0.0.1", 0)
    servers = HttpServerGenerations(AsgiApp(serve, 1024), listener, authority.folder)
    first = issue(authority, "first")
    servers.start(first)
    context = ssl.create_default_context(cafile=authority.file)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
    writer.write(hello[:20])
    await asyncio.sleep(0.3)  # accepted by the first server
    await servers.replace(issue(authority, "second"))
    writer.write(hello[20:])
    while True:
        incoming.write(await asyncio.wait_for(reader.read(65536), 40))
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            continue
        break
    assert int(str((tls.getpeercert() or {})["serialNumber"]), 16) == first.certificate.serial_number
    writer.close()
    await servers.stop(5.0)
    listener.close()


async def test_a_certificate_can_be_replaced_without_a_folder_for_temporary_files(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only root file system. The folder of the server may have a long path."""
    monkeypatch.setattr(tempfile, "tempdir", str(authority.folder / "missing"))
    folder = authority.folder / ("long" * 40)
    folder.mkdir()
    listener = bind_listener("127.0.0.1", 0)
    servers = HttpServerGenerations(AsgiApp(serve, 1024), listener, folder)
    servers.start(issue(authority, "first"))
    await asyncio.sleep(http_server.START_SECONDS)
    second = issue(authority, "second")
    await servers.replace(second)
    context, port = ssl.create_default_context(cafile=authority.file), listener.getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    assert int(writer.get_extra_info("peercert")["serialNumber"], 16) == second.certificate.serial_number
    assert list(folder.iterdir()) == []
    writer.close()
    await servers.stop(5.0)
    listener.close()


async def test_no_second_server_is_started_if_the_first_one_cannot_be_replaced(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise FileNotFoundError("no usable folder")

    started = list[CertificateFiles]()
    listener = bind_listener("127.0.0.1", 0)
    servers = HttpServerGenerations(AsgiApp(serve, 1024), listener, authority.folder)
    monkeypatch.setattr(http_server, "_dead_listener", fail)
    monkeypatch.setattr(servers, "start", started.append)
    with pytest.raises(FileNotFoundError):
        await servers.replace(issue(authority, "second"))
    assert started == []
    listener.close()
