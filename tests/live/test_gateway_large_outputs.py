"""Much output to a client that reads slowly: all of it arrives, with the status and the close code.

The client is a plain socket with a small buffer. It sends nothing, or it pings while it reads, as kubectl does every
five seconds: a ping resets a connection that was closed too early.
"""

import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from tests.fake_cluster.exec_websockets import SUCCESS
from tests.fake_cluster.large_outputs import CLOSE_CODES, ERROR, generate_output, respond_with_output
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import connect_cluster, gateway_path, is_online
from tests.harness.server_process import TIMEOUT_SECONDS, Server, build_tls_context, running_server
from tests.live.agent_setup import create_cluster_and_user, create_token, prepare_agent, run_agent

SIZE = 5_000_000
CODES = {1000: 1000, 1006: 1011}
"""The close code that the client gets for that of the cluster."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a cluster through a gateway or an agent, its CA, and the credential."""

    url: str
    ca_file: Path
    credential: str


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        for ending in CLOSE_CODES:
            cluster.set_upgrade_behaviour(f"/output/{ending}", respond_with_output(SIZE, ending))
        yield cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("outputs") / "data") as server:
        yield server


@pytest.fixture(scope="module", params=["gateway", "agent"])
def endpoint(
    request: pytest.FixtureRequest, server: Server, cluster: FakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    with server.client() as admin:
        if request.param == "gateway":
            connect_cluster(admin, "oslo", cluster.build_kubeconfig())
            wait_until(lambda: is_online(admin, "oslo"))
            yield Endpoint(server.url + gateway_path("oslo"), Path(server.ca_file), server.key)
            return
        token = create_token(server, create_cluster_and_user(admin))
    folder = tmp_path_factory.mktemp("agent") / "agent"
    prepare_agent(folder, server, cluster)
    with run_agent(folder, server) as client:
        yield Endpoint(f"{client.base_url}/kubernetes/cluster", folder / "state" / "tls" / "ca.crt", token)


def open_slow_connection(endpoint: Endpoint, path: str) -> socket.socket:
    """Returns an upgraded connection with a small receive buffer."""
    parts = urlsplit(endpoint.url)
    tcp_socket = socket.socket()
    tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    tcp_socket.settimeout(TIMEOUT_SECONDS)
    tcp_socket.connect((parts.hostname, parts.port))
    connection = build_tls_context(str(endpoint.ca_file)).wrap_socket(tcp_socket, server_hostname=parts.hostname)
    head = [f"GET {parts.path}{path} HTTP/1.1", "Host: remote", "Upgrade: websocket", "Connection: Upgrade"]
    head += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    head += ["Sec-WebSocket-Protocol: v5.channel.k8s.io", f"Authorization: Bearer {endpoint.credential}", "", ""]
    connection.sendall("\r\n".join(head).encode())
    response = b""
    while not response.endswith(b"\r\n\r\n"):
        response += connection.recv(1)
    assert response.startswith(b"HTTP/1.1 101"), response
    return connection


def read_slowly(connection: socket.socket, after_each_read: Callable[[], None]) -> tuple[list[bytes], int]:
    """Returns all messages and the close code."""
    protocol, messages = Protocol(CLIENT, max_size=None), list[bytes]()
    while data := connection.recv(16 * 1024):
        protocol.receive_data(data)
        frames = [each for each in protocol.events_received() if isinstance(each, Frame)]
        messages += [bytes(each.data) for each in frames if each.opcode is Opcode.BINARY]
        if protocol.close_rcvd is not None:
            break
        after_each_read()
        time.sleep(0.002)  # a slow network
    return messages, protocol.close_rcvd.code if protocol.close_rcvd is not None else 1006


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("ending", ["close-frame", "no-close-frame"])
def test_all_output_arrives_before_the_close_code(endpoint: Endpoint, ending: str, pings: bool) -> None:
    with open_slow_connection(endpoint, f"/output/{ending}") as connection:

        def ping() -> None:
            if pings:
                connection.sendall(Frame(Opcode.PING, b"x").serialize(mask=True))

        messages, code = read_slowly(connection, ping)
    assert messages.pop() == ERROR + SUCCESS
    digest = hashlib.sha256(b"".join(each[1:] for each in messages)).hexdigest()
    assert digest == hashlib.sha256(generate_output(SIZE)).hexdigest()
    assert code == CODES[CLOSE_CODES[ending][0]]
