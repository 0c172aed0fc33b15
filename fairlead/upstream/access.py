"""The values an `Upstream` works with: the endpoint of an API server, its limits, and a request to it.

`kubeconfig.py` builds the endpoint. The gateways and `KubeClient` build requests, and `Upstream` sends them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from fairlead import __version__
from fairlead.core.validators import format_host

CONTROLLER_AGENT = f"fairlead/{__version__} (controller)"
"""The User-Agent of the server's own requests. Those of users have the one of their client."""


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that connects to API servers by CONNECT. The `repr` never shows its password."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """Value of the header `Proxy-Authorization`."""

    def __str__(self) -> str:
        return f"{format_host(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ClusterEndpoint:
    """Address, trusted CA and credential of one API server. The `repr` never shows the credential.

    The credential is a bearer token, or a client certificate with its key, both PEM. Either may be empty.
    """

    host: str
    port: int
    base_path: str
    """Path of the server URL: empty, or with a leading and without a trailing slash."""
    tls_server_name: str
    """DNS name or IP address that the server certificate must be valid for."""
    ca_data: str
    """Trusted CA certificates, PEM. Empty: the system's CA certificates."""
    token: str = field(default="", repr=False)
    client_certificate: str = field(default="", repr=False)
    client_key: str = field(default="", repr=False)
    proxy: HttpProxy | None = None
    """The only way to the server, if there is one."""
    forwards_authorization: bool = False
    """Whether requests have their own `Authorization` header. Never together with a stored credential: a client
    certificate would count instead of it."""

    def without_credential(self) -> "ClusterEndpoint":
        """The same server, for requests with the credential of their user."""
        return replace(self, token="", client_certificate="", client_key="", forwards_authorization=True)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits and timeouts of one Upstream. Each cluster has its own, so a dead cluster does not block the others."""

    max_requests: int = 256
    """Maximum of concurrent requests, including watches and other streams."""
    max_websockets: int = 256
    max_queued: int = 256
    """Maximum of queued requests. A request waits for `connect_seconds` at most; beyond the maximum it is rejected."""
    connect_seconds: float = 5
    response_header_seconds: float = 60
    """Timeout from the end of the request to the response head. The body has no timeout, because of watches."""
    idle_seconds: float = 60
    """Idle timeout of pooled connections. Must be below the 90 seconds after which kube-apiserver closes them."""


@dataclass(slots=True)  # not frozen: creating a frozen dataclass is several times slower, and every request has one
class Request:
    """A request to a cluster, without the stored credential.

    `target` is the raw path and query, relative to the path of the kubeconfig's server URL. Header values hold one
    byte per character (latin-1); encode any other text first. A streamed body has the length that `content-length`
    says, or is chunked.
    """

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | AsyncIterator[bytes] = b""
    is_streaming: bool = False
    """Whether the response may be large and without a defined end: it gets a connection that others do not share. Not
    for watches, which are many and small."""
    user: str = ""
    """Whose request it is. Users take turns in the connection of an agent."""
