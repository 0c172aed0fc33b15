"""Compares the ports for client certificates with the main port: `python -m bench.client_certificates`.

It prints requests a second, and the CPU time of the server for a request, a large response and a new connection. The
CPU time is what counts: requests a second depend on this client, which is slow, and on what else the machine does.
"""

import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.harness.certificates import create_authority
from tests.harness.server_process import MANAGEMENT, Server, running_server

SMALL, LARGE = f"{MANAGEMENT}/apis/management.service.sh/v1/apps", f"{MANAGEMENT}/openapi/v2"
CONNECTIONS = 4
USER_PORT, PROXY_PORT = 18445, 18446


@dataclass(frozen=True, slots=True)
class Way:
    """One way to send requests: a port, a certificate and headers."""

    name: str
    port: int
    context: ssl.SSLContext
    headers: str

    def connect(self) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.port), 60)
        return self.context.wrap_socket(raw, server_hostname="127.0.0.1")

    def send(self, connection: ssl.SSLSocket, path: str, count: int) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}\r\n".encode()
        for _ in range(count):
            connection.sendall(request)
            received = b""
            while b"\r\n\r\n" not in received:
                received += _receive(connection)
            head, _, body = received.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(f"{self.name}: {head.decode()}")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            left = length - len(body)
            while left > 0:
                left -= len(_receive(connection))


def _receive(connection: ssl.SSLSocket) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise SystemExit("the server has closed the connection")
    return data


def measure(server: Server, work: Callable[[], None], count: int) -> tuple[float, float]:
    """Operations a second, and CPU milliseconds of the server for each."""
    cpu = server.cpu_seconds()
    start = time.monotonic()
    work()
    return count / (time.monotonic() - start), (server.cpu_seconds() - cpu) * 1000 / count


def measure_requests(server: Server, way: Way, path: str, count: int) -> tuple[float, float]:
    connections = [way.connect() for _ in range(CONNECTIONS)]

    def work() -> None:
        each = [Thread(target=way.send, args=(one, path, count // CONNECTIONS)) for one in connections]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()

    way.send(connections[0], path, 5)
    result = measure(server, work, count)
    for one in connections:
        one.close()
    return result


def measure_connections(server: Server, way: Way, count: int) -> tuple[float, float]:
    def work() -> None:
        for _ in range(count):
            with way.connect() as connection:
                way.send(connection, "/version", 1)

    return measure(server, work, count)


@contextmanager
def running_ports() -> Iterator[tuple[Server, list[Way]]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        users = create_authority(folder / "users", "Users")
        proxies = create_authority(folder / "proxies", "Proxies")
        settings: dict[str, str | int] = {
            **{"client_ca": str(users.file), "client_cert_port": USER_PORT},
            **{"requestheader_client_ca": str(proxies.file), "requestheader_port": PROXY_PORT},
            "requestheader_allowed_names": "front-proxy",
        }
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        with running_server(folder / "data", **settings) as server:
            plain = ssl.create_default_context(cafile=server.ca_file)
            user, proxy = (ssl.create_default_context(cafile=server.ca_file) for _ in range(2))
            user.load_cert_chain(*users.issue("admin", "admin", usage=usage))
            proxy.load_cert_chain(*proxies.issue("front-proxy", "front-proxy", usage=usage))
            key = f"Authorization: Bearer {server.key}\r\n"
            named = "X-Remote-User: root\r\nX-Remote-Group: system:masters\r\n"
            main_port = urlsplit(server.url).port or 0
            yield (
                server,
                [
                    Way("main port, access key", main_port, plain, key),
                    Way("client_cert_port, access key", USER_PORT, plain, key),
                    Way("client_cert_port, certificate", USER_PORT, user, ""),
                    Way("requestheader_port", PROXY_PORT, proxy, named),
                ],
            )


def main(scale: float) -> None:
    print("| | requests/s | CPU ms | 1 MB: CPU ms | connections/s | CPU ms |")
    print("|---|---|---|---|---|---|")
    with running_ports() as (server, ways):
        for way in ways:
            rate, cpu = measure_requests(server, way, SMALL, int(4000 * scale))
            _, large = measure_requests(server, way, LARGE, int(80 * scale))
            connections, opened = measure_connections(server, way, int(200 * scale))
            print(
                f"| {way.name} | {rate:.0f} | {cpu:.2f} | {large:.1f} | {connections:.0f} | {opened:.1f} |", flush=True
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
