"""Moves between runners, as a runner sees them: what would be lost, what is kept, and what is removed."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from fairlead.links.requests import Refused
from fairlead.runner.actions import RunnerActions
from fairlead.runner.engines.contract import EngineError, FolderSource
from fairlead.runner.move_losses import SCRIPT, find_losses, parse_losses
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.fake_engine import FakeEngine
from tests.runner.test_actions import request
from tests.runner.test_workspaces import RUNS, SOURCE, bring_up

MOVED_FROM = "service.sh/moved-from"


@pytest.fixture
async def actions(runner: RunnerFixture) -> AsyncIterator[RunnerActions]:
    yield RunnerActions(runner.services, runner.workspaces)


def move_away(runner: RunnerFixture) -> None:
    """The watch of a runner has only what is bound to it."""
    runner.api.remove("u")


async def test_what_was_moved_away_is_stopped_and_kept_until_it_is_discarded(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    await bring_up(runner)
    move_away(runner)
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    await asyncio.sleep(3600)
    assert runner.data() and ("delete", "u") not in runner.engine.calls
    assert (await request(actions, "discard")).exit_code == 0
    await eventually(lambda: runner.services.journal.get("u") is None)
    assert (runner.containers(), runner.data()) == ([], "")
    assert (await request(actions, "discard")).exit_code == 0


async def test_what_was_moved_away_outlives_the_time_for_orphans_as_long_as_the_server_says_so(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    await bring_up(runner)
    await runner.kill()
    runner.retention = timedelta(hours=1)
    runner.start()
    actions = RunnerActions(runner.services, runner.workspaces)
    await asyncio.sleep(1)
    move_away(runner)
    for _ in range(10):
        await asyncio.sleep(1800)
        assert (await request(actions, "retain")).exit_code == 0
    assert runner.data()
    await asyncio.sleep(2 * 3600)
    assert (runner.containers(), runner.data()) == ([], "")


async def test_what_is_discarded_is_removed_although_that_fails_at_first_or_the_runner_ends(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    await bring_up(runner)
    move_away(runner)
    runner.engine.failures["Remove"] = EngineError("Busy", "no")
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    await request(actions, "discard")
    await eventually(lambda: runner.engine.calls.count(("delete", "u")) > 1)
    await runner.kill()
    runner.engine.failures.clear()
    runner.start()
    await eventually(lambda: runner.services.journal.get("u") is None)
    assert runner.data() == ""


async def test_a_workspace_of_this_runner_is_not_discarded(actions: RunnerActions, runner: RunnerFixture) -> None:
    await bring_up(runner)
    data = runner.data()
    with pytest.raises(Refused, match="the workspace is one of this runner") as refused:
        await request(actions, "discard")
    assert refused.value.code == 409
    assert (runner.containers(), runner.data()) == (["u"], data)


async def test_a_workspace_that_returns_goes_on_with_what_was_kept(runner: RunnerFixture) -> None:
    await bring_up(runner)
    data, workspace = runner.data(), runner.api.workspaces["u"]
    move_away(runner)
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    runner.api.create("u", **SOURCE, **{"service.sh/workspace-up": "again", MOVED_FROM: "other"})
    await eventually(lambda: runner.api.summary("u")[:2] == ("Ready", "Running"))
    assert (runner.data(), workspace["metadata"]["uid"]) == (data, "u")


async def test_a_workspace_that_is_moved_here_comes_up_whatever_was_reported_before(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE, **{"service.sh/workspace-up": "now", MOVED_FROM: "other"})
    runner.api.change("u", status={"lastWorkspaceStatus": "Running"})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert runner.containers() == ["u"]


async def test_a_workspace_that_does_not_run_cannot_say_what_is_not_pushed(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    assert (await request(actions, "move-losses")).decode() == {"losses": [], "source": ""}
    await request(actions, "up")
    await request(actions, "stop")
    with pytest.raises(Refused, match="does not run; start it") as refused:
        await request(actions, "move-losses")
    assert refused.value.code == 409


# --- what git says ----------------------------------------------------------------------------------------------------


def run(folder: Path, *command: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_CONFIG_GLOBAL": "/dev/null"}
    committer = {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "a@b.c", "PATH": "/usr/bin:/bin"}
    environment = {**identity, **committer, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def losses(folder: Path) -> list[str]:
    return parse_losses(run(folder, "/bin/sh", "-c", SCRIPT))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository with one commit."""
    run(tmp_path, "git", "init", "-q", "-b", "main", "origin")
    (tmp_path / "origin" / "a").write_text("first\n")
    run(tmp_path / "origin", "git", "add", "-A")
    run(tmp_path / "origin", "git", "commit", "-qm", "First")
    run(tmp_path, "git", "clone", "-q", "origin", "clone")
    return tmp_path / "clone"


def test_a_clone_without_changes_loses_nothing(clone: Path) -> None:
    assert losses(clone) == []
    (clone / ".git/info/exclude").write_text("ignored\n")
    (clone / "ignored").touch()
    assert losses(clone) == []


def test_changes_commits_of_all_branches_and_stashes_are_losses(clone: Path) -> None:
    run(clone, "git", "checkout", "-qb", "other")
    (clone / "a").write_text("second\n")
    run(clone, "git", "commit", "-qam", "Second")
    run(clone, "git", "checkout", "-q", "main")
    (clone / "a").write_text("third\n")
    run(clone, "git", "stash")
    (clone / "b").touch()
    (clone / "c").touch()
    assert losses(clone) == [
        "files with changes that are not committed: 2",
        "commits that are not pushed: 1",
        "stashes: 1",
    ]


def test_a_commit_on_no_branch_is_a_loss(clone: Path) -> None:
    run(clone, "git", "checkout", "-q", "--detach")
    run(clone, "git", "commit", "-q", "--allow-empty", "-m", "Second")
    assert losses(clone) == ["commits that are not pushed: 1"]


def test_files_without_a_repository_are_losses_and_an_empty_folder_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    assert losses(folder) == []
    (folder / "a").touch()
    assert losses(folder) == ["the files in the work folder, which are in no git repository"]
    run(folder, "git", "init", "-q")
    assert losses(folder) == ["files with changes that are not committed: 1"]


@pytest.mark.parametrize("output", ["", "changes 0\n", "changes 0\ncommits 0\n", "end of it\n"])
def test_an_incomplete_output_is_not_taken_for_nothing(output: str) -> None:
    with pytest.raises(EngineError, match="does not say what is not pushed"):
        parse_losses(output)


async def test_the_files_of_a_folder_of_the_machine_are_losses(tmp_path: Path) -> None:
    (loss,) = await find_losses(FakeEngine(tmp_path), "u", FolderSource("/src"))
    assert "come from a folder of the machine" in loss
