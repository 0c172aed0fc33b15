"""Activity of workspaces on a runner, on virtual time: reports to the server, and the check before a sleep."""

import asyncio
from datetime import timedelta
from typing import Any

from fairlead.core.clock import parse_rfc3339
from fairlead.runner.activity_monitor import REPORT_SECONDS
from fairlead.runner.engines.contract import ActivitySample, EngineError, Reason
from tests.harness.eventually import eventually
from tests.harness.virtual_time import EPOCH
from tests.runner.conftest import RunnerFixture

SOURCE = {"service.sh/workspace-source": "git:https://example.com/repository.git"}
PREFIX = "sleepmode.service.sh/"
HOUR = 3600


async def bring_up(runner: RunnerFixture, **policy: int) -> None:
    runner.api.create("u", **SOURCE)
    await eventually(lambda: runner.api.summary("u")[0] == "Ready")
    runner.api.change("u", status={"sleepModeConfig": {"spec": policy}})
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[1] == "Running")


def activity(runner: RunnerFixture) -> dict[str, Any]:
    found: dict[str, Any] = runner.api.status("u").get("activity") or {}
    return found


def put_to_sleep(runner: RunnerFixture, sleep_type: str = "inactivitySleep") -> None:
    """What the server writes."""
    since = str(int((EPOCH + timedelta(seconds=asyncio.get_running_loop().time())).timestamp()))
    runner.api.annotate("u", **{f"{PREFIX}sleep-type": sleep_type, f"{PREFIX}sleeping-since": since})


def use(runner: RunnerFixture) -> None:
    runner.engine.measured = ActivitySample(newest_write=asyncio.get_running_loop().time())


async def test_a_workspace_is_reported_as_active_and_then_as_idle_since_its_last_activity(
    runner: RunnerFixture,
) -> None:
    await bring_up(runner)
    await eventually(lambda: activity(runner).get("state") == "Active")
    await asyncio.sleep(400)
    use(runner)
    used_at = asyncio.get_running_loop().time()
    await eventually(lambda: activity(runner).get("state") == "Active")
    await asyncio.sleep(600)
    assert (activity(runner)["state"], activity(runner)["reason"]) == ("Idle", "FilesWritten")
    reported = parse_rfc3339(activity(runner)["lastActivityTime"])
    assert reported is not None
    assert 0 <= (reported - EPOCH).total_seconds() - used_at <= 31


async def test_a_workspace_in_constant_use_is_not_reported_again_and_again(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await asyncio.sleep(120)
    patches = runner.api.patches
    for _ in range(120):
        use(runner)
        await asyncio.sleep(30)
    assert runner.api.patches == patches


async def test_reports_about_a_workspace_are_a_minute_apart(runner: RunnerFixture) -> None:
    await bring_up(runner)
    patches = runner.api.patches
    for number in range(60):
        runner.engine.measured = ActivitySample(EPOCH + timedelta(days=number))  # as if it were restarted all the time
        await asyncio.sleep(REPORT_SECONDS / 2)
    assert 25 <= runner.api.patches - patches <= 31


async def test_the_end_of_a_workspace_is_reported_with_its_last_activity(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await asyncio.sleep(600)
    last = activity(runner)["lastActivityTime"]
    runner.get().request_stop()
    await asyncio.sleep(600)
    assert (activity(runner)["state"], activity(runner)["lastActivityTime"]) == ("", last)


async def test_the_runner_stops_an_idle_workspace_when_the_server_has_decided(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    await asyncio.sleep(HOUR)
    put_to_sleep(runner)
    await eventually(lambda: runner.api.summary("u")[:2] == ("Sleeping", "Stopped"))
    assert runner.api.status("u")["reason"] == "Inactive"
    runner.api.annotate("u", **{f"{PREFIX}sleep-type": ""})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Ready", "Running"))


async def test_activity_after_the_decision_prevents_the_sleep(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    await asyncio.sleep(HOUR)
    put_to_sleep(runner)
    use(runner)
    await eventually(lambda: activity(runner)["state"] == "Active")
    await asyncio.sleep(600)
    assert runner.api.summary("u")[:2] == ("Ready", "Running")


async def test_a_server_whose_clock_has_jumped_does_not_stop_a_workspace_in_use(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    await asyncio.sleep(900)
    put_to_sleep(runner)
    await asyncio.sleep(1800)
    assert runner.api.summary("u")[1] == "Running"
    await asyncio.sleep(1000)
    assert runner.api.summary("u")[:2] == ("Sleeping", "Stopped")


async def test_a_new_process_measures_before_it_stops_anything(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    await asyncio.sleep(HOUR)
    await runner.kill()
    put_to_sleep(runner)
    runner.start()
    await eventually(lambda: activity(runner)["state"] == "Active")
    await asyncio.sleep(HOUR // 2)
    assert runner.api.summary("u")[1] == "Running"


async def test_what_cannot_be_measured_is_not_stopped_for_lack_of_activity(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    await asyncio.sleep(HOUR)
    runner.engine.measured = EngineError(Reason.ENGINE_UNAVAILABLE, "podman does not respond")
    await eventually(lambda: activity(runner)["state"] == "Unknown")
    put_to_sleep(runner)
    await asyncio.sleep(HOUR)
    assert runner.api.summary("u")[1] == "Running"


async def test_the_longest_run_ends_also_in_use(runner: RunnerFixture) -> None:
    started = EPOCH + timedelta(seconds=asyncio.get_running_loop().time())
    runner.engine.measured = ActivitySample(started)
    await bring_up(runner, maxRun=HOUR)
    await asyncio.sleep(600)
    put_to_sleep(runner, "scheduledSleep")  # by a clock that is ahead
    await asyncio.sleep(600)
    assert runner.api.summary("u")[1] == "Running"
    for _ in range(90):
        runner.engine.measured = ActivitySample(started, newest_write=asyncio.get_running_loop().time())
        await asyncio.sleep(30)
    assert runner.api.summary("u")[:2] == ("Sleeping", "Stopped")
    assert runner.api.status("u")["reason"] == "MaxRunExceeded"


async def test_a_forced_sleep_needs_no_confirmation(runner: RunnerFixture) -> None:
    await bring_up(runner, sleepAfter=HOUR)
    use(runner)
    runner.api.annotate("u", **{f"{PREFIX}force": "true"})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Sleeping", "Stopped"))
    assert runner.api.status("u")["reason"] == "SleepRequested"
