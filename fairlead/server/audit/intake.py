"""Which requests are recorded whole, and into which log; the others are counted, and summed up once a minute.

    people           what signed-in users do. Every write that may have been done is recorded whole, whatever the rate
    unauthenticated  requests of nobody: refused credentials, failed logins, public documents. By source address
    agents           what the agents of clusters report (`remote_events.py`). By cluster

Each log has a queue and files of its own, so that those whom nobody has let in can only push out their like. Refusals
and reads of signed-in users have a quota by user. `stage.py` asks for every request, so most answers take one look into
a dictionary.
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

# DOC-MERGED server/audit/summaries
# Summaries of requests that were not recorded one by one, as audit events that every tool can read.
#
# A summary has the form of any other event. Its `requestURI`, `verb` and code are those of the most frequent request, and
# its annotations say how many it stands for. `intake.py` has them written.


COUNT, OF, SOURCES, SAMPLES = (
    "service.sh/summary-count",
    "service.sh/summary-of",
    "service.sh/summary-sources",
    "service.sh/summary-requests",
)
"""How many requests a summary stands for, of which sort they were, of how many sources, and what was asked for."""


def summarize(tally: Tally, sort: str, *, is_address: bool) -> bytes:
    """The line for what one source did beyond its quota. `sort` says which requests were counted."""
    frequent = sorted(tally.samples.items(), key=lambda sample: sample[1], reverse=True)
    (verb, code, path), _ = frequent[0] if frequent else (("unknown", 0, ""), 0)
    is_named = tally.source != OTHERS
    annotations = {COUNT: str(tally.suppressed), OF: sort, SOURCES: str(max(tally.sources, 1))}
    annotations[SAMPLES] = "; ".join(
        f"{times} x {verb} {request_uri(path, {}, ())} {code}" for (verb, code, path), times in frequent
    )
    made: Object = {
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
    return line(made)


def _moment(moment: datetime | None) -> str:
    return micro_timestamp(moment or datetime.now(UTC))


READS = frozenset({"get", "list", "watch", "head", "options"})
GIVEN_UP = 0
"""Stands for the code of a request that was given up before its answer."""

UNAUTHENTICATED, LOGINS, REFUSED, READ, CREDENTIALS = "unauthenticated", "logins", "refused", "reads", "credentials"


@dataclass(frozen=True, slots=True)
class Allowances:
    """Records of one user or address that are written whole in a minute; 0 for all of them.

    All users, and all addresses, together may have as much as some of them.
    """

    refused: int = 120
    reads: int = 6_000

    def of_refused(self) -> Allowance:
        return Allowance(self.refused, 20 * self.refused)

    def of_reads(self) -> Allowance:
        return Allowance(self.reads, 10 * self.reads)


READS_OF_CREDENTIAL = Allowance(10, 0, shares=False)
"""Of one user about one object, once other reads are no longer recorded: a flood must not hide one of these."""


@dataclass(frozen=True, slots=True)
class Logs:
    """Where records go. `unauthenticated` may be the same as `people`."""

    people: Trail
    unauthenticated: Trail
    agents: Trail
    allowances: Allowances = field(default_factory=Allowances)

    @classmethod
    def single(cls, trail: Trail) -> "Logs":
        """One log for everything."""
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

        def quota(sort: str, allowance: Allowance, trail: Trail, *, is_address: bool = False) -> Quota:
            return Quota(allowance, clock, _writer(trail, sort, is_address))

        refused, strangers = allowances.of_refused(), logs.unauthenticated
        self._by_address = quota(UNAUTHENTICATED, refused, strangers, is_address=True)
        # Apart from the others, so that a flood of them does not hide who tries passwords.
        self._logins = quota(LOGINS, refused, strangers, is_address=True)
        self._refused = quota(REFUSED, refused, logs.people)
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
        """The log for a request that was answered with `code`. None if it is over a quota: it has been counted."""
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
            return self._people  # it was done, or nobody can say that it was not
        if quota.admits(name):
            return self._people
        if quota is self._reads and self._credentials.concern(target):
            quota, name = self._objects, f"{name} {_place(target)}"
            if quota.admits(name):
                return self._people
        quota.count(name, verb_of(call), code, call.path)
        return None

    def announces(self, call: Call) -> bool:
        """Whether a request is announced that has not been answered yet."""
        user = call.user
        if user is None or call.target.verb not in READS:
            return True
        return self._reads.has_room((user.impersonator or user).name) or self._credentials.concern(call.target)

    def flush(self) -> None:
        """Writes the summaries of what was counted until now."""
        for quota in self._quotas.values():
            quota.flush()

    @property
    def suppressed(self) -> Mapping[str, int]:
        """By sort, how many requests were counted only."""
        return {sort: quota.suppressed for sort, quota in self._quotas.items()}

    def _admit_unauthenticated(self, call: Call, code: int) -> Trail | None:
        quota = self._logins if call.path.startswith(LOGIN) else self._by_address
        source = source_of(address(call.client))
        # A disk that takes nothing must not make those wait who are signed in, so these do not wait for it either.
        if not self._unauthenticated.is_full and quota.admits(source):
            return self._unauthenticated
        quota.count(source, verb_of(call), code, call.path)
        return None

    def _may_be_done_in_part(self, call: Call) -> bool:
        """Whether something was deleted before one object of many was refused."""
        if call.target.verb != "deletecollection" or self._changes_nothing(call):
            return False
        return call.sieve is not None or (call.decision is not None and call.decision.allowed)

    def _changes_nothing(self, call: Call) -> bool:
        """Whether a write leaves no trace: a dry run, or a question that is asked by creating an object."""
        target = call.target
        if target.via is not None or not target.resource:
            return False  # what a cluster makes of it is not known here, and what is no resource has no dry run
        return (bool(call.query) and call.query.get("dryRun") == ["All"]) or self._is_question(target)

    def _is_question(self, target: Target) -> bool:
        kind = self._catalog.find(target.group, target.version, target.resource) if target.resource else None
        if kind is None or self._credentials.concern(target):
            return False
        if not target.subresource:
            return not kind.stored
        return target.subresource == "agentreport"


def _place(target: Target) -> str:
    """What is asked for, in one spelling: a path has many."""
    through = f"{_place(target.via)} " if target.via is not None else ""
    parts = target.verb, target.group, target.resource, target.namespace, target.name, target.subresource
    return f"{through}{'/'.join(parts)}" if target.resource else f"{through}{target.verb} {target.path}"


@lru_cache(maxsize=4_096)
def source_of(host: str) -> str:
    """The source that an address belongs to. A site has at least one /64 of IPv6, and all of its addresses."""
    if ":" not in host:
        return host
    try:
        given = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if given.ipv4_mapped is not None:
        return str(given.ipv4_mapped)
    return str(ipaddress.IPv6Network((given, 64), strict=False))


def _writer(trail: Trail, sort: str, is_address: bool) -> Callable[[list[Tally]], bool]:
    def write(tallies: list[Tally]) -> bool:
        if trail.is_full:
            return False
        for tally in tallies:
            trail.add(summarize(tally, sort, is_address=is_address))
        return True

    return write
