"""API servers to connect to, as many as wanted in one process: next to nothing stands behind them.

Each has a port of its own. It answers the paths that a probe asks for, `/small` and `/large`, and notes when it was
probed. One that is slow takes the request and never answers. Told to stop, the process prints how late probes were.
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
NO_SUCH = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not found","reason":"NotFound","code":404}'


def answer(status: int, body: bytes, content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, content_type, len(body))
    return head + body


ANSWERS = {
    b"/version": answer(200, VERSION),
    b"/readyz": answer(200, b"ok", b"text/plain"),
    b"/small": answer(200, b'{"x":"%s"}' % (b"y" * (SMALL - 8))),
    b"/large": answer(200, b"z" * LARGE, b"application/octet-stream"),
}
MISSING = answer(404, NO_SUCH)


@dataclass(slots=True)
class Cluster:
    """One API server; `probed` is when it was asked whether it is well."""

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
            self._transport.write(ANSWERS.get(self._path, MISSING))


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
