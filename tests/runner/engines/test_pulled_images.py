"""Images of a registry are pulled once for all workspaces of a runner, and belong to each of them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import GitSource, ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from tests.runner.harness.image_registry import running_registry
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

FIRST, SECOND = "9011ed00-0000-4000-8000-000000000001", "9011ed00-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def exported(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, of which the second replaces a folder of the first: that needs what overlays call opaque folders."""
    folder = tmp_path_factory.mktemp("image") / "exported"
    engine = containers.engine()
    url = containers.commit("export", {".devcontainer.json": json.dumps({"image": IMAGE, "userEnvProbe": "none"})})
    spec = WorkspaceSpec(FIRST, "p", "demo", "ada", GitSource(url))
    asyncio.run(engine.up(spec, RecordedTask()))
    lines = (
        f"FROM {IMAGE}",
        "USER root",
        "RUN mkdir /kept && touch /kept/old && chown dev /kept/old",
        "RUN rm -r /kept && mkdir /kept && touch /kept/new && chown dev /kept/new",
        "USER dev",
    )
    script = "printf '%s' \"$1\" >/tmp/Dockerfile && podman build --layers --tag=made --file=/tmp/Dockerfile /tmp"
    push = "podman save --format=docker-dir --output=/var/tmp/exported made"
    containers.run(FIRST, "/bin/sh", "-c", f"{script} && {push}", "sh", "\n".join(lines))
    containers.copy_folder(FIRST, "/var/tmp/exported", folder)
    asyncio.run(engine.delete(FIRST, RecordedTask("cleanup")))
    return folder


@pytest.mark.timeout(300)
async def test_the_second_workspace_does_not_pull_an_image_again(
    containers: Containers, exported: Path, tmp_path: Path
) -> None:
    with running_registry(containers.number, exported) as registry:
        registries = tmp_path / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        engine = containers.engine(registries=registries)
        image = f"{registry.address}/team/tools:1"
        url = containers.commit("pulled", {".devcontainer.json": json.dumps({"image": image, "userEnvProbe": "none"})})
        spec = WorkspaceSpec(FIRST, "p", "demo", "ada", GitSource(url))
        await engine.up(spec, RecordedTask())
        pulled = registry.count("/blobs/")
        assert pulled >= 3
        await engine.up(replace(spec, uid=SECOND, namespace="another"), RecordedTask())
        assert registry.count("/blobs/") == pulled
        for uid in (FIRST, SECOND):
            seen = await run_inside(engine, uid, "ls -A /kept; stat -c %U /kept/new; id -un; touch /kept/new")
            assert seen.output.split() == ["new", "dev", "dev"]
            assert containers.podman(uid, "images", "--format", "{{.ReadOnly}}").split() == ["true", "true"]
        await engine.delete(FIRST, RecordedTask("cleanup"))
        await engine.pulled.collect()
        assert find_holder(engine.pulled.folder.holder) is not None
        await engine.close()
        assert find_holder(engine.pulled.folder.holder) is None
        assert containers.podman(SECOND, "inspect", "--format", "{{.State.Running}}", CONTAINER).strip() == "true"
        await engine.stop(SECOND, RecordedTask("task-2"))
        await engine.up(replace(spec, uid=SECOND, namespace="another"), RecordedTask("task-3"))
        await engine.delete(SECOND, RecordedTask("cleanup"))
        await engine.pulled.collect()
        await engine.up(replace(spec, uid=SECOND), RecordedTask("task-4"))
        assert registry.count("/blobs/") > pulled


@pytest.mark.timeout(300)
async def test_a_short_name_of_the_machine_is_the_image_that_it_stands_for(
    containers: Containers, exported: Path, tmp_path: Path
) -> None:
    with running_registry(containers.number, exported) as registry:
        registries = tmp_path / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        folder = tmp_path / "registries.conf.d"
        folder.mkdir()
        (folder / "shortnames.conf").write_text(f'[aliases]\n"tools" = "{registry.address}/team/tools"\n')
        engine = containers.engine(registries=registries, registries_folder=folder)
        await engine.up(WorkspaceSpec(FIRST, "p", "demo", "ada", ImageSource("tools:1")), RecordedTask())
        seen = await run_inside(engine, FIRST, "ls -A /kept")
        assert seen.output.split() == ["new"]
        assert containers.podman(FIRST, "images", "--format", "{{.ReadOnly}}").split() == ["true", "true"]
