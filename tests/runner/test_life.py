"""What changes during the life of a workspace: its template, its owner, what it uses, and requests that apply once."""

import asyncio

import pytest

from fairlead.core.objects import Object
from fairlead.core.workspaces import UP_ANNOTATION
from fairlead.runner.decisions import FORCE
from fairlead.runner.engines.contract import EngineError, EngineStatus, Reason
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.test_workspaces import RUNS, SOURCE, bring_up

MEBIBYTE = 1024 * 1024


def find_condition(runner: RunnerFixture, type: str) -> Object:
    return next((each for each in runner.api.status("u")["conditions"] if each["type"] == type), {})


def container_name(runner: RunnerFixture) -> str:
    (path,) = runner.engine.containers.iterdir()
    return path.name


async def up(runner: RunnerFixture, **options: object) -> str:
    """The name of the container after an `up`."""
    runner.get().request_up(options)
    await eventually(lambda: (runner.record().last_task or runner.record().tasks[0]).status == "Succeeded")
    await eventually(lambda: runner.api.summary("u") == RUNS)
    return container_name(runner)


# --- template ---------------------------------------------------------------------------------------------------------


async def test_a_changed_template_is_said_to_wait_and_is_applied_by_the_next_up(runner: RunnerFixture) -> None:
    await bring_up(runner)
    container, data = container_name(runner), runner.data()
    assert find_condition(runner, "TemplateApplied")["status"] == "True"
    template = {"provider": {"name": "fake"}, "workspaceEnv": {"SIZE": {"value": "large"}}}
    runner.api.change("u", status={"instance": template})
    await eventually(lambda: find_condition(runner, "TemplateApplied")["reason"] == "AppliedAtNextUp")
    await asyncio.sleep(600)
    assert (container_name(runner), runner.api.summary("u")) == (container, RUNS)
    assert await up(runner) != container
    assert (find_condition(runner, "TemplateApplied")["status"], runner.data()) == ("True", data)
    again = container_name(runner)
    assert await up(runner) == again


async def test_what_wakes_for_a_session_or_by_itself_keeps_the_container_of_the_former_template(
    runner: RunnerFixture,
) -> None:
    await bring_up(runner)
    container = container_name(runner)
    template = {"provider": {"name": "fake"}, "workspaceEnv": {"SIZE": {"value": "large"}}}
    runner.api.change("u", status={"instance": template})
    await eventually(lambda: find_condition(runner, "TemplateApplied")["reason"] == "AppliedAtNextUp")
    assert await up(runner, keepContainer=True) == container
    notes = runner.api.workspaces["u"]["metadata"]["annotations"]
    runner.api.annotate("u", **{FORCE: "true"})
    await eventually(lambda: runner.api.summary("u")[0] == "Sleeping")
    runner.api.change("u", metadata={"annotations": notes})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert container_name(runner) == container
    condition = find_condition(runner, "TemplateApplied")
    assert condition["status"] == "False" and "fairlead workspace up" in condition["message"]
    assert await up(runner) != container


