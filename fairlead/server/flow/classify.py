"""Classifies requests: the priority level and flow of a request, and its estimated cost.

The authenticated user is charged. All access keys and sessions of a user are one flow, those of a team another.
Impersonated requests belong to the flow of the impersonator; Kubernetes uses the impersonated user, so a user who may
impersonate many gets many shares there. The service accounts of a namespace are one flow, because a user who can create
one can create a hundred. Agents and runners each have a flow of their own. Anonymous clients are classified by IP
address, or by network for IPv6.

The cost is estimated from what is known in advance: the verb, the number of objects or the size of the object, and the
representation of the response. The actual cost is charged afterwards.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from fairlead.authn.login_throttle import place_of
from fairlead.core.call import Call
from fairlead.core.concurrency import Account
from fairlead.core.user import SERVICE_ACCOUNT, TEAM_GROUP, User
from fairlead.registry.limits import SELECTOR_TERMS
from fairlead.server.flow.fair_queue import Flow
from fairlead.server.flow.levels import BULK, INTERACTIVE, STRANGERS, SYSTEM, Level
from fairlead.server.metrics.exposition import Histogram

PROBES, AGENTS, RUNNERS, USERS, TEAMS, ACCOUNTS, UNKNOWN = (
    *("probes", "agents", "runners", "users", "teams", "service-accounts", "strangers"),
)
"""The flow schemas, a fixed set: they are label values of the metrics."""

BULK_COST = 100.0
"""Requests with a higher estimated cost are in the bulk level."""
SEATLESS_COST = 8.0
"""Requests up to this estimated cost take a step or two of the event loop, and need no seats."""
WRITE_COST = 4
COLLECTION_COST = 16
WATCH_COST = 2.0

_JSON_ROWS, _VIEW_ROWS, _YAML_ROWS = 40.0, 2.0, 0.25
"""Listed objects per unit of cost, by representation. Scanning an object costs 1/1000 of a unit."""
_SCANNED_ROWS = 1000.0
_TERMS_PER_ROW = 0.2
"""Each further selector term costs five times as much to evaluate as scanning the object."""
_VIEW_BYTES, _YAML_BYTES, _BODY_BYTES = 5_000.0, 500.0, 10_000.0
"""Bytes of an object per unit of cost: converted to a Table, converted to YAML, and parsed from a request body."""

TIMED_OUT, QUEUE_FULL, TOO_LARGE, CANCELLED = REASONS = ("time-out", "queue-full", "concurrency-limit", "cancelled")
"""Why a request is rejected. The same values as in kube-apiserver's metrics."""
DURATIONS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
MOST = 4096
"""How many clients are cached."""

Rows = Callable[[str, str], int]
"""The number of objects of a resource: by group and resource."""
Size = Callable[[str, str, str, str], int]
"""The size of an object in bytes: by group, resource, namespace and name. 0 if it does not exist."""


class Tally:
    """Metrics of one flow schema in one priority level: dispatched and rejected requests, wait and execution time."""

    __slots__ = (
        "dispatched",
        "executing",
        "level",
        "rejected",
        "schema",
        "took",
        "waited",
        "waited_in_vain",
        "waiting",
    )

    def __init__(self, level: str, schema: str) -> None:
        self.level = level
        self.schema = schema
        self.dispatched = 0
        self.executing = 0
        self.waiting = 0
        self.rejected = dict.fromkeys(REASONS, 0)
        self.waited, self.waited_in_vain, self.took = Histogram(DURATIONS), Histogram(DURATIONS), Histogram(DURATIONS)


class Lane:
    """Where a client's requests are queued: the priority level, the flow in it, and its metrics."""

    __slots__ = ("account", "flow", "level", "tally")

    def __init__(self, level: Level, name: str, tally: Tally, account: Account) -> None:
        self.level = level
        self.flow = Flow(name)
        self.tally = tally
        self.account = account
        """Accounts for work in threads; shared by all lanes of a client."""


class Client:
    """A client: the lane for its ordinary requests, and the one for bulk requests."""

    __slots__ = ("bulk", "small", "stream_turns")

    def __init__(self, small: Lane, bulk: Lane) -> None:
        self.small = small
        self.bulk = bulk
        self.stream_turns = asyncio.Lock()
        """Held by the stream that is waiting for a slot: one stream of a client at a time."""

    @property
    def is_idle(self) -> bool:
        return self.small.flow.is_idle and self.bulk.flow.is_idle


