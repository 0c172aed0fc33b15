"""What requests through the gateways of spaces and virtual clusters say about their use.

A request that counts only updates a dictionary; a background task writes the annotation `last-activity`, at most once
in five minutes or a quarter of `sleep-after`, and at once if a sleep is announced. So the last activity that is stored
is never so old that an instance in use falls asleep. Streams of a user, such as exec and followed logs, count as long
as they are open. Instances without a policy cost one look into a cache.

Requests to a space through the direct endpoint of its cluster's agent are known from the audit events that the agent
reports, some seconds later. Of streams, their beginning and their end count.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError
from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.core.user import User
from fairlead.domain.instance_sleep import ActivityFilter, Use, read_instance_policy, wakes_on_request
from fairlead.domain.sleep_decisions import parse_time
from fairlead.domain.sleep_mode import (
    LAST_ACTIVITY,
    LAST_ACTIVITY_INFO,
    SCHEDULED_SLEEP,
    SLEEPING_SINCE,
    change_annotations,
    encode_info,
    parse_seconds,
    sleep_type_of,
)
from fairlead.domain.typed_objects import WAKE_FAILED, RemoteInstance, SpaceInstance, VirtualClusterInstance
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.view.view import Entry

FLUSH_SECONDS = 1.0
MAX_WRITE_SECONDS = 300
MAX_CONCURRENT_WRITES = 16
CACHE_SIZE = 4096
IGNORE_HEADER, IGNORE_LABEL = "x-sleep-mode-ignore", "sleepmode.service.sh/ignore-activity"
WATCH = "watch"
STREAMING_SUBRESOURCES = frozenset({"exec", "attach", "portforward"})
PROBE_PATHS = ("/version", "/healthz", "/livez", "/readyz", "/metrics")
"""What is asked to know whether a server is there."""
SELF_REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
"""What programs ask before they show something, again and again."""
POLLING_AGENTS = ("prometheus/", "kube-probe/", "kube-state-metrics/", "googlehc/", "elb-healthchecker/", "blackbox")
"""Beginnings of user agents, in lower case, of programs that ask by themselves."""
_REFUSED = (401, 403)
_SPACE_URI = re.compile(r"/kubernetes/project/([a-z0-9.-]{1,253})/space/([a-z0-9.-]{1,253})(?=[/?]|$)")
"""The beginning of a path at a direct endpoint."""
MAX_TEXT = 253
"""Of names in reported events, which are written into annotations."""
_TYPES: dict[str, type[RemoteInstance]] = {
    SPACE.plural: SpaceInstance,
    VIRTUAL_CLUSTER.plural: VirtualClusterInstance,
}

InstanceId = tuple[str, str, str]
"""Plural, namespace and name."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SleepState:
    """What the gateway has to know about one revision of an instance."""

    uid: str
    cluster: str
    sleep_type: str
    sleeping_since: int
    is_awake: bool
    """Whether nothing of it is asleep in its cluster, falls asleep or wakes up."""
    has_failed_to_wake: bool
    """Whether its wake-up has failed, and is retried: that may take until a person repairs something."""
    wakes_on_request: bool
    has_policy: bool
    write_seconds: int
    """How often its activity is written at most."""
    filter: ActivityFilter
    message: str
    """Of its readiness."""


_GONE = SleepState(
    uid="",
    cluster="",
    sleep_type="",
    sleeping_since=0,
    is_awake=True,
    has_failed_to_wake=False,
    wakes_on_request=False,
    has_policy=False,
    write_seconds=0,
    filter=ActivityFilter(),
    message="",
)


class SleepStates:
    """Sleep states of instances, cached by revision: instances with rendered templates are large to decode."""

    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        self._group = api_group
        self._cache: BoundedCache[InstanceId, tuple[int, SleepState]] = BoundedCache(CACHE_SIZE)

    def find(self, id: InstanceId) -> SleepState:
        """One that does not exist is not asleep."""
        entry = self._registry.resource(self._group, id[0]).get_cached(id[1], id[2])
        if entry is None:
            return _GONE
        cached = self._cache.get(id)
        if cached is not None and cached[0] == entry.revision:
            return cached[1]
        state = _read_state(_TYPES[id[0]], entry)
        self._cache[id] = entry.revision, state
        return state


