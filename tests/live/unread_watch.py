"""A watch that is opened and never read."""

import ssl
import time

from tests.harness.server_process import CONFIGMAPS, Server


def open_watch(server: Server, query: str = "") -> ssl.SSLSocket:
    """Opens a watch over HTTP/1.1, of which nothing is read."""
    connection = server.connect()
    lines = (f"GET {CONFIGMAPS}?watch=1{query} HTTP/1.1", "Host: server", f"Authorization: Bearer {server.key}", "", "")
    connection.sendall("\r\n".join(lines).encode())
    time.sleep(0.1)
    return connection
