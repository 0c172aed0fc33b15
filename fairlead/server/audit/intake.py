"""Selects the audit log of each request, and writes summaries for requests over their quota.

    authenticated    requests of signed-in users. Every write that may have taken effect is recorded, without a quota
    unauthenticated  failed authentication and logins, public documents. Quota by source address
    agents           events that cluster agents report (`agent_reports.py`). Quota by cluster

Each log has its own queue and files, so a flood of unauthenticated requests can only displace its own kind. Rejected
requests and reads of signed-in users have a quota by user. Requests over a quota are counted, and summarized once a
minute. A summary is an ordinary audit event: `requestURI`, `verb` and code are those of the most frequent request, and
annotations say how many requests it stands for. `stage.py` calls this for every request, so it must be fast.

A flood from one source (a user, address or object) must not displace the events of others. So the first requests of
each source are recorded one by one, and the rest in one summary per minute and source: how many, when, and samples. The
number of tracked sources is limited as well, because an attacker can use more addresses than fit into memory; the
others share one counter.
"""

import asyncio
import ipaddress
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import DRY_RUN_ANNOTATION, Call, RequestInfo, RequestShape
from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.objects import Object
from fairlead.registry.kind import Catalog
from fairlead.server.audit.events import encode_line, verb_of
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import COMPLETE, LEVELS, METADATA
from fairlead.server.audit.redaction import LOGIN_PREFIX, CredentialRequests, client_ip, request_uri, sanitize

WINDOW_SECONDS = 60.0
MAX_SOURCES = 4_096
MAX_SUMMARIES = 256
"""Summaries written per window. The sources with the fewest requests are merged into one summary."""
MAX_SAMPLES = 8
MAX_SAMPLED_PATH_LENGTH = 256
OTHER_SOURCES = "(others)"
"""The source name of the shared counter. No user or address has this name."""

SampledRequest = tuple[str, int, str]
"""Verb, status code and path of a sampled request."""


class SourceCounter(msgspec.Struct, eq=False):
    """The requests of one source in the current window."""

    source: str
    recorded_count: int = 0
    suppressed_count: int = 0
    source_count: int = 1
    """More than one in a counter that several sources share."""
    first_time: datetime | None = None
    last_time: datetime | None = None
    samples: dict[SampledRequest, int] = msgspec.field(default_factory=dict)

    def add_suppressed(self, verb: str, code: int, path: str, moment: datetime) -> None:
        self.suppressed_count += 1
        self.first_time, self.last_time = self.first_time or moment, moment
        request = verb, code, path[:MAX_SAMPLED_PATH_LENGTH]
        if request in self.samples or len(self.samples) < MAX_SAMPLES:
            self.samples[request] = self.samples.get(request, 0) + 1

    def merge(self, other: "SourceCounter") -> None:
        self.suppressed_count += other.suppressed_count
        self.source_count += other.source_count
        moments = [
            each for each in (self.first_time, self.last_time, other.first_time, other.last_time) if each is not None
        ]
        self.first_time = min(moments, default=None)
        self.last_time = max(moments, default=None)
        self.samples = dict((Counter(self.samples) + Counter(other.samples)).most_common(MAX_SAMPLES))


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """Events per minute: `per_source`, and in `total` for all sources. 0 means no limit."""

    per_source: int
    total: int
    share_overflow: bool = True
    """Whether sources beyond MAX_SOURCES share one counter. Otherwise all of their events are recorded."""


