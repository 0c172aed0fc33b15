"""The server's URL in a kubeconfig, taken apart with suspicion; `kubeconfig.py` calls this."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fairlead.core.addresses import check_host_name

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_HINT = "it must look like https://cluster.example.com:6443"


@dataclass(frozen=True, slots=True)
class ServerUrl:
    host: str
    port: int
    path: str


NOWHERE = ServerUrl("", 0, "")


def server_url(value: Any) -> tuple[ServerUrl, str | None]:
    """The parts that count, or what is wrong. What people may not have meant is refused rather than read somehow."""
    if not isinstance(value, str) or not value:
        return NOWHERE, f"cluster: server is missing; {_HINT}"
    if not value.isascii() or any(character <= " " or character in "\\\x7f" for character in value):
        return NOWHERE, f"cluster: server has characters that no address has; {_HINT}"
    try:
        parts = urlsplit(value)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return NOWHERE, f"cluster: server is no address; {_HINT}"
    if problem := _problem(value, host, port):
        return NOWHERE, f"cluster: {problem}; {_HINT}"
    return ServerUrl(host, port or 443, parts.path.rstrip("/")), None


def _problem(value: str, host: str, port: int | None) -> str | None:
    parts = urlsplit(value)
    if parts.scheme != "https":
        return "server must be reached over https"
    if "@" in parts.netloc:
        return "server has a user name or password in it, which belong into the user's entry"
    if "?" in value or "#" in value:
        return "server has a query or a fragment"
    # A zone (`%eth0`) is a way around within this machine, and no part of any address that others know.
    if any(sign in host for sign in "*%") or check_host_name(host) is not None:
        return "server has no usable host"
    if port == 0 or parts.netloc.endswith(":"):
        return "server has no usable port"
    if not _PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        return "server has a path with unusual characters or dots for steps"
    return None
