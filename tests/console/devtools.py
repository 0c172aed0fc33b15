"""The process of a headless Chromium, and a connection to it with the DevTools protocol.

The connection has no thread: messages are read while a command waits for its response, and by `read_events`. Nothing
leaves this machine: the browser resolves no names, and its proxy for all addresses but loopback does not exist.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

STILL_NETWORK = Path(__file__).parent / "still_network.py"
TIMEOUT_SECONDS = 30.0
"""How long the browser may take to start, and to respond to a command. Nothing is measured with it."""
UNRELIABLE_SECONDS = {"Accessibility.queryAXTree": 8.0, "DOM.getDocument": 8.0}
"""Chromium never responds to these if the document is replaced meanwhile, so they have to be sent again."""
CLOSE_SECONDS = 5.0

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root, often in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-quic",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost , EXCLUDE *.localhost",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=127.0.0.1;localhost;*.localhost",
    "--remote-debugging-port=0",
)

Params = dict[str, Any]
Listener = Callable[[str, Params], None]
"""Called with the name and the parameters of each event of a session."""


class DevToolsError(Exception):
    """The browser rejected a command."""


class DevTools:
    """A connection to the browser. A session is one of its pages; the empty one is the browser itself."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self._listeners: dict[str, Listener] = {}
        self._replies: dict[int, Params] = {}

    def listen(self, session: str, listener: Listener) -> None:
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        self._listeners.pop(session, None)

    def post(self, method: str, params: Params, session: str = "") -> int:
        """Sends a command without waiting for its response."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        return self._last_id

    def send(self, method: str, params: Params, session: str = "") -> Params:
        """Sends a command and returns its result. Events that arrive before it are passed to their listeners."""
        seconds = UNRELIABLE_SECONDS.get(method, TIMEOUT_SECONDS)
        number, deadline = self.post(method, params, session), time.monotonic() + seconds
        while number not in self._replies:
            if not self._read_message(deadline - time.monotonic()):
                raise TimeoutError(f"the browser did not respond to {method} within {seconds} s")
        reply = self._replies.pop(number)
        if "error" in reply:
            raise DevToolsError(f"{method}: {reply['error'].get('message')}")
        result: Params = reply["result"]
        return result

    def read_events(self, seconds: float) -> None:
        """Passes the events of the next seconds to their listeners."""
        deadline = time.monotonic() + seconds
        while self._read_message(deadline - time.monotonic()):
            pass

    def _read_message(self, seconds: float) -> bool:
        try:
            message = json.loads(self._socket.recv(timeout=max(0.0, seconds)))
        except TimeoutError:
            return False
        if "id" in message:
            self._replies[message["id"]] = message
        elif (listener := self._listeners.get(message.get("sessionId", ""))) is not None:
            listener(message["method"], message["params"])
        return True


@contextmanager
def running_chromium(program: Path, folder: Path, flags: Sequence[str] = ()) -> Iterator[DevTools]:
    """A browser with an empty profile in the folder. It has ended when the context is left, also after an error."""
    profile = folder / "profile"
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(STILL_NETWORK),
                str(program),
                *FLAGS,
                *flags,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            env=os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that its helper processes can be ended with it
        )
    try:
        address = _wait_for_address(process, profile / "DevToolsActivePort", folder / "chromium.log")
        with connect(address, max_size=None, compression=None, proxy=None, ping_interval=None) as socket:
            yield DevTools(socket)
            with suppress(ConnectionClosed):
                DevTools(socket).post("Browser.close", {})
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_SECONDS)
    finally:
        _end(process)
        shutil.rmtree(profile, ignore_errors=True)


def _wait_for_address(process: "subprocess.Popen[bytes]", file: Path, log: Path) -> str:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(FileNotFoundError):
            port, _, path = file.read_text().partition("\n")
            if path:
                return f"ws://127.0.0.1:{port}{path.strip()}"
        time.sleep(0.02)
    raise RuntimeError(f"chromium did not start: {log.read_text(errors='replace')[-2000:]}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the browser and all its helper processes, which are in one group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(CLOSE_SECONDS)
