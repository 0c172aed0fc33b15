"""The host names of ports: `PORT--WORKSPACE--PROJECT`, below the domain that the setting `workspace_domain` names.

One label, because a wildcard certificate covers one. So names that contain `--` or a dot, or are too long together,
have no host name.

A program is never served there, but at a host name that ends with a mark of the workspace's uid besides. What a
workspace leaves in browsers, such as a service worker, which sees all requests to its origin, is not there for a later
workspace of the same name. Nothing but another origin keeps the one from the other.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from fairlead.core.errors import BadRequest

MAX_LABEL_CHARS = 63
_NAME = r"[a-z0-9](?:-?[a-z0-9])*"
MARK_CHARS = 8
_MARK = rf"[a-z2-7]{{{MARK_CHARS}}}"
_LABEL = re.compile(rf"([1-9][0-9]{{0,4}})--({_NAME})--({_NAME})(?:--({_MARK}))?")
MAX_NAMES_CHARS = MAX_LABEL_CHARS - len("--") - MARK_CHARS
"""Of the label without the mark."""
MAX_HOST_CHARS = 300


@dataclass(frozen=True, slots=True)
class PortAddress:
    """A port of a workspace. Without a mark, of the workspace that has this name now."""

    port: int
    workspace: str
    project: str
    mark: str = ""

    @property
    def names(self) -> str:
        return f"{self.port}--{self.workspace}--{self.project}"

    @property
    def label(self) -> str:
        return f"{self.names}--{self.mark}" if self.mark else self.names


def mark_of(uid: str) -> str:
    """The mark of the workspace with this uid."""
    return base64.b32encode(hashlib.sha256(uid.encode()).digest()).decode().lower()[:MARK_CHARS]


class PortHosts:
    """`domain` is empty if ports have no host names. `base_url` is that of the server: the port is the same."""

    def __init__(self, domain: str, base_url: str) -> None:
        port = urlsplit(base_url).port
        self.domain = domain
        self._suffix = f".{domain}"
        self._port = f":{port}" if port and port != 443 else ""

    def covers(self, host: str) -> bool:
        """Whether a Host header names the domain or a host in it. Such a request never reaches the API."""
        if not self.domain:
            return False
        name = _host_name(host)
        return name == self.domain or name.endswith(self._suffix)

    def parse(self, host: str) -> PortAddress | None:
        name = _host_name(host)
        label = name.removesuffix(self._suffix)
        found = _LABEL.fullmatch(label) if label != name else None
        if found is None or int(found[1]) > 65535:
            return None
        address = PortAddress(int(found[1]), found[2], found[3], found[4] or "")
        return address if len(address.names) <= MAX_NAMES_CHARS else None

    def origin(self, address: PortAddress) -> str:
        """The origin of a port in a browser. Raises BadRequest if it has none."""
        forward = (
            f"use `fairlead workspace port-forward {address.workspace} {address.port} --project {address.project}`"
        )
        if not self.domain:
            raise BadRequest(f"ports have no host names here: the server has no workspace_domain; {forward}")
        if not 0 < address.port < 65536:
            raise BadRequest("port: must be a number from 1 to 65535")
        if not _LABEL.fullmatch(address.label) or len(address.names) > MAX_NAMES_CHARS:
            why = f"may have {MAX_NAMES_CHARS} characters, and -- only between its parts"
            raise BadRequest(f'the host name "{address.names}" is not possible: it {why}; {forward}')
        return f"https://{address.label}{self._suffix}{self._port}"


def _host_name(host: str) -> str:
    """A Host header without the port, in lower case. A final dot means the same host."""
    return host[:MAX_HOST_CHARS].partition(":")[0].rstrip(".").lower()
