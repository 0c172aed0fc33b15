"""The request (`Call`) and response (`Reply`) types that every pipeline stage works with.

`server/http/asgi.py` builds a `Call` from the ASGI request and sends the `Reply`. `server/api/routing.py` sets the
`RequestInfo`, the authenticators set the `User`.
"""

import contextvars
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from fairlead.core.errors import ApiError
from fairlead.core.user import User

FRONT_PROXY = "front proxy"
CLIENT = "client"
"""What a certificate is for: it says which CA has verified it."""

MANAGEMENT = "management"
"""`RequestInfo.root` of requests in the management API. It is empty for the server's other paths."""

CONSOLE = "console"
"""`RequestInfo.root` of requests for the web console, if it is enabled. Their path is the whole one."""

NAMESPACE_RESOURCE = ("", "namespaces")
"""Group and plural of namespaces. As in Kubernetes, a request for namespace n also has n as its `namespace`."""

RECHECK_SECONDS = 5.0
"""How often an open stream or WebSocket calls `Call.recheck`."""

DRY_RUN_ANNOTATION = "service.sh/dry-run"
"""Annotation of the audit event of a dry run. The URI does not say it: a delete may have its options in the body."""


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """A verified client certificate. `purpose` is FRONT_PROXY or CLIENT; `expires` is in seconds since the epoch."""

    purpose: str
    common_name: str
    organizations: tuple[str, ...]
    expires: float
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal digits."""


class Headers(Protocol):
    """Request headers. Names are in lower case."""

    def get(self, key: str, default: str = "") -> str: ...

    def get_all(self, key: str) -> list[str]: ...

    def find_single(self, name: bytes) -> bytes | None:
        """The raw value of a header that was sent exactly once; None if it was not sent, or repeated."""

    def keys(self) -> Iterable[str]: ...

    def has_prefix(self, prefix: str) -> bool:
        """Whether any header name starts with this prefix."""


RequestShape = tuple[str, str, str, str, str, bool, bool, bool]
"""Verb, group, version, resource and subresource of a request; whether it has a name, and whether a namespace; whether
the two are equal. What depends on nothing else can be cached under this key."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: building a frozen one is several times slower
class RequestInfo:
    """The parsed method and URL of a request, like Kubernetes' RequestInfo. Not modified after routing.

    `verb` is the Kubernetes verb (get, list, watch, create, update, patch, delete, deletecollection) for resource
    requests, and the method in lower case for all others. `root` is the API root of the path.

    For a request through a gateway, this is the request to the remote cluster, and `gateway` is the gateway itself:
    the cluster, space or virtual cluster. Authorizers must check both.
    """

    verb: str
    path: str = ""
    root: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    gateway: "RequestInfo | None" = None
    cached_shape: RequestShape | None = field(default=None, init=False, repr=False, compare=False)
    """Set by the router where it is known. Not copied by `replace`."""

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)

    def compute_shape(self) -> RequestShape:
        name, namespace = self.name, self.namespace
        identity = self.verb, self.group, self.version, self.resource, self.subresource
        return *identity, bool(name), bool(namespace), name == namespace


