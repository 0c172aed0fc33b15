"""When spaces and virtual clusters fall asleep, wake up and are deleted because they are not used; and which requests
count as use. Pure.

Activity is what the gateway notes in annotations. So an instance that nothing is sent to is idle, whatever runs in it;
jobs that run are checked in its cluster before it is stopped. A schedule puts it to sleep whether it is used or not.
Requests end a sleep for lack of activity only: what a schedule or a person has put to sleep waits for a person, or for
the schedule of wake-ups.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.domain.cron import InvalidSchedule, Schedule, parse_schedule
from fairlead.domain.sleep_decisions import (
    WOKEN_UP,
    LastActivity,
    PlannedSleep,
    SleepDecision,
    created_at,
    decide_forced,
    decide_planned,
    describe_request,
    describe_sleep,
    find_end,
    format_time,
    noted_activity,
    withdraw_announcement,
    without_empty,
)
from fairlead.domain.sleep_mode import (
    DELETE_AFTER,
    INACTIVITY_SLEEP,
    PREFIX,
    SCHEDULED_TYPE,
    SCHEDULED_WAKEUP,
    SLEEP_AFTER,
    SLEEPING_SINCE,
    Changes,
    build_wake,
    decode_info,
    encode_info,
    is_forced,
    parse_seconds,
    read_hold,
    read_policy,
    template_annotations,
)
from fairlead.domain.typed_objects import RemoteInstance, VirtualClusterInstance

SLEEP_SCHEDULE, WAKEUP_SCHEDULE = f"{PREFIX}sleep-schedule", f"{PREFIX}wakeup-schedule"
TIMEZONE = f"{PREFIX}timezone"
IGNORE_ALL, IGNORE_ACTIVE_CONNECTIONS = f"{PREFIX}ignore-all", f"{PREFIX}ignore-active-connections"
IGNORE_VIRTUAL_CLUSTERS = f"{PREFIX}ignore-virtual-clusters"
IGNORE_LISTS = ("groups", "verbs", "resources", "resource-verbs", "resource-names", "user-agents")
"""Annotations `ignore-<name>` with values that are separated by commas."""
DELETE_BARE_PODS = f"{PREFIX}delete-bare-pods"
"""`"true"`: pods that nothing would create again are deleted when the space falls asleep, instead of running on."""
MAX_LIST_LENGTH, MAX_LIST_ITEMS = 4096, 200
REFUSAL_SECONDS = 3600
"""For so long, an instance that cannot sleep is not put to sleep again, other than by a person."""


@dataclass(frozen=True, slots=True)
class Use:
    """A request through a gateway, as far as filters of activity look at it. `name` and `resource` may be empty."""

    user: str
    groups: frozenset[str]
    verb: str
    resource: str
    name: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class ActivityFilter:
    """Which requests are no activity. User agents match with a `*` at the end as a prefix."""

    ignores_all: bool = False
    ignores_connections: bool = False
    ignored: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the names of `IGNORE_LISTS`."""

    def counts(self, use: Use) -> bool:
        if self.ignores_all or use.groups & self.ignored.get("groups", frozenset()):
            return False
        values = {
            "verbs": use.verb,
            "resources": use.resource,
            "resource-verbs": f"{use.resource}={use.verb}",
            "resource-names": use.name,
        }
        if any(value in self.ignored.get(kind, frozenset()) for kind, value in values.items()):
            return False
        return not any(_matches(use.user_agent, each) for each in self.ignored.get("user-agents", frozenset()))


