"""Requests at unfortunate moments: none is lost, none ends without a reason, and logs are followed to their end."""

import asyncio
import json

import pytest

from fairlead.links.frames import STDOUT
from fairlead.runner.actions import RunnerActions
from fairlead.runner.engines.contract import EngineError, EngineStatus, Reason
from fairlead.runner.journal import RUNNING
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.test_actions import FakeStream, request
from tests.runner.test_workspaces import RUNS, SOURCE, bring_up

TEMPLATE = {"provider": {"name": "fake"}}


def create_unresolved(runner: RunnerFixture) -> None:
    """A workspace whose template the server has not resolved yet."""
    runner.api.create("u", **SOURCE)
    runner.api.workspaces["u"]["spec"]["templateRef"] = {"name": "t"}
    runner.api.change("u", status={"instance": None})


def messages_of(stream: FakeStream) -> list[str]:
    return [json.loads(line)["message"] for line in stream.output[STDOUT].splitlines()]


async def test_an_up_before_the_template_is_resolved_waits_for_it(runner: RunnerFixture) -> None:
    create_unresolved(runner)
    await asyncio.sleep(0.1)
    actions = RunnerActions(runner.services, runner.workspaces)
    following = asyncio.create_task(request(actions, "up"))
    await asyncio.sleep(30)
    assert not following.done()
    waiting = runner.api.status("u")["conditions"][0]
    assert (waiting["status"], waiting["message"]) == ("Unknown", "waiting for the server to resolve its template")
    runner.api.change("u", status={"instance": TEMPLATE})
    stream = await following
    assert (stream.exit_code, messages_of(stream)[-1]) == (0, "up succeeded")
    assert len(runner.record().tasks) == 1


async def test_an_up_whose_template_cannot_be_resolved_fails_with_the_reason(runner: RunnerFixture) -> None:
    create_unresolved(runner)
    resolved = {"type": "TemplateResolved", "status": "False", "reason": "TemplateNotFound", "message": "no template t"}
    runner.api.change("u", status={"conditions": [resolved]})
    await asyncio.sleep(0.1)
    stream = await request(RunnerActions(runner.services, runner.workspaces), "up")
    assert (stream.exit_code, messages_of(stream)) == (1, ["up failed: no template t"])
    runner.api.change("u", status={"instance": TEMPLATE, "conditions": []})
    await asyncio.sleep(60)
    assert runner.engine.calls == []


@pytest.mark.parametrize("kind", ["up", "stop", "delete"])
async def test_a_request_while_the_engine_is_observed_is_not_lost(
    runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await bring_up(runner)
    status = runner.engine.status
    task_ids: list[str] = []

    async def observe(uid: str) -> EngineStatus:
        found = await status(uid)
        if not task_ids:
            reconciler = runner.get()
            task_ids.append(reconciler.request_up({}) if kind == "up" else getattr(reconciler, f"request_{kind}")())
        return found

    monkeypatch.setattr(runner.engine, "status", observe)
    await eventually(lambda: runner.engine.calls[1:] == [(kind, "u")])
    await eventually(lambda: (runner.record().find_task(task_ids[0]) or runner.record().tasks[0]).status == "Succeeded")


async def test_the_log_of_a_task_that_a_killed_process_left_is_followed_to_its_end(
    runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    task_id = runner.get().request_up({})
    await asyncio.sleep(1.5)
    await runner.kill()
    status, may_observe = runner.engine.status, asyncio.Event()

    async def observe(uid: str) -> EngineStatus:
        await may_observe.wait()
        return await status(uid)

    monkeypatch.setattr(runner.engine, "status", observe)
    runner.start()
    await eventually(lambda: runner.workspaces.find("u") is not None)
    actions = RunnerActions(runner.services, runner.workspaces)
    following = asyncio.create_task(request(actions, "log", task_id=task_id, options={"follow": True}))
    await asyncio.sleep(5)
    assert not following.done() and not runner.get().is_busy
    may_observe.set()
    stream = await following
    assert (stream.exit_code, messages_of(stream)[-1]) == (0, "up succeeded")
    assert (await request(actions, "log", task_id=task_id, options={"follow": True})).output == stream.output


async def test_a_task_that_never_began_says_why_in_its_log(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.annotate("u", **{"sleepmode.service.sh/force": "true"})
    await eventually(lambda: runner.api.summary("u")[0] == "Sleeping")
    stream = await request(RunnerActions(runner.services, runner.workspaces), "up")
    assert stream.exit_code == 1
    assert messages_of(stream)[-1].startswith("up failed: the workspace sleeps on request")


async def test_deletion_after_an_up_that_failed_early_removes_what_it_left(runner: RunnerFixture) -> None:
    runner.engine.failures["Clone"] = EngineError(Reason.CLONE_FAILED, "no such repository")
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Failed", "NotFound"))
    assert [path.name for path in runner.engine.drafts.iterdir()] == ["u"]
    runner.api.request_deletion("u")
    await eventually(lambda: not list(runner.engine.drafts.iterdir()))
    await eventually(lambda: runner.services.journal.records() == [])
    assert not (runner.folder / "logs" / "u").exists()


async def test_what_an_up_left_is_removed_although_the_journal_is_lost(runner: RunnerFixture) -> None:
    (runner.engine.drafts / "old").touch()
    await eventually(lambda: not list(runner.engine.drafts.iterdir()), 120)
    await eventually(lambda: runner.services.journal.records() == [])
    assert runner.engine.calls == [("delete", "old")]


async def test_an_orphan_whose_engine_is_not_enabled_is_left_alone(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await runner.kill()
    del runner.api.workspaces["u"]
    engine, runner.engine = runner.engine, type(runner.engine)(runner.folder / "other")
    runner.engine.name = "other"
    runner.start(other=runner.engine)
    await asyncio.sleep(120)
    assert runner.record().engine == "fake"
    assert [path.name for path in engine.volumes.iterdir()] == ["u"]


async def test_requests_are_served_while_a_template_waits_and_a_stop_ends_it(runner: RunnerFixture) -> None:
    create_unresolved(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(1)
    runner.get().request_stop()
    await eventually(lambda: runner.api.summary("u")[2] == "StopSucceeded")
    runner.api.change("u", status={"instance": TEMPLATE})
    await asyncio.sleep(60)
    assert runner.engine.calls == []
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)


async def test_many_requests_at_once_end_with_the_last_one(runner: RunnerFixture) -> None:
    await bring_up(runner)
    reconciler, requested = runner.get(), []
    for _ in range(6):
        requested += [reconciler.request_stop(), reconciler.request_up({"recreate": True})]
    await asyncio.sleep(1.5)
    for _ in range(6):
        requested += [reconciler.request_up({}), reconciler.request_stop()]
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))
    assert all(task.status != RUNNING for task in runner.record().tasks)
    assert runner.record().tasks[-1].id == requested[-1]
    listed = (await request(RunnerActions(runner.services, runner.workspaces), "tasks")).decode()["tasks"]
    assert listed[0]["id"] == requested[-1]
    reconciler.request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert (runner.containers(), len(runner.record().tasks) <= 6) == (["u"], True)
