"""Real dev containers that must not come up, that fail, or whose task is interrupted."""

import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.grant import encode_grant
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.preparation import build_grant, prepare
from fairlead.runner.engines.devcontainer.sandbox import run_in_sandbox
from fairlead.runner.engines.devcontainer.settings import Deadlines
from fairlead.runner.engines.devcontainer.shim import REFUSED, main
from fairlead.runner.engines.devcontainer.sources import SCRIPT_OF_COPY
from tests.harness.eventually import eventually
from tests.runner.harness.grants import make_grant
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

ROOT = Path(__file__).parents[3]
FORK_BOMB = "i=0; while [ $i -lt 200 ]; do sleep 1 & i=$((i+1)); done; wait"


@pytest.fixture
def uid(request: pytest.FixtureRequest, containers: Containers) -> Iterator[str]:
    """The uid of a workspace that the test creates; nothing of it is left afterwards."""
    name = f"fa11{abs(hash(request.node.name)) % 10**12:012}"
    yield name
    asyncio.run(containers.engine().delete(name, RecordedTask("cleanup")))
    assert_nothing_left(containers, name)


def make_spec(containers: Containers, uid: str, files: Mapping[str, str] | str) -> WorkspaceSpec:
    """A workspace from a repository with these files, or with this devcontainer.json."""
    files = {".devcontainer/devcontainer.json": files} if isinstance(files, str) else files
    return WorkspaceSpec(uid, "project", "demo", "ada", GitSource(containers.commit(uid, files)))


def assert_nothing_left(containers: Containers, uid: str) -> None:
    listed = [containers.podman(*each) for each in (("ps", "--all"), ("network", "ls"), ("volume", "ls"), ("images",))]
    assert uid not in "".join(listed)
    assert containers.podman("ps", "--all", "--external", "-q").split() == []
    assert not (containers.folder / "state/workspaces" / uid).exists()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if uid in read_text(path)]
    assert [read_text(path) for path in left] == []


def read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


async def test_a_configuration_that_is_a_link_is_not_read(containers: Containers, uid: str) -> None:
    spec = make_spec(containers, uid, {"README": "x"})
    (containers.repositories / uid / ".devcontainer.json").symlink_to("/etc/shadow")
    containers.commit(uid, {})
    task = RecordedTask()
    with pytest.raises(EngineError) as raised:
        await containers.engine().up(spec, task)
    assert raised.value.reason == Reason.POLICY_VIOLATION
    assert "root:" not in task.text + raised.value.message


async def test_a_broken_build_gives_a_container_with_the_sources(containers: Containers, uid: str) -> None:
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nRUN {FORK_BOMB}; exit 3\n",
    }
    engine, task = containers.engine(), RecordedTask()
    with pytest.raises(EngineError) as raised:
        await engine.up(make_spec(containers, uid, files), task)
    assert (raised.value.reason, raised.value.step) == (Reason.BUILD_FAILED, "Build")
    assert "Cannot fork" in task.text  # the limit on processes holds for builds, too
    status = await engine.status(uid)
    assert (status.state, status.is_recovery) == (ContainerState.RUNNING, True)
    outcome = await run_inside(engine, uid, "cat .devcontainer/Dockerfile; git log --format=%s; ls /root /etc/shadow")
    assert "exit 3" in outcome.output and "First" in outcome.output
    assert "/etc/shadow" in outcome.errors


async def test_a_command_that_hangs_fails_with_its_name(containers: Containers, uid: str) -> None:
    configuration = json.dumps({"image": IMAGE, "postCreateCommand": "sleep 4243", "remoteUser": "root"})
    engine = containers.engine(deadlines=Deadlines(commands=1))
    with pytest.raises(EngineError) as raised:
        await engine.up(make_spec(containers, uid, configuration), RecordedTask())
    assert (raised.value.reason, raised.value.step) == (Reason.STEP_TIMED_OUT, "LifecycleCommands")
    assert "postCreateCommand" in raised.value.message
    assert (await engine.status(uid)).state is ContainerState.RUNNING
    assert (await run_inside(engine, uid, "id -un; pwd")).output.split() == ["root", "/workspaces/demo"]


