"""An image that is built before a workspace needs it."""

import json
from dataclasses import replace

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES
from tests.runner.harness.podman import IMAGE, Containers, list_groups
from tests.runner.harness.tasks import RecordedTask

PREBUILD, WORKSPACE = "9eb02222-0000-4000-8000-000000000001", "9eb02222-0000-4000-8000-000000000002"
FILES = {
    ".devcontainer/devcontainer.json": json.dumps(
        {
            "build": {"dockerfile": "Dockerfile"},
            "remoteUser": "dev",
            "userEnvProbe": "none",
            "onCreateCommand": "echo command of $(id -un)",
        }
    ),
    ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nCOPY used /used\nRUN echo built >/built\n",
    ".devcontainer/used": "first",
}
KEPT = "the image is kept"


async def test_a_prebuild_leaves_an_image_with_which_workspaces_start_and_says_why_others_build(
    containers: Containers,
) -> None:
    url, engine = containers.commit("prebuilt", FILES), containers.engine()
    spec = WorkspaceSpec(PREBUILD, "project", "prebuilt", "", GitSource(url), is_prebuild=True)
    first = RecordedTask("task-1")
    await engine.up(spec, first)
    assert "STEP" in first.text and KEPT in first.text and "command of dev" not in first.text
    assert "none was kept before" in first.text
    assert (await engine.status(PREBUILD)).state is ContainerState.NOT_FOUND
    assert not (engine.settings.state_folder / "workspaces" / PREBUILD).exists()
    assert list_groups(PREBUILD) == []
    assert len(list((engine.settings.state_folder / SHARED_IMAGES).glob("*/*.tar"))) == 1

    workspace, task = replace(spec, uid=WORKSPACE, owner="ada", is_prebuild=False), RecordedTask("task-2")
    await engine.up(workspace, task)
    assert "nothing to build" in task.text and "STEP" not in task.text and "command of dev" in task.text
    with pytest.raises(EngineError) as raised:
        await engine.up(replace(workspace, is_prebuild=True), RecordedTask("task-3"))
    assert raised.value.reason == Reason.CONFIGURATION_INVALID and "a prebuild would delete" in raised.value.message
    await engine.delete(WORKSPACE, RecordedTask("task-4"))

    containers.commit("prebuilt", {".devcontainer/used": "second", "README": "unrelated"})
    second = RecordedTask("task-5")
    await engine.up(spec, second)
    assert "the most similar one that was kept differs in files that it copies\n" in second.text and KEPT in second.text
