"""The life of workspaces on a runner: taken, brought up, stopped, put to sleep, deleted, and what goes wrong."""

import asyncio

import pytest

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.journal import RUNNING
from fairlead.runner.services import Claimant, Share, Slots
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture

SOURCE = {"service.sh/workspace-source": "git:https://example.com/repository.git"}
RUNS = ("Ready", "Running", "UpSucceeded")


async def bring_up(runner: RunnerFixture, uid: str = "u", name: str = "w") -> str:
    """Creates a workspace, and waits until it runs. Returns the ID of the task."""
    runner.api.create(uid, name, **SOURCE)
    await eventually(lambda: runner.api.summary(uid)[0] == "Ready")
    task_id = runner.get(uid).request_up({})
    await eventually(lambda: runner.api.summary(uid) == RUNS)
    return task_id


async def test_a_workspace_is_ready_as_soon_as_the_runner_has_taken_it(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(1)
    assert runner.api.summary("u") == ("Ready", "NotFound", "")
    assert runner.engine.calls == []


async def test_a_workspace_whose_template_is_not_resolved_is_not_taken(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    runner.api.workspaces["u"]["spec"]["templateRef"] = {"name": "t"}
    runner.api.change("u", status={"instance": None})
    await asyncio.sleep(60)
    assert runner.api.summary("u")[0] == ""
    runner.api.change("u", status={"instance": {"provider": {"name": "fake"}}})
    await eventually(lambda: runner.api.summary("u")[0] == "Ready")


async def test_an_up_reports_its_steps_and_then_that_it_runs(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    seen = []
    for _ in range(40):
        await asyncio.sleep(0.1)
        conditions = runner.api.status("u").get("conditions") or [{}]
        seen.append((runner.api.summary("u"), conditions[0].get("message")))
    for step in ("Clone", "Build", "Start"):
        assert (("Ready", "Busy", "UpRunning"), step) in seen
    assert runner.api.summary("u") == RUNS
    assert ("u", "UpSucceeded", "Normal") in runner.api.events


async def test_a_changed_annotation_requests_an_up_once(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE, **{"service.sh/workspace-up": "1"})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    await asyncio.sleep(300)
    assert runner.engine.calls == [("up", "u")]
    runner.api.annotate("u", **{"service.sh/workspace-up": "2"})
    await eventually(lambda: len(runner.engine.calls) == 2)


async def test_concurrent_ups_become_one(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    ids = set()
    for _ in range(20):
        ids.add(runner.get().request_up({}))
        await asyncio.sleep(0.1)
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert len(ids) == 1
    assert (runner.engine.calls, runner.containers()) == ([("up", "u")], ["u"])


async def test_a_stop_cancels_an_up_and_lasts(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    up = runner.get().request_up({})
    await asyncio.sleep(2.5)
    runner.get().request_stop()
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))
    assert (runner.record().find_task(up) or runner.record().tasks[0]).reason == "Cancelled"
    await asyncio.sleep(600)
    assert runner.api.summary("u")[1] == "Stopped"
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)


async def test_sleep_stops_a_workspace_and_waking_brings_it_up(runner: RunnerFixture) -> None:
    await bring_up(runner)
    data = runner.data()
    runner.api.annotate("u", **{"sleepmode.service.sh/force": "true"})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Sleeping", "Stopped"))
    await asyncio.sleep(600)
    assert runner.api.summary("u")[:2] == ("Sleeping", "Stopped")
    runner.api.annotate("u", **{"sleepmode.service.sh/force": ""})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert runner.data() == data


async def test_a_workspace_that_was_stopped_before_it_slept_stays_stopped(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.get().request_stop()
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    runner.api.annotate("u", **{"sleepmode.service.sh/force": "true"})
    await eventually(lambda: runner.api.summary("u")[0] == "Sleeping")
    runner.api.annotate("u", **{"sleepmode.service.sh/force": ""})
    await eventually(lambda: runner.api.summary("u")[0] == "Ready")
    await asyncio.sleep(300)
    assert runner.api.summary("u")[1] == "Stopped"


@pytest.mark.parametrize("step", ["Clone", "Build", "Start"])
async def test_a_failed_step_fails_the_workspace_until_the_next_up(runner: RunnerFixture, step: str) -> None:
    runner.engine.failures[step] = EngineError(Reason.BUILD_FAILED, "no such image")
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[0] == "Failed")
    status = runner.api.status("u")
    assert (status["reason"], status["message"]) == ("BuildFailed", f"step {step}: no such image")
    assert ("u", "BuildFailed", "Warning") in runner.api.events
    await asyncio.sleep(600)
    assert runner.engine.calls == [("up", "u")]
    runner.engine.failures.clear()
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)


async def test_a_step_that_hangs_fails_at_its_deadline_with_its_name(runner: RunnerFixture) -> None:
    runner.engine.hanging = "Build"
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(runner.engine.deadline - 2)
    assert runner.api.summary("u")[0] == "Ready"
    await asyncio.sleep(5)
    assert runner.api.summary("u") == ("Failed", "Stopped", "StepTimedOut")
    assert "step Build did not end within 60 s" in runner.api.status("u")["message"]


async def test_a_fault_of_the_engine_fails_its_task_only(runner: RunnerFixture) -> None:
    await bring_up(runner, "v", "other")
    runner.engine.failures["Build"] = RuntimeError("boom")
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == ("Failed", "Stopped", "InternalError"))
    assert runner.api.summary("v") == RUNS


