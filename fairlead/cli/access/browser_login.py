"""Logins through the console: in a browser on this machine, or with a code that is typed into one elsewhere.

The browser returns the code to a listener on the loopback interface, at a random path. Only the process that has
started the login knows the verifier that belongs to it (PKCE), so the code alone is of no use.
"""

import base64
import hashlib
import os
import secrets
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from fairlead.cli.ui.output import escape_control, print_note
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.contexts import Login
from fairlead.client.login_sessions import (
    CLIENT_ID,
    DEVICE_PATH,
    TOKEN_PATH,
    LoginSession,
    OAuthRejected,
    post_form,
)

AUTHORIZE_PAGE, DEVICE_PAGE, METHODS_PATH = "/console/authorize", "/console/device", "/auth/methods"
BROWSER_SECONDS = 600.0
"""How long to wait for the user."""
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CONNECTION_SECONDS = 5.0
SLOW_DOWN_SECONDS = 5
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Fairlead</title>
<p>{text} You can close this window.</p></html>
"""


def console_url(login: Login) -> str | None:
    """The URL of the console if the server supports logins through it, else None."""
    try:
        with login.create_client(key="") as client:
            methods = client.send("GET", METHODS_PATH).get("methods")
    except ApiStatusError:
        return None
    cli = methods.get("cli") if isinstance(methods, dict) else None
    if not isinstance(cli, dict) or cli.get("enabled") is not True:
        return None
    public_url = cli.get("url")
    return public_url if isinstance(public_url, str) and public_url.startswith("https://") else login.url


def has_browser(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a browser with windows. A browser in the terminal cannot show the console."""
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform not in ("darwin", "win32") and not any(environment.get(name) for name in names):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def log_in_with_browser(login: Login, console: str, open_page: Callable[[str], object]) -> LoginSession:
    """Opens the console, and waits until the user has decided. The URL is printed, too."""
    verifier, state, path = (secrets.token_urlsafe(32) for _ in range(3))
    with CallbackServer(f"/{path}", state) as server:
        parameters = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": server.url,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
            "state": state,
            "machine": _machine(),
        }
        page = f"{console}{AUTHORIZE_PAGE}?{urlencode(parameters)}"
        print_note(f"Allow the login in the browser. If it does not open, use this address on this machine:\n{page}")
        open_page(page)
        code = server.wait(BROWSER_SECONDS)
        fields = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        form = {**fields, "redirect_uri": server.url, "client_id": CLIENT_ID}
        return LoginSession.from_reply(login.url, post_form(login, TOKEN_PATH, form), time.time())


def log_in_with_code(login: Login, console: str, sleep: Callable[[float], None] = time.sleep) -> LoginSession:
    """Shows a code, and waits until the user has typed it into the console and decided."""
    reply = post_form(login, DEVICE_PATH, {"client_id": CLIENT_ID, "machine": _machine()})
    device_code = reply.get("device_code")
    user_code = reply.get("user_code")
    interval = reply.get("interval", 5)
    seconds = reply.get("expires_in", 600)
    if not isinstance(device_code, str) or not isinstance(interval, int) or not isinstance(seconds, int):
        raise ClientError(f"{login.url} did not start a login; is it a Fairlead server of this version?")
    print_note(f"Open {console}{DEVICE_PAGE} in a browser and type this code: {escape_control(str(user_code))}")
    deadline = time.monotonic() + seconds
    form = {"grant_type": DEVICE_GRANT, "device_code": device_code, "client_id": CLIENT_ID}
    while time.monotonic() < deadline:
        sleep(interval)
        try:
            return LoginSession.from_reply(login.url, post_form(login, TOKEN_PATH, form), time.time())
        except OAuthRejected as error:
            if error.error not in ("authorization_pending", "slow_down"):
                raise ClientError(f"the login was not allowed: {error}") from None
            interval += SLOW_DOWN_SECONDS if error.error == "slow_down" else 0
    raise ClientError("the code has expired; start the login again")


class CallbackServer:
    """Listens on the loopback interface until the browser returns the code. Other requests change nothing."""

    def __init__(self, path: str, state: str) -> None:
        self._result: dict[str, str] = {}
        self._server = HTTPServer(("127.0.0.1", 0), _build_handler(path, state, self._result))
        self._server.timeout = 1.0
        self.url = f"http://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> "CallbackServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()

    def wait(self, seconds: float) -> str:
        """The code. Raises ClientError if the user denies the login, or does not decide in time."""
        deadline = time.monotonic() + seconds
        while not self._result and time.monotonic() < deadline:
            self._server.handle_request()
        if "code" in self._result:
            return self._result["code"]
        if self._result:
            raise ClientError("the login was denied in the browser")
        raise ClientError(f"the login was not allowed within {seconds / 60:.0f} minutes; start it again")


def _build_handler(path: str, state: str, result: dict[str, str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = CONNECTION_SECONDS

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            values = parse_qs(parts.query, max_num_fields=10)
            given = values.get("state", [""])
            is_ours = secrets.compare_digest(parts.path.encode(), path.encode()) and len(given) == 1
            if not is_ours or not secrets.compare_digest(given[0].encode(), state.encode()):
                return self._reply(404, "There is nothing here.")
            if len(code := values.get("code", [])) == 1:
                result.setdefault("code", code[0])
                return self._reply(200, "The command line is logged in.")
            result.setdefault("error", "denied")
            return self._reply(200, "The login was denied.")

        def _reply(self, status: int, text: str) -> None:
            content = _PAGE.format(text=escape(text)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged: the address contains the code."""

    return Handler


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _machine() -> str:
    return socket.gethostname()[:64]
