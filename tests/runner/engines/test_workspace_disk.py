"""Workspaces that fill their disk in every way they have: with bytes, files, logs, builds, sources and images."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder
from fairlead.runner.engines.devcontainer.settings import Deadlines
from tests.harness.eventually import eventually
from tests.runner.harness.image_registry import running_registry
from tests.runner.harness.podman import IMAGE, Containers, list_loop_devices
from tests.runner.harness.root_programs import HARNESS_VARIABLE
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

MEBIBYTE = 1 << 20
LIMIT = 256 * MEBIBYTE
STATE_BYTES = 4 * MEBIBYTE
"""What the runner itself writes of a workspace, beside its disk."""
FILL = "dd if=/dev/zero of={path} bs=1M count=600"
"""More than the limit; without one, it has an end."""
PLAIN = json.dumps({"image": IMAGE, "userEnvProbe": "none"})

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Filled:
    """A workspace, and what it takes up on the machine."""

    containers: Containers
    engine: DevcontainerEngine
    spec: WorkspaceSpec

    @property
    def folder(self) -> WorkspaceFolder:
        return open_folder(self.engine.settings.state_folder, self.spec.uid)

    async def up(self, task: str = "task-1") -> RecordedTask:
        recorded = RecordedTask(task)
        await self.engine.up(self.spec, recorded)
        return recorded

    async def fail(self) -> EngineError:
        with pytest.raises(EngineError) as raised:
            await self.up()
        return raised.value

    async def run(self, script: str) -> str:
        outcome = await run_inside(self.engine, self.spec.uid, script)
        return outcome.output + outcome.errors

    def used_bytes(self) -> int:
        """What the free bytes of the machine have fallen by: everything of an engine is in its state folder."""
        command = ["du", "--summarize", "--block-size=1", str(self.engine.settings.state_folder)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


@asynccontextmanager
async def open_workspace(
    containers: Containers, uid: str, files: dict[str, str] | str, **changes: object
) -> AsyncIterator[Filled]:
    """With a disk of the limit. At the end, it can be stopped and deleted in every state, and nothing is left."""
    files = {".devcontainer/devcontainer.json": files} if isinstance(files, str) else files
    source = GitSource(containers.commit(uid, files))
    state = containers.folder / f"state-{uid}/engines/devcontainer"
    values = {"state_folder": state, "workspace_disk_bytes": LIMIT, "image_disk_bytes": LIMIT, **changes}
    engine = containers.engine(**values)
    filled = Filled(containers, engine, WorkspaceSpec(uid, "project", "demo", "ada", source))
    try:
        yield filled
    finally:
        await engine.stop(uid, RecordedTask("stop"))
        await engine.delete(uid, RecordedTask("delete"))
    assert not filled.folder.root.exists()
    await eventually(lambda: list_loop_devices(filled.folder.root) == [], 30)


async def test_a_disk_full_of_bytes_concerns_its_workspace_alone(containers: Containers) -> None:
    async with (
        open_workspace(containers, "d15c-bytes", PLAIN) as filled,
        open_workspace(containers, "d15c-other", PLAIN) as other,
    ):
        await filled.up()
        await other.up()
        assert "No space left on device" in await filled.run(FILL.format(path="fill"))
        assert filled.used_bytes() <= LIMIT + STATE_BYTES
        status = await filled.engine.status(filled.spec.uid)
        assert (status.state, status.cause.split(":")[0]) == (ContainerState.RUNNING, "WorkspaceDiskFull")
        assert "MiB are used; delete files" in status.cause
        assert status.disk_bytes is not None and LIMIT // 2 < status.disk_bytes <= LIMIT
        assert await other.run("echo kept >file && cat file") == "kept\n"
        assert (await other.engine.status(other.spec.uid)).cause == ""

        await filled.engine.stop(filled.spec.uid, RecordedTask("task-2"))
        await filled.up("task-3")  # what is reserved for podman lets it start, so that the user can delete files
        assert await filled.run("rm fill && echo more >file && cat file") == "more\n"
        assert (await filled.engine.status(filled.spec.uid)).cause == ""
        await eventually(lambda: filled.used_bytes() < LIMIT // 2, 60)  # deleted files do not stay on the machine


async def test_a_disk_full_of_files_concerns_its_workspace_alone(containers: Containers) -> None:
    async with open_workspace(containers, "d15c-files", PLAIN) as filled:
        await filled.up()
        said = await run_inside(
            filled.engine, filled.spec.uid, "mkdir many; cd many; seq 40000 | xargs touch 2>&1 | tail -n1; ls | wc -l"
        )
        assert "No space left on device" in said.output
        assert 10_000 < int(said.output.split()[-1]) < LIMIT // 16384
        cause = (await filled.engine.status(filled.spec.uid)).cause
        assert cause.startswith("WorkspaceDiskFull") and "as many as it can have" in cause
        assert filled.used_bytes() <= LIMIT + STATE_BYTES
        await filled.engine.stop(filled.spec.uid, RecordedTask("task-2"))
        await filled.up("task-3")  # with the files that podman has in reserve
        assert await filled.run("rm -r many; touch file; ls file") == "file\n"


async def test_the_output_of_the_main_process_is_kept_up_to_a_limit(containers: Containers) -> None:
    configuration = {"build": {"dockerfile": "Dockerfile"}, "overrideCommand": False, "userEnvProbe": "none"}
    printing = "yes $(seq 100) | head -c 600000000; touch /tmp/printed; sleep 3600"
    files = {
        ".devcontainer/devcontainer.json": json.dumps(configuration),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nCMD {json.dumps(['/bin/sh', '-c', printing])}\n",
    }
    async with open_workspace(containers, "d15c-log", files) as filled:
        await filled.up()
        assert await filled.run("until [ -e /tmp/printed ]; do sleep 0.1; done") == ""
        listed = containers.run(filled.spec.uid, "find", "/ws/store", "-name", "*.log*", "-printf", "%s\n")
        assert sum(map(int, listed.split())) < 4 * MEBIBYTE
        disk = filled.folder.disk
        await eventually(lambda: disk.stat().st_blocks * 512 < LIMIT // 2, 60)  # removed blocks are given back later


async def test_a_command_that_prints_while_no_runner_reads_waits_for_one(containers: Containers) -> None:
    printing = "yes $(seq 100) | head -c 300000000"
    configuration = json.dumps({"image": IMAGE, "userEnvProbe": "none", "postCreateCommand": printing})
    async with open_workspace(containers, "d15c-print", configuration) as filled:
        task = RecordedTask()
        up = asyncio.create_task(filled.engine.up(filled.spec, task))
        await task.wait_for_step("LifecycleCommands")
        up.cancel()  # as when a runner ends
        with pytest.raises(asyncio.CancelledError):
            await up
        command, log = DetachedCommand(filled.folder.task), filled.folder.task / "log"
        await eventually(lambda: log.stat().st_blocks * 512 > 60 * MEBIBYTE, 120)
        await asyncio.sleep(2)
        assert log.stat().st_blocks * 512 < 66 * MEBIBYTE
        assert command.find_leader() is not None
        assert filled.used_bytes() <= LIMIT + 66 * MEBIBYTE
        printed = log.stat().st_size
        next_runner = DevcontainerEngine(filled.engine.settings)
        assert await next_runner.adopt(filled.spec.uid, RecordedTask())
        assert log.stat().st_size > printed  # it went on to its end
        assert log.stat().st_blocks * 512 < 66 * MEBIBYTE


async def test_nothing_is_lost_of_what_a_command_prints_faster_than_it_is_read(containers: Containers) -> None:
    configuration = json.dumps({"image": IMAGE, "userEnvProbe": "none", "postCreateCommand": "seq -f line-%.0f 400000"})
    async with open_workspace(containers, "d15c-fast", configuration) as filled:
        task = RecordedTask()
        up = asyncio.create_task(filled.engine.up(filled.spec, task))
        await task.wait_for_step("LifecycleCommands")
        leader = DetachedCommand(filled.folder.task).find_leader()
        assert leader is not None
        os.kill(leader, signal.SIGSTOP)
        await asyncio.sleep(5)  # the CLI could be at its end meanwhile
        os.kill(leader, signal.SIGCONT)
        await up
        joined = task.text.replace("\n", "")
        assert joined.count("line-") == 400_000
        assert "line-400000" in joined


async def test_a_command_that_prints_without_end_ends_with_its_deadline(containers: Containers) -> None:
    configuration = json.dumps({"image": IMAGE, "userEnvProbe": "none", "postCreateCommand": "yes"})
    async with open_workspace(containers, "d15c-yes", configuration, deadlines=Deadlines(commands=5)) as filled:
        error = await filled.fail()
        assert (error.reason, error.step) == (Reason.STEP_TIMED_OUT, "LifecycleCommands")
        assert filled.used_bytes() <= LIMIT + 66 * MEBIBYTE


async def test_a_build_that_fills_the_disk_says_so(containers: Containers) -> None:
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"build": {"dockerfile": "Dockerfile"}}),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nRUN {FILL.format(path='/fill')}\n",
    }
    async with open_workspace(containers, "d15c-build", files) as filled:
        error = await filled.fail()
        assert (error.reason, error.step) == (Reason.WORKSPACE_DISK_FULL, "Build")
        assert "the disk of the workspace is full" in error.message and "`storage`" in error.message
        assert filled.used_bytes() <= LIMIT + STATE_BYTES
        assert (await filled.engine.status(filled.spec.uid)).is_recovery
        assert "RUN dd" in await filled.run("cat .devcontainer/Dockerfile")


async def test_a_command_of_the_repository_that_fills_the_disk_says_so(containers: Containers) -> None:
    configuration = {"image": IMAGE, "userEnvProbe": "none", "postCreateCommand": FILL.format(path="fill")}
    async with open_workspace(containers, "d15c-command", json.dumps(configuration)) as filled:
        error = await filled.fail()
        assert (error.reason, error.step) == (Reason.WORKSPACE_DISK_FULL, "LifecycleCommands")
        assert "postCreateCommand failed" in error.message
        assert await filled.run("rm fill; echo kept >file && cat file") == "kept\n"


async def test_a_repository_that_does_not_fit_says_so(containers: Containers) -> None:
    async with open_workspace(containers, "d15c-clone", PLAIN) as filled:
        commit_large_file(containers.repositories / filled.spec.uid, LIMIT + 20 * MEBIBYTE)
        error = await filled.fail()
        assert (error.reason, error.step) == (Reason.WORKSPACE_DISK_FULL, "Clone")
        assert "the source could not be fetched" in error.message
        assert filled.used_bytes() <= LIMIT + STATE_BYTES


def commit_large_file(repository: Path, size: int) -> None:
    """One that cannot be compressed."""
    with (repository / "large").open("wb") as file:
        for _ in range(size // MEBIBYTE):
            file.write(os.urandom(MEBIBYTE))
    environment = {**os.environ, HARNESS_VARIABLE: "1"}
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "core.compression=0")
    for command in (("add", "-A"), ("commit", "-qm", "Large")):
        subprocess.run(["git", "-C", str(repository), *identity, *command], env=environment, check=True)


async def test_an_image_that_does_not_fit_says_so(containers: Containers, tmp_path: Path) -> None:
    write_image(tmp_path / "image", LIMIT + 50 * MEBIBYTE)
    with running_registry(containers.number, tmp_path / "image") as registry:
        registries = tmp_path / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        configuration = json.dumps({"image": f"{registry.address}/team/huge:1", "userEnvProbe": "none"})
        async with open_workspace(containers, "d15c-image", configuration, registries=registries) as filled:
            error = await filled.fail()
            assert error.reason == Reason.WORKSPACE_DISK_FULL
            assert filled.used_bytes() <= 2 * LIMIT + 2 * STATE_BYTES  # the disk of pulled images, and its own
            assert (filled.engine.pulled.folder.disk.stat().st_size, filled.engine.pulled.store()) == (LIMIT, [])
            small = replace(filled.spec, uid="d15c-small", source=GitSource(containers.commit("small", {"x": "x"})))
            ordinary = replace(small, options={"image": IMAGE})
            await filled.engine.up(ordinary, RecordedTask())
            await filled.engine.delete(ordinary.uid, RecordedTask("delete"))


def write_image(folder: Path, size: int) -> None:
    """As `podman push` to `dir:` would: one layer with a file of this size, which is small on its way."""
    folder.mkdir()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        entry = tarfile.TarInfo("huge")
        entry.size = size
        archive.addfile(entry, io.BytesIO(bytes(size)))
    compressed = gzip.compress(layer.getvalue(), 1)
    architecture = {"aarch64": "arm64", "x86_64": "amd64"}[os.uname().machine]
    diff_ids = [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]
    config = json.dumps(
        {"architecture": architecture, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    ).encode()
    kind = "application/vnd.docker"
    described = []
    for content, name in ((config, "container.image.v1+json"), (compressed, "image.rootfs.diff.tar.gzip")):
        digest = hashlib.sha256(content).hexdigest()
        (folder / digest).write_bytes(content)
        described.append({"mediaType": f"{kind}.{name}", "size": len(content), "digest": f"sha256:{digest}"})
    manifest = {"schemaVersion": 2, "mediaType": f"{kind}.distribution.manifest.v2+json"}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "config": described[0], "layers": described[1:]}))


async def test_a_workspace_that_began_without_a_disk_keeps_its_files_and_has_no_limit(containers: Containers) -> None:
    async with open_workspace(containers, "d15c-former", PLAIN, workspace_disk_bytes=0) as former:
        await former.up()
        await former.run("echo kept >file")
        await former.engine.stop(former.spec.uid, RecordedTask("task-2"))
        settings = replace(former.engine.settings, workspace_disk_bytes=LIMIT)
        current = replace(former, engine=DevcontainerEngine(settings))
        task = await current.up("task-3")
        assert await current.run("cat file") == "kept\n"
        assert not current.folder.disk.exists()
        assert "has no limit on its disk space" in task.text


async def test_a_template_chooses_less_and_not_more(containers: Containers) -> None:
    async with open_workspace(containers, "d15c-less", PLAIN, workspace_disk_bytes=2 * LIMIT) as filled:
        less = replace(filled, spec=replace(filled.spec, options={"storage": "256Mi"}))
        await less.up()
        assert less.folder.disk.stat().st_size == 256 * MEBIBYTE
        assert int((await less.run("df --output=size --block-size=1M . | tail -n1")).strip()) < 256
        await less.engine.delete(less.spec.uid, RecordedTask("delete"))
        more = replace(filled, spec=replace(filled.spec, options={"storage": "900Gi"}))
        await more.up()
        assert more.folder.disk.stat().st_size == 2 * LIMIT
