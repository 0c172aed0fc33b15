"""Images of a registry are pulled once for all workspaces of a runner, and belong to each of them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import GitSource, ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer import pulled_images
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT, PYTHON, find_holder
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.settings import Deadlines, Settings
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


HOLD_LOCKS = """
import fcntl, os, sys, time
taken = 0
for folder, folders, names in os.walk("/images"):
    folders[:] = [each for each in folders if folder.count("/") < 3]
    for name in names:
        try:
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken += name.endswith(".lock")
        except OSError:  # a link or a device
            pass
print(taken, flush=True)
time.sleep(600)
"""


@pytest.mark.timeout(300)
async def test_a_workspace_that_locks_the_images_of_all_holds_up_no_pull(
    containers: Containers, exported: Path, tmp_path: Path
) -> None:
    """To take a lock needs only to read the file, and podman waits for it without an end: for those of the store, and
    for its database. So all files are locked."""
    with running_registry(containers.number, exported) as registry:
        registries = tmp_path / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        engine = containers.engine(registries=registries)
        names = [f"{registry.address}/team/locks:{number}" for number in (1, 2)]
        await engine.up(WorkspaceSpec(FIRST, "p", "demo", "mallory", ImageSource(names[0])), RecordedTask())
        await engine.stop(FIRST, RecordedTask("task-2"))
        await engine.up(WorkspaceSpec(FIRST, "p", "demo", "mallory", ImageSource(names[0])), RecordedTask("task-3"))
        holder = find_holder(open_folder(engine.settings.state_folder, FIRST).holder)
        assert holder is not None
        attacker = await asyncio.create_subprocess_exec(
            *holder.enter([PYTHON, "-c", HOLD_LOCKS]), env=dict(ENVIRONMENT), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert attacker.stdout is not None
            assert int(await attacker.stdout.readline()) >= 2
            async with asyncio.timeout(60):
                assert list(await engine.pulled.ensure([names[1]])) == [names[1]]
        finally:
            attacker.kill()
            await attacker.wait()
            await engine.delete(FIRST, RecordedTask("cleanup"))


async def test_what_keeps_podman_from_an_answer_holds_up_a_workspace_for_a_part_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path, "r", deadlines=Deadlines(configure=0.5), ranges_folder=tmp_path / "ranges")
    pulled = PulledImages(settings)

    async def start_never(own: PulledImages) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PulledImages, "_start", start_never)
    monkeypatch.setattr(PulledImages, "store", lambda own: [object()])
    monkeypatch.setattr(pulled_images, "COLLECT_SECONDS", 0.1)
    async with asyncio.timeout(5):
        found = await asyncio.gather(pulled.ensure(["debian"]), pulled.ensure(["debian", "alpine"]))
        assert not any(found)
        await pulled.collect()