_EMPTY_REQUEST_INFO = RequestInfo("", "")


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an authorization: allow or deny, with the reason.

    `is_about_inner` applies to requests through a gateway: the decision is about the inner request, not about using the
    gateway. `is_about_scope` is set if the scope of the access key decided, and not the permissions of the user.
    """

    allowed: bool
    reason: str = ""
    is_about_inner: bool = False
    is_about_scope: bool = False


Authorize = Callable[[User, RequestInfo], Decision]
"""Decides whether a user may send a request. Implemented by `AuthorizerChain` in `authz/authorizer.py`."""


class ObjectFilter(Protocol):
    """Filters a list or watch to the objects the requester may see. Built by `authz/authorizer.py`."""

    def allows(self, entry: Any) -> bool:
        """Whether the requester may see this state of an object."""

    def generation(self) -> object:
        """A value that changes whenever any permissions change."""


class StepTimer(Protocol):
    """Measures how long a request takes, and occupies the event loop. Implemented in `server/pipeline.py`."""

    on_step: Callable[[float], None] | None
    """Called with the duration of each step when it ends."""

    def elapsed_seconds(self) -> float:
        """The time since the request was received."""

    def busy_seconds(self) -> float:
        """The total duration of all steps so far."""


class _NoStepTimer:
    """The timer of calls that do not run in a pipeline."""

    on_step: Callable[[float], None] | None = None

    def elapsed_seconds(self) -> float:
        return 0.0

    def busy_seconds(self) -> float:
        return 0.0


class AccessGuard(Protocol):
    """Authorizes a call again after it was admitted. Both methods raise if access is denied."""

    def require(self, call: "Call", target: RequestInfo) -> None:
        """Check that the requester has an additional permission."""

    def recheck(self, call: "Call") -> None:
        """Check that the request would still be admitted."""


class _NoGuard:
    """The guard of calls that need no authorization."""

    def require(self, call: "Call", target: RequestInfo) -> None:
        return None

    def recheck(self, call: "Call") -> None:
        return None


_NO_GUARD = _NoGuard()
_NO_STEP_TIMER = _NoStepTimer()


class WebSocket(Protocol):
    """An accepted WebSocket. The receiver of the object must close it."""

    async def receive(self) -> bytes | str | None:
        """The next message; None when the peer has closed or disconnected."""

    async def send(self, message: bytes | str) -> None:
        """Returns when there is room for more. A disconnected peer is not an error here; `receive` reports it."""

    async def close(self, code: int, reason: str) -> None:
        """Close with a WebSocket status code, such as 1000, and a short reason."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Switches the connection to a WebSocket: the negotiated subprotocol, if any, and the coroutine that serves it."""

    subprotocol: str
    run: Callable[[WebSocket], Awaitable[None]]


class BodyCapture:
    """Keeps a reference to the request body once a handler reads it. Does not copy it.

    The call refers to this object, so it must not refer to the call: a cycle would live until the next collection.
    """

    __slots__ = ("_read_body", "data")

    def __init__(self, read_body: Callable[[], Awaitable[bytes]]) -> None:
        self._read_body = read_body
        self.data: bytes | None = None

    async def read(self) -> bytes:
        self.data = await self._read_body()
        return self.data


async def empty_stream() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


