"""What git in a real container says would be lost if its workspace moved to another runner."""

import json

import pytest

from fairlead.runner.engines.contract import ExecOptions, GitSource, ImageSource, WorkspaceSpec
from fairlead.runner.move_losses import find_losses
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "5a900000-0000-4000-8000-000000000011"
EMPTY_UID = "5a900000-0000-4000-8000-000000000012"
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "userEnvProbe": "none"}


@pytest.mark.timeout(300)
async def test_git_in_the_container_says_what_is_not_pushed(containers: Containers) -> None:
    url = containers.commit("moving", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION), "a": "first\n"})
    engine, source = containers.engine(), GitSource(url)
    spec = WorkspaceSpec(uid=UID, namespace="project", name="moving", owner="ada", source=source)
    await engine.up(spec, RecordedTask())
    assert await find_losses(engine, UID, source) == []
    change = "echo second >a; git -c user.name=Ada -c user.email=a@b.c commit -qam Second; echo third >a; touch b"
    assert (await run_inside(engine, UID, change, ExecOptions())).code == 0
    assert await find_losses(engine, UID, source) == [
        "files with changes that are not committed: 2",
        "commits that are not pushed: 1",
    ]
    await engine.delete(UID, RecordedTask())


@pytest.mark.timeout(300)
async def test_files_of_a_workspace_without_a_repository_are_losses(containers: Containers) -> None:
    engine, source = containers.engine(), ImageSource(IMAGE)
    spec = WorkspaceSpec(uid=EMPTY_UID, namespace="project", name="empty", owner="ada", source=source)
    await engine.up(spec, RecordedTask())
    await run_inside(engine, EMPTY_UID, "touch mine", ExecOptions(user="root"))
    assert await find_losses(engine, EMPTY_UID, source) == [
        "the files in the work folder, which are in no git repository"
    ]
    await engine.delete(EMPTY_UID, RecordedTask())
