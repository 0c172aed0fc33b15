"""The ceiling: the same HTTP server with the same settings, and next to nothing behind it. `servers.py` starts it.

What it reaches is what this machine, granian, TLS and the load generator together allow a handler in Python; the rest
is ours to lose. It answers everything with the bytes that it was last taught (PUT), which are those of a real answer.
A watch is a stream that stays open, and what is posted to `/broadcast?SELECTOR` goes down all that have that selector.

It takes the settings from `fairlead.server.http.asgi` itself, so that both stay alike. The interface is RSGI,
granian's own and fastest, although the server needs another one: the ceiling is what could be had at best.
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
from fairlead.server.http.asgi import AsgiApp, BindOptions, free_port, run_http_server

ADDRESS = "127.0.0.1"
BROADCAST = "/broadcast"
SELECTOR = "&labelSelector="
GRACE_SECONDS = 2.0

# As many bytes of headers as a real answer has.
HEADERS = [
    ("content-type", "application/json"),
    ("audit-id", "00000000-0000-4000-8000-000000000000"),
    ("cache-control", "no-cache, private"),
]


class Bare:
    """The application that granian calls."""

    def __init__(self) -> None:
        self._answer = b""
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
            if scope.method == "PUT":
                self._status, self._answer = int(scope.query_string), body
            elif scope.path.endswith(BROADCAST):
                self._broadcast(scope.query_string, body)
        proto.response_bytes(self._status, HEADERS, self._answer)

    def _broadcast(self, selector: str, body: bytes) -> None:
        """What comes while the streams are being written to goes out together: less to do for each event."""
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
    where = BindOptions(ADDRESS, free_port(ADDRESS, 0), files.cert_file, files.key_file, GRACE_SECONDS)
    # The one method that granian looks for is there; nothing else of a Front is used.
    async with run_http_server(cast(AsgiApp, Bare()), where, Interfaces.RSGI) as port:
        print(json.dumps({"url": f"https://{ADDRESS}:{port}"}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
