"""Logins of the command line, decided in the console: with the server's own endpoints."""

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import GROUP, OWNER, ConsoleServer

VERIFIER = "verifier-" * 6
REQUEST = {
    "response_type": "code",
    "client_id": "fairlead-cli",
    "redirect_uri": "http://127.0.0.1:40000/done",
    "code_challenge": base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode(),
    "code_challenge_method": "S256",
    "state": "0123456789abcdef",
    "machine": "laptop",
}
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """The address on which the command line waits for the browser, and the paths that it was called with."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test reads `paths`."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{http.server_port}", paths
        finally:
            http.shutdown()
            thread.join()


def post(server: ConsoleServer, path: str, **form: str) -> tuple[int, Any]:
    """A request of the command line, which is not signed in."""
    with server.server.client(None) as client:
        response = client.post(path, data={"client_id": "fairlead-cli", **form})
    return response.status_code, response.json()


def who_is(server: ConsoleServer, key: str) -> str:
    with server.server.client(None) as client:
        response = client.post(f"{GROUP}/selves", json={}, headers={"Authorization": f"Bearer {key}"})
    return str(response.json()["status"]["user"]["name"])


def test_a_user_allows_the_command_line_of_this_machine(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    sign_in(page, OWNER)
    with listening() as (host, paths):
        redirect = f"http://{host}/done"
        page.goto(f"authorize?{urlencode(REQUEST | {'redirect_uri': redirect})}")
        page.wait_for_text("Fairlead CLI on laptop asks to act as you.", "main")
        page.wait_for_text(host, "main")
        page.click(role("button", "Allow"))
        page.wait_until(lambda: paths, "the browser returns to the command line")
    answer = parse_qs(urlsplit(paths[0]).query)
    assert (urlsplit(paths[0]).path, answer["state"]) == ("/done", [REQUEST["state"]])
    form = {"code": answer["code"][0], "code_verifier": VERIFIER, "redirect_uri": redirect}
    status, tokens = post(server, "/auth/token", grant_type="authorization_code", **form)
    assert status == 200, tokens
    assert who_is(server, tokens["access_token"]) == OWNER


def test_a_wrong_request_of_the_command_line_offers_nothing(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OWNER)
    page.goto(f"authorize?{urlencode(REQUEST | {'redirect_uri': 'https://example.com/'})}")
    page.wait_for("main .error")
    assert page.count(role("button", "Allow")) == 0


def test_a_code_logs_another_machine_in_and_the_login_is_ended_on_the_account_page(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    _, started = post(server, "/auth/device", machine="build-7")
    sign_in(page, OWNER)
    page.goto("device")
    page.fill("Code", "BBBB-BBBB")
    page.press("Enter")
    page.wait_for_text("There is no such code", "main")
    page.fill("Code", started["user_code"].lower())
    page.press("Enter")
    page.wait_for_text("Fairlead CLI on build-7 asks to act as you.", "main")
    page.click(role("button", "Allow"))
    page.wait_for_text("Allowed. Go back to the terminal.", "main")
    status, tokens = post(server, "/auth/token", grant_type=DEVICE_GRANT, device_code=started["device_code"])
    assert status == 200, tokens
    assert who_is(server, tokens["access_token"]) == OWNER
    page.goto("account")
    page.wait_for_text("build-7", "main table")
    (name,) = (each for each in page.names("button") if re.search(r"Sign out .*build-7", each))
    page.click(role("button", name))
    page.wait_until(lambda: "build-7" not in page.text("main table"), "the login is gone")
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert post(server, "/auth/token", **form)[0] == 400


def test_a_denied_code_gives_nothing(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    _, started = post(server, "/auth/device", machine="build-8")
    sign_in(page, OWNER)
    page.goto("device")
    page.fill("Code", started["user_code"])
    page.press("Enter")
    page.click(role("button", "Deny"))
    page.wait_for_text("Denied.", "main")
    status, answer = post(server, "/auth/token", grant_type=DEVICE_GRANT, device_code=started["device_code"])
    assert (status, answer["error"]) == (400, "access_denied")
