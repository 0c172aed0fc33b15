"""Classifies requests: the priority level and flow of a request, and its estimated cost.

The authenticated user is charged. All access keys and sessions of a user are one flow, those of a team another.
Impersonated requests belong to the flow of the impersonator; Kubernetes uses the impersonated user, so a user who may
impersonate many gets many shares there. The service accounts of a namespace are one flow, because a user who can create
one can create a hundred. Components of the platform each have a flow of their own. Anonymous clients are classified by
IP address, or by network for IPv6.

The cost is estimated from what is known in advance: the verb, the number of objects or the size of the object, and the
representation of the response. The actual cost is charged afterwards.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from fairlead.core.call import Call
from fairlead.core.concurrency import Account
from fairlead.core.user import SERVICE_ACCOUNT_PREFIXES, TEAM_GROUP_PREFIX, User
from fairlead.registry.limits import SELECTOR_TERMS
from fairlead.server.api.content import PLAIN_JSON
from fairlead.server.flow.attempts import client_network
from fairlead.server.flow.fair_queue import ANONYMOUS, BULK, INTERACTIVE, SYSTEM, Flow, PriorityLevel
from fairlead.server.metrics.exposition import Histogram

PROBES = "probes"
USERS = "users"
TEAMS = "teams"
SERVICE_ACCOUNTS = "service-accounts"
ANONYMOUS_SCHEMA = "anonymous"
"""The flow schemas, a fixed set together with those of components: they are label values of the metrics."""

MIN_BULK_COST = 100.0
"""Requests with a higher estimated cost are in the bulk level."""
MAX_SEATLESS_COST = 8.0
"""Requests up to this estimated cost take a step or two of the event loop, and need no seats."""
WRITE_COST = 4
DELETE_COLLECTION_COST = 16
WATCH_COST = 2.0

_JSON_ROWS_PER_UNIT, _TRANSFORMED_ROWS_PER_UNIT, _YAML_ROWS_PER_UNIT = 40.0, 2.0, 0.25
"""Listed objects per unit of cost, by representation. Scanning an object costs 1/1000 of a unit."""
_SCANNED_ROWS_PER_UNIT = 1000.0
_TERMS_PER_ROW = 0.2
"""Each further selector term costs five times as much to evaluate as scanning the object."""
_TRANSFORMED_BYTES_PER_UNIT, _YAML_BYTES_PER_UNIT, _BODY_BYTES_PER_UNIT = 5_000.0, 500.0, 10_000.0
"""Bytes of an object per unit of cost: converted to a Table, converted to YAML, and parsed from a request body."""

TIMED_OUT, QUEUE_FULL, CONCURRENCY_LIMIT, CANCELLED = REJECT_REASONS = (
    "time-out",
    "queue-full",
    "concurrency-limit",
    "cancelled",
)
"""Why a request is rejected. The same values as in kube-apiserver's metrics."""
DURATION_BUCKETS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
CLIENT_CACHE_SIZE = 4096
"""How many clients are cached."""

RowCounter = Callable[[str, str], int]
"""The number of objects of a resource: by group and resource."""
SizeLookup = Callable[[str, str, str, str], int]
"""The size of an object in bytes: by group, resource, namespace and name. 0 if it does not exist."""


class FlowMetrics:
    """Metrics of one flow schema in one priority level: dispatched and rejected requests, wait and execution time."""

    __slots__ = (
        "dispatched",
        "executing",
        "execution_seconds",
        "level",
        "rejected",
        "rejected_wait_seconds",
        "schema",
        "wait_seconds",
        "waiting",
    )

    def __init__(self, level: str, schema: str) -> None:
        self.level = level
        self.schema = schema
        self.dispatched = 0
        self.executing = 0
        self.waiting = 0
        self.rejected = dict.fromkeys(REJECT_REASONS, 0)
        self.wait_seconds = Histogram(DURATION_BUCKETS)
        self.rejected_wait_seconds = Histogram(DURATION_BUCKETS)
        self.execution_seconds = Histogram(DURATION_BUCKETS)


class Lane:
    """Where a client's requests are queued: the priority level, the flow in it, and its metrics."""

    __slots__ = ("account", "flow", "level", "metrics")

    def __init__(self, level: PriorityLevel, name: str, metrics: FlowMetrics, account: Account) -> None:
        self.level = level
        self.flow = Flow(name)
        self.metrics = metrics
        self.account = account
        """Accounts for work in threads; shared by all lanes of a client."""


class Client:
    """A client: the lane for its ordinary requests, and the one for bulk requests."""

    __slots__ = ("bulk_lane", "regular_lane", "stream_lock")

    def __init__(self, regular_lane: Lane, bulk_lane: Lane) -> None:
        self.regular_lane = regular_lane
        self.bulk_lane = bulk_lane
        self.stream_lock = asyncio.Lock()
        """Held by the stream that is waiting for a slot: one stream of a client at a time."""

    @property
    def is_idle(self) -> bool:
        return self.regular_lane.flow.is_idle and self.bulk_lane.flow.is_idle


