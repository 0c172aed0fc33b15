"""Wakes spaces and virtual clusters that sleep for lack of activity when a person uses them.

The request is held before its body is read, until the instance is awake. Clients repeat a 503 that says when, so what
takes longer is not refused either. A program that had a watch open before must not wake what has fallen asleep although
it was watched: a client that was seen so shortly before, or that has tried since, does not wake it. In memory, so that
another process of this server does not know: then an instance wakes once too often.

What a schedule or a person has put to sleep is woken by persons only, with a command.
"""

import asyncio
from collections import Counter

from fairlead.authz.scope.gateway_requests import SPACE
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import Details, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.domain.sleep_mode import (
    INACTIVITY_SLEEP,
    build_wake_request,
    change_annotations,
    encode_info,
    sleep_type_of,
)
from fairlead.gateway.activity import WATCH, ActivityTracker, InstanceId, SleepState, SleepStates
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import SERVER_MANAGER, WriteOptions

HOLD_SECONDS = 25.0
"""Clients give up discovery after 32 seconds."""
MAX_HELD = 100
"""Requests that wait for one instance, in one process."""
MAX_HELD_PER_USER_AND_INSTANCE = 20
MAX_HELD_PER_USER = 100
MAX_HELD_TOTAL = 1000
"""For all instances: each is a connection and a task."""
POLL_SECONDS = 0.05
RETRY_AFTER_SECONDS = 5
QUIET_SECONDS = 300.0
"""A client that was seen so shortly before tries by itself."""
MAX_KNOWN_CLIENTS = 10_000
READ_VERBS = frozenset({"get", "list", WATCH})
PERSONS_AGENT = "kubectl"
"""Of a client that persons use: other than its watches, its requests are theirs."""
WARNING_HEADER = ("warning", '299 - "woken up by this request"')

_RETRY_LATER = Details(retry_after=RETRY_AFTER_SECONDS)

_Client = tuple[str, str, str]
"""The uid of an instance, the user, and the user agent."""
_Share = tuple[InstanceId | None, str]
"""Requests that are counted together: for one instance or all (None), of one user or all (empty)."""


