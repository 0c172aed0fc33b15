"""The fast path of reads: a GET of one stored object by a client whose headers are known.

Clients send the same headers with nearly every read. What they say is a function of their bytes alone, so it is kept
under a keyed hash of them. Everything else is decided for each request, by what the stages of the pipeline call as
well: who holds the access key (`authn/access_keys.py`), whether flow control admits the request, whether the user may
read the object, and the object itself. So a change takes effect with the next request here, too. Audit log, metrics,
flow control and the last use of the key see the request as ever.

Only what usually happens is here. For all else, `answer` returns None before anything has an effect, and the pipeline
serves the request: if something has to wait, is rejected, must be converted, or came by another way than a
connection of its own with an access key.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from msgspec import Struct

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Authorize, Call, Reply, RequestInfo
from fairlead.core.user import User
from fairlead.server.api.content import PLAIN_JSON, is_pretty_agent
from fairlead.server.api.verbs import Verbs
from fairlead.server.audit.stage import AuditStage
from fairlead.server.auth.impersonation import HEADER_PREFIX
from fairlead.server.flow.classify import Lane
from fairlead.server.flow.stage import FlowStage
from fairlead.server.http.asgi import next_audit_id, read_no_body
from fairlead.server.http.origins import Origins, format_address
from fairlead.server.http.request import MAX_HEADER_BYTES, HeaderPairs, RequestHeaders, count_header_bytes
from fairlead.server.http.unsent import MAX_SMALL_BYTES, ClientMemoryLimiter
from fairlead.server.metrics.stage import RequestMetrics
from fairlead.server.pipeline import MIN_REPORTED_SECONDS

MAX_KNOWN_CLIENTS = 4_096
MAX_KNOWN_BYTES, MAX_KNOWN_HEADERS = 4 * 1024, 32
"""Of the headers of one request. Others are left to the pipeline."""
KEYS_ELSEWHERE = (b"cookie", b"proxy-authorization")
"""Headers with credentials that are not for the fast path, and must not be kept."""
HASH_BYTES = 16
NO_QUERY: Mapping[str, list[str]] = {}


class KnownTokens(Protocol):
    """The bearer tokens that were authenticated before. Implemented in `authn/access_keys.py`."""

    def mark_header(self, header: bytes) -> bytes:
        """What `find_marked` finds an Authorization header under; empty if it is too large."""

    def find_marked(self, mark: bytes) -> User | None:
        """The user of the header; None if the token has to be checked again."""


class KnownHeaders(Struct, eq=False, frozen=True):
    """What the headers of a GET say, without the credential: `token_mark` finds its user (`authn/access_keys.py`). It
    is empty if the fast path does not serve such requests."""

    headers: RequestHeaders
    size: int
    token_mark: bytes


NOT_SERVED = KnownHeaders(RequestHeaders([]), 0, b"")


@dataclass(frozen=True, slots=True)
class FastReadServices:
    """What the stages of the pipeline use, see `server/pipeline.py`. `route` parses method and path. `is_other_host`
    says whether a Host header names an origin with a pipeline of its own."""

    tokens: KnownTokens
    on_authenticated: Callable[[User], None]
    authorize: Authorize
    route: Callable[[str, str, Mapping[str, list[str]]], RequestInfo]
    is_other_host: Callable[[str], bool]
    verbs: Verbs
    flow: FlowStage
    memory: ClientMemoryLimiter
    audit: AuditStage | None
    custom_headers: Callable[[], Mapping[str, str]]
    metrics: RequestMetrics
    on_slow_step: Callable[[Call, float], None]


class FastReads:
    """Answers reads that need nothing but what is in memory."""

    def __init__(self, services: FastReadServices, origins: Origins) -> None:
        self._services = services
        self._origins = origins
        self._known: BoundedCache[bytes, KnownHeaders] = BoundedCache(MAX_KNOWN_CLIENTS)
        secret = secrets.token_bytes(HASH_BYTES)
        self._hash = hashlib.blake2b(key=secret, digest_size=HASH_BYTES, person=b"headers")

    def answer(self, scope: dict[str, Any]) -> tuple[Call, Reply] | None:
        """The answer to a GET without a query; None if the pipeline has to serve it."""
        started = perf_counter()
        services, (host, port) = self._services, scope["client"]
        if not host or host.startswith("/") or host in self._origins.connections:
            return None  # a port with client certificates, or a client that has disconnected
        known, user = self._find_client(scope["headers"])
        raw_target = scope["raw_path"].decode("latin-1")
        if user is None or known.size + len(raw_target) > MAX_HEADER_BYTES or not self._is_undisturbed():
            return None
        lane = services.flow.find_free_lane(user)
        if lane is None:
            return None
        path = scope["path"]
        try:
            target = services.route("GET", path, {})
            if not services.verbs.is_plain_get(target):
                return None
            decision = services.authorize(user, target)
            # Last, and without an await since the token was looked up: it says that the view is current. So each change
            # that was acknowledged before, in any worker, was seen by the authentication and the authorization as well.
            body = services.verbs.read_stored(target) if decision.allowed else None
        except Exception:  # noqa: BLE001 - the pipeline finds it again, and renders it
            body = None
        if body is None or len(body) > MAX_SMALL_BYTES:
            services.flow.charge_attempt(lane, perf_counter() - started)
            return None
        call = Call(
            "GET",
            path,
            NO_QUERY,
            known.headers,
            read_no_body,
            format_address(host, port),
            next_audit_id(),
            raw_target,
            target=target,
            user=user,
            decision=decision,
        )
        self._origins.describe(call, known.headers, host, None)
        reply = Reply(200, body)
        services.on_authenticated(user)
        self._record(call, reply, lane, started)
        return call, reply

    def _is_undisturbed(self) -> bool:
        """Whether no client has to wait for memory, no request for the audit log, and responses have no own headers."""
        services, audit = self._services, self._services.audit
        if services.memory.has_reservations or services.custom_headers():
            return False
        return audit is None or audit.is_ready

    def _record(self, call: Call, reply: Reply, lane: Lane, started: float) -> None:
        services, audit = self._services, self._services.audit
        if audit is not None:
            audit.begin(call)
        call.seconds = perf_counter() - started
        if audit is not None:
            audit.record(call, reply)
        services.metrics.record(call, reply)
        seconds = perf_counter() - started
        services.flow.charge_read(lane, seconds)
        if seconds > MIN_REPORTED_SECONDS:
            services.on_slow_step(call, seconds)

    def _find_client(self, pairs: HeaderPairs) -> tuple[KnownHeaders, User | None]:
        """What the headers say, and their user; no user if the fast path does not serve them. Kept are headers of known
        users only: anonymous clients could fill the memory with theirs."""
        # Neither names nor values contain line breaks, so different headers never have the same text.
        text = b"\n".join([part for pair in pairs for part in pair])
        if len(text) > MAX_KNOWN_BYTES or len(pairs) > MAX_KNOWN_HEADERS:
            return NOT_SERVED, None
        state = self._hash.copy()
        state.update(text)
        mark = state.digest()
        known = self._known.get(mark)
        if known is not None:
            return known, self._find_user(known)
        known = self._read_headers(pairs)
        user = self._find_user(known)
        if user is not None or known is NOT_SERVED:
            self._known[mark] = known
        return known, user

    def _find_user(self, known: KnownHeaders) -> User | None:
        return self._services.tokens.find_marked(known.token_mark) if known.token_mark else None

    def _read_headers(self, pairs: HeaderPairs) -> KnownHeaders:
        headers = self._origins.filter.clean(RequestHeaders(pairs))
        authorization = headers.find_single(b"authorization")
        is_plain = (
            authorization is not None
            and headers.get("host")
            and not headers.find_ambiguity("GET", "/", "1.1")
            and not headers.has_body
            and not headers.has_prefix(HEADER_PREFIX)
            and not any(name in KEYS_ELSEWHERE for name, _ in headers.pairs)
            and headers.get("accept") in PLAIN_JSON
            and not is_pretty_agent(headers.get("user-agent"))
            and not self._services.is_other_host(headers.get("host"))
        )
        mark = self._services.tokens.mark_header(authorization) if authorization is not None and is_plain else b""
        if not mark:
            return NOT_SERVED
        without_key = RequestHeaders([pair for pair in headers.pairs if pair[0] != b"authorization"])
        return KnownHeaders(without_key, count_header_bytes(pairs), mark)