def _matches(text: str, pattern: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


@dataclass(frozen=True, slots=True)
class InstancePolicy:
    """`problems` are messages about annotations that are ignored, since they make no sense."""

    sleep_after: int = 0
    delete_after: int = 0
    sleep_schedule: Schedule | None = None
    wakeup_schedule: Schedule | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    """The schedules and their time zone, as written."""
    activity: ActivityFilter = ActivityFilter()
    deletes_bare_pods: bool = False
    problems: Sequence[str] = ()

    @property
    def idle_seconds(self) -> int:
        """How long it may be idle; 0 means forever. Only what sleeps is deleted, so it falls asleep before that."""
        return min((each for each in (self.sleep_after, self.delete_after) if each), default=0)


def read_instance_policy(instance: RemoteInstance) -> InstancePolicy:
    """The stricter of what the template and the instance say: the shorter time, and all filters of both. A schedule of
    the template replaces that of the instance. So does having any rule about sleep for the wake-ups of the instance,
    which would be a way around it."""
    of_template = template_annotations(instance.rendered)
    own = annotations_of(instance.raw)
    times = read_policy(instance.raw, instance.rendered)
    sleeps_by = of_template if of_template.get(SLEEP_SCHEDULE) else own
    has_rule = any(of_template.get(each) for each in (SLEEP_AFTER, DELETE_AFTER, SLEEP_SCHEDULE, WAKEUP_SCHEDULE))
    wakes_by = of_template if has_rule else own
    sleep_text = _text(sleeps_by, SLEEP_SCHEDULE)
    wakeup_text = _text(wakes_by, WAKEUP_SCHEDULE)
    zone = _text(sleeps_by if sleep_text else wakes_by, TIMEZONE)
    problems: list[str] = []
    return InstancePolicy(
        sleep_after=times.sleep_after,
        delete_after=times.delete_after,
        sleep_schedule=_parse(SLEEP_SCHEDULE, sleep_text, zone, problems),
        wakeup_schedule=_parse(WAKEUP_SCHEDULE, wakeup_text, _text(wakes_by, TIMEZONE) or zone, problems),
        texts={"sleepSchedule": sleep_text, "wakeupSchedule": wakeup_text, "timezone": zone},
        activity=_read_filter((of_template, own), isinstance(instance, VirtualClusterInstance)),
        deletes_bare_pods=any(each.get(DELETE_BARE_PODS) == "true" for each in (of_template, own)),
        problems=problems,
    )


def find_problems(annotations: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with sleep annotations, for warnings when they are written."""
    for name in (SLEEP_AFTER, DELETE_AFTER):
        text = annotations.get(name)
        if text and text != "0" and not parse_seconds(text):
            yield f"{name} is not a number of seconds: it is ignored"
    problems: list[str] = []
    zone = _text(annotations, TIMEZONE)
    for name in (SLEEP_SCHEDULE, WAKEUP_SCHEDULE):
        _parse(name, _text(annotations, name), zone, problems)
    yield from problems


def _text(annotations: Mapping[str, str], name: str) -> str:
    found = annotations.get(name)
    return found.strip() if isinstance(found, str) else ""


def _parse(name: str, text: str, zone: str, problems: list[str]) -> Schedule | None:
    try:
        return parse_schedule(text, zone) if text else None
    except InvalidSchedule as error:
        problems.append(f"{name} is ignored: {error}")
        return None


def _read_filter(sources: Sequence[Mapping[str, str]], is_virtual_cluster: bool) -> ActivityFilter:
    def is_set(name: str) -> bool:
        return any(each.get(name) == "true" for each in sources)

    def items(name: str) -> frozenset[str]:
        texts = (str(each.get(f"{PREFIX}ignore-{name}") or "")[:MAX_LIST_LENGTH] for each in sources)
        parts = [part.strip() for text in texts for part in text.split(",")[:MAX_LIST_ITEMS]]
        return frozenset(part for part in parts if part)

    return ActivityFilter(
        ignores_all=is_set(IGNORE_ALL) or (is_virtual_cluster and is_set(IGNORE_VIRTUAL_CLUSTERS)),
        ignores_connections=is_set(IGNORE_ACTIVE_CONNECTIONS),
        ignored={name: values for name in IGNORE_LISTS if (values := items(name))},
    )


def decide(instance: RemoteInstance, now: int) -> SleepDecision:
    if not instance.can_sleep:
        return SleepDecision()
    if is_forced(instance.raw):
        return decide_forced(instance.raw, now)
    policy = read_instance_policy(instance)
    if instance.sleep_type:
        return _decide_asleep(instance, policy, now)
    refused_until = instance.sleep_refused_at + REFUSAL_SECONDS
    if now < refused_until:
        return SleepDecision(withdraw_announcement(instance.raw), recheck_at=refused_until)
    planned = (*_idle_sleep(instance, policy, now), *_scheduled_sleep(instance, policy, now))
    cause = str(decode_info(instance.raw).get("reason") or "Unknown")
    last = LastActivity(last_activity(instance, now), cause)
    return decide_planned(instance.raw, planned, last, now, "the annotation sleepmode.service.sh/hold-until")


def _decide_asleep(instance: RemoteInstance, policy: InstancePolicy, now: int) -> SleepDecision:
    end = find_end(instance.raw, instance.sleep_type, now)
    if end is not None:
        return end
    wakes_at = 0
    if policy.wakeup_schedule is not None:
        wakes_at = policy.wakeup_schedule.next_after(parse_seconds(annotations_of(instance.raw).get(SLEEPING_SINCE)))
    if wakes_at and now >= wakes_at:
        message = f"its schedule of wake-ups says {format_time(wakes_at)}"
        return SleepDecision(build_wake(now, encode_info("Schedule", message)), event=(WOKEN_UP, message))
    noted: Changes = {SCHEDULED_WAKEUP: str(wakes_at) if wakes_at else None}
    deletes_at = last_activity(instance, now) + policy.delete_after if policy.delete_after else 0
    held = max(deletes_at, read_hold(instance.raw, now)) if deletes_at else 0
    return SleepDecision(noted, wakes_at=wakes_at, deletes_at=held, recheck_at=wakes_at)


def _idle_sleep(instance: RemoteInstance, policy: InstancePolicy, now: int) -> Iterator[PlannedSleep]:
    after = policy.idle_seconds
    if not after:
        return
    last = last_activity(instance, now)
    held = read_hold(instance.raw, now)
    why = f"no requests since {format_time(last)}"
    if held > last:
        why += f", and held until {format_time(held)}"
    yield PlannedSleep(max(last, held) + after, INACTIVITY_SLEEP, why)


def _scheduled_sleep(instance: RemoteInstance, policy: InstancePolicy, now: int) -> Iterator[PlannedSleep]:
    """The time in the status, if it is one of the schedule: it may have passed while no server ran. If a wake-up was
    due since then as well, both are over."""
    schedule = policy.sleep_schedule
    if schedule is None:
        return
    at = get_path(instance.status, "sleepModeConfig.status.scheduledSleep") or 0
    wakeup = policy.wakeup_schedule.next_after(at) if policy.wakeup_schedule is not None and at else 0
    if not schedule.has(at) or 0 < wakeup <= now:
        at = schedule.next_after(now)
    if at:
        yield PlannedSleep(at, SCHEDULED_TYPE, f"its schedule says that it sleeps from {format_time(at)}")


def last_activity(instance: RemoteInstance, now: int) -> int:
    """The last activity that was noted, or the creation of the instance."""
    return max(noted_activity(instance.raw, now), created_at(instance.raw))


def wakes_on_request(instance: RemoteInstance) -> bool:
    return instance.sleep_type == INACTIVITY_SLEEP


def build_sleep_mode(instance: RemoteInstance, decision: SleepDecision, now: int) -> Object:
    """`status.sleepModeConfig`: the policy and the state. Empty fields are left out."""
    policy = read_instance_policy(instance)
    filters = policy.activity
    spec = {
        **describe_request(instance.raw, now),
        "sleepAfter": policy.sleep_after,
        "deleteAfter": policy.delete_after,
        **policy.texts,
        "ignoreAll": filters.ignores_all,
        "ignoreActiveConnections": filters.ignores_connections,
        **{_camel_case(f"ignore-{name}"): ",".join(sorted(each)) for name, each in filters.ignored.items()},
    }
    state = {
        **describe_sleep(instance.raw, decision),
        "lastActivity": noted_activity(instance.raw, now),
        "lastActivityInfo": decode_info(instance.raw),
    }
    return without_empty({"spec": without_empty(spec), "status": without_empty(state)})


def _camel_case(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(each.capitalize() for each in others)
