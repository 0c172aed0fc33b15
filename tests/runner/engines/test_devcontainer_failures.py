"""Real dev containers that must not come up, that fail, or whose task is interrupted."""

import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import (
    ContainerState,
    EngineError,
    ExecOptions,
    GitSource,
    ImageSource,
    Reason,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.configuration import raise_refusals
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.inside.shim import REFUSED
from fairlead.runner.engines.devcontainer.isolation.cgroups import find_box
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import OWN_IMAGES, SHIM, HolderFactory
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.preparation import build_grant, prepare
from fairlead.runner.engines.devcontainer.private_images import private_store
from fairlead.runner.engines.devcontainer.settings import Deadlines
from fairlead.runner.engines.measurement import list_cgroup_pids
from tests.harness.eventually import eventually
from tests.runner.harness.podman import IMAGE, Containers, list_groups
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

ROOT = Path(__file__).parents[3]
FORK_BOMB = "i=0; while [ $i -lt 400 ]; do sleep 1 & i=$((i+1)); done; wait"


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
    assert not (containers.folder / "state/workspaces" / uid).exists()
    assert list_groups(uid) == []
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
    assert raised.value.reason == Reason.CONFIGURATION_INVALID
    assert "root:" not in task.text + raised.value.message


async def test_a_broken_build_gives_a_new_container_with_the_sources(containers: Containers, uid: str) -> None:
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nRUN {FORK_BOMB}; exit 3\n",
    }
    engine, task, spec = containers.engine(), RecordedTask(), make_spec(containers, uid, files)
    with pytest.raises(EngineError) as raised:
        await engine.up(spec, task)
    assert (raised.value.reason, raised.value.step) == (Reason.BUILD_FAILED, "Build")
    assert "Cannot fork" in task.text  # the limit on processes holds for builds, too
    assert "cgroup" not in task.text  # the runtime removes the group of the build, and does not complain
    status = await engine.status(uid)
    assert (status.state, status.is_recovery) == (ContainerState.RUNNING, True)
    outcome = await run_inside(engine, uid, "cat .devcontainer/Dockerfile; git log --format=%s; ls /root /etc/shadow")
    assert "exit 3" in outcome.output and "First" in outcome.output
    assert "/etc/shadow" in outcome.errors
    planted = "touch /planted /run/planted; ln -sfn / /workspaces/planted; ls -d /planted /workspaces/planted"
    outcome = await run_inside(engine, uid, planted, ExecOptions(user="root"))
    assert outcome.output.split() == ["/planted", "/workspaces/planted"]
    with pytest.raises(EngineError):
        await engine.up(spec, RecordedTask("task-2"))
    outcome = await run_inside(engine, uid, "ls -A / /run /workspaces; git log --format=%s", ExecOptions(user="root"))
    assert "First" in outcome.output and "planted" not in outcome.output  # each start has a root file system of its own


async def test_a_command_that_hangs_fails_with_its_name(containers: Containers, uid: str) -> None:
    configuration = json.dumps({"image": IMAGE, "postCreateCommand": "sleep 4243", "remoteUser": "root"})
    engine = containers.engine(deadlines=Deadlines(commands=1))
    with pytest.raises(EngineError) as raised:
        await engine.up(make_spec(containers, uid, configuration), RecordedTask())
    assert (raised.value.reason, raised.value.step) == (Reason.STEP_TIMED_OUT, "LifecycleCommands")
    assert "postCreateCommand" in raised.value.message
    assert (await engine.status(uid)).state is ContainerState.RUNNING
    assert (await run_inside(engine, uid, "id -un; pwd")).output.split() == ["root", "/workspaces/demo"]


@pytest.mark.parametrize("source", ["image", "devcontainer.json", "Dockerfile"])
async def test_an_image_that_cannot_be_pulled_is_named_with_the_reason_of_podman(
    containers: Containers, uid: str, source: str
) -> None:
    missing = "registry.invalid/team/missing:1"
    build = {"build": {"dockerfile": "Dockerfile"}} if source == "Dockerfile" else {"image": missing}
    files = {
        ".devcontainer/devcontainer.json": json.dumps(build),
        ".devcontainer/Dockerfile": f"FROM {missing}\nRUN true\n",
    }
    spec = make_spec(containers, uid, files)
    if source == "image":
        spec = replace(spec, source=ImageSource(missing))
    with pytest.raises(EngineError) as raised:
        await containers.engine().up(spec, RecordedTask())
    assert raised.value.reason == Reason.IMAGE_PULL_FAILED
    assert f"the image {missing} cannot be pulled: " in raised.value.message
    assert "registry.invalid" in raised.value.message.partition("pulled: ")[2]


