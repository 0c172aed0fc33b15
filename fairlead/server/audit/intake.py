"""Selects the audit log of each request, and writes summaries for requests over their quota.

    authenticated    requests of signed-in users. Every write that may have taken effect is recorded, without a quota
    unauthenticated  failed authentication and logins, public documents. Quota by source address
    agents           events that cluster agents report (`agent_reports.py`). Quota by cluster

Each log has its own queue and files, so a flood of unauthenticated requests can only displace its own kind. Rejected
requests and reads of signed-in users have a quota by user. Requests over a quota are counted, and summarized once a
minute. A summary is an ordinary audit event: `requestURI`, `verb` and code are those of the most frequent request, and
annotations say how many requests it stands for. `stage.py` calls this for every request, so it must be fast.
"""

import ipaddress
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from fairlead.core.call import Call, Target
from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.objects import Object
from fairlead.registry.catalog import Catalog
from fairlead.server.audit.events import Exchange, line, verb_of
from fairlead.server.audit.log_writer import Trail
from fairlead.server.audit.policy import COMPLETE, LEVELS, METADATA
from fairlead.server.audit.quotas import OTHERS, Allowance, Quota, Tally
from fairlead.server.audit.redaction import LOGIN, Credentials, address, request_uri, shown

COUNT, OF, SOURCES, SAMPLES = (
    "service.sh/summary-count",
    "service.sh/summary-of",
    "service.sh/summary-sources",
    "service.sh/summary-requests",
)
"""Annotations of a summary: number of requests, their category, number of sources, and samples of the requests."""


def summarize(tally: Tally, sort: str, *, is_address: bool) -> bytes:
    """The summary event of one source's requests over the quota. `category` says which requests were counted."""
    frequent = sorted(tally.samples.items(), key=lambda sample: sample[1], reverse=True)
    (verb, code, path), _ = frequent[0] if frequent else (("unknown", 0, ""), 0)
    is_named = tally.source != OTHERS
    annotations = {COUNT: str(tally.suppressed), OF: sort, SOURCES: str(max(tally.sources, 1))}
    annotations[SAMPLES] = "; ".join(
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
        "user": {"username": shown(tally.source)} if is_named and not is_address else {},
        "sourceIPs": [tally.source] if is_named and is_address else [],
        "requestReceivedTimestamp": _moment(tally.first),
        "stageTimestamp": _moment(tally.last),
        "annotations": annotations,
        "responseStatus": {"metadata": {}, "code": code},
    }
    return line(event)


def _moment(moment: datetime | None) -> str:
    return micro_timestamp(moment or datetime.now(UTC))


READS = frozenset({"get", "list", "watch", "head", "options"})
GIVEN_UP = 0
"""Used as the status code of a request that was aborted before its response."""

UNAUTHENTICATED, LOGINS, REFUSED, READ, CREDENTIALS = "unauthenticated", "logins", "refused", "reads", "credentials"


@dataclass(frozen=True, slots=True)
class Allowances:
    """Events per minute of one user or address that are recorded one by one; 0 for no limit.

    All users together, and all addresses together, have a multiple of it.
    """

    refused: int = 120
    reads: int = 6_000

    def of_refused(self) -> Allowance:
        return Allowance(self.refused, 20 * self.refused)

    def of_reads(self) -> Allowance:
        return Allowance(self.reads, 10 * self.reads)


READS_OF_CREDENTIAL = Allowance(10, 0, shares=False)
"""Per user and object, after the quota for reads is used up: a flood of reads must not hide reads of credentials."""


@dataclass(frozen=True, slots=True)
class Logs:
    """The log writers. `unauthenticated` may be the same as `authenticated`."""

    people: Trail
    unauthenticated: Trail
    agents: Trail
    allowances: Allowances = field(default_factory=Allowances)

    @classmethod
    def single(cls, trail: Trail) -> "Logs":
        """One writer for all logs."""
        return cls(trail, trail, trail)

    @property
    def trails(self) -> tuple[Trail, ...]:
        return tuple(dict.fromkeys((self.people, self.unauthenticated, self.agents)))


