"""Which flow a request belongs to, and what it will probably cost.

Whoever really asks pays: all access keys and sessions of a user are one flow, those of a team another, and so is
everybody whom a user impersonates. Kubernetes goes by the impersonated user; there, who may impersonate many has many
shares. The service accounts of a namespace are one flow, because whoever may make one there may make a hundred. Agents
and runners are told apart by what they stand for. Strangers go by their address, of IPv6 by the network of it.

What a request costs is estimated from what is known without doing any of it: the verb, how many objects there are, how
large the one is, and the form of the answer. What it really took is charged afterwards.
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
"""The flow schemas: what a request is counted under. There are no others, whatever anybody sends."""

BULK_COST = 100.0
"""Whatever is expected to cost more is bulk."""
SEATLESS_COST = 8.0
"""Whatever is expected to cost no more is done in a step or two, and needs no seats."""
WRITE_COST = 4
COLLECTION_COST = 16
WATCH_COST = 2.0

_JSON_ROWS, _VIEW_ROWS, _YAML_ROWS = 40.0, 2.0, 0.25
"""Objects of a list that cost a unit, by the form of the answer. To look at one costs a thousandth."""
_SCANNED_ROWS = 1000.0
_TERMS_PER_ROW = 0.2
"""Each further term of a selector takes five times as long to test as it takes to look at an object."""
_VIEW_BYTES, _YAML_BYTES, _BODY_BYTES = 5_000.0, 500.0, 10_000.0
"""Bytes of one object that cost a unit: to be turned into a Table, into YAML, and to be taken in."""

TIMED_OUT, QUEUE_FULL, TOO_LARGE, CANCELLED = REASONS = ("time-out", "queue-full", "concurrency-limit", "cancelled")
"""Why a request is refused, in Kubernetes' words."""
DURATIONS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
MOST = 4096
"""How many clients are remembered."""

Rows = Callable[[str, str], int]
"""How many objects of a group's resource there are."""
Size = Callable[[str, str, str, str], int]
"""How many bytes an object has: by group, resource, namespace and name. 0 if there is none."""


class Tally:
    """What was let in and refused of one flow schema in one level, and how long it waited and took."""

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
    """Where requests of somebody belong: a level, the flow in it, and what they are counted under."""

    __slots__ = ("account", "flow", "level", "tally")

    def __init__(self, level: Level, name: str, tally: Tally, account: Account) -> None:
        self.level = level
        self.flow = Flow(name)
        self.tally = tally
        self.account = account
        """For work in threads: one for all lanes of a client."""


class Client:
    """Somebody who asks: a lane for small requests, and one for large ones."""

    __slots__ = ("bulk", "small", "stream_turns")

    def __init__(self, small: Lane, bulk: Lane) -> None:
        self.small = small
        self.bulk = bulk
        self.stream_turns = asyncio.Lock()
        """Held by the one of its streams that waits for a turn."""

    @property
    def is_idle(self) -> bool:
        return self.small.flow.is_idle and self.bulk.flow.is_idle


class Clients:
    """Everybody who has asked lately. `prefixes` are how the names of components begin, with their schemas."""

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
        """The client of the first name, from now on also found by the second."""
        if len(clients) >= self._most:
            # What those still owe who have nothing waiting is forgiven: it is milliseconds.
            for name in [name for name, client in clients.items() if client.is_idle]:
                del clients[name]
        client = clients.get(names[0])
        if client is None:
            # Strangers have no lane for large requests: there is nothing large for them.
            large = level if level == STRANGERS else BULK
            account = Account()
            small = Lane(self._levels[level], names[0], self._tally(level, schema), account)
            client = Client(small, Lane(self._levels[large], names[0], self._tally(large, schema), account))
        clients[names[0]] = clients[names[1]] = client
        return client

    def _tally(self, level: str, schema: str) -> Tally:
        return self.tallies.setdefault((level, schema), Tally(level, schema))


class Costs:
    """What requests will probably cost, in units."""

    def __init__(self, rows: Rows, size: Size, form: Callable[[str], tuple[bool, bool]]) -> None:
        """`form` tells of an Accept header whether YAML is asked for, and whether a Table or metadata alone."""
        self._rows = rows
        self._size = size
        self._form = form

    def of_read(self, call: Call) -> float:
        """Of a request for a resource that changes nothing."""
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
            return WATCH_COST + scanned  # what it sends is paid for as it is made, see pacing.py
        limit = call.parameter("limit") if call.query else ""
        sent = min(rows, int(limit)) if limit.isdecimal() and len(limit) < 10 and int(limit) else rows
        per_unit = _YAML_ROWS if is_yaml else _VIEW_ROWS if is_view else _JSON_ROWS
        return 1.0 + scanned + sent / per_unit


def _tells_what_exists(call: Call) -> bool:
    """Whether a watch begins with everything that there is."""
    return call.parameter("resourceVersion") in ("", "0") or "sendInitialEvents" in call.query


def _count_terms(call: Call) -> int:
    """How many conditions a list has beyond the first, at most: values in parentheses are counted, too."""
    if not call.query:
        return 0
    commas = call.parameter("labelSelector").count(",") + call.parameter("fieldSelector").count(",")
    return min(commas, SELECTOR_TERMS)


def write_cost(verb: str, size: int) -> float:
    return (COLLECTION_COST if verb == "deletecollection" else WRITE_COST) + size / _BODY_BYTES
