"""A browser signs in through a provider of another site: which cookies it sends, and when.

The session cookie is `SameSite=Strict`. The provider is at `localhost` and the server at `127.0.0.1`: different sites
for a browser. So it does not send the cookie with the navigation that comes from the provider, but it does with the
requests of the console's page.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fairlead.core.clock import SystemClock
from fairlead.core.crypto.certificates import Certificates
from fairlead.signin.oidc.fetch import Request
from tests.console.browser import Browser
from tests.console.servers import GROUP, LOGIN_COOKIE, ConsoleServer, running_console
from tests.harness.openid_provider import FakeProvider, parse_query


@contextmanager
def running_provider(certificates: Certificates) -> Iterator[FakeProvider]:
    """A provider at localhost. Its page sends the browser back by a script, as a page of that site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize?"):
                url = f"{provider.url}{self.path}"
                answer = provider.authorize(url)
                back = f"{parse_query(url)['redirect_uri']}?{urlencode(answer)}"
                self.reply(f"<title>provider</title><script>location = {json.dumps(back)}</script>", "text/html")
            else:
                self.serve(b"")

        def do_POST(self) -> None:
            self.serve(self.rfile.read(int(self.headers["content-length"])))

        def serve(self, body: bytes) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = provider.respond(Request(self.command, provider.url + self.path, headers, body))
            self.reply(json.dumps(answer), "application/json")

        def reply(self, text: str, content_type: str) -> None:
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    provider = FakeProvider(f"https://localhost:{server.server_address[1]}", SystemClock())
    provider.client_secret = None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates) -> Iterator[ConsoleServer]:
    with running_console(tmp_path / "data", certificates) as console:
        yield console


def test_a_browser_signs_in_through_another_site(
    browser: Browser, server: ConsoleServer, certificates: Certificates
) -> None:
    with running_provider(certificates) as provider:
        assert certificates.ca_file is not None
        oidc = {"issuerURL": provider.url, "clientId": "fairlead", "allowLoopback": True}
        oidc["ca"] = certificates.ca_file.read_text()
        settings = json.dumps({"auth": {"connectors": [{"id": "company", "oidc": oidc}]}})
        config = f"{GROUP}/configs/service-manager-config"
        server.send("PATCH", config, {"spec": {"raw": settings}}, patch=True)
        page = browser.new_page(server.url)
        try:
            page.send("Page.navigate", url=f"{server.url}/auth/company/login?return=/console/")
            page.wait_for_text("Hello, Alice")
            cookies = page.send("Network.getCookies", urls=[server.url])["cookies"]
            session = next(each for each in cookies if each["name"] == LOGIN_COOKIE)
            assert (session["sameSite"], session["httpOnly"], session["secure"]) == ("Strict", True, True)
            assert not any("sign_on" in each["name"] for each in cookies)
        finally:
            page.close_all()
