"""Much output to a client that reads slowly: all of it arrives, with the outcome and the code.

The client is a bare connection with a small buffer. It is silent, or it pings while it reads, as kubectl does every
five seconds: that alone resets a connection which was closed too early.
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
from tests.harness.gateways import connect, gateway_path, is_online, wait_until
from tests.harness.server_process import TIMEOUT_SECONDS, Server, running, trusting
from tests.live.test_agent import agent, equip, furnish, token

SIZE = 5_000_000
CODES = {1000: 1000, 1006: 1011}
"""What the client is told of the cluster's goodbye."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way into the cluster: where, whom to trust, and the credential."""

    url: str
    authority: Path
    credential: str


@pytest.fixture(scope="module")
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        for ending in CLOSE_CODES:
            made.set_upgrade_behaviour(f"/flood/{ending}", respond_with_output(SIZE, ending))
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("floods") / "data") as made:
        yield made


@pytest.fixture(scope="module", params=["gateway", "agent"])
def door(
    request: pytest.FixtureRequest, server: Server, far: FakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    with server.client() as admin:
        if request.param == "gateway":
            connect(admin, "oslo", far.build_kubeconfig())
            wait_until(lambda: is_online(admin, "oslo"))
            yield Door(server.url + gateway_path("oslo"), Path(server.ca_file), server.key)
            return
        good = token(server, furnish(admin))
    folder = tmp_path_factory.mktemp("agent") / "agent"
    equip(folder, server, far)
    with agent(folder, server) as client:
        yield Door(f"{client.base_url}/kubernetes/cluster", folder / "state" / "tls" / "ca.crt", good)


def slow_connection(door: Door, path: str) -> socket.socket:
    """Upgraded, with room for little."""
    parts = urlsplit(door.url)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    plain.settimeout(TIMEOUT_SECONDS)
    plain.connect((parts.hostname, parts.port))
    connection = trusting(str(door.authority)).wrap_socket(plain, server_hostname=parts.hostname)
    head = [f"GET {parts.path}{path} HTTP/1.1", "Host: far", "Upgrade: websocket", "Connection: Upgrade"]
    head += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    head += ["Sec-WebSocket-Protocol: v5.channel.k8s.io", f"Authorization: Bearer {door.credential}", "", ""]
    connection.sendall("\r\n".join(head).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return connection


def heard_slowly(connection: socket.socket, between: Callable[[], None]) -> tuple[list[bytes], int]:
    """All messages and the code at the end."""
    protocol, messages = Protocol(CLIENT, max_size=None), list[bytes]()
    while data := connection.recv(16 * 1024):
        protocol.receive_data(data)
        frames = [each for each in protocol.events_received() if isinstance(each, Frame)]
        messages += [bytes(each.data) for each in frames if each.opcode is Opcode.BINARY]
        if protocol.close_rcvd is not None:
            break
        between()
        time.sleep(0.002)  # a slow network
    return messages, protocol.close_rcvd.code if protocol.close_rcvd is not None else 1006


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("ending", ["close-frame", "no-close-frame"])
def test_all_of_it_arrives_and_then_the_code(door: Door, ending: str, pings: bool) -> None:
    with slow_connection(door, f"/flood/{ending}") as connection:

        def ping() -> None:
            if pings:
                connection.sendall(Frame(Opcode.PING, b"x").serialize(mask=True))

        messages, code = heard_slowly(connection, ping)
    assert messages.pop() == ERROR + SUCCESS
    whole = hashlib.sha256(b"".join(each[1:] for each in messages)).hexdigest()
    assert whole == hashlib.sha256(generate_output(SIZE)).hexdigest()
    assert code == CODES[CLOSE_CODES[ending][0]]