async def test_a_workspace_without_a_source_fails_with_what_to_do(runner: RunnerFixture) -> None:
    runner.api.create("u")
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[0] == "Failed")
    assert "service.sh/workspace-source" in runner.api.status("u")["message"]


async def test_a_provider_without_an_engine_is_named(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    runner.api.change("u", status={"instance": {"provider": {"name": "other"}}})
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[2] == "EngineUnavailable")
    assert '"other"' in runner.api.status("u")["message"] and "fake" in runner.api.status("u")["message"]


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 30.0])
async def test_deletion_works_at_each_step_and_leaves_nothing(runner: RunnerFixture, seconds: float) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(seconds)
    runner.api.request_deletion("u")
    await eventually(lambda: "u" not in runner.api.workspaces)
    assert (runner.containers(), runner.data()) == ([], "")
    await eventually(lambda: runner.services.journal.records() == [])
    assert not (runner.folder / "logs" / "u").exists()


@pytest.mark.parametrize("state", ["untouched", "stopped", "failed"])
async def test_deletion_works_in_every_state(runner: RunnerFixture, state: str) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    if state == "failed":
        runner.engine.failures["Start"] = EngineError(Reason.START_FAILED, "no")
        runner.get().request_up({})
        await eventually(lambda: runner.api.summary("u")[0] == "Failed")
    if state == "stopped":
        runner.get().request_up({})
        await eventually(lambda: runner.api.summary("u") == RUNS)
        runner.get().request_stop()
        await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    runner.api.workspaces["u"]["status"].pop("instance")
    runner.api.request_deletion("u")
    await eventually(lambda: "u" not in runner.api.workspaces)
    assert (runner.containers(), runner.data()) == ([], "")