class Clients:
    """Recent clients. `prefixes` are the user name prefixes of platform components, with their flow schemas."""

    def __init__(self, levels: Mapping[str, Level], prefixes: Sequence[tuple[str, str]] = (), most: int = MOST) -> None:
        self._levels = levels
        self._prefixes = prefixes
        self._most = most
        self._named: dict[str, Client] = {}
        self._strangers: dict[str, Client] = {}
        self.tallies: dict[tuple[str, str], Tally] = {}

    def of(self, call: Call) -> Client:
        user = call.user
        if user is None:
            return self._strangers.get(call.client.rpartition(":")[0]) or self._new_stranger(call.client)
        if user.impersonator is not None:
            user = user.impersonator
        return self._named.get(user.name) or self._new(user)

    def of_user(self, user: User) -> Client:
        real = user.impersonator or user
        return self._named.get(real.name) or self._new(real)

    def _new(self, user: User) -> Client:
        name, level, schema = user.payer, INTERACTIVE, USERS
        if user.name.startswith(SERVICE_ACCOUNT):
            schema = ACCOUNTS
        elif name.startswith(TEAM_GROUP):
            schema = TEAMS
        for prefix, component in self._prefixes:
            if name.startswith(prefix) and name in user.groups:
                level, schema = SYSTEM, component
        return self._keep(self._named, (name, user.name), level, schema)

    def _new_stranger(self, address: str) -> Client:
        return self._keep(self._strangers, (place_of(address), address.rpartition(":")[0]), STRANGERS, UNKNOWN)

    def _keep(self, clients: dict[str, Client], names: tuple[str, str], level: str, schema: str) -> Client:
        """The client of the first name, added if missing, and cached under both names."""
        if len(clients) >= self._most:
            # Evicts idle clients. That cancels what they owe, a few milliseconds at most.
            for name in [name for name, client in clients.items() if client.is_idle]:
                del clients[name]
        client = clients.get(names[0])
        if client is None:
            # Anonymous clients have no bulk lane: nothing that they may request is large.
            bulk_level = level if level == STRANGERS else BULK
            account = Account()
            small = Lane(self._levels[level], names[0], self._tally(level, schema), account)
            bulk = Lane(self._levels[bulk_level], names[0], self._tally(bulk_level, schema), account)
            client = Client(small, bulk)
        clients[names[0]] = clients[names[1]] = client
        return client

    def _tally(self, level: str, schema: str) -> Tally:
        return self.tallies.setdefault((level, schema), Tally(level, schema))


class Costs:
    """Estimates the cost of requests, in units."""

    def __init__(self, rows: Rows, size: Size, form: Callable[[str], tuple[bool, bool]]) -> None:
        """`read_accept` returns whether an Accept header asks for YAML, and whether for a Table or metadata only."""
        self._rows = rows
        self._size = size
        self._form = form

    def of_read(self, call: Call) -> float:
        """The estimated cost of a get, list or watch."""
        target = call.target
        is_yaml, is_view = self._form(call.headers.get("accept", ""))
        if target.name and target.verb != "watch":
            if not is_yaml and not is_view:
                return 1.0
            size = self._size(target.group, target.resource, target.namespace, target.name)
            return 1.0 + size / (_YAML_BYTES if is_yaml else _VIEW_BYTES)
        if target.verb == "watch" and not _tells_what_exists(call):
            return WATCH_COST
        rows = self._rows(target.group, target.resource)
        scanned = rows * (1.0 + _count_terms(call) / _TERMS_PER_ROW) / _SCANNED_ROWS
        if target.verb == "watch":
            return WATCH_COST + scanned  # its events are charged as they are produced, see streams.py
        limit = call.parameter("limit") if call.query else ""
        sent = min(rows, int(limit)) if limit.isdecimal() and len(limit) < 10 and int(limit) else rows
        per_unit = _YAML_ROWS if is_yaml else _VIEW_ROWS if is_view else _JSON_ROWS
        return 1.0 + scanned + sent / per_unit


def _tells_what_exists(call: Call) -> bool:
    """Whether a watch starts with synthetic ADDED events for all existing objects."""
    return call.parameter("resourceVersion") in ("", "0") or "sendInitialEvents" in call.query


def _count_terms(call: Call) -> int:
    """Upper bound of the selector terms beyond the first. Commas within parentheses count as well."""
    if not call.query:
        return 0
    commas = call.parameter("labelSelector").count(",") + call.parameter("fieldSelector").count(",")
    return min(commas, SELECTOR_TERMS)


def write_cost(verb: str, size: int) -> float:
    return (COLLECTION_COST if verb == "deletecollection" else WRITE_COST) + size / _BODY_BYTES