def test_an_image_for_another_platform_is_named(
    containers: Containers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    subprocess.run(["tar", "-C", str(tmp_path), "-cf", str(tmp_path / "empty.tar"), "file"], check=True)
    other = "amd64" if platform.machine() == "aarch64" else "arm64"
    containers.podman("import", f"--arch={other}", str(tmp_path / "empty.tar"), "localhost/elsewhere")
    (tmp_path / "tmp").mkdir()
    grant = make_grant(tmp_path, podman_environment=containers.environment)
    (tmp_path / "grant.json").write_bytes(encode_grant(grant))
    assert main(tmp_path, ["inspect", "--type", "image", "localhost/elsewhere"]) == REFUSED
    assert f"localhost/elsewhere is for {other}" in capfd.readouterr().err
    assert main(tmp_path, ["inspect", "--type", "image", IMAGE]) == 0
    assert json.loads(capfd.readouterr().out)[0]["RepoTags"] == [f"{IMAGE}:latest"]


@pytest.mark.long
@pytest.mark.parametrize("step", ["Prepare", "Clone", "Configure", "Build", "Start", "LifecycleCommands"])
async def test_delete_works_in_every_step_of_up(containers: Containers, uid: str, step: str) -> None:
    slow_build = f"FROM {IMAGE}\nRUN echo {uid}; sleep 4244\n"
    image = {"build": {"dockerfile": "Dockerfile"}} if step == "Build" else {"image": IMAGE}
    configuration = {**image, "postCreateCommand": "sleep 4244", "userEnvProbe": "none"}
    files = {".devcontainer/devcontainer.json": json.dumps(configuration), ".devcontainer/Dockerfile": slow_build}
    engine, task = containers.engine(), RecordedTask()
    up = asyncio.create_task(engine.up(make_spec(containers, uid, files), task))
    await asyncio.wait((up, asyncio.create_task(task.wait_for_step(step))), return_when=asyncio.FIRST_COMPLETED)
    assert not up.done()
    if step == "Build":
        await eventually(lambda: containers.podman("ps", "--all", "--external", "-q").split())  # the build has begun
    task.is_cancelled = True
    up.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await up
    assert DetachedCommand(containers.folder / "state/workspaces" / uid / "task").find_leader() is None
    await engine.delete(uid, RecordedTask("task-2"))
    assert_nothing_left(containers, uid)


async def test_a_runner_that_was_killed_is_continued_by_the_next_one(containers: Containers, uid: str) -> None:
    configuration = {"image": IMAGE, "postCreateCommand": "echo commands ran", "userEnvProbe": "none"}
    spec = make_spec(containers, uid, json.dumps(configuration))
    program = "import asyncio, sys; from tests.runner.harness.first_runner import main; asyncio.run(main(sys.argv[1:]))"
    arguments = [str(containers.folder), str(containers.number), uid, spec.source.url]  # type: ignore[union-attr]
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert runner.stdout is not None
    assert await runner.stdout.readline() == b"Build\n"
    runner.kill()
    await runner.wait()
    engine, task = containers.engine(), RecordedTask("task-of-the-first-runner")
    assert (await engine.status(uid)).state is ContainerState.BUSY
    assert not await engine.adopt(uid, RecordedTask("another-task"))
    assert await engine.adopt(uid, task)
    assert "commands ran" in task.text
    assert (await engine.status(uid)).state is ContainerState.RUNNING
    assert (await run_inside(engine, uid, "id -un")).output == "dev\n"
    assert len(containers.podman("ps", "-q").split()) == 1


async def test_a_file_without_content_does_not_fill_the_disk_when_it_is_copied(
    containers: Containers, uid: str
) -> None:
    engine = containers.engine()
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, make_spec(containers, uid, "{}"), folder, "task-1")
    await prepare(engine.podman, folder, grant)
    work, staging = folder.work / grant.project, folder.staging / grant.project
    os.truncate(os.open(work / "large", os.O_CREAT | os.O_WRONLY), 1 << 40)
    volumes = (f"{work}:/work:ro", f"{staging}:/staging")
    result = await run_in_sandbox(engine.podman, folder, grant, ["/bin/sh", "-c", SCRIPT_OF_COPY], volumes)
    assert (result.code, result.errors) == (0, "")
    copy = (staging / "large").stat()
    assert (copy.st_size, copy.st_blocks) == (1 << 40, 0)


async def test_the_sandbox_shows_nothing_of_the_machine_but_its_programs(containers: Containers, uid: str) -> None:
    engine = containers.engine()
    spec = make_spec(containers, uid, "{}")
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, spec, folder, "task-1")
    await prepare(engine.podman, folder, grant)
    script = "cat /proc/self/uid_map; ls -A /root /home /source /etc/shadow /var/lib; touch /usr/x; cat /proc/1/environ"
    result = await run_in_sandbox(engine.podman, folder, grant, ["/bin/sh", "-c", script])
    assert str(grant.first_uid) in result.output.split()
    assert "cannot access '/etc/shadow'" in result.errors and "Read-only file system" in result.errors
    assert "CONTAINERS_CONF" not in result.output
