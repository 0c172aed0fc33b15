"""An image that was built for one workspace, and is used by the next one of the same repository."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.collection import choose_expired, list_unused_shared, record_name
from fairlead.runner.engines.devcontainer.images import SHARED
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


def list_images(containers: Containers) -> dict[str, str]:
    """IDs of images that were built, by name."""
    listed = containers.podman("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").splitlines()
    return dict(line.split() for line in listed if "/fairlead-" in line)


async def test_the_second_workspace_of_a_repository_starts_without_a_build(containers: Containers) -> None:
    url, engine = containers.commit("demo", FILES), containers.engine()
    first, second = RecordedTask("task-1"), RecordedTask("task-2")
    await engine.up(make_spec(FIRST, url), first)
    containers.commit("demo", {"README": "an unrelated file"})
    await engine.up(make_spec(SECOND, url), second)
    assert "STEP" in first.text and "nothing to build" not in first.text
    assert "STEP" not in second.text and "nothing to build" in second.text
    files = [(await run_inside(engine, uid, "cat /built /feature /used")).output.split() for uid in (FIRST, SECOND)]
    assert files == [["built", "installed", "first"]] * 2
    images = list_images(containers)
    used = {
        containers.podman("inspect", "--format", "{{.Image}}", f"fairlead-{uid}").strip() for uid in (FIRST, SECOND)
    }
    assert len(used) == 1 and {name for name in images if name.startswith(SHARED)}


def test_the_image_has_no_secret(containers: Containers) -> None:
    layers = containers.folder / "storage"
    found = subprocess.run(["grep", "-rlF", SECRET, str(layers)], capture_output=True, text=True, check=False)
    assert found.stdout == ""


async def test_what_a_running_workspace_uses_is_kept_and_the_rest_removed(containers: Containers) -> None:
    engine = containers.engine(unused_image_seconds=0)
    await engine.delete(FIRST, RecordedTask("task-3"))
    images = list_images(containers)
    assert any(name.startswith(SHARED) for name in images) and not any(FIRST in name for name in images)
    assert (await engine.status(SECOND)).state is ContainerState.RUNNING
    async with engine.images.keep_images():  # as an `up` of another workspace does
        await engine.delete(SECOND, RecordedTask("task-4"))
        assert list_images(containers)
    await engine.images.collect()
    assert list_images(containers) == {}
    assert list((containers.folder / "state/images").iterdir()) == []


async def test_when_the_disk_gets_full_images_that_nothing_uses_are_removed(
    containers: Containers, tmp_path: Path
) -> None:
    (tmp_path / "image.tar").write_bytes(bytes(10240))  # an archive without files
    containers.podman("import", str(tmp_path / "image.tar"), "localhost/pulled")
    (containers.folder / "state/images").mkdir(parents=True, exist_ok=True)
    (containers.folder / "state/images/record-of-a-failed-build").touch()
    await containers.engine().images.collect()
    assert "localhost/pulled" in containers.podman("images")
    assert list((containers.folder / "state/images").iterdir()) == []
    await containers.engine(min_free_bytes=1 << 60).images.collect()
    assert "localhost/pulled" not in containers.podman("images")
    assert IMAGE in containers.podman("images")


def test_images_that_a_workspace_has_a_name_for_are_used() -> None:
    shared = [f"{SHARED}repository:{number}" for number in range(4)]
    images: list[dict[str, object]] = [
        {"Names": [shared[0]]},
        {"Names": [shared[1], "localhost/fairlead-uid/vsc-demo"]},
        {"Names": [shared[2]], "Containers": 1},
        {"Names": ["localhost/workspace:latest"]},
        {"Names": None},
    ]
    assert list_unused_shared(images, {record_name(shared[0]): 7.0}) == {shared[0]: 7.0}


def test_old_images_expire_and_those_that_are_too_many() -> None:
    now = time.time()
    uses = {"new": now, "older": now - 50, "old": now - 90, "expired": now - 100}
    assert choose_expired(uses, now, 100, 10) == ["expired"]
    assert choose_expired(uses, now, 1000, 2) == ["old", "expired"]
    assert choose_expired({}, now, 0, 0) == []