class Quota:
    """A quota per source. `write` gets the counters of a finished window; it returns False if it cannot write now."""

    def __init__(self, limit: QuotaLimit, clock: Clock, write: Callable[[list[SourceCounter]], bool]) -> None:
        self._per_source, self._total, self._share_overflow = (
            limit.per_source,
            limit.total or (1 << 62),
            limit.share_overflow,
        )
        self._clock = clock
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._counters: dict[str, SourceCounter] = {}
        self._window_end = 0.0
        self._recorded_count = 0
        self.suppressed_count = 0
        """Requests since the start that were counted instead of recorded."""

    def try_acquire(self, source: str) -> bool:
        """Takes one event from the source's quota. If False, the caller must call `record_suppressed`."""
        if not self._per_source:
            return True
        if self._clock.monotonic() >= self._window_end:
            self._start_window()
        counter = self._counters.get(source)
        if counter is None:
            if not self._share_overflow and len(self._counters) >= MAX_SOURCES:
                return True
            counter = self._add_counter(source)
        if counter.recorded_count >= self._per_source or self._recorded_count >= self._total:
            return False
        counter.recorded_count += 1
        self._recorded_count += 1
        return True

    def has_capacity(self, source: str) -> bool:
        """Whether the source has quota left. Takes nothing from it."""
        if not self._per_source or self._clock.monotonic() >= self._window_end:
            return True
        counter = self._counters.get(source)
        return (counter is None or counter.recorded_count < self._per_source) and self._recorded_count < self._total

    def record_suppressed(self, source: str, verb: str, code: int, path: str) -> None:
        """Counts a request that is not recorded."""
        self.suppressed_count += 1
        counter = self._counters.get(source) or self._add_counter(source)
        counter.add_suppressed(verb, code, path, self._clock.now())
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the summaries of the requests counted so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted = [counter for counter in self._counters.values() if counter.suppressed_count]
        if counted and not self._write(list(_merge_smallest(counted))):
            # Keep the counters, and write them together with those of the next window.
            self._counters = {counter.source: counter for counter in counted}
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)
        else:
            self._counters = {}
        self._recorded_count = 0
        for counter in self._counters.values():
            counter.recorded_count = 0

    def _start_window(self) -> None:
        self.flush()
        self._window_end = self._clock.monotonic() + WINDOW_SECONDS

    def _add_counter(self, source: str) -> SourceCounter:
        if len(self._counters) >= MAX_SOURCES:
            counter = self._counters.get(OTHER_SOURCES)
            if counter is None:
                counter = self._counters[OTHER_SOURCES] = SourceCounter(OTHER_SOURCES, source_count=0)
            return counter
        counter = self._counters[source] = SourceCounter(source)
        return counter


def _merge_smallest(counters: list[SourceCounter]) -> Iterator[SourceCounter]:
    counters.sort(key=lambda counter: counter.suppressed_count, reverse=True)
    yield from counters[:MAX_SUMMARIES]
    if len(counters) > MAX_SUMMARIES:
        others = SourceCounter(OTHER_SOURCES, source_count=0)
        for counter in counters[MAX_SUMMARIES:]:
            others.merge(counter)
        yield others


SUMMARY_COUNT_ANNOTATION, SUMMARY_CATEGORY_ANNOTATION, SUMMARY_SOURCES_ANNOTATION, SUMMARY_REQUESTS_ANNOTATION = (
    "service.sh/summary-count",
    "service.sh/summary-of",
    "service.sh/summary-sources",
    "service.sh/summary-requests",
)
"""Annotations of a summary: number of requests, their category, number of sources, and samples of the requests."""


def render_summary(counter: SourceCounter, category: str, *, is_address: bool) -> bytes:
    """The summary event of one source's requests over the quota. `category` says which requests were counted."""
    frequent = sorted(counter.samples.items(), key=lambda sample: sample[1], reverse=True)
    (verb, code, path), _ = frequent[0] if frequent else (("unknown", 0, ""), 0)
    is_named = counter.source != OTHER_SOURCES
    annotations = {
        SUMMARY_COUNT_ANNOTATION: str(counter.suppressed_count),
        SUMMARY_CATEGORY_ANNOTATION: category,
        SUMMARY_SOURCES_ANNOTATION: str(max(counter.source_count, 1)),
    }
    annotations[SUMMARY_REQUESTS_ANNOTATION] = "; ".join(
        f"{times} x {verb} {request_uri(path, {}, ())} {code}" for (verb, code, path), times in frequent
    )
    event: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVELS[METADATA],
        "auditID": str(uuid.uuid4()),
        "stage": COMPLETE,
        "requestURI": request_uri(path, {}, ()),
        "verb": verb,
        "user": {"username": sanitize(counter.source)} if is_named and not is_address else {},
        "sourceIPs": [counter.source] if is_named and is_address else [],
        "requestReceivedTimestamp": _format_time(counter.first_time),
        "stageTimestamp": _format_time(counter.last_time),
        "annotations": annotations,
        "responseStatus": {"metadata": {}, "code": code},
    }
    return encode_line(event)