async def test_an_up_that_keeps_the_container_keeps_the_options_of_the_last_one(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await up(runner, workspaceEnv=["A=1"])
    await up(runner, keepContainer=True)
    assert runner.record().options == {"workspaceEnv": ["A=1"]}
    assert runner.engine.specs[-1].environment == {"A": "1"}


# --- options that apply once ------------------------------------------------------------------------------------------


async def test_recreate_and_reset_apply_to_one_up(runner: RunnerFixture) -> None:
    await bring_up(runner)
    first, data = container_name(runner), runner.data()
    second = await up(runner, recreate=True)
    assert (second != first, runner.data()) == (True, data)
    assert await up(runner) == second
    third = await up(runner, reset=True)
    assert third != second and runner.data() not in ("", data)
    data = runner.data()
    assert (await up(runner), runner.data()) == (third, data)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_reset_that_did_not_succeed_is_not_repeated_by_a_reboot(
    runner: RunnerFixture, is_cancelled: bool
) -> None:
    await bring_up(runner)
    if not is_cancelled:
        runner.engine.failures["Start"] = EngineError(Reason.START_FAILED, "no")
    task_id = runner.get().request_up({"reset": True})
    await asyncio.sleep(1.5)
    if is_cancelled:
        runner.get().request_cancel(task_id)
    await eventually(lambda: (runner.record().find_task(task_id) or runner.record().tasks[0]).status == "Failed")
    data = runner.data()
    assert data
    runner.engine.failures.clear()
    await runner.kill()
    runner.host_boot = "second"
    runner.start()
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert runner.data() == data


async def test_a_runner_that_is_killed_during_a_reset_does_not_reset_at_the_next_up(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.get().request_up({"reset": True})
    await asyncio.sleep(2.5)
    await runner.kill()
    runner.start()
    await eventually(lambda: runner.record().last_task is not None and runner.api.summary("u") == RUNS)
    data = runner.data()
    await up(runner)
    assert runner.data() == data


# --- owner ------------------------------------------------------------------------------------------------------------


async def test_a_new_owner_gets_a_new_container_and_nothing_of_the_earlier_owner_runs_on(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await up(runner, workspaceEnv=["TOKEN=of-ada"], recreate=True)
    container, data = container_name(runner), runner.data()
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))
    assert ("u", "OwnerChanged", "Normal") in runner.api.events
    assert "of-ada" not in str(runner.services.journal.records())
    await asyncio.sleep(300)
    assert runner.api.summary("u")[1] == "Stopped"
    assert (await up(runner) != container, runner.data()) == (True, data)
    spec = runner.engine.specs[-1]
    assert (spec.owner, spec.recreate, dict(spec.environment)) == ("grace", True, {})
    await up(runner)
    assert not runner.engine.specs[-1].recreate


async def test_an_up_for_the_earlier_owner_is_cancelled_and_a_failed_one_does_not_count(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.get().request_up({"recreate": True})
    await asyncio.sleep(1.5)
    runner.api.change("u", spec={"owner": {"team": "ops"}})
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    runner.engine.failures["Start"] = EngineError(Reason.START_FAILED, "no")
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[0] == "Failed")
    runner.engine.failures.clear()
    await runner.kill()
    runner.start()
    await asyncio.sleep(1)
    await up(runner)
    assert [spec.recreate for spec in runner.engine.specs[-2:]] == [True, True]
    assert runner.engine.specs[-1].owner == "team/ops"


@pytest.fixture
def held_event(runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The Event about another owner is recorded when this is set."""
    released, record_event = asyncio.Event(), runner.api.record_event

    async def hold(workspace: Object, reason: str, message: str, type: str) -> None:
        if reason == "OwnerChanged":
            await released.wait()
        await record_event(workspace, reason, message, type)

    monkeypatch.setattr(runner.api, "record_event", hold)
    return released


async def test_a_restore_for_a_new_owner_is_refused_before_there_is_a_new_container(
    runner: RunnerFixture, held_event: asyncio.Event
) -> None:
    await bring_up(runner)
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.record().is_for_other_owner)
    with pytest.raises(EngineError, match="the owner has changed, and snapshots are not for the new one") as refused:
        runner.get().request_restore("s1", "/opt")
    assert refused.value.reason == "OwnerChanged"
    held_event.set()
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))
    assert (len(runner.engine.specs), runner.record().is_for_other_owner) == (1, True)


async def test_an_up_for_the_earlier_owner_that_succeeds_meanwhile_does_not_count(
    runner: RunnerFixture, held_event: asyncio.Event
) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(1.5)
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.record().tasks[0].status == "Succeeded")
    held_event.set()
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    container = container_name(runner)
    assert await up(runner, keepContainer=True) != container
    assert runner.engine.specs[-1].discards_home and not runner.record().is_for_other_owner


async def test_the_container_of_the_earlier_owner_stops_before_an_up_that_waits_or_fails(
    runner: RunnerFixture, held_event: asyncio.Event
) -> None:
    await bring_up(runner)
    runner.free_bytes = 0
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.record().is_for_other_owner)
    runner.get().request_up({"keepContainer": True})
    held_event.set()
    await eventually(lambda: runner.api.summary("u") == ("Failed", "Stopped", "DiskFull"))
    assert len(runner.engine.specs) == 1


async def test_an_up_that_is_requested_while_the_owner_changes_has_no_container_of_the_earlier_one(
    runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bring_up(runner)
    observing, released, status = asyncio.Event(), asyncio.Event(), runner.engine.status

    async def hold(uid: str) -> EngineStatus:
        observing.set()
        await released.wait()
        return await status(uid)

    monkeypatch.setattr(runner.engine, "status", hold)
    await observing.wait()
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.get().workspace == runner.api.workspaces["u"])
    runner.get().request_up({})
    released.set()
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    assert (len(runner.engine.specs), runner.record().is_for_other_owner) == (1, True)


async def test_an_up_for_the_earlier_owner_is_cancelled_if_the_new_one_requests_one_at_once(
    runner: RunnerFixture,
) -> None:
    await bring_up(runner)
    runner.get().request_up({"recreate": True})
    await asyncio.sleep(1.5)
    runner.get().request_stop()
    runner.api.annotate("u", **{UP_ANNOTATION: "now"})
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    runner.get().observe(runner.api.workspaces["u"])
    await eventually(lambda: runner.api.summary("u") == RUNS and not runner.record().is_for_other_owner)
    assert [each.owner for each in runner.engine.specs] == ["ada", "ada", "grace"]
    assert runner.engine.specs[-1].discards_home


# --- usage ------------------------------------------------------------------------------------------------------------


async def test_usage_is_reported_once_a_minute_if_it_has_changed_noticeably(runner: RunnerFixture) -> None:
    runner.engine.memory_bytes, runner.engine.disk_bytes = 100 * MEBIBYTE, 1
    await bring_up(runner)
    assert runner.api.status("u")["usage"] == {"memory": "100Mi", "disk": "1Mi"}
    await asyncio.sleep(60)
    runner.engine.memory_bytes = 105 * MEBIBYTE
    await asyncio.sleep(600)
    assert runner.api.status("u")["usage"]["memory"] == "100Mi"
    reported = set()
    for size in range(200, 4000, 40):
        runner.engine.memory_bytes = size * MEBIBYTE
        await asyncio.sleep(10)
        reported.add(runner.api.status("u")["usage"]["memory"])
    assert 10 <= len(reported) <= 17
    runner.get().request_stop()
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    assert runner.api.status("u")["usage"] == {"memory": None, "disk": "1Mi"}
