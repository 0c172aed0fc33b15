"""`sleep`, `wake` and `hold` of `fairlead space` and `fairlead vcluster`; `hold` of workspaces."""

import time
from typing import Any

import pytest

from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import M, build_object, list_response
from tests.harness.watch_responses import END, build_watch_response

PREFIX = "sleepmode.service.sh/"
KINDS = {"space": "SpaceInstance", "vcluster": "VirtualClusterInstance"}
groups = pytest.mark.parametrize("group", list(KINDS))


def path(group: str) -> str:
    return f"{M}/namespaces/service-p-demo/{KINDS[group].lower()}s"


def instance(group: str, phase: str = "Ready", condition: dict[str, str] | None = None, **notes: str) -> dict[str, Any]:
    status = {"phase": phase, "conditions": [condition] if condition else []}
    found = build_object("dev", kind=KINDS[group], spec={}, status=status)
    annotations = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
    found["metadata"] |= {"uid": "1", "namespace": "service-p-demo", "annotations": annotations}
    return found


def watch_response(first: dict[str, Any], *later: dict[str, Any]) -> tuple[int, bytes]:
    added = {"type": "ADDED", "object": first}
    return build_watch_response(added, END, *({"type": "MODIFIED", "object": each} for each in later))


def sent(user: CliFixture, group: str) -> dict[str, str | None]:
    (request,) = user.fake.requests_to("PATCH", f"{path(group)}/dev")
    found: dict[str, str | None] = request.body["metadata"]["annotations"]
    return {name.removeprefix(PREFIX): value for name, value in found.items()}


@groups
def test_sleep_requests_it(user: CliFixture, group: str) -> None:
    user.fake.on("PATCH", f"{path(group)}/dev", (200, instance(group)))
    result = user.run(group, "sleep", "dev", "--project", "demo")
    assert (result.code, "only a person wakes it" in result.err) == (0, True)
    assert sent(user, group) == {"force": "true", "force-duration": None}


def test_sleep_for_a_time(user: CliFixture) -> None:
    user.fake.on("PATCH", f"{path('space')}/dev", (200, instance("space")))
    assert "for 2h" in user.run("space", "sleep", "dev", "--project", "demo", "--for", "2h").err
    assert sent(user, "space")["force-duration"] == "7200"


@groups
def test_sleep_waits_until_it_sleeps(user: CliFixture, group: str) -> None:
    user.fake.on("PATCH", f"{path(group)}/dev", (200, instance(group)))
    states = (instance(group, force="true"), instance(group, "Sleeping", force="true"))
    user.fake.on("GET", path(group), watch_response(*states))
    result = user.run(group, "sleep", "dev", "--project", "demo", "--wait")
    assert (result.code, "is asleep" in result.err) == (0, True)


def test_a_refusal_is_an_error(user: CliFixture) -> None:
    refusal = {"type": "Asleep", "status": "False", "reason": "SleepRefused", "message": "its data would be lost"}
    user.fake.on("PATCH", f"{path('vcluster')}/dev", (200, instance("vcluster", force="true")))
    states = (instance("vcluster", "Ready", refusal, force="true"), instance("vcluster", "Ready", refusal))
    user.fake.on("GET", path("vcluster"), watch_response(*states))
    result = user.run("vcluster", "sleep", "dev", "--project", "demo", "--wait")
    assert (result.code, "stays awake: its data would be lost" in result.err) == (1, True)


@groups
def test_wake_sets_an_activity_after_the_beginning_of_the_sleep(user: CliFixture, group: str) -> None:
    since = int(time.time()) + 1000  # the clock of the server is ahead
    asleep = instance(group, "Sleeping", sleep_type="forcedSleep", sleeping_since=str(since))
    user.fake.on("GET", f"{path(group)}/dev", (200, asleep))
    user.fake.on("PATCH", f"{path(group)}/dev", (200, asleep))
    result = user.run(group, "wake", "dev", "--project", "demo")
    assert (result.code, "wakes up" in result.err) == (0, True)
    assert sent(user, group) == {"force": None, "force-duration": None, "last-activity": str(since + 1)}


@groups
def test_wake_waits_until_it_is_ready(user: CliFixture, group: str) -> None:
    asleep = instance(group, "Sleeping", sleep_type="inactivitySleep", sleeping_since="1")
    user.fake.on("GET", f"{path(group)}/dev", (200, asleep))
    user.fake.on("PATCH", f"{path(group)}/dev", (200, asleep))
    user.fake.on("GET", path(group), watch_response(asleep, instance(group, "Pending"), instance(group)))
    result = user.run(group, "wake", "dev", "--project", "demo", "--wait")
    assert (result.code, "is awake" in result.err) == (0, True)


