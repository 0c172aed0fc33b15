"""A request on its way through the stages, and the reply that comes back.

`server/http/asgi.py` makes a Call out of whatever the HTTP server hands over and sends the Reply; everything between knows
these two only. `server/api/routing.py` fills in the Target, the authenticators the User.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from fairlead.core.errors import ApiError
from fairlead.core.user import User

MANAGEMENT = "management"
"""The root of Targets in the management API. The platform's own paths have an empty one."""

NAMESPACES = ("", "namespaces")
"""The one resource whose objects are places themselves: a request for namespace n has n as its namespace, too."""


class Headers(Protocol):
    """Request headers; names in lower case."""

    def get(self, key: str, default: str = "") -> str: ...

    def get_all(self, key: str) -> list[str]: ...

    def keys(self) -> Iterable[str]: ...

    def any_begins(self, prefix: str) -> bool:
        """Whether there is a header whose name begins so."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that would take several times as long to make, for every request
class Target:
    """What is being asked: the URL and the method, parsed once. A value: whoever wants another one makes it.

    `verb` is Kubernetes' (get, list, watch, create, update, patch, delete, deletecollection) for resources, and the
    lower case method for everything else. `root` says which API root the path hung under.

    Behind a gateway it is what is being asked of the cluster there, and `via` is the entrance: which cluster, space or
    virtual cluster. Whoever decides about such a Target must look at both.
    """

    verb: str
    path: str
    root: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    via: "Target | None" = None

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)


_NOTHING_YET = Target("", "")


class Verdict(Protocol):
    """Whether somebody may do something, and why."""

    @property
    def allowed(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class Sieve(Protocol):
    """What the asker sees of a list or watch that is not all for him. `authz/authorizer.py` makes it."""

    def sees(self, entry: Any) -> bool:
        """Whether this state of an object is for him."""

    def generation(self) -> object:
        """Another value whenever anybody's permissions have changed."""


class StepTimer(Protocol):
    """How long a request has kept the event loop busy. `server/http/step_timer.py` makes it."""

    spend: Callable[[float], None] | None
    """Called with the seconds of each step as it ends."""

    def seconds(self) -> float:
        """What all steps took so far."""


class Keeper(Protocol):
    """Whoever has let a call in, and can be asked again. Both raise."""

    def require(self, call: "Call", target: Target) -> None:
        """That the asker has a further right."""

    def recheck(self, call: "Call") -> None:
        """That what the call was let in for still holds."""


class _Unguarded:
    """Nothing is asked of a call that nobody had to let in."""

    def require(self, call: "Call", target: Target) -> None:
        return None

    def recheck(self, call: "Call") -> None:
        return None


_UNGUARDED = _Unguarded()


class Socket(Protocol):
    """A WebSocket that has been accepted. Whoever was handed it closes it."""

    async def receive(self) -> bytes | str | None:
        """The next message; None when the other side has closed, or is gone."""

    async def send(self, message: bytes | str) -> None:
        """Returns when there is room for more. A side that is gone is no error here: `receive` tells it."""

    async def close(self, code: int, reason: str) -> None:
        """Says goodbye with one of WebSocket's codes, such as 1000, and a short reason."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A Reply that goes on as a WebSocket: the subprotocol that was agreed on, if any, and what happens then."""

    protocol: str
    run: Callable[[Socket], Awaitable[None]]


async def _no_body() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


class Call(Struct, eq=False):  # a Struct is made several times as quickly as a dataclass, and every request is one
    """One request. The body is read once, by the stage that needs it, under the limit that this stage names; or it is
    streamed, by whoever hands it on without looking.

    `decision` is why the request was let through or refused. `sieve` is set when a list or watch is to be cut down to
    what the asker may get.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Headers
    read_body: Callable[[], Awaitable[bytes]]
    client: str = ""
    audit_id: str = ""
    raw_target: str = ""
    """Path and query as they were sent, for whoever hands them on."""
    stream_body: Callable[[], AsyncIterator[bytes]] = _no_body
    """The body chunk by chunk, as fast as it is taken. Raises BadRequest where it breaks off."""
    wants_socket: bool = False
    """Whether the client asks to go on as a WebSocket."""
    protocols: tuple[str, ...] = ()
    """The subprotocols of a WebSocket that the client offers, the best first."""
    target: Target = _NOTHING_YET
    user: User | None = None
    failure: ApiError | None = None
    """What is wrong with the request as far as it was looked at. It is answered once it is the request's turn."""
    warnings: list[str] = []
    annotations: dict[str, str] = {}
    """What the audit log is to say of this request beside what it says of every one."""
    decision: Verdict | None = None
    sieve: Sieve | None = None
    keeper: Keeper = _UNGUARDED
    body_size: int = 0
    """Bytes of the body, once it has been read whole."""
    fault: str = ""
    """What is wrong with the request itself, whoever asks: it is refused before anything else is looked at."""
    steps: StepTimer | None = None
    """Times what this request does on the event loop, once it is known not to be answered at once."""

    def defer(self, failure: ApiError) -> None:
        """Keeps what is wrong for later, if nothing was wrong before. Where it was found does not matter, and would
        keep this call in memory until the garbage collector comes by."""
        if self.failure is None:
            self.failure = failure.with_traceback(None)

    def take_failure(self) -> ApiError:
        """What is wrong, to be raised. The call lets go of it: errors hold what they were raised in."""
        failure, self.failure = self.failure, None
        return failure or ApiError("there is nothing wrong")

    def parameter(self, name: str) -> str:
        """The first value of a query parameter, or an empty string."""
        values = self.query.get(name)
        return values[0] if values else ""

    def require(self, target: Target) -> None:
        """Asks for a further right. Raises what the asker is answered who does not have it."""
        self.keeper.require(self, target)

    def recheck(self) -> None:
        """Asks whether all of this still holds. Raises what the asker is told if not."""
        self.keeper.recheck(self)


class Reply(Struct, eq=False):
    """An answer: a status, headers, and either finished bytes or a stream of them.

    A stream that raises was broken off: the client is made to notice. With `upgrade`, the status is 101.

    Whoever answers later returns something to await. A Reply itself can be awaited, too, and is there at once: so
    nobody has to care, and whoever is in a hurry looks whether it is one already.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = []
    stream: AsyncIterator[bytes] | None = None
    cacheable: bool = False
    """The headers say how long it may be kept; everything else is for the asker alone, and only now."""
    upgrade: Upgrade | None = None
    holding: object = None
    """What `server/http/unsent.py` holds for an answer until its client has read it. It goes with the reply."""

    def __await__(self) -> "Generator[None, None, Reply]":
        yield from ()
        return self
