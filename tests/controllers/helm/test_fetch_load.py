"""What a chart repository can cost the event loop of the server by the form of its responses. CPU time is measured by
thread, so that other programs of the machine do not matter."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from fairlead.controllers.helm.chart import Chart
from fairlead.controllers.helm.fetch import ChartFetcher
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.core.pinned_https import CHUNKS_AT_ONCE, iter_body
from fairlead.upstream.address_policy import AddressPolicy
from tests.controllers.helm.chart_hosts import ALLOWED, REPOSITORY, Hosts, open_hosts
from tests.fake_cluster.certificates import get_authority
from tests.harness.event_loop_turns import TurnCounter

MIN_CPU_SECONDS = 0.2
"""What each of the responses costs at least. Otherwise, the test would measure nothing."""

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_MANY_TAGS = json.dumps({"tags": [f"1.2.{number}" for number in range(50_000)]}).encode()
RESPONSES = {
    "chunks of one byte": _CHUNKED + b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n",
    "informational responses": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000 + b"HTTP/1.1 404 Not Found\r\n\r\n",
    "many tags": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_MANY_TAGS), _MANY_TAGS),
}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with open_hosts(tmp_path) as opened:
        opened.names[REPOSITORY] = [ALLOWED]
        yield opened


@contextmanager
def serve(folder: Path, response: bytes) -> Iterator[int]:
    """Sends these bytes to each client, whatever it requests. Yields the port."""
    pair = get_authority().issue(ALLOWED, REPOSITORY)
    (folder / "raw.pem").write_text(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "raw.pem")
    with socket.create_server((ALLOWED, 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as client:
                    client.recv(65536)
                    client.sendall(response)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_read_beside_the_event_loop_of_the_server(hosts: Hosts, name: str) -> None:
    async def fetch(port: int) -> None:
        scheme = "oci" if name == "many tags" else "https"
        policy = AddressPolicy((f"{ALLOWED}/32",), list)
        with pytest.raises(InstanceError):
            await ChartFetcher(policy.resolve, {}).fetch(Chart("vc", f"{scheme}://{REPOSITORY}:{port}/x"), hosts.folder)

    with serve(hosts.folder, RESPONSES[name]) as port:
        whole = time.process_time()
        own = time.thread_time()
        asyncio.run(fetch(port))
        own = time.thread_time() - own
        whole = time.process_time() - whole
    assert whole > MIN_CPU_SECONDS
    assert own < whole / 3


class _Chunks(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(100 * CHUNKS_AT_ONCE):
            yield b"a"


def test_other_tasks_get_turns_between_chunks_that_have_arrived_together() -> None:
    async def read() -> int:
        async with TurnCounter() as turns:
            async for _ in iter_body(httpx.Response(200, stream=_Chunks())):
                pass
            return turns.count

    assert asyncio.run(read()) >= 100