class Call(Struct, eq=False, weakref=True):  # several times faster to build than a dataclass
    """One request.

    The handler reads the body once, or streams it if it only forwards the body. `decision` is the authorization
    decision. `object_filter` is set when a list or watch must be filtered to what the requester may see.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Headers
    read_body: Callable[[], Awaitable[bytes]]
    client: str = ""
    """The peer of the connection, as `address:port`. Behind a proxy, that is the proxy; see `source`."""
    audit_id: str = ""
    raw_target: str = ""
    """Path and query exactly as the client sent them, for forwarding."""
    stream_body: Callable[[], AsyncIterator[bytes]] = empty_stream
    """The body in chunks, with back pressure. Raises BadRequest if the client breaks off."""
    is_websocket: bool = False
    """Whether the client requests a WebSocket upgrade."""
    subprotocols: tuple[str, ...] = ()
    """The WebSocket subprotocols that the client offers, most preferred first."""
    target: RequestInfo = _EMPTY_REQUEST_INFO
    user: User | None = None
    deferred_error: ApiError | None = None
    """A routing or authentication error. A later stage raises it, after the stages that must see every request."""
    warnings: list[str] = []
    annotations: dict[str, str] = {}
    """Additional annotations for the audit event of this request."""
    decision: Decision | None = None
    object_filter: ObjectFilter | None = None
    guard: AccessGuard = _NO_GUARD
    body_size: int = 0
    """Size of the body in bytes, once it has been read completely."""
    malformed_reason: str = ""
    """Why the HTTP request itself is invalid. It is rejected before authentication."""
    step_timer: StepTimer = _NO_STEP_TIMER
    seconds: float = 0.0
    """From the arrival of the request to its reply: set once there is one, before the stages after the handler."""
    received_at: datetime | None = None
    """When the audit log has seen the request first; None if it is not audited."""
    body_capture: BodyCapture | None = None
    """Set if the audit policy records request bodies."""
    permit: object = None
    """Set by flow control (`server/flow/stage.py`) when the request is admitted."""
    body_reservation: object = None
    """The memory that `server/http/unsent.py` has reserved for a large body."""
    forwarded_for: str = ""
    """The client behind trusted proxies, as `address:0`; empty if the connection does not come from one."""
    proxies: tuple[str, ...] = ()
    """The addresses of these proxies, nearest to the client first."""
    peer: TlsPeer | None = None
    """The client certificate of the connection, if there is one."""
    hides_owners: bool = False
    """Whether PartialObjectMetadata has neither owners nor finalizers: the request is from another API server, whose
    garbage collector must not act on them."""

    @property
    def source(self) -> str:
        """The client, as far as that is known: for audit, throttling and fairness, never to decide about access."""
        return self.forwarded_for or self.client

    def defer_error(self, error: ApiError) -> None:
        """Record an error to be returned later, unless one is recorded already.

        The traceback is dropped: it would keep this call in memory until the next garbage collection.
        """
        if self.deferred_error is None:
            self.deferred_error = error.with_traceback(None)

    def pop_deferred_error(self) -> ApiError:
        """Remove and return the deferred error, to be raised. Keeping it would create a reference cycle through its
        traceback."""
        failure, self.deferred_error = self.deferred_error, None
        return failure or ApiError("there is nothing wrong")

    def parameter(self, name: str) -> str:
        """The first value of a query parameter, or an empty string."""
        values = self.query.get(name)
        return values[0] if values else ""

    def require(self, target: RequestInfo) -> None:
        """Require an additional permission. Raises the error to return if the requester does not have it."""
        self.guard.require(self, target)

    def recheck(self) -> None:
        """Authorize the call again. Raises the error to return if access was revoked."""
        self.guard.recheck(self)


class Reply(Struct, eq=False):
    """A response: status, headers, and either complete bytes or a stream of them.

    If the stream raises, the connection is aborted so that the client notices. With `upgrade`, the status is 101.

    A handler that needs to wait returns an awaitable of a Reply. A Reply is itself awaitable and completes
    immediately, so callers can await either.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = []
    stream: AsyncIterator[bytes] | None = None
    cacheable: bool = False
    """Whether the handler sets the caching headers itself. All other responses are marked as private and not
    cacheable."""
    is_relayed: bool = False
    """Whether the response is that of another server, for its own origin: it gets no headers of this one."""
    upgrade: Upgrade | None = None
    memory_reservation: object = None
    """The memory reservation that `server/http/unsent.py` keeps until the client has read the response."""
    on_chunk: tuple[Callable[[bytes], None], ...] = ()
    """Called with each chunk of the stream before it is sent."""
    on_close: tuple[Callable[[], None], ...] = ()
    """Called once the response was sent, the stream or WebSocket has ended, or the client has disconnected."""

    def __await__(self) -> "Generator[None, None, Reply]":
        yield from ()
        return self


Handler = Callable[[Call], Awaitable[Reply]]
"""Serves requests. What it raises becomes an error response."""


_current_call: contextvars.ContextVar["weakref.ref[Call] | None"] = contextvars.ContextVar("CALL", default=None)
"""A weak reference: tasks that a request starts may outlive it, and must not keep it in memory."""


def set_current_call(call: Call) -> None:
    """Makes this the call that work in the current context is for."""
    _current_call.set(weakref.ref(call))


def current_call() -> Call | None:
    """The call that work in the current context is for; None for the server's own work."""
    reference = _current_call.get()
    return None if reference is None else reference()
