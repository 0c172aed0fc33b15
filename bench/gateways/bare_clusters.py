"""Bare API servers to connect to, many in one process, without any logic.

Each has a port of its own. It responds to the paths of a probe, `/small`, `/api/small` (agents carry only paths of the
API) and `/large`, and records when it was probed. A slow one reads the request and never responds. On SIGTERM the
process prints the intervals between probes.
"""

import asyncio
import json
import signal
import ssl
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httptools
import uvloop

from fairlead.core.crypto.certificates import ensure_certificates

ADDRESS = "127.0.0.1"
SMALL, LARGE = 700, 8 * 1024 * 1024
VERSION = b'{"major":"1","minor":"35","gitVersion":"v1.35.0"}'
NOT_FOUND_STATUS = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not found","reason":"NotFound","code":404}'
)


def build_response(status: int, body: bytes, content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, content_type, len(body))
    return head + body


RESPONSES = {
    b"/version": build_response(200, VERSION),
    b"/readyz": build_response(200, b"ok", b"text/plain"),
    b"/small": build_response(200, b'{"x":"%s"}' % (b"y" * (SMALL - 8))),
    b"/api/small": build_response(200, b'{"x":"%s"}' % (b"y" * (SMALL - 8))),
    b"/large": build_response(200, b"z" * LARGE, b"application/octet-stream"),
}
NOT_FOUND_RESPONSE = build_response(404, NOT_FOUND_STATUS)


@dataclass(slots=True)
class Cluster:
    """One API server; `probed` are the times of its probes."""

    is_slow: bool
    probed: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_message_complete(self) -> None:
        if self._path == b"/readyz":
            self._cluster.probed.append(time.monotonic())
        if not self._cluster.is_slow:
            self._transport.write(RESPONSES.get(self._path, NOT_FOUND_RESPONSE))


async def serve(tls: Path, healthy: int, slow: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    files = ensure_certificates(tls)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert_file, files.key_file)
    clusters = [Cluster(is_slow=number >= healthy) for number in range(healthy + slow)]
    servers = [
        await loop.create_server(lambda each=each: Connection(each), ADDRESS, 0, ssl=context)  # type: ignore[misc]
        for each in clusters
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(json.dumps({"url": f"https://{ADDRESS}:{ports[0]}", "ports": ports}), flush=True)
    await stop.wait()
    gaps = [
        later - earlier
        for each in clusters
        if not each.is_slow
        for earlier, later in zip(each.probed, each.probed[1:], strict=False)
    ]
    print(json.dumps({"gaps": sorted(gaps)}), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