class InstanceWaker:
    def __init__(
        self,
        registry: Registry,
        api_group: str,
        namespace_prefix: str,
        states: SleepStates,
        activity: ActivityTracker,
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._namespace_prefix = namespace_prefix
        self._states = states
        self._activity = activity
        self._seen: BoundedCache[_Client, float] = BoundedCache(MAX_KNOWN_CLIENTS)
        self._waits: dict[InstanceId, asyncio.Task[bool]] = {}
        """Each shared by all requests that wait for an instance."""
        self._held: Counter[_Share] = Counter()
        self._requested: set[tuple[InstanceId, int]] = set()
        """Instances, with the beginning of their sleep, that a request of this process is waking."""

    def note_watch(self, state: SleepState, call: Call, user: User) -> None:
        """A watch is open: its client will try to open it again."""
        if state.has_policy and call.target.verb == WATCH:
            self._seen[_client(state, call, user)] = self._registry.clock.monotonic()

    async def ensure_awake(
        self, id: InstanceId, state: SleepState, call: Call, gateway: RequestInfo, title: str
    ) -> bool:
        """Returns whether the request had to wait for a wake-up. Raises Unavailable if a virtual cluster sleeps on, or
        is not awake in time, and Forbidden if a quota does not allow it to be."""
        user = call.user
        if state.is_awake or user is None:
            return False
        is_space = gateway.root == SPACE
        if state.sleep_type:
            why = self._find_obstacle(state, call, user)
            if why and is_space:
                return False  # the API server of its cluster is awake
            if why:
                project = gateway.namespace.removeprefix(self._namespace_prefix)
                command = f"fairlead vcluster wake {gateway.name} --project {project}"
                raise Unavailable(f"{title} is asleep: {why}; wake it with `{command}`")
            await self._request_wake(id, state, user)
        elif is_space and (state.has_failed_to_wake or not self._activity.counts(call, user, state)):
            return False
        elif not self._activity.counts(call, user, state):  # a program that asks again by itself
            raise Unavailable(f"{title} is waking up: {state.message}; try again", _RETRY_LATER)
        await self._hold(id, user.flow_distinguisher, title)
        return True

    def _find_obstacle(self, state: SleepState, call: Call, user: User) -> str:
        """Why the request does not wake the instance; empty if it does."""
        if not state.wakes_on_request:
            return "requests do not wake it from that sleep"
        client = _client(state, call, user)
        now = self._registry.clock.monotonic()
        last = self._seen.get(client)
        is_known = last is not None and now - last < QUIET_SECONDS
        if call.target.verb == WATCH or (is_known and _is_automatic(call)):
            self._seen[client] = now
            return "this looks like a client that reconnects by itself"
        if not self._activity.counts(call, user, state):
            return "such a request does not count as activity"
        return ""

    async def _request_wake(self, id: InstanceId, state: SleepState, user: User) -> None:
        """As the user, so that quotas apply; that the user may use the instance was checked. Once for each sleep."""
        request = (id, state.sleeping_since)
        if request in self._requested:
            return
        self._requested.add(request)
        info = encode_info("Request", f"woken up by {user.name}", user.name)
        now = int(self._registry.clock.now().timestamp())

        def edit(current: Object) -> Object:
            # A person may have asked for a sleep since: that must not be undone.
            if current["metadata"]["uid"] != state.uid or sleep_type_of(current) != INACTIVITY_SLEEP:
                return current
            return change_annotations(current, build_wake_request(current, now, info))

        resource = self._registry.resource(self._group, id[0])
        try:
            await resource.modify(id[1], id[2], edit, WriteOptions(user, SERVER_MANAGER))
        except BaseException:
            self._requested.discard(request)
            raise

    async def _hold(self, id: InstanceId, payer: str, title: str) -> None:
        """`payer` is the name that limits of the user are counted under."""
        shares: dict[_Share, int] = {
            (id, ""): MAX_HELD,
            (id, payer): MAX_HELD_PER_USER_AND_INSTANCE,
            (None, payer): MAX_HELD_PER_USER,
            (None, ""): MAX_HELD_TOTAL,
        }
        full = next((share for share, limit in shares.items() if self._held[share] >= limit), None)
        if full is not None:
            why = _describe_share(full, shares[full])
            raise Unavailable(f"{title} is waking up, and {why}; try again", _RETRY_LATER)
        wait = self._waits.get(id)
        if wait is None:
            wait = self._waits[id] = asyncio.create_task(self._wait(id))
        self._held.update(shares.keys())
        try:
            # Shielded: a client that leaves must not end the wait of the others.
            async with asyncio.timeout(HOLD_SECONDS):
                is_awake = await asyncio.shield(wait)
        except TimeoutError:
            is_awake = False
        finally:
            for share in shares:
                self._held[share] -= 1
                if not self._held[share]:
                    del self._held[share]
        if not is_awake:
            message = f"{title} is waking up: {self._states.find(id).message}; try again"
            raise Unavailable(message, _RETRY_LATER)

    async def _wait(self, id: InstanceId) -> bool:
        """Until the instance is awake; not longer than any request waits that comes now."""
        end = self._registry.clock.monotonic() + 2 * HOLD_SECONDS
        try:
            while self._registry.clock.monotonic() < end:
                if self._states.find(id).is_awake:
                    return True
                await asyncio.sleep(POLL_SECONDS)
            return False
        finally:
            self._waits.pop(id, None)
            self._requested = {each for each in self._requested if each[0] != id}


def _describe_share(share: _Share, limit: int) -> str:
    instance, user = share
    whose = "requests of yours" if user else "requests"
    return f"{limit} other {whose} wait for {'it' if instance is not None else 'instances that wake up'}"


def _client(state: SleepState, call: Call, user: User) -> _Client:
    return state.uid, user.name, call.headers.get("user-agent")


def _is_automatic(call: Call) -> bool:
    """Whether a program that has watched would send this to watch again: it lists from a version that it knows."""
    if call.target.verb not in READ_VERBS:
        return False
    return "resourceVersion" in call.query or not call.headers.get("user-agent").startswith(PERSONS_AGENT)