class ClientCache:
    """Recent clients. `prefixes` are the user name prefixes of platform components, with their flow schemas."""

    def __init__(
        self,
        levels: Mapping[str, PriorityLevel],
        prefixes: Sequence[tuple[str, str]] = (),
        max_clients: int = CLIENT_CACHE_SIZE,
    ) -> None:
        self._levels = levels
        self._prefixes = prefixes
        self._max_clients = max_clients
        self._by_user: dict[str, Client] = {}
        self._by_address: dict[str, Client] = {}
        self.metrics: dict[tuple[str, str], FlowMetrics] = {}

    def for_call(self, call: Call) -> Client:
        user = call.user
        if user is None:
            return self._by_address.get(call.source.rpartition(":")[0]) or self._add_anonymous(call.source)
        if user.impersonator is not None:
            user = user.impersonator
        return self._by_user.get(user.name) or self._add_user(user)

    def for_user(self, user: User) -> Client:
        real = user.impersonator or user
        return self._by_user.get(real.name) or self._add_user(real)

    def _add_user(self, user: User) -> Client:
        name, level, schema = user.flow_distinguisher, INTERACTIVE, USERS
        if user.name.startswith(SERVICE_ACCOUNT_PREFIXES):
            schema = SERVICE_ACCOUNTS
        elif name.startswith(TEAM_GROUP_PREFIX):
            schema = TEAMS
        for prefix, component in self._prefixes:
            if name.startswith(prefix) and name in user.groups:
                level, schema = SYSTEM, component
        return self._get_or_add(self._by_user, (name, user.name), level, schema)

    def _add_anonymous(self, address: str) -> Client:
        return self._get_or_add(
            self._by_address, (client_network(address), address.rpartition(":")[0]), ANONYMOUS, ANONYMOUS_SCHEMA
        )

    def _get_or_add(self, clients: dict[str, Client], names: tuple[str, str], level: str, schema: str) -> Client:
        """The client of the first name, added if missing, and cached under both names."""
        if len(clients) >= self._max_clients:
            # Evicts idle clients. That cancels what they owe, a few milliseconds at most.
            for name in [name for name, client in clients.items() if client.is_idle]:
                del clients[name]
        client = clients.get(names[0])
        if client is None:
            # Anonymous clients have no bulk lane: nothing that they may request is large.
            bulk_level = level if level == ANONYMOUS else BULK
            account = Account()
            small = Lane(self._levels[level], names[0], self._metrics_for(level, schema), account)
            bulk = Lane(self._levels[bulk_level], names[0], self._metrics_for(bulk_level, schema), account)
            client = Client(small, bulk)
        clients[names[0]] = clients[names[1]] = client
        return client

    def _metrics_for(self, level: str, schema: str) -> FlowMetrics:
        return self.metrics.setdefault((level, schema), FlowMetrics(level, schema))


class CostEstimator:
    """Estimates the cost of requests, in units."""

    def __init__(
        self, count_rows: RowCounter, object_size: SizeLookup, read_accept: Callable[[str], tuple[bool, bool]]
    ) -> None:
        """`read_accept` returns whether an Accept header asks for YAML, and whether for a Table or metadata only."""
        self._count_rows = count_rows
        self._object_size = object_size
        self._read_accept = read_accept

    def estimate_read(self, call: Call) -> float:
        """The estimated cost of a get, list or watch."""
        target = call.target
        accept = call.headers.get("accept")
        is_yaml, is_transformed = (False, False) if accept in PLAIN_JSON else self._read_accept(accept)
        if target.name and target.verb != "watch":
            if not is_yaml and not is_transformed:
                return 1.0
            size = self._object_size(target.group, target.resource, target.namespace, target.name)
            return 1.0 + size / (_YAML_BYTES_PER_UNIT if is_yaml else _TRANSFORMED_BYTES_PER_UNIT)
        if target.verb == "watch" and not _sends_initial_events(call):
            return WATCH_COST
        rows = self._count_rows(target.group, target.resource)
        scanned = rows * (1.0 + _count_extra_terms(call) / _TERMS_PER_ROW) / _SCANNED_ROWS_PER_UNIT
        if target.verb == "watch":
            return WATCH_COST + scanned  # its events are charged as they are produced, see streams.py
        limit = call.parameter("limit") if call.query else ""
        sent = min(rows, int(limit)) if limit.isdecimal() and len(limit) < 10 and int(limit) else rows
        per_unit = (
            _YAML_ROWS_PER_UNIT if is_yaml else _TRANSFORMED_ROWS_PER_UNIT if is_transformed else _JSON_ROWS_PER_UNIT
        )
        return 1.0 + scanned + sent / per_unit


def _sends_initial_events(call: Call) -> bool:
    """Whether a watch starts with synthetic ADDED events for all existing objects."""
    return call.parameter("resourceVersion") in ("", "0") or "sendInitialEvents" in call.query


def _count_extra_terms(call: Call) -> int:
    """Upper bound of the selector terms beyond the first. Commas within parentheses count as well."""
    if not call.query:
        return 0
    commas = call.parameter("labelSelector").count(",") + call.parameter("fieldSelector").count(",")
    return min(commas, SELECTOR_TERMS)


def write_cost(verb: str, size: int) -> float:
    return (DELETE_COLLECTION_COST if verb == "deletecollection" else WRITE_COST) + size / _BODY_BYTES_PER_UNIT
