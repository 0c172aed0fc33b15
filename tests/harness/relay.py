"""A fixed address in front of servers that come and go, as behind a load balancer, or behind a network that fails."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

BUFFER_BYTES = 65536


@dataclass(slots=True)
class Relay:
    """Passes bytes to `target`, the URL of a server. Without one, connections are closed at once."""

    listener: socket.socket
    target: str = ""
    sockets: list[socket.socket] = field(default_factory=list)
    is_silent: bool = False
    """Loses all bytes without closing a connection, as a firewall or a lost route does."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.listener.getsockname()[1]}"

    def disconnect(self) -> None:
        """Ends all connections, and accepts no more until there is another target."""
        self.target = ""
        self.drop()

    def drop(self) -> None:
        """Ends all connections; new ones are accepted."""
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()  # the threads that read from them close them

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = self._connect()
            if far is None:
                near.close()
                continue
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_bytes, args=(source, sink), daemon=True).start()

    def _pass_bytes(self, source: socket.socket, sink: socket.socket) -> None:
        with source:
            with suppress(OSError):
                while data := source.recv(BUFFER_BYTES):
                    if not self.is_silent:
                        sink.sendall(data)
            for each in (source, sink):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket | None:
        parts = urlsplit(self.target)
        try:
            return socket.create_connection((parts.hostname or "", parts.port or 0)) if self.target else None
        except OSError:
            return None


@contextmanager
def running_relay() -> Iterator[Relay]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(listener)
        thread = threading.Thread(target=relay.accept, daemon=True)
        thread.start()
        yield relay
        relay.disconnect()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