class Intake:
    def __init__(self, logs: Logs, catalog: Catalog, clock: Clock, credentials: Credentials) -> None:
        self._people, self._unauthenticated = logs.people, logs.unauthenticated
        self._catalog = catalog
        self._credentials = credentials
        allowances = logs.allowances

        def quota(category: str, limit: Allowance, writer: Trail, *, is_address: bool = False) -> Quota:
            return Quota(limit, clock, _writer(writer, category, is_address))

        rejected, unauthenticated = allowances.of_refused(), logs.unauthenticated
        self._by_address = quota(UNAUTHENTICATED, rejected, unauthenticated, is_address=True)
        # A quota of their own, so that a flood of other requests does not hide password guessing.
        self._logins = quota(LOGINS, rejected, unauthenticated, is_address=True)
        self._refused = quota(REFUSED, rejected, logs.people)
        self._reads = quota(READ, allowances.of_reads(), logs.people)
        self._objects = quota(CREDENTIALS, READS_OF_CREDENTIAL, logs.people)
        self._quotas = {
            UNAUTHENTICATED: self._by_address,
            LOGINS: self._logins,
            REFUSED: self._refused,
            READ: self._reads,
            CREDENTIALS: self._objects,
        }

    def admit(self, exchange: Exchange, code: int) -> Trail | None:
        """The log for a request that got the status `code`. None if it is over a quota: then it has been counted."""
        call = exchange.call
        user = call.user
        if user is None:
            return self._admit_unauthenticated(call, code)
        name = (user.impersonator or user).name
        target = call.target
        if (400 <= code < 500 and not self._may_be_done_in_part(call)) or (code >= 500 and target.verb in READS):
            quota = self._refused
        elif target.verb in READS or self._changes_nothing(call):
            quota = self._reads
        else:
            return self._people  # the write took effect, or may have
        if quota.admits(name):
            return self._people
        if quota is self._reads and self._credentials.concern(target):
            quota, name = self._objects, f"{name} {_place(target)}"
            if quota.admits(name):
                return self._people
        quota.count(name, verb_of(call), code, call.path)
        return None

    def announces(self, call: Call) -> bool:
        """Whether to write RequestReceived for a request that has no response yet."""
        user = call.user
        if user is None or call.target.verb not in READS:
            return True
        return self._reads.has_room((user.impersonator or user).name) or self._credentials.concern(call.target)

    def flush(self) -> None:
        """Writes the summaries of the requests counted so far."""
        for quota in self._quotas.values():
            quota.flush()

    @property
    def suppressed(self) -> Mapping[str, int]:
        """Requests over a quota by category: counted in a summary instead of recorded."""
        return {category: quota.suppressed for category, quota in self._quotas.items()}

    def _admit_unauthenticated(self, call: Call, code: int) -> Trail | None:
        quota = self._logins if call.path.startswith(LOGIN) else self._by_address
        source = source_of(address(call.client))
        # Does not wait for space in the queue: if this log is stuck, only signed-in users may wait for theirs.
        if not self._unauthenticated.is_full and quota.admits(source):
            return self._unauthenticated
        quota.count(source, verb_of(call), code, call.path)
        return None

    def _may_be_done_in_part(self, call: Call) -> bool:
        """Whether a deletecollection may have deleted some objects before it failed."""
        if call.target.verb != "deletecollection" or self._changes_nothing(call):
            return False
        return call.sieve is not None or (call.decision is not None and call.decision.allowed)

    def _changes_nothing(self, call: Call) -> bool:
        """Whether a write stores nothing: a dry run, or a review, which is a create that is only answered."""
        target = call.target
        if target.via is not None or not target.resource:
            return False  # the effect on a remote cluster is unknown, and non-resource paths have no dry run
        return (bool(call.query) and call.query.get("dryRun") == ["All"]) or self._is_question(target)

    def _is_question(self, target: Target) -> bool:
        kind = self._catalog.find(target.group, target.version, target.resource) if target.resource else None
        if kind is None or self._credentials.concern(target):
            return False
        if not target.subresource:
            return not kind.stored
        return target.subresource == "agentreport"


def _place(target: Target) -> str:
    """A canonical key for the request's target; one target can have many paths."""
    through = f"{_place(target.via)} " if target.via is not None else ""
    parts = target.verb, target.group, target.resource, target.namespace, target.name, target.subresource
    return f"{through}{'/'.join(parts)}" if target.resource else f"{through}{target.verb} {target.path}"


@lru_cache(maxsize=4_096)
def source_of(host: str) -> str:
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


def _writer(trail: Trail, sort: str, is_address: bool) -> Callable[[list[Tally]], bool]:
    def write(counters: list[Tally]) -> bool:
        if trail.is_full:
            return False
        for counter in counters:
            trail.add(summarize(counter, sort, is_address=is_address))
        return True

    return write