def _format_time(moment: datetime | None) -> str:
    return micro_timestamp(moment or datetime.now(UTC))


READ_VERBS = frozenset({"get", "list", "watch", "head", "options"})
REVIEW_CACHE_SIZE = 1_024
ABORTED_CODE = 0
"""Used as the status code of a request that was aborted before its response."""

UNAUTHENTICATED_CATEGORY, LOGINS_CATEGORY, REJECTED_CATEGORY, READS_CATEGORY, CREDENTIALS_CATEGORY = (
    "unauthenticated",
    "logins",
    "rejected",
    "reads",
    "credentials",
)


@dataclass(frozen=True, slots=True)
class AuditQuotas:
    """Events per minute of one user or address that are recorded one by one; 0 for no limit.

    All users together, and all addresses together, have a multiple of it.
    """

    rejected_per_minute: int = 120
    reads_per_minute: int = 6_000

    def rejected_limit(self) -> QuotaLimit:
        return QuotaLimit(self.rejected_per_minute, 20 * self.rejected_per_minute)

    def reads_limit(self) -> QuotaLimit:
        return QuotaLimit(self.reads_per_minute, 10 * self.reads_per_minute)


CREDENTIAL_READS_LIMIT = QuotaLimit(10, 0, share_overflow=False)
"""Per user and object, after the quota for reads is used up: a flood of reads must not hide reads of credentials."""


@dataclass(frozen=True, slots=True)
class AuditLogs:
    """The log writers. `unauthenticated` may be the same as `authenticated`."""

    authenticated: AuditLogWriter
    unauthenticated: AuditLogWriter
    agents: AuditLogWriter
    quotas: AuditQuotas = field(default_factory=AuditQuotas)

    @classmethod
    def single(cls, writer: AuditLogWriter) -> "AuditLogs":
        """One writer for all logs."""
        return cls(writer, writer, writer)

    @property
    def writers(self) -> tuple[AuditLogWriter, ...]:
        return tuple(dict.fromkeys((self.authenticated, self.unauthenticated, self.agents)))


