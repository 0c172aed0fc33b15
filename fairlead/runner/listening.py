"""A runner that listens for its server, instead of connecting to it: for machines that the server can reach.

The runner still sends its own requests to the server. It verifies the tokens of the server with the keys that it has
got from there, with its own key.
"""

import asyncio
import socket
from pathlib import Path

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import Clock
from fairlead.core.crypto.link_tokens import (
    LIFETIME_SECONDS,
    MAX_SKEW_SECONDS,
    InvalidLinkToken,
    UnknownLinkKey,
    split_keys,
    verify_link_token,
)
from fairlead.core.crypto.pinned_certificates import PinnedCertificate, load_pinned_certificate
from fairlead.core.files import FileProblem
from fairlead.core.objects import get_path
from fairlead.core.validators import check_ip_address
from fairlead.links.contract import OpenHandler
from fairlead.links.dialing import Superseded
from fairlead.links.listening import Listening, serve_runner
from fairlead.runner.api import RunnerApi
from fairlead.runner.heartbeat import Replaced, RunnerIdentity

LISTEN_BACKLOG = 16
FETCH_SECONDS = 5.0
"""The keys are fetched at most this often: connections that are not the server's must not cause requests to it."""
MAX_USED_TOKENS = 1024

log = structlog.get_logger(__name__)


class TokenVerifier:
    """Verifies that a connection is the server's. Every token is accepted once."""

    def __init__(self, api: RunnerApi, fingerprint: str, clock: Clock) -> None:
        self._api = api
        self._fingerprint = fingerprint
        self._clock = clock
        self._uid = ""
        self._keys: list[str] = []
        self._fetched_at = -FETCH_SECONDS
        self._lock = asyncio.Lock()
        self._used: dict[str, float] = {}
        """IDs of tokens, and until when they are valid by the monotonic clock."""

    async def verify(self, token: str) -> str:
        """Why the token is rejected; empty if it is valid."""
        try:
            self._accept(token)
        except UnknownLinkKey as error:
            if not await self._fetch():
                return str(error)
        except InvalidLinkToken as error:
            return str(error)
        else:
            return ""
        try:
            self._accept(token)
        except InvalidLinkToken as error:
            return str(error)
        return ""

    def _accept(self, token: str) -> None:
        identifier = verify_link_token(token, self._keys, self._uid, self._fingerprint, self._clock.now())
        now = self._clock.monotonic()
        self._used = {known: until for known, until in self._used.items() if until > now}
        if identifier in self._used or len(self._used) >= MAX_USED_TOKENS:
            raise InvalidLinkToken("the token was used before")
        self._used[identifier] = now + LIFETIME_SECONDS + 2 * MAX_SKEW_SECONDS

    async def _fetch(self) -> bool:
        """Gets the current keys and the uid of the Runner. Returns False if that was done a moment ago, or failed."""
        async with self._lock:
            now = self._clock.monotonic()
            if now - self._fetched_at < FETCH_SECONDS:
                return False
            self._fetched_at = now
            try:
                config = await self._api.get_config()
                runner = await self._api.get_runner()
            except ClientError as error:
                log.warning("the keys of the server could not be fetched", error=str(error))
                return False
            self._keys = split_keys(str(config.get("tokenCaCert") or ""))
            self._uid = str(get_path(runner, "metadata.uid") or "")
            return True


def listen(address: str) -> socket.socket:
    """A listening socket at `ADDRESS:PORT`. Raises FileProblem."""
    host, port = split_address(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        raise FileProblem(f"cannot listen on {address}: {error.strerror}; choose another --listen") from None
    return listener


def split_address(address: str) -> tuple[str, int]:
    """Raises FileProblem."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if check_ip_address(host) is not None or not is_port:
        raise FileProblem(f"--listen {address}: must be an IP address and a port, such as 0.0.0.0:8445")
    return host, int(port)


def load_certificate(folder: Path) -> PinnedCertificate:
    """The certificate of the runner with this state folder. Raises FileProblem."""
    return load_pinned_certificate(folder / "tls")


async def serve_listener(listening: Listening, identity: RunnerIdentity, on_open: OpenHandler) -> None:
    """Serves the streams that the server opens, for ever. Raises Replaced if another process has taken over."""
    try:
        await serve_runner(listening, on_open, identity.boot)
    except Superseded as error:
        raise Replaced(str(error)) from None
