"""A reverse proxy that serves a server below another path, as an ingress controller does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.harness.server_process import Server

NOT_FORWARDED = frozenset({"connection", "host", "transfer-encoding", "content-length", "content-encoding", "date"})


@contextmanager
def running_proxy(server: Server, prefix: str) -> Iterator[str]:
    """The address of the server through the proxy, without a slash at the end. It forwards GET only."""
    with server.client(None) as client, ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(client, prefix)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}{prefix}"
        finally:
            proxy.shutdown()
            thread.join()


def _build_handler(client: httpx.Client, prefix: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED}
            response = client.get(self.path.removeprefix(prefix), headers=headers)
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.lower() not in NOT_FORWARDED:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        def log_message(self, format: str, *arguments: object) -> None:
            return None

    return Handler