@groups
def test_a_wake_up_that_fails_ends_the_wait(user: CliFixture, group: str) -> None:
    asleep = instance(group, "Sleeping", sleep_type="inactivitySleep", sleeping_since="1")
    failed = instance(group, "Pending")
    failed["status"] |= {"reason": "WakeFailed", "message": "it cannot be woken up: no", "sleep": {"stage": "WakingUp"}}
    user.fake.on("GET", f"{path(group)}/dev", (200, asleep))
    user.fake.on("PATCH", f"{path(group)}/dev", (200, asleep))
    user.fake.on("GET", path(group), watch_response(asleep, failed))
    result = user.run(group, "wake", "dev", "--project", "demo", "--wait", "--timeout", "5s")
    assert (result.code, "it cannot be woken up: no" in result.err) == (1, True)
    assert "is still" not in result.err  # what is said after the time is over
    user.fake.on("GET", f"{path(group)}/dev", (200, failed))
    assert "awake already" not in user.run(group, "wake", "dev", "--project", "demo").err


def test_what_is_awake_is_left_alone(user: CliFixture) -> None:
    user.fake.on("GET", f"{path('space')}/dev", (200, instance("space")))
    assert "is awake already" in user.run("space", "wake", "dev", "--project", "demo").err
    assert user.fake.requests_to("PATCH", f"{path('space')}/dev") == []


def test_list_shows_the_cause_of_a_sleep(user: CliFixture) -> None:
    asleep = instance("space", "Sleeping")
    asleep["status"]["sleepModeConfig"] = {"status": {"sleepType": "inactivitySleep"}}
    user.fake.on("GET", path("space"), list_response(asleep))
    user.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo", kind="Project")))
    assert "Sleeping (idle)" in user.run("space", "list", "--project", "demo").out


HELD_GROUPS = {**KINDS, "workspace": "DevPodWorkspaceInstance"}
held_groups = pytest.mark.parametrize("group", list(HELD_GROUPS))


def run_hold(user: CliFixture, group: str, *arguments: str, **notes: str) -> tuple[CommandResult, list[Any]]:
    """The result, and the values that were sent."""
    path = f"{M}/namespaces/service-p-demo/{HELD_GROUPS[group].lower()}s/dev"
    found = build_object("dev", kind=HELD_GROUPS[group], spec={})
    found["metadata"]["annotations"] = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
    user.fake.on("PATCH", path, (200, found))
    result = user.run(group, "hold", "dev", "--project", "demo", *arguments)
    bodies = [each.body for each in user.fake.requests_to("PATCH", path)]
    return result, [each["metadata"]["annotations"][f"{PREFIX}hold-until"] for each in bodies]


@held_groups
@pytest.mark.parametrize("arguments", [("2h",), ("--for", "2h")])
def test_a_hold_says_until_when_it_counts_as_in_use(user: CliFixture, group: str, arguments: tuple[str, ...]) -> None:
    before = int(time.time())
    result, (until,) = run_hold(user, group, *arguments)
    assert (result.code, " dev is held until " in result.err, "asleep" in result.err) == (0, True, False)
    assert before + 7200 <= int(until) <= int(time.time()) + 7200


@held_groups
def test_a_release_removes_the_hold(user: CliFixture, group: str) -> None:
    result, values = run_hold(user, group, "--release")
    assert (result.code, values, "is no longer held" in result.err) == (0, [None], True)


@held_groups
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say for how long"),
        (("2h", "--release"), "not both"),
        (("2h", "--for", "2h"), "not both"),
        (("--for", "25h"), "at most 1d"),
        (("soon",), "is not a duration"),
    ],
)
def test_a_hold_needs_one_time_of_at_most_a_day(
    user: CliFixture, group: str, arguments: tuple[str, ...], message: str
) -> None:
    result, values = run_hold(user, group, *arguments)
    assert (result.code, values) == (2, [])
    assert message in result.err


def test_a_hold_of_what_sleeps_names_the_command_that_wakes_it(user: CliFixture) -> None:
    result, _ = run_hold(user, "vcluster", "--for", "1h", sleep_type="inactivitySleep")
    assert "a hold does not wake it; `fairlead vcluster wake dev --project demo` does" in result.err


@groups
@pytest.mark.parametrize(("remaining", "phase"), [(7000, "Ready (held for 1h56m)"), (-5, "Ready")])
def test_the_list_shows_what_is_held(user: CliFixture, group: str, remaining: int, phase: str) -> None:
    held = instance(group)
    held["status"]["sleepModeConfig"] = {"spec": {"holdUntil": int(time.time()) + remaining}}
    user.fake.on("GET", path(group), list_response(held))
    user.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo", kind="Project")))
    result = user.run(group, "list", "--project", "demo")
    assert result.code == 0, result.err
    table = result.out
    assert f" {phase} " in table and ("held" in table) == (remaining > 0)


@groups
def test_create_sets_after_what_time_it_sleeps(user: CliFixture, group: str) -> None:
    user.fake.on("POST", path(group), (201, instance(group)))
    user.fake.on("GET", f"{M}/projects/demo/templates", (200, {}))
    flags = ("--project", "demo", "--cluster", "berlin", "--sleep-after")
    assert user.run(group, "create", "dev", *flags, "90m").code == 0
    (request,) = user.fake.requests_to("POST", path(group))
    assert request.body["metadata"]["annotations"] == {f"{PREFIX}sleep-after": "5400"}
    refused = user.run(group, "create", "dev", *flags, "soon")
    assert (refused.code, "is not a duration" in refused.err) == (2, True)