async def test_an_image_for_another_platform_is_named(containers: Containers, uid: str) -> None:
    other = "amd64" if platform.machine() == "aarch64" else "arm64"
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\n",
    }
    engine = containers.engine()
    spec = make_spec(containers, uid, files)
    await engine.up(spec, RecordedTask())
    imported = f"cd /tmp && touch file && tar -cf x.tar file && podman import --arch={other} x.tar localhost/elsewhere"
    containers.run(uid, "/bin/sh", "-c", imported)
    command = (SHIM, "inspect", "--type", "image", "localhost/elsewhere")
    holder = find_holder(open_folder(engine.settings.state_folder, uid).holder)
    assert holder is not None
    refused = await holder.run(*command)
    assert (refused.code, f"localhost/elsewhere is for {other}" in refused.errors) == (REFUSED, True)
    with pytest.raises(EngineError) as raised:
        await raise_refusals(holder)
    assert raised.value.reason == Reason.PLATFORM_MISMATCH
    assert json.loads(containers.run(uid, *command[:-1], IMAGE))[0]["RepoTags"] == [f"{IMAGE}:latest"]


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
        await eventually(
            lambda: list_cgroup_pids(find_box(open_folder(engine.settings.state_folder, uid), "pids"))
        )  # the build has begun
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
    assert len(containers.podman(uid, "ps", "-q").split()) == 1


async def test_a_program_alone_sees_nothing_of_the_machine_but_its_programs(containers: Containers, uid: str) -> None:
    engine = containers.engine()
    spec = make_spec(containers, uid, "{}")
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, spec, folder, "task-1")
    factory = HolderFactory(engine.settings, folder, grant, await prepare(engine.settings, folder, grant))
    script = "cat /proc/self/uid_map; ls -A /root /home /source /etc/shadow /var/lib; touch /usr/x; cat /proc/*/environ"
    os.environ["RUNNER_CANARY"] = "canary-of-the-runner"
    try:
        result = await factory.run_alone(["/bin/sh", "-c", script], [])
    finally:
        del os.environ["RUNNER_CANARY"]
    assert result.output.split()[:3] == ["0", "0", "65536"]
    assert "cannot access '/etc/shadow'" in result.errors and "Read-only file system" in result.errors
    assert "canary-of-the-runner" not in result.output


async def test_what_one_program_alone_leaves_is_not_there_for_the_next(containers: Containers, uid: str) -> None:
    """A planted shell would otherwise get the credentials of the next clone."""
    engine = containers.engine()
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, make_spec(containers, uid, "{}"), folder, "task-1")
    factory = HolderFactory(engine.settings, folder, grant, await prepare(engine.settings, folder, grant))
    planted = "for f in /bin/sh /usr/bin/git /workspaces /etc/passwd /x; do ln -sfn /work $f; cp /bin/true $f; done"
    left = "mkdir -p /tmp/x /run/x; touch /tmp/x/y /run/x/y /dev/shm/y; sleep 4245 >/dev/null 2>&1 &"
    binds = [factory.bind_work_folder("/work")]
    await factory.run_alone(["/bin/sh", "-c", f"{planted}; {left}"], binds)
    seen = await factory.run_alone(["/bin/sh", "-c", "ls / /tmp /run /dev/shm; cat /proc/*/cmdline"], binds)
    assert "y" not in seen.output.split() and "x" not in seen.output.split() and "4245" not in seen.output
    assert os.readlink("/bin") == "usr/bin"


async def test_a_link_in_place_of_an_image_store_is_not_followed(
    containers: Containers, uid: str, tmp_path: Path
) -> None:
    """The folder of the store belongs to the holder that pulls. A registry that takes that over, by a fault of podman,
    could show a workspace folders of the machine."""
    engine = containers.engine(workspace_disk_bytes=0)
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, make_spec(containers, uid, "{}"), folder, "task-1")
    network = await prepare(engine.settings, folder, grant)
    folder.private_images.write_text("[]")
    (tmp_path / "overlay").mkdir()
    (folder.root / OWN_IMAGES / "store").symlink_to(tmp_path)
    factory = HolderFactory(engine.settings, folder, grant, network, private_store(folder, grant))
    with pytest.raises(EngineError, match="Not a directory"):
        await factory.start("{}")


async def test_a_killed_holder_leaves_nothing_running_and_the_workspace_comes_back(
    containers: Containers, uid: str
) -> None:
    configuration = json.dumps({"image": IMAGE, "userEnvProbe": "none", "remoteUser": "root"})
    engine, spec = containers.engine(), make_spec(containers, uid, configuration)
    await engine.up(spec, RecordedTask())
    await run_inside(engine, uid, "echo kept >file; sleep 4246 >/dev/null 2>&1 &")
    holder = find_holder(open_folder(engine.settings.state_folder, uid).holder)
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    await eventually(lambda: list_holder_pids(uid) == [])
    status = await engine.status(uid)
    assert (status.state, status.cause.split(":")[0]) == (ContainerState.STOPPED, "Exited")
    await engine.up(spec, RecordedTask("task-2"))
    assert (await run_inside(engine, uid, "cat file")).output == "kept\n"


def list_holder_pids(uid: str) -> list[int]:
    return [pid for root in list_groups(uid) for pid in list_cgroup_pids(Path(root))]