def _read_state(typed: type[RemoteInstance], entry: Entry) -> SleepState:
    instance = typed(decode(entry))
    policy = read_instance_policy(instance)
    notes = annotations_of(instance.raw)
    is_managed = instance.can_sleep
    is_announced = SCHEDULED_SLEEP in notes
    return SleepState(
        uid=instance.uid,
        cluster=instance.cluster,
        sleep_type=instance.sleep_type if is_managed else "",
        sleeping_since=parse_seconds(notes.get(SLEEPING_SINCE)),
        is_awake=not is_managed or not (instance.sleep_type or instance.sleep_stage),
        has_failed_to_wake=instance.status.get("reason") == WAKE_FAILED,
        wakes_on_request=wakes_on_request(instance),
        has_policy=is_managed and bool(policy.sleep_after or policy.delete_after),
        write_seconds=0 if is_announced else min(MAX_WRITE_SECONDS, policy.idle_seconds // 4),
        filter=policy.activity,
        message=str(instance.status.get("message") or ""),
    )


@dataclass(slots=True)
class _Activity:
    at: int
    user: str
    cause: str


class ActivityTracker:
    """The last activity of each instance that this process has seen, and what of it is not stored yet."""

    def __init__(self, registry: Registry, api_group: str, states: SleepStates) -> None:
        self._registry = registry
        self._group = api_group
        self._states = states
        self._keys = registry.resource(api_group, OWNED_ACCESS_KEY.plural)
        self._unwritten: dict[InstanceId, _Activity] = {}
        self._written_at: dict[InstanceId, float] = {}
        """By the monotonic clock; what is so old that it delays no write any more is removed."""
        self._cleaned_at = registry.clock.monotonic()
        self._open: Counter[InstanceId] = Counter()
        """Open streams."""
        self._openers: dict[InstanceId, _Activity] = {}

    def counts(self, call: Call, user: User, state: SleepState) -> bool:
        """Whether a request is activity of a person, as far as that can be known."""
        if call.headers.get(IGNORE_HEADER) or is_probe(call) or not _is_use(describe_use(call, user), state):
            return False
        return not self._is_ignored_key(user)

    def note(self, id: InstanceId, state: SleepState, call: Call, user: User, reply: Reply) -> None:
        """Notes a request that was forwarded, and the stream that it has opened."""
        if not state.has_policy or reply.status in _REFUSED or not self.counts(call, user, state):
            return
        activity = _Activity(self._now(), user.name, f"{call.target.verb} {call.target.resource}".strip())
        self._unwritten[id] = activity
        is_stream = reply.upgrade is not None or (reply.stream is not None and "follow" in call.query)
        if is_stream and not state.filter.ignores_connections:
            self._open[id] += 1
            self._openers[id] = activity
            reply.on_close = (*reply.on_close, self._closing(id))

    def note_reported(self, cluster: str, namespace_prefix: str, events: Sequence[Object]) -> None:
        """Notes requests to spaces that the agent of a cluster reports as audit events. It is trusted for its own
        cluster only, and not to know the time."""
        for event in events:
            found = _SPACE_URI.match(str(event.get("requestURI") or ""))
            if found is None:
                continue
            id = (SPACE.plural, f"{namespace_prefix}{found[1]}", found[2])
            state = self._states.find(id)
            if not state.has_policy or state.cluster != cluster or get_path(event, "responseStatus.code") in _REFUSED:
                continue
            use = _describe_reported_use(event)
            path = str(event["requestURI"])[found.end() :]
            if use.resource in SELF_REVIEWS or path.startswith(PROBE_PATHS) or not _is_use(use, state):
                continue
            at = min(parse_time(event.get("stageTimestamp")), self._now())
            known = self._unwritten.get(id)
            if known is None or known.at < at:
                self._unwritten[id] = _Activity(at, use.user, f"{use.verb} {use.resource}".strip())

    def _closing(self, id: InstanceId) -> Callable[[], None]:
        def close() -> None:
            self._touch_open(id)
            self._open[id] -= 1
            if self._open[id] <= 0:
                del self._open[id]
                self._openers.pop(id, None)

        return close

    def _touch_open(self, id: InstanceId) -> None:
        opener = self._openers.get(id)
        if opener is not None:
            self._unwritten[id] = _Activity(self._now(), opener.user, opener.cause)

    async def run(self) -> None:
        """Writes periodically until cancelled, and a last time then."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                await self.flush()
        finally:
            await self.flush(everything=True)

    async def flush(self, *, everything: bool = False) -> None:
        """Writes the activity that is due, or all of it."""
        for id in self._open:
            self._touch_open(id)
        now = self._registry.clock.monotonic()
        due = [id for id in self._unwritten if everything or self._is_due(id, now)]
        for start in range(0, len(due), MAX_CONCURRENT_WRITES):
            await asyncio.gather(*(self._write(id) for id in due[start : start + MAX_CONCURRENT_WRITES]))
        if now >= self._cleaned_at + MAX_WRITE_SECONDS:
            self._cleaned_at = now
            self._written_at = {id: at for id, at in self._written_at.items() if at > now - MAX_WRITE_SECONDS}

    def _is_due(self, id: InstanceId, now: float) -> bool:
        interval = max(float(self._states.find(id).write_seconds), FLUSH_SECONDS)
        return now >= self._written_at.get(id, -interval) + interval

    async def _write(self, id: InstanceId) -> None:
        activity = self._unwritten.pop(id)
        state = self._states.find(id)
        if not state.uid:
            self._written_at.pop(id, None)
            return
        self._written_at[id] = self._registry.clock.monotonic()
        info = encode_info("Request", activity.cause, activity.user)

        def edit(current: Object) -> Object:
            notes = annotations_of(current)
            is_newer = activity.at > parse_seconds(notes.get(LAST_ACTIVITY))
            # What has fallen asleep meanwhile is woken by requests only that ask for it.
            is_asleep = bool(sleep_type_of(current))
            if current["metadata"]["uid"] != state.uid or not is_newer or is_asleep:
                return current
            return change_annotations(current, {LAST_ACTIVITY: str(activity.at), LAST_ACTIVITY_INFO: info})

        resource = self._registry.resource(self._group, id[0])
        try:
            await resource.modify(id[1], id[2], edit, server_write_options())
        except ApiError as error:
            log.warning("the activity of an instance was not written", instance=id, error=error.message)

    def _is_ignored_key(self, user: User) -> bool:
        entry = self._keys.get_cached("", user.key) if user.key else None
        return entry is not None and entry.labels.get(IGNORE_LABEL) == "true"

    def _now(self) -> int:
        return int(self._registry.clock.now().timestamp())


def _is_use(use: Use, state: SleepState) -> bool:
    """Whether a request is activity, by what it asks for and by what program."""
    is_automatic = use.verb == WATCH or use.user_agent.lower().startswith(POLLING_AGENTS)
    return not is_automatic and state.filter.counts(use)


def _describe_reported_use(event: Object) -> Use:
    """A reported request. The agent may have written anything."""

    def text(path: str) -> str:
        found = get_path(event, path)
        return found[:MAX_TEXT] if isinstance(found, str) else ""

    groups = get_path(event, "user.groups")
    return Use(
        user=text("user.username"),
        groups=frozenset(each for each in groups if isinstance(each, str)) if isinstance(groups, list) else frozenset(),
        verb=text("verb"),
        resource=text("objectRef.resource"),
        name=text("objectRef.name"),
        user_agent=text("userAgent"),
    )


def is_probe(call: Call) -> bool:
    target = call.target
    if target.is_resource:
        return target.resource in SELF_REVIEWS
    return target.path.startswith(PROBE_PATHS)


def describe_use(call: Call, user: User) -> Use:
    target = call.target
    return Use(
        user=user.name,
        groups=frozenset(user.groups),
        verb=target.verb,
        resource=target.resource,
        name=target.name,
        user_agent=call.headers.get("user-agent"),
    )
