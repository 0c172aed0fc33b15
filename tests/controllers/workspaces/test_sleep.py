"""The controller that puts workspaces to sleep and deletes them, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.controllers.workspaces.sleep import WorkspaceSleepController
from fairlead.controllers.workspaces.workspaces import WorkspaceController
from fairlead.core.clock import micro_timestamp, timestamp
from fairlead.core.objects import Object, get_path
from fairlead.kinds.clusters.runner import HEARTBEAT_NAMESPACE, heartbeat_lease
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options
from tests.harness.virtual_time import LoopClock

NAMESPACE = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"
PREFIX = "sleepmode.service.sh/"
HOUR, DAY = 3600, 86_400


class SteppedClock(LoopClock):
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.step = timedelta()

    def now(self) -> datetime:
        return super().now() + self.step


class SleepFixture:
    """Runner `a` with a Lease that is renewed, and the workspace `w` on it."""

    def __init__(self, api: RegistryFixture) -> None:
        self.api = api
        self.renewing: asyncio.Task[None] | None = None

    async def start(self, **annotations: str) -> None:
        await self.api.create("Project", "p")
        await self.api.create("Namespace", HEARTBEAT_NAMESPACE)
        await self.api.create("Lease", heartbeat_lease("a"), HEARTBEAT_NAMESPACE, spec={})
        await self.api.create("Runner", "a")
        self.renewing = asyncio.create_task(self._renew())
        named = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()}
        spec = {"runnerRef": {"runner": "a"}}
        await self.api.create(KIND, "w", NAMESPACE, spec=spec, metadata={"annotations": named})
        await self.report(phase="Ready", lastWorkspaceStatus="Running")

    async def _renew(self) -> None:
        while True:
            name, now = heartbeat_lease("a"), micro_timestamp(self.api.clock.now())
            edit = partial(_set_spec, {"renewTime": now})
            await self.api.resource("Lease").modify(HEARTBEAT_NAMESPACE, name, edit, write_options())
            await asyncio.sleep(50)

    def silence(self) -> None:
        assert self.renewing is not None
        self.renewing.cancel()

    async def report(self, **status: Any) -> None:
        """Writes the status, like the runner."""

        def edit(old: Object) -> Object:
            return {**old, "status": {**(old.get("status") or {}), **status}}

        await self.api.resource(KIND).modify(NAMESPACE, "w", edit, write_options(subresource="status"))

    async def report_activity(self, state: str, **fields: str) -> None:
        """The last activity was now."""
        moment = timestamp(self.api.clock.now())
        await self.report(activity={"state": state, "reason": "Cpu", "lastActivityTime": moment, **fields})

    @property
    def workspace(self) -> Object | None:
        entry = self.api.resource(KIND).get_cached(NAMESPACE, "w")
        return decode(entry) if entry is not None else None

    def annotation(self, name: str) -> str:
        return str((get_path(self.workspace, "metadata.annotations") or {}).get(f"{PREFIX}{name}") or "")

    def events(self) -> list[str]:
        entries = self.api.view.entries("", "events")
        objects = sorted((decode(each) for each in entries), key=lambda each: str(each["firstTimestamp"]))
        reasons = [str(each["reason"]) for each in objects if each["involvedObject"]["name"] == "w"]
        return [each for each in reasons if each not in ("Scheduled", "RunnerSilent")]


def _set_spec(spec: Object, old: Object) -> Object:
    return {**old, "spec": spec}


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[SleepFixture]:
    clock = SteppedClock()
    api.clock = clock
    api.registry.clock = clock
    fixture = SleepFixture(api)
    controllers = (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        RunnerController(api.registry, MANAGEMENT_GROUP),
        WorkspaceSleepController(api.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(api, *controllers):
        yield fixture
    if fixture.renewing is not None:
        fixture.renewing.cancel()


def step_clock(server: SleepFixture, seconds: float) -> None:
    clock = server.api.clock
    assert isinstance(clock, SteppedClock)
    clock.step += timedelta(seconds=seconds)


async def test_an_idle_workspace_gets_a_warning_and_then_sleeps(server: SleepFixture) -> None:
    await server.start(sleep_after=str(HOUR))
    await server.report_activity("Idle")
    await asyncio.sleep(HOUR - 660)
    assert server.events() == []
    assert get_path(server.workspace, "status.sleepModeConfig.status.scheduledSleep")
    await asyncio.sleep(120)
    assert server.events() == ["SleepScheduled"]
    assert server.annotation("sleep-type") == ""
    await asyncio.sleep(660)
    assert server.events() == ["SleepScheduled", "FellAsleep"]
    assert server.annotation("sleep-type") == "inactivitySleep"
    assert get_path(server.workspace, "status.sleepModeConfig.status.sleepType") == "inactivitySleep"


async def test_a_workspace_in_use_is_never_put_to_sleep(server: SleepFixture) -> None:
    """Reads, watches and other writes of the object are no activity, and no sign of its absence either."""
    await server.start(sleep_after=str(HOUR))
    await server.report_activity("Active")
    await asyncio.sleep(40 * 60)
    await server.report(message="looked at")
    await asyncio.sleep(4 * HOUR)
    assert (server.events(), server.annotation("sleep-type")) == ([], "")


async def test_looking_at_a_workspace_does_not_keep_it_awake(server: SleepFixture) -> None:
    await server.start(sleep_after=str(HOUR))
    await server.report_activity("Idle")
    watch = server.api.view.watch(MANAGEMENT_GROUP, "devpodworkspaceinstances", "", server.api.view.revision, 100)
    for _ in range(70):
        await server.api.resource(KIND).get(NAMESPACE, "w")
        await asyncio.sleep(60)
    server.api.view.unwatch(MANAGEMENT_GROUP, "devpodworkspaceinstances", watch)
    assert server.annotation("sleep-type") == "inactivitySleep"


async def test_a_silent_runner_stops_all_decisions_and_its_return_resumes_them(server: SleepFixture) -> None:
    await server.start(sleep_after=str(HOUR), delete_after=str(2 * HOUR))
    await server.report_activity("Idle")
    await asyncio.sleep(600)
    server.silence()
    await asyncio.sleep(3 * DAY)
    assert server.annotation("sleep-type") == ""
    assert server.workspace is not None
    server.renewing = asyncio.create_task(server._renew())
    await eventually(lambda: server.annotation("sleep-type") == "inactivitySleep")


async def test_activity_before_the_runner_has_stopped_it_cancels_the_sleep(server: SleepFixture) -> None:
    await server.start(sleep_after=str(HOUR))
    await server.report_activity("Idle")
    await asyncio.sleep(HOUR + 60)
    assert server.annotation("sleep-type") != ""
    await server.report_activity("Active")
    await eventually(lambda: server.annotation("sleep-type") == "")
    assert server.events()[-1] == "SleepCancelled"


async def test_the_longest_run_is_enforced_in_use(server: SleepFixture) -> None:
    await server.start(max_run=str(HOUR))
    await server.report_activity("Active", startTime=timestamp(server.api.clock.now()))
    await asyncio.sleep(HOUR + 60)
    assert server.annotation("sleep-type") == "scheduledSleep"
    assert server.events() == ["SleepScheduled", "FellAsleep"]


async def test_an_unused_workspace_is_announced_and_deleted_an_hour_later(server: SleepFixture) -> None:
    await server.start(delete_after=str(3 * HOUR))
    await server.report_activity("")
    await server.report(lastWorkspaceStatus="NotFound")
    await asyncio.sleep(3 * HOUR - 60)
    assert server.events() == []
    await asyncio.sleep(1800)
    assert server.events() == ["DeletionScheduled"]
    assert server.workspace is not None
    await asyncio.sleep(HOUR)
    assert server.workspace is None


async def test_a_wall_clock_that_jumps_and_is_corrected_deletes_nothing(server: SleepFixture) -> None:
    await server.start(delete_after=str(3 * HOUR))
    await server.report_activity("")
    await server.report(lastWorkspaceStatus="NotFound")
    step_clock(server, 30 * DAY)
    await asyncio.sleep(1800)
    assert server.events() == ["DeletionScheduled"]
    step_clock(server, -30 * DAY)
    await asyncio.sleep(2 * HOUR)
    assert server.workspace is not None


async def test_use_during_the_hour_before_the_deletion_prevents_it(server: SleepFixture) -> None:
    await server.start(delete_after=str(3 * HOUR))
    await server.report_activity("")
    await server.report(lastWorkspaceStatus="Stopped")
    await asyncio.sleep(3 * HOUR + 600)
    assert server.events() == ["DeletionScheduled"]
    await server.report(lastWorkspaceStatus="Running")
    await server.report_activity("Active")
    await asyncio.sleep(2 * HOUR)
    assert server.workspace is not None
    assert "deletionTimestamp" not in server.workspace["metadata"]


async def test_a_forced_sleep_with_a_duration_ends(server: SleepFixture) -> None:
    await server.start(force="true", force_duration="600")
    await eventually(lambda: server.annotation("sleep-type") == "forcedDurationSleep")
    await server.report(phase="Sleeping", lastWorkspaceStatus="Stopped")
    await asyncio.sleep(700)
    assert (server.annotation("force"), server.annotation("sleep-type")) == ("", "")
    assert server.annotation("last-activity")


async def test_a_settled_workspace_is_not_written_again(server: SleepFixture) -> None:
    await server.start(sleep_after=str(HOUR), delete_after=str(30 * DAY))
    await server.report_activity("Idle")
    await asyncio.sleep(60)
    assert server.workspace is not None
    version = server.workspace["metadata"]["resourceVersion"]
    await asyncio.sleep(HOUR - 900)
    assert server.workspace["metadata"]["resourceVersion"] == version