async def test_a_failed_deletion_is_tried_again(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.engine.failures["Delete"] = EngineError(Reason.ENGINE_UNAVAILABLE, "no podman")
    runner.api.request_deletion("u")
    await asyncio.sleep(100)
    assert runner.api.summary("u")[1:] == ("Running", "EngineUnavailable")
    attempts = runner.engine.calls.count(("delete", "u"))
    assert 3 <= attempts <= 6
    runner.engine.failures.clear()
    await eventually(lambda: "u" not in runner.api.workspaces, 600)
    assert (runner.containers(), runner.data()) == ([], "")


async def test_a_workspace_of_the_same_name_gets_nothing_of_its_predecessor(runner: RunnerFixture) -> None:
    await bring_up(runner, "u", "w")
    data = runner.data("u")
    runner.api.request_deletion("u")
    await bring_up(runner, "v", "w")
    await eventually(lambda: "u" not in runner.api.workspaces)
    assert runner.containers() == ["v"]
    assert runner.data("v") not in ("", data)


async def test_two_builds_and_four_starts_of_a_project_run_at_a_time(runner: RunnerFixture) -> None:
    uids = [f"u{number}" for number in range(10)]
    for uid in uids:
        runner.api.create(uid, uid, owner=f"owner-of-{uid}", **SOURCE)
    await asyncio.sleep(0.1)
    for uid in uids:
        runner.get(uid).request_up({})
    await asyncio.sleep(1.5)
    assert list_messages(runner, uids).count(WAITS_FOR_PROJECT) == 8
    await eventually(lambda: all(runner.api.summary(uid) == RUNS for uid in uids))
    assert runner.engine.most_active == 2
    for uid in uids:
        runner.get(uid).request_stop()
    await eventually(lambda: all(runner.api.summary(uid)[1] == "Stopped" for uid in uids))
    for uid in uids:
        runner.get(uid).request_up({})
    await eventually(lambda: all(runner.api.summary(uid) == RUNS for uid in uids))
    assert runner.engine.most_active == 4


WAITS_FOR_PROJECT = "waiting for other builds of the same project, which can have 2 at a time"
WAITS_FOR_OWNER = "waiting for other builds of the same owner, who can have 1 at a time"


def list_messages(runner: RunnerFixture, uids: list[str]) -> list[str]:
    return [runner.api.status(uid)["conditions"][0]["message"] for uid in uids]


async def test_builds_without_end_of_an_owner_and_a_project_leave_slots_to_others(runner: RunnerFixture) -> None:
    runner.engine.hanging = "Build"
    runner.engine.deadline = 7200
    hostile = {"m0": ("mallory", "p"), "m1": ("mallory", "p"), "m2": ("mallory", "q"), "n0": ("nate", "p")}
    for uid, (owner, project) in {**hostile, "n1": ("niels", "p")}.items():
        runner.api.create(uid, uid, owner=owner, namespace=f"service-p-{project}", **SOURCE)
    await asyncio.sleep(0.1)
    for uid in (*hostile, "n1"):
        runner.get(uid).request_up({})
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)
    assert list_messages(runner, ["m0", "m1", "m2", "n0", "n1"]) == [
        *("Build", WAITS_FOR_OWNER, WAITS_FOR_OWNER, "Build", WAITS_FOR_PROJECT)
    ]
    runner.engine.hanging = ""
    runner.api.create("v", "v", owner="bob", namespace="service-p-other", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get("v").request_up({})
    await eventually(lambda: runner.api.summary("v") == RUNS, 60)


async def test_a_message_on_waiting_names_no_workspaces_of_others(runner: RunnerFixture) -> None:
    runner.engine.hanging = "Build"
    for number, project in enumerate("pqrs"):
        uid = f"u{number}"
        runner.api.create(uid, f"secret-{number}", owner=uid, namespace=f"service-p-{project}", **SOURCE)
        await asyncio.sleep(0.1)
        runner.get(uid).request_up({})
    await asyncio.sleep(1.5)
    assert list_messages(runner, ["u3"]) == ["waiting for 3 other builds"]


async def test_commands_without_end_hold_no_slot(runner: RunnerFixture) -> None:
    runner.engine.has_commands = True
    runner.engine.hanging = "LifecycleCommands"
    uids = [f"u{number}" for number in range(5)]
    for uid in uids:
        runner.api.create(uid, uid, **SOURCE)
    await asyncio.sleep(0.1)
    for uid in uids:
        runner.get(uid).request_up({})
    await asyncio.sleep(1.5)
    await eventually(lambda: list_messages(runner, uids) == ["LifecycleCommands"] * 5, 60)


async def test_a_task_that_is_cancelled_while_it_waits_leaves_its_place() -> None:
    slots = Slots(Share(total=1, per_owner=1, per_project=1), "builds")
    ada, bob = Claimant("ada", "p"), Claimant("bob", "q")
    held: list[str] = []

    async def hold(claimant: Claimant) -> None:
        async with slots.hold(claimant):
            held.append(claimant.owner)
            await asyncio.sleep(1)

    first, waiting, last = (asyncio.create_task(hold(each)) for each in (ada, bob, ada))
    await asyncio.sleep(0.1)
    assert slots.describe_wait(bob) == "waiting for 1 other builds"
    waiting.cancel()
    await asyncio.gather(first, waiting, last, return_exceptions=True)
    assert held == ["ada", "ada"]
    assert slots.describe_wait(ada) == slots.describe_wait(bob) == ""


async def test_the_template_applies_at_the_next_up_and_options_apply_once(runner: RunnerFixture) -> None:
    await runner.kill()
    runner.allowed_permissions = frozenset({"mounts", "privileged"})
    runner.start()
    await bring_up(runner)
    options = {"memory": {"value": "2Gi"}, "allow": {"value": "mounts, privileged"}}
    runner.api.change("u", status={"instance": {"provider": {"name": "fake", "options": options}}})
    await asyncio.sleep(300)
    assert len(runner.engine.specs) == 1
    runner.get().request_up({"recreate": True, "workspaceEnv": ["A=b"]})
    await eventually(lambda: len(runner.engine.specs) == 2)
    await asyncio.sleep(10)
    runner.get().request_up({})
    await eventually(lambda: len(runner.engine.specs) == 3)
    second, third = runner.engine.specs[1:]
    assert (second.recreate, third.recreate) == (True, False)
    assert second.limits.memory_bytes == 2 * 1024**3
    assert second.permissions == frozenset({"mounts", "privileged"})
    assert dict(third.environment) == {"A": "b"}


async def test_an_unchanged_workspace_is_not_reported_again(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await asyncio.sleep(600)  # until it is reported as idle
    patches = runner.api.patches
    await asyncio.sleep(3600)
    assert runner.api.patches == patches


async def test_a_container_that_ends_by_itself_is_reported_and_not_restarted(runner: RunnerFixture) -> None:
    await bring_up(runner)
    next(runner.engine.containers.iterdir()).write_text("stopped")
    await eventually(lambda: runner.api.summary("u")[:2] == ("Ready", "Stopped"))
    await asyncio.sleep(300)
    assert runner.engine.calls == [("up", "u")]


async def test_a_task_can_be_cancelled(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    task_id = runner.get().request_up({})
    await asyncio.sleep(1.5)
    assert runner.get().request_cancel(task_id)
    await eventually(lambda: runner.api.summary("u")[2] == "Cancelled")
    assert not runner.get().request_cancel(task_id)
    await asyncio.sleep(300)
    assert runner.engine.calls == [("up", "u")]
    assert all(task.status != RUNNING for task in runner.record().tasks)


async def test_an_up_of_a_sleeping_workspace_says_so_and_happens_when_it_is_woken(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.annotate("u", **{"sleepmode.service.sh/force": "true"})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Sleeping", "Stopped"))
    runner.get().request_up({})
    await asyncio.sleep(60)
    assert runner.api.summary("u") == ("Sleeping", "Stopped", "Asleep")
    runner.api.annotate("u", **{"sleepmode.service.sh/force": ""})
    await eventually(lambda: runner.api.summary("u") == RUNS)


async def test_a_workspace_that_is_being_moved_is_left_alone(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.change("u", status={"ignoreReconciliation": True})
    await asyncio.sleep(1)
    patches = runner.api.patches
    runner.get().request_stop()
    await asyncio.sleep(300)
    assert (runner.api.patches, runner.engine.calls) == (patches, [("up", "u")])
    runner.api.change("u", status={"ignoreReconciliation": False})
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
