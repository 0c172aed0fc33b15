"""A minimal TCP load balancer: each connection goes to the first address that accepts it."""

import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65_536


class LoadBalancer:
    """`with LoadBalancer(urls) as balancer` listens on `balancer.url`."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._targets = [parse_address(url) for url in urls]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener was closed
                return
            server = self._connect()
            if server is None:
                client.close()
                continue
            self._sockets += (client, server)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=forward, args=(source, target), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        for target in self._targets:
            try:
                return socket.create_connection(target, timeout=None)
            except OSError:
                continue
        return None


def parse_address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    except OSError:
        pass
    for each in (source, target):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