class LogRouter:
    def __init__(self, logs: AuditLogs, catalog: Catalog, clock: Clock, credentials: CredentialRequests) -> None:
        self._authenticated, self._unauthenticated = logs.authenticated, logs.unauthenticated
        self._catalog = catalog
        self._credentials = credentials
        self._reviews: BoundedCache[RequestShape, bool] = BoundedCache(REVIEW_CACHE_SIZE)
        allowances = logs.quotas

        def quota(category: str, limit: QuotaLimit, writer: AuditLogWriter, *, is_address: bool = False) -> Quota:
            return Quota(limit, clock, _summary_writer(writer, category, is_address))

        rejected, unauthenticated = allowances.rejected_limit(), logs.unauthenticated
        self._address_quota = quota(UNAUTHENTICATED_CATEGORY, rejected, unauthenticated, is_address=True)
        # A quota of their own, so that a flood of other requests does not hide password guessing.
        self._login_quota = quota(LOGINS_CATEGORY, rejected, unauthenticated, is_address=True)
        self._rejected_quota = quota(REJECTED_CATEGORY, rejected, logs.authenticated)
        self._reads_quota = quota(READS_CATEGORY, allowances.reads_limit(), logs.authenticated)
        self._credential_quota = quota(CREDENTIALS_CATEGORY, CREDENTIAL_READS_LIMIT, logs.authenticated)
        self._quotas = {
            UNAUTHENTICATED_CATEGORY: self._address_quota,
            LOGINS_CATEGORY: self._login_quota,
            REJECTED_CATEGORY: self._rejected_quota,
            READS_CATEGORY: self._reads_quota,
            CREDENTIALS_CATEGORY: self._credential_quota,
        }

    def select_log(self, call: Call, code: int) -> AuditLogWriter | None:
        """The log for a request that got the status `code`. None if it is over a quota: then it has been counted."""
        user, target = call.user, call.target
        if user is None:
            return self._select_unauthenticated_log(call, code)
        if code >= 400 and self._is_rejected(call, code):
            quota = self._rejected_quota
        elif target.verb in READ_VERBS or self._has_no_effect(call):
            quota = self._reads_quota
        else:
            return self._authenticated  # the write took effect, or may have
        name = (user.impersonator or user).name
        if quota.try_acquire(name):
            return self._authenticated
        if quota is self._reads_quota and self._credentials.matches(target):
            quota, name = self._credential_quota, f"{name} {_target_key(target)}"
            if quota.try_acquire(name):
                return self._authenticated
        quota.record_suppressed(name, verb_of(call), code, call.path)
        return None

    def records_received(self, call: Call) -> bool:
        """Whether to write RequestReceived for a request that has no response yet."""
        user = call.user
        if user is None or call.target.verb not in READ_VERBS:
            return True
        return self._reads_quota.has_capacity((user.impersonator or user).name) or self._credentials.matches(
            call.target
        )

    def flush(self) -> None:
        """Writes the summaries of the requests counted so far."""
        for quota in self._quotas.values():
            quota.flush()

    @property
    def suppressed_counts(self) -> Mapping[str, int]:
        """Requests over a quota by category: counted in a summary instead of recorded."""
        return {category: quota.suppressed_count for category, quota in self._quotas.items()}

    def _select_unauthenticated_log(self, call: Call, code: int) -> AuditLogWriter | None:
        quota = self._login_quota if call.path.startswith(LOGIN_PREFIX) else self._address_quota
        source = source_network(client_ip(call.source))
        # Does not wait for space in the queue: if this log is stuck, only signed-in users may wait for theirs.
        if not self._unauthenticated.is_full and quota.try_acquire(source):
            return self._unauthenticated
        quota.record_suppressed(source, verb_of(call), code, call.path)
        return None

    def _is_rejected(self, call: Call, code: int) -> bool:
        """Whether an error means that the request had no effect."""
        return call.target.verb in READ_VERBS if code >= 500 else not self._may_be_partially_applied(call)

    def _may_be_partially_applied(self, call: Call) -> bool:
        """Whether a deletecollection may have deleted some objects before it failed."""
        if call.target.verb != "deletecollection" or self._has_no_effect(call):
            return False
        return call.object_filter is not None or (call.decision is not None and call.decision.allowed)

    def _has_no_effect(self, call: Call) -> bool:
        """Whether a write stores nothing: a dry run, or a review, which is a create that is only answered."""
        target = call.target
        if target.gateway is not None or not target.resource:
            return False  # the effect on a remote cluster is unknown, and non-resource paths have no dry run
        if DRY_RUN_ANNOTATION in call.annotations:
            return True
        shape = target.cached_shape or target.compute_shape()
        is_review = self._reviews.get(shape)
        if is_review is None:
            is_review = self._reviews[shape] = self._is_review(target)
        return is_review

    def _is_review(self, target: RequestInfo) -> bool:
        kind = self._catalog.find(target.group, target.version, target.resource) if target.resource else None
        if kind is None or self._credentials.matches(target):
            return False
        if not target.subresource:
            return not kind.persisted
        return target.subresource == "agentreport"


def _target_key(target: RequestInfo) -> str:
    """A canonical key for the request's target; one target can have many paths."""
    through = f"{_target_key(target.gateway)} " if target.gateway is not None else ""
    parts = target.verb, target.group, target.resource, target.namespace, target.name, target.subresource
    return f"{through}{'/'.join(parts)}" if target.resource else f"{through}{target.verb} {target.path}"


@lru_cache(maxsize=4_096)
def source_network(host: str) -> str:
    """The source that an address counts for: an IPv4 address, or the /64 of IPv6, because sites own at least a /64."""
    if ":" not in host:
        return host
    try:
        ip = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, 64), strict=False))


def _summary_writer(writer: AuditLogWriter, category: str, is_address: bool) -> Callable[[list[SourceCounter]], bool]:
    def write(counters: list[SourceCounter]) -> bool:
        if writer.is_full:
            return False
        for counter in counters:
            writer.add(render_summary(counter, category, is_address=is_address))
        return True

    return write
