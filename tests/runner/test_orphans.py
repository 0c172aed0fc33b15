"""Workspaces that a machine has and the server does not: when they are removed, when they are kept, and who is told."""

import asyncio
from datetime import timedelta

from fairlead.core.objects import Object
from fairlead.runner import decisions
from fairlead.runner.workspaces import RESTORE_GAP
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.test_workspaces import bring_up

HOUR = 3600.0


async def restart(runner: RunnerFixture, retention: timedelta | None = None) -> None:
    await runner.kill()
    runner.retention = retention
    runner.start()


def condition(runner: RunnerFixture) -> Object:
    found = (runner.api.runner.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == "WorkspacesKnown"), {})


async def test_what_was_deleted_while_the_runner_was_away_is_removed_after_the_retention(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await runner.kill()
    del runner.api.workspaces["u"]
    await restart(runner, timedelta(hours=1))
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    await asyncio.sleep(0.9 * HOUR)
    assert runner.data()
    await asyncio.sleep(0.2 * HOUR)
    assert (runner.containers(), runner.data()) == ([], "")


async def test_the_default_retention_is_a_week(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.workspaces["u"]["spec"] = {}
    record = runner.record()
    assert decisions.retention_end(record) is None
    runner.api.remove("u")
    await eventually(lambda: runner.record().orphaned_at)
    end = decisions.retention_end(runner.record())
    assert end is not None
    assert timedelta(days=6.9) < end - runner.services.clock.now() <= timedelta(days=7)


async def test_nothing_is_removed_while_the_server_cannot_be_reached(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await runner.kill()
    del runner.api.workspaces["u"]
    runner.api.disconnect()
    runner.retention = timedelta(seconds=1)
    runner.start()
    await asyncio.sleep(HOUR)
    assert ("stop", "u") not in runner.engine.calls
    assert runner.data()


async def test_what_the_server_lost_in_a_restore_is_kept_for_long_and_comes_back(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await bring_up(runner, "v", "other")
    await restart(runner, timedelta(hours=1))
    lost = runner.api.workspaces["u"]
    runner.api.restore("u")
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    await asyncio.sleep(5 * HOUR)
    assert runner.data()
    assert runner.record().is_lost_in_restore
    runner.api.remove("v")
    await asyncio.sleep(2 * HOUR)
    assert (bool(runner.data()), runner.data("v")) == (True, ""), "what is deleted later is an ordinary orphan"
    runner.api.workspaces["u"] = lost
    runner.api.change("u", spec={})
    await eventually(lambda: not runner.record().orphaned_at)
    assert not runner.record().is_lost_in_restore


async def test_a_restore_while_the_runner_was_away_is_noticed_too(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await restart(runner)
    await eventually(lambda: runner.services.journal.read_revision() > 0)
    await runner.kill()
    runner.api.restore("u")
    await restart(runner, timedelta(hours=1))
    await asyncio.sleep(5 * HOUR)
    assert (runner.record().is_lost_in_restore, bool(runner.data())) == (True, True)
    assert runner.services.journal.read_revision() > RESTORE_GAP


async def test_what_belongs_to_another_installation_is_left_alone(runner: RunnerFixture) -> None:
    runner.engine.installations = {"foreign": "two", "own": "one"}
    for uid in runner.engine.installations:
        (runner.engine.volumes / uid).write_text("data")
        (runner.engine.containers / f"{uid}.1").write_text("running")
    await restart(runner, timedelta(seconds=60))
    await asyncio.sleep(HOUR)
    assert (runner.data("foreign"), runner.data("own")) == ("data", "")
    assert (runner.engine.containers / "foreign.1").read_text() == "running"
    assert {uid for _, uid in runner.engine.calls} == {"own"}


async def test_the_engine_learns_the_installation_for_its_labels(runner: RunnerFixture) -> None:
    await bring_up(runner)
    assert [each.installation for each in runner.engine.specs] == ["one"]


async def test_orphans_are_reported_as_a_condition_of_the_runner_until_they_are_gone(runner: RunnerFixture) -> None:
    await restart(runner, timedelta(hours=1))
    await bring_up(runner)
    await asyncio.sleep(120)
    assert condition(runner) == {}
    runner.api.remove("u")
    await eventually(lambda: condition(runner).get("reason") == "Orphaned", 120)
    found = condition(runner)
    assert (found["status"], found["severity"]) == ("False", "Warning")
    assert "1 workspaces that the server does not have" in found["message"]
    assert "service-p-web/w (uid u) on " in found["message"]
    await asyncio.sleep(1.1 * HOUR)
    assert (condition(runner)["status"], condition(runner)["reason"]) == ("True", "Known")
