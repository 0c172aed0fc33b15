"""Tests of `fairlead.domain.instance_sleep`: when spaces and virtual clusters sleep and wake, and what is activity."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.core.clock import timestamp
from fairlead.domain.instance_sleep import (
    Use,
    build_sleep_mode,
    decide,
    find_problems,
    read_instance_policy,
    wakes_on_request,
)
from fairlead.domain.sleep_decisions import SleepDecision
from fairlead.domain.sleep_mode import build_wake_request, change_annotations
from fairlead.domain.typed_objects import RemoteInstance, SpaceInstance, VirtualClusterInstance

PREFIX = "sleepmode.service.sh/"
HOUR, DAY = 3600, 86_400
NOW = int(datetime(2026, 11, 18, 12, 0, tzinfo=UTC).timestamp())  # a Wednesday
CREATED = NOW - 30 * DAY


def named(values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{name.replace('_', '-')}": value for name, value in values.items()}


def space(template: dict[str, str] | None = None, status: dict[str, Any] | None = None, **own: str) -> SpaceInstance:
    created = timestamp(datetime.fromtimestamp(CREATED, UTC))
    rendered = {"instanceTemplate": {"metadata": {"annotations": named(template or {})}}}
    meta = {"name": "one", "namespace": "demo", "uid": "u", "creationTimestamp": created, "annotations": named(own)}
    spec = {"clusterRef": {"cluster": "c", "namespace": "demo-one"}}
    return SpaceInstance({"metadata": meta, "spec": spec, "status": {"space": rendered, **(status or {})}})


def change_of(decision: SleepDecision, name: str) -> str | None:
    return decision.changes.get(f"{PREFIX}{name}", "unchanged")


def after(instance: RemoteInstance, decision: SleepDecision) -> SpaceInstance:
    return SpaceInstance(change_annotations(instance.raw, decision.changes))


def test_a_space_without_a_policy_never_sleeps() -> None:
    assert decide(space(), NOW) == SleepDecision()
    assert build_sleep_mode(space(), decide(space(), NOW), NOW) == {}


def test_a_space_that_is_not_used_falls_asleep() -> None:
    decision = decide(space(sleep_after=str(HOUR), last_activity=str(NOW - HOUR)), NOW)
    assert change_of(decision, "sleep-type") == "inactivitySleep"
    assert change_of(decision, "sleeping-since") == str(NOW)
    assert decision.event == ("FellAsleep", "no requests since 2026-11-18T11:00:00Z")


def test_ten_minutes_before_it_is_announced() -> None:
    decision = decide(space(sleep_after=str(HOUR), last_activity=str(NOW - HOUR + 300)), NOW)
    assert change_of(decision, "scheduled-sleep") == str(NOW + 300)
    assert decision.sleeps_at == decision.recheck_at == NOW + 300
    assert decision.event is not None
    assert decision.event[0] == "SleepScheduled"


def test_a_space_in_use_is_not_announced() -> None:
    decision = decide(space(sleep_after=str(HOUR), last_activity=str(NOW), scheduled_sleep="1"), NOW)
    assert (change_of(decision, "scheduled-sleep"), decision.sleeps_at) == (None, NOW + HOUR)


def test_a_hold_counts_as_activity() -> None:
    held = space(sleep_after=str(HOUR), last_activity=str(NOW - DAY), hold_until=str(NOW + HOUR))
    assert decide(held, NOW).sleeps_at == NOW + 2 * HOUR


def test_an_activity_in_the_future_is_no_hold() -> None:
    found = space(sleep_after=str(HOUR), last_activity=str(NOW + DAY))
    assert change_of(decide(found, NOW), "sleep-type") == "inactivitySleep"


@pytest.mark.parametrize(("template", "own", "expected"), [("600", "60", 60), ("60", "600", 60), ("60", "0", 60)])
def test_the_stricter_time_counts(template: str, own: str, expected: int) -> None:
    assert read_instance_policy(space({"sleep_after": template}, sleep_after=own)).sleep_after == expected


def test_an_imported_virtual_cluster_never_sleeps() -> None:
    raw = space(sleep_after="1").raw
    spec = {**raw["spec"], "config": {"secretName": "kubeconfig"}}
    assert decide(VirtualClusterInstance({**raw, "spec": spec}), NOW) == SleepDecision()


def test_a_forced_sleep_with_a_duration_ends() -> None:
    asleep = after(forced := space(force="true", force_duration="60"), decide(forced, NOW))
    assert asleep.sleep_type == "forcedDurationSleep"
    assert decide(asleep, NOW + 59).wakes_at == NOW + 60
    assert change_of(decide(asleep, NOW + 60), "force") is None
    assert not wakes_on_request(asleep)


def test_a_request_wakes_from_idle_sleep_and_the_server_removes_the_rest() -> None:
    idle = space(sleep_after=str(HOUR), last_activity=str(NOW - HOUR))
    asleep = after(idle, decide(idle, NOW))
    assert wakes_on_request(asleep)
    assert decide(asleep, NOW + 60).changes.get(f"{PREFIX}sleep-type", "stays") == "stays"
    info = '{"reason": "Request", "message": "woken up by ada", "user": "ada"}'
    # In the same second as the beginning of the sleep, too.
    requested = SpaceInstance(change_annotations(asleep.raw, build_wake_request(asleep.raw, NOW, info)))
    decision = decide(requested, NOW)
    assert change_of(decision, "sleep-type") is None
    assert decision.event == ("WokenUp", "woken up by ada")


def test_made_up_annotations_are_removed() -> None:
    decision = decide(space(sleep_type="inactivitySleep", sleeping_since=str(CREATED - 1)), NOW)
    assert change_of(decision, "sleep-type") is None


SCHEDULE = {"sleep_schedule": "0 19 * * mon-fri", "wakeup_schedule": "0 8 * * mon-fri"}


def planned(at: int) -> dict[str, Any]:
    return {"sleepModeConfig": {"status": {"scheduledSleep": at}}}


def test_a_schedule_puts_it_to_sleep_whatever_happens() -> None:
    evening = NOW + 7 * HOUR
    used = str(evening)
    assert decide(space(SCHEDULE, last_activity=used), NOW).sleeps_at == evening
    asleep = decide(space(SCHEDULE, planned(evening), last_activity=used), evening)
    assert change_of(asleep, "sleep-type") == "scheduledSleep"


def test_a_scheduled_sleep_that_was_due_while_no_server_ran() -> None:
    evening = NOW + 7 * HOUR
    late = decide(space(SCHEDULE, planned(evening)), evening + 4 * HOUR)
    assert change_of(late, "sleep-type") == "scheduledSleep"
    # In the next morning, the wake-up was due as well.
    assert decide(space(SCHEDULE, planned(evening)), evening + 14 * HOUR).sleeps_at == evening + DAY


def test_another_schedule_replaces_the_planned_time() -> None:
    found = space({**SCHEDULE, "sleep_schedule": "0 20 * * *"}, planned(NOW - HOUR))
    assert decide(found, NOW).sleeps_at == NOW + 8 * HOUR


def test_who_wakes_it_in_the_night_has_it_until_the_next_evening() -> None:
    evening = NOW + 7 * HOUR
    asleep = after(found := space(SCHEDULE, planned(evening)), decide(found, evening))
    awake = SpaceInstance(
        change_annotations(asleep.raw, decide(asleep, evening).changes | {f"{PREFIX}sleep-type": None})
    )
    stopped = SpaceInstance({**awake.raw, "status": {"space": awake.rendered}})  # nothing is planned while it sleeps
    assert decide(stopped, evening + HOUR).sleeps_at == evening + DAY


def test_a_schedule_wakes_it() -> None:
    evening = NOW + 7 * HOUR
    asleep = after(found := space(SCHEDULE, planned(evening)), decide(found, evening))
    assert not wakes_on_request(asleep)
    waiting = decide(asleep, evening + HOUR)
    assert waiting.wakes_at == waiting.recheck_at == evening + 13 * HOUR
    assert change_of(waiting, "scheduled-wakeup") == str(evening + 13 * HOUR)
    morning = decide(asleep, evening + 13 * HOUR)
    assert change_of(morning, "sleep-type") is None
    assert morning.event is not None
    assert morning.event[0] == "WokenUp"


def test_own_wakeups_are_no_way_around_the_template() -> None:
    policy = read_instance_policy(space({"sleep_after": "600"}, wakeup_schedule="* * * * *"))
    assert policy.wakeup_schedule is None
    assert read_instance_policy(space(wakeup_schedule="* * * * *")).wakeup_schedule is not None


def test_a_schedule_of_the_template_replaces_that_of_the_instance() -> None:
    policy = read_instance_policy(space(SCHEDULE, sleep_schedule="0 23 * * *"))
    assert policy.texts["sleepSchedule"] == "0 19 * * mon-fri"


def test_a_refusal_holds_for_an_hour_but_not_for_persons() -> None:
    refused = space(status={"sleep": {"refusedAt": NOW - 60}}, sleep_after="60", last_activity=str(NOW - DAY))
    assert decide(refused, NOW).changes == {}
    assert change_of(decide(refused, NOW + HOUR), "sleep-type") == "inactivitySleep"
    forced = space(status={"sleep": {"refusedAt": NOW - 60}}, force="true")
    assert change_of(decide(forced, NOW), "sleep-type") == "forcedSleep"


def test_only_what_sleeps_is_deleted() -> None:
    idle = space(delete_after=str(DAY), last_activity=str(NOW - 2 * DAY))
    first = decide(idle, NOW)
    assert (change_of(first, "sleep-type"), first.deletes_at) == ("inactivitySleep", 0)
    assert decide(after(idle, first), NOW).deletes_at == NOW - DAY


def use(**fields: Any) -> Use:
    values = {
        "user": "ada",
        "groups": frozenset({"dev"}),
        "verb": "list",
        "resource": "pods",
        "name": "",
        "user_agent": "kubectl/v1.35",
    }
    return Use(**{**values, **fields})


@pytest.mark.parametrize(
    ("own", "ignored"),
    [
        ({}, False),
        ({"ignore_all": "true"}, True),
        ({"ignore_groups": "ops, dev"}, True),
        ({"ignore_groups": "ops"}, False),
        ({"ignore_verbs": "list,watch"}, True),
        ({"ignore_resources": "pods"}, True),
        ({"ignore_resource_verbs": "pods=list"}, True),
        ({"ignore_resource_verbs": "pods=get"}, False),
        ({"ignore_user_agents": "kubectl*"}, True),
        ({"ignore_user_agents": "kubectl"}, False),
        ({"ignore_virtual_clusters": "true"}, False),
    ],
)
def test_filters_of_activity(own: dict[str, str], ignored: bool) -> None:
    assert read_instance_policy(space(None, None, **own)).activity.counts(use()) is not ignored
    assert read_instance_policy(space(own)).activity.counts(use()) is not ignored  # of the template


def test_names_that_are_no_activity() -> None:
    policy = read_instance_policy(space(ignore_resource_names="leader-election"))
    assert not policy.activity.counts(use(name="leader-election"))
    assert policy.activity.counts(use(name="web"))


def test_what_makes_no_sense_is_named_and_ignored() -> None:
    bad = named({"sleep_after": "1h", "sleep_schedule": "0 25 * * *", "wakeup_schedule": "soon", "delete_after": "0"})
    problems = list(find_problems(bad))
    assert [each.partition(" ")[0].removeprefix(PREFIX) for each in problems] == [
        "sleep-after",
        "sleep-schedule",
        "wakeup-schedule",
    ]
    found = space(sleep_schedule="0 25 * * *")
    assert decide(found, NOW) == SleepDecision()


def test_the_status_shows_policy_and_state() -> None:
    found = space({"sleep_after": "600", **SCHEDULE}, ignore_user_agents="k9s*", last_activity=str(NOW))
    config = build_sleep_mode(found, decide(found, NOW), NOW)
    assert config["spec"] == {
        "sleepAfter": 600,
        "sleepSchedule": "0 19 * * mon-fri",
        "wakeupSchedule": "0 8 * * mon-fri",
        "ignoreUserAgents": "k9s*",
    }
    assert config["status"] == {"lastActivity": NOW, "scheduledSleep": NOW + 600}
