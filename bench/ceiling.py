"""The ceiling: the same HTTP server with the same settings and a trivial handler. `servers.py` starts it.

It shows what this machine, granian, TLS and the load generator allow a handler in Python; the rest
is our cost. It responds with the bytes that `/response?STATUS` got last, which are those of a real response.
A watch is a stream that stays open. Bodies posted to `/broadcast?SELECTOR` go to all watches with that selector.

It uses the settings of `fairlead.server.http.http_server`, so that both stay the same. The interface is RSGI,
granian's own and fastest, although the server needs another one: the ceiling is the best case.
"""

import asyncio
import json
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import uvloop
from granian.constants import Interfaces

from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.http_server import BindOptions, run_http_server
from fairlead.server.http.listeners import free_port

ADDRESS = "127.0.0.1"
RESPONSE = "/response"
BROADCAST = "/broadcast"
SELECTOR = "&labelSelector="
GRACE_SECONDS = 2.0

# As many bytes of headers as a real response.
HEADERS = [
    ("content-type", "application/json"),
    ("audit-id", "00000000-0000-4000-8000-000000000000"),
    ("cache-control", "no-cache, private"),
]


class BareApp:
    """The application that granian calls."""

    def __init__(self) -> None:
        self._response = b""
        self._status = 200
        self._streams: defaultdict[str, set[Any]] = defaultdict(set)
        self._waiting: defaultdict[str, list[bytes]] = defaultdict(list)
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        if scope.method == "GET":
            if "watch=1" in scope.query_string:
                await self._stream(proto, scope.query_string.partition(SELECTOR)[2])
                return
        else:
            body = await proto()
            if scope.path.endswith(RESPONSE):
                self._status, self._response = int(scope.query_string), body
            elif scope.path.endswith(BROADCAST):
                self._broadcast(scope.query_string, body)
        proto.response_bytes(self._status, HEADERS, self._response)

    def _broadcast(self, selector: str, body: bytes) -> None:
        """Sends events together that arrive while the streams are being written to, which costs less per event."""
        self._waiting[selector].append(body)
        if selector not in self._sending:
            self._sending[selector] = asyncio.create_task(self._send(selector))

    async def _send(self, selector: str) -> None:
        while self._waiting[selector]:
            body = b"".join(self._waiting.pop(selector))
            for stream in tuple(self._streams[selector]):
                await stream.send_bytes(body)
        del self._sending[selector]

    async def _stream(self, proto: Any, selector: str) -> None:
        stream = proto.response_stream(200, HEADERS)
        self._streams[selector].add(stream)
        await proto.client_disconnect()
        self._streams[selector].discard(stream)


async def serve(tls: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    files = ensure_certificates(tls)
    bind_options = BindOptions(
        address=ADDRESS,
        port=free_port(ADDRESS, 0),
        cert_file=files.cert_file,
        key_file=files.key_file,
        grace_seconds=GRACE_SECONDS,
        folder=tls,
    )
    # Granian only uses its one method.
    async with run_http_server(cast(AsgiApp, BareApp()), bind_options, Interfaces.RSGI) as port:
        print(json.dumps({"url": f"https://{ADDRESS}:{port}"}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
