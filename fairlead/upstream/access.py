"""How to reach one API server. `kubeconfig.py` makes it, `upstream.py` uses it; nothing else needs what is inside."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Access:
    """An address, whom to trust there, and a credential that its text never shows.

    Of the two sorts of credentials either may be empty: a token, or a certificate with its key, both PEM.
    """

    host: str
    port: int
    path: str
    """What the server's URL has after the port: empty, or starting with a slash and not ending with one."""
    server_name: str
    """The name or address that its certificate must be for."""
    authority: str
    """The certificates that are trusted, PEM; empty: those that this machine trusts."""
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


# DOC-MERGED upstream/limits
# How much one connected cluster may take of us. Each has its own, so that a dead one holds up nobody else.


@dataclass(frozen=True, slots=True)
class Limits:
    requests: int = 256
    """Under way at once, watches and other streams included."""
    sockets: int = 256
    waiting: int = 256
    """Requests that wait, for `connect_seconds` at most, until another is done. The next one is turned away."""
    connect_seconds: float = 5
    head_seconds: float = 60
    """From the end of the request to the head of the answer. The body may take its time: watches do."""
    idle_seconds: float = 60
    """How long an unused connection is kept: less than the 90 seconds after which Kubernetes' own server closes it."""


# DOC-MERGED upstream/request
# A request to a cluster, before our credential is on it. Gateways and `ClusterApi` make it, `Upstream` sends it.


@dataclass(slots=True)  # not frozen: that would take several times as long to make, for every request
class Request:
    """A value. `target` is path and query, raw, below the path that the kubeconfig's server may have.

    Header values are one byte per character, as servers hand them over; whoever has other text encodes it first. The
    length of a body that is streamed is taken from `content-length`, if there is one.
    """

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | AsyncIterator[bytes] = b""
