"""An image that was built for one workspace, and is used by the next one of the same repository."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

FIRST, SECOND = "9eb01111-0000-4000-8000-000000000001", "9eb01111-0000-4000-8000-000000000002"
SECRET = "canary-of-a-prebuilt-image"
CONFIGURATION = {
    "build": {"dockerfile": "Dockerfile", "args": {"WORD": "built"}},
    "features": {"./tool": {}},
    "remoteUser": "dev",
    "userEnvProbe": "none",
}
FILES = {
    ".devcontainer/devcontainer.json": json.dumps(CONFIGURATION),
    ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nARG WORD\nCOPY used /used\nRUN echo $WORD >/built; env\n",
    ".devcontainer/used": "first",
    ".devcontainer/tool/devcontainer-feature.json": json.dumps({"id": "tool", "version": "1.0.0", "name": "Tool"}),
    ".devcontainer/tool/install.sh": "#!/bin/sh\necho installed >/feature\n",
}


@pytest.fixture(scope="module", autouse=True)
def _clean(containers: Containers) -> Iterator[None]:
    yield
    for uid in (FIRST, SECOND):
        asyncio.run(containers.engine().delete(uid, RecordedTask("cleanup")))


def make_spec(uid: str, url: str) -> WorkspaceSpec:
    secrets = {"API_TOKEN": SECRET, "FAIRLEAD_GIT_TOKEN": f"{SECRET}-of-git"}
    permissions = frozenset({"features"})
    return WorkspaceSpec(uid, "project", "demo", "ada", GitSource(url), secrets=secrets, permissions=permissions)


def list_archives(containers: Containers) -> list[Path]:
    return sorted((containers.folder / f"state/{SHARED_IMAGES}").glob("*/*"))


async def test_the_second_workspace_of_a_repository_starts_without_a_build(containers: Containers) -> None:
    url, engine = containers.commit("demo", FILES), containers.engine()
    first, second = RecordedTask("task-1"), RecordedTask("task-2")
    await engine.up(make_spec(FIRST, url), first)
    containers.commit("demo", {"README": "an unrelated file"})
    for path in list_archives(containers):
        os.utime(path, (0, 0))
    await engine.up(make_spec(SECOND, url), second)
    assert all(path.stat().st_mtime > 0 for path in list_archives(containers)), "the use was not noted"
    assert "STEP" in first.text and "nothing to build" not in first.text
    assert "STEP" not in second.text and "nothing to build" in second.text
    files = [(await run_inside(engine, uid, "cat /built /feature /used")).output.split() for uid in (FIRST, SECOND)]
    assert files == [["built", "installed", "first"]] * 2
    used = {containers.podman(uid, "inspect", "--format", "{{.Image}}", CONTAINER).strip() for uid in (FIRST, SECOND)}
    assert len(used) == 1 and all(path.suffix == ".tar" for path in list_archives(containers))


def test_the_image_has_no_secret(containers: Containers) -> None:
    archives = containers.folder / f"state/{SHARED_IMAGES}"
    found = subprocess.run(["grep", "-rlF", SECRET, str(archives)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    for uid in (FIRST, SECOND):
        search = f"grep -rlF {SECRET} /ws/store; echo code $?"
        assert containers.run(uid, "/bin/sh", "-c", search) == "code 1\n"


async def test_the_image_of_another_project_is_not_used(containers: Containers) -> None:
    url, engine, task = f"file://{containers.repositories / 'demo'}", containers.engine(), RecordedTask("task-3")
    await engine.delete(SECOND, RecordedTask("cleanup"))
    await engine.up(replace(make_spec(SECOND, url), namespace="another"), task)
    assert "STEP" in task.text and "nothing to build" not in task.text


async def test_archives_are_removed_when_they_were_not_used_for_long_or_the_disk_gets_full(
    containers: Containers,
) -> None:
    assert list_archives(containers)
    containers.engine().images.collect()
    assert list_archives(containers)
    containers.engine(min_free_bytes=1 << 60).images.collect()
    assert list_archives(containers) == []
    assert (await containers.engine().status(FIRST)).state is ContainerState.RUNNING
