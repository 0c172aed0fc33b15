"""A workspace of an earlier version, whose container and volume belong to podman of the machine's root."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.layout import open_folder
from tests.runner.harness.podman import IMAGE, TOOLS, Containers
from tests.runner.harness.root_programs import HARNESS_VARIABLE
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "f0f0f0f0-0000-4000-8000-000000000001"
CONFIGURATION = {
    "image": IMAGE,
    "remoteUser": "root",
    "userEnvProbe": "none",
    "mounts": [{"type": "volume", "source": "cache", "target": "/cache"}],
}


@pytest.fixture(scope="module")
def podman(containers: Containers) -> Iterator[Path]:
    """Podman of root, with a store that only this test uses."""
    program = containers.folder / "former-podman"  # another name than those that are watched for, until it is podman
    store = f"--root={containers.folder}/former --runroot={containers.folder}/former-run"
    images = f"--storage-opt=additionalimagestore={TOOLS}/images/storage"
    options = f"{store} {images} --cgroup-manager=cgroupfs --events-backend=file --runtime=runc"
    program.write_text(f'#!/bin/sh\nexport {HARNESS_VARIABLE}=1\nexec /usr/bin/podman {options} "$@"\n')
    program.chmod(0o755)
    yield program
    subprocess.run([str(program), "rm", "--all", "--force", "--time=0"], check=False, capture_output=True)
    subprocess.run(["umount", f"{containers.folder}/former/overlay"], check=False, capture_output=True)


def run(podman: Path, *arguments: str) -> str:
    return subprocess.run([str(podman), *arguments], check=True, capture_output=True, text=True).stdout


async def test_its_container_ends_and_its_files_and_volumes_are_kept(containers: Containers, podman: Path) -> None:
    engine = containers.engine(former_podman=str(podman))
    url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    spec = WorkspaceSpec(UID, "project", "demo", "ada", GitSource(url), permissions=frozenset({"mounts"}))
    await engine.up(spec, RecordedTask())
    await run_inside(engine, UID, "echo kept >file")
    first = containers.find_first_uid(UID)
    await engine.stop(UID, RecordedTask("task-2"))
    folder = open_folder(engine.settings.state_folder, UID)
    (folder.root / "grant.json").write_text("{}")
    (folder.root / "rootfs").mkdir()
    run(podman, "volume", "create", f"fairlead-{UID}-cache")
    data = Path(run(podman, "volume", "inspect", "--format", "{{.Mountpoint}}", f"fairlead-{UID}-cache").strip())
    (data / "cached").write_text("kept as well\n")
    os.chown(data / "cached", first + 1000, first + 1000)
    run(podman, "create", "--network=none", f"--name=fairlead-{UID}", IMAGE, "true")
    await engine.up(spec, RecordedTask("task-3"))
    seen = await run_inside(engine, UID, "cat file /cache/cached; stat -c %u /cache/cached")
    assert seen.output.splitlines() == ["kept", "kept as well", "1000"]
    assert (await engine.status(UID)).state is ContainerState.RUNNING
    assert run(podman, "ps", "--all", "--quiet").split() == []
    assert run(podman, "volume", "ls", "--quiet").split() == []
    assert not (folder.root / "grant.json").exists() and not (folder.root / "rootfs").exists()
