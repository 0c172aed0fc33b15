"""Snapshots of real containers: what is kept when one is replaced, and what comes back from it."""

import asyncio
import dataclasses
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from fairlead.core.clock import timestamp
from fairlead.runner.engines.contract import EngineError, ExecOptions, GitSource, Reason, Snapshot, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import PRUNE_SNAPSHOTS, SNAPSHOTS
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder, read_json, write_json
from fairlead.runner.engines.devcontainer.programs import Result
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.snapshot_list import read_snapshots, store_snapshots
from fairlead.runner.engines.devcontainer.snapshots import TAKE, delete_snapshot, list_snapshots, take_snapshot
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.root_programs import HARNESS_VARIABLE
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "5a900000-0000-4000-8000-000000000001"
BROKEN_UID = "5a900000-0000-4000-8000-000000000003"
RESET_UID = "5a900000-0000-4000-8000-000000000004"
FULL_UID = "5a900000-0000-4000-8000-000000000002"
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "userEnvProbe": "none"}
CHANGE = """
set -e
mkdir -p /opt/tool/bin && echo '#!/bin/sh' >/opt/tool/bin/run
chown dev /opt/tool/bin/run && chmod 4755 /opt/tool/bin/run
ln -s bin/run /opt/tool/latest && ln /opt/tool/bin/run /usr/local/bin/tool
ln -s /etc /opt/tool/outside
echo secret >/tmp/temporary; echo changed >>/etc/motd; rm -f /etc/issue
mkdir -p '/opt/a
name'; echo odd >'/opt/a
name/-file'
"""


async def run(engine: DevcontainerEngine, script: str, uid: str = UID) -> str:
    outcome = await run_inside(engine, uid, script, ExecOptions(user="root"))
    assert outcome.code == 0, outcome.errors
    return outcome.output


@pytest.mark.timeout(300)
async def test_a_snapshot_keeps_what_a_replaced_container_had_and_gives_it_back(containers: Containers) -> None:
    url = containers.commit("snapshots", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    spec = WorkspaceSpec(uid=UID, namespace="project", name="kept", owner="ada", source=GitSource(url))
    again = dataclasses.replace(spec, recreate=True, takes_snapshot=True)
    await engine.up(spec, RecordedTask())
    assert await engine.list_snapshots(UID) == []
    await run(engine, CHANGE)

    task = RecordedTask("0123456789abcdef")
    cut_off = asyncio.create_task(engine.up(again, task))
    await task.wait_for_step("Snapshot")
    cut_off.cancel()  # as when the runner ends
    await asyncio.wait([cut_off])
    await engine.up(again, task)
    assert "Snapshot" in task.steps and "the snapshot 01234567 has what the container had changed" in task.text
    (snapshot,) = await engine.list_snapshots(UID)
    assert snapshot.id == "01234567" and snapshot.size > 0
    assert await run(engine, "ls -d /opt/* 2>/dev/null || echo none") == "none\n"

    async def restore(path: str, id: str = snapshot.id) -> None:
        await engine.restore(UID, id, path, RecordedTask())

    await restore("/opt/tool/")
    shown = await run(engine, "cd /opt/tool; stat -c '%n %a %U %F' bin/run latest outside; cat bin/run; ls /opt")
    assert shown.splitlines() == [
        "bin/run 4755 dev regular file",
        "latest 777 root symbolic link",
        "outside 777 root symbolic link",
        "#!/bin/sh",
        "tool",
    ]
    await restore("/usr/local/bin/tool")
    assert await run(engine, "cat /usr/local/bin/tool") == "#!/bin/sh\n"
    await run(engine, "rm -rf /opt/tool; ln -s /home/dev /opt/tool")
    await restore("/")
    assert await run(engine, "tail -n 1 /etc/motd; cat '/opt/a\nname/-file'; ls /tmp/temporary || echo none") == (
        "changed\nodd\nnone\n"
    )

    for path, id, problem in (
        ("/nowhere", snapshot.id, "has nothing at /nowhere"),
        ("opt", snapshot.id, "not an absolute path"),
        ("/opt", "../../x", "has no snapshot '../../x'; it has 01234567"),
    ):
        with pytest.raises(EngineError, match=problem) as raised:
            await restore(path, id)
        assert raised.value.reason == Reason.SNAPSHOT_FAILED
    containers.run(UID, "rm", f"{SNAPSHOTS}/{snapshot.id}.tar")
    with pytest.raises(EngineError, match="the archive of the snapshot 01234567 is not on the disk"):
        await restore("/opt")
    await engine.delete(UID, RecordedTask())


@pytest.mark.timeout(300)
async def test_few_snapshots_are_kept_for_a_time_and_not_for_another_owner(containers: Containers) -> None:
    url = containers.commit("bounded", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    spec = WorkspaceSpec(uid=UID, namespace="project", name="bounded", owner="ada", source=GitSource(url))
    await engine.up(spec, RecordedTask())
    folder = open_folder(engine.settings.state_folder, UID)
    moments = {"first": "1 day ago", "second": "2 days ago", "third": "2020-01-01"}  # of the files, which do not count
    containers.run(UID, "mkdir", "/ws/snapshots")
    for name, moment in moments.items():
        containers.run(UID, "touch", "-d", moment, f"/ws/snapshots/{name}.tar")
    now = timestamp(datetime.now(UTC))
    write_json(folder.snapshots, [{"id": name, "createdAt": now, "bytes": 1} for name in moments])

    await engine.up(dataclasses.replace(spec, recreate=True, takes_snapshot=True), RecordedTask("newest"))
    assert [each.id for each in await engine.list_snapshots(UID)] == ["newest", "third", "second"]
    assert containers.run(UID, "ls", "/ws/snapshots").split() == ["newest.tar", "second.tar", "third.tar"]

    old, *others = read_json(folder.snapshots)
    write_json(folder.snapshots, [{**old, "createdAt": "2020-01-01T00:00:00Z"}, *others])
    assert [each.id for each in await engine.list_snapshots(UID)] == ["newest", "third"]
    containers.run(UID, "touch", "/ws/snapshots/cut-off.tar.new")
    await engine.stop(UID, RecordedTask())
    with pytest.raises(EngineError, match="not running"):
        await engine.restore(UID, "newest", "/", RecordedTask())
    await engine.delete_snapshot(UID, "third")
    assert [each.id for each in await engine.list_snapshots(UID)] == ["newest"]
    await engine.up(spec, RecordedTask())
    assert containers.run(UID, "ls", "/ws/snapshots").split() == ["newest.tar"]
    with pytest.raises(EngineError, match="has no snapshot 'third'; it has newest"):
        await engine.delete_snapshot(UID, "third")

    await engine.up(dataclasses.replace(spec, recreate=True, discards_home=True, owner="bob"), RecordedTask())
    assert await engine.list_snapshots(UID) == []
    assert containers.run(UID, "ls", "/ws/snapshots", check=False) == ""
    await engine.delete(UID, RecordedTask())


@pytest.mark.timeout(300)
async def test_a_failed_build_leaves_the_snapshots_that_there_are(containers: Containers) -> None:
    url = containers.commit("broken", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    spec = WorkspaceSpec(uid=BROKEN_UID, namespace="project", name="broken", owner="ada", source=GitSource(url))
    await engine.up(spec, RecordedTask())
    await run(engine, "echo kept >/opt/kept", BROKEN_UID)
    build = {"build": {"dockerfile": "Dockerfile"}}
    files = {"devcontainer.json": json.dumps(build), "Dockerfile": f"FROM {IMAGE}\nRUN false\n"}
    for name, text in files.items():
        await run(engine, f"printf %s {shlex.quote(text)} >/workspaces/broken/.devcontainer/{name}", BROKEN_UID)
    again = dataclasses.replace(spec, recreate=True, takes_snapshot=True)
    for task_id in ("first", "second", "third", "fourth"):
        with pytest.raises(EngineError) as raised:
            await engine.up(again, RecordedTask(task_id))
        assert raised.value.reason == Reason.BUILD_FAILED
    assert (await engine.status(BROKEN_UID)).is_recovery
    assert [each.id for each in await engine.list_snapshots(BROKEN_UID)] == ["first"]
    await engine.delete(BROKEN_UID, RecordedTask())


@pytest.mark.timeout(300)
async def test_a_failed_reset_leaves_the_container_and_its_snapshot(containers: Containers) -> None:
    url = containers.commit("reset", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    spec = WorkspaceSpec(uid=RESET_UID, namespace="project", name="reset", owner="ada", source=GitSource(url))
    await engine.up(spec, RecordedTask())
    await run(engine, "echo kept >/opt/kept; echo mine >/workspaces/reset/mine", RESET_UID)
    again = dataclasses.replace(spec, reset=True, takes_snapshot=True, template_hash="changed")

    refused = dataclasses.replace(again, source=GitSource("file:///nowhere"))
    with pytest.raises(EngineError) as raised:
        await engine.up(refused, RecordedTask("first"))
    assert raised.value.reason == Reason.SOURCE_REFUSED
    await engine.up(spec, RecordedTask())
    assert await run(engine, "cat /opt/kept /workspaces/reset/mine", RESET_UID) == "kept\nmine\n"

    failing = dataclasses.replace(again, source=GitSource(url, branch="missing"))
    with pytest.raises(EngineError) as raised:
        await engine.up(failing, RecordedTask("second"))
    assert raised.value.reason == Reason.CLONE_FAILED
    assert [each.id for each in await engine.list_snapshots(RESET_UID)] == ["second", "first"]
    await engine.up(spec, RecordedTask())
    assert await run(engine, "cat /opt/kept", RESET_UID) == "kept\n"
    await engine.delete(RESET_UID, RecordedTask())


@pytest.mark.timeout(300)
async def test_a_container_is_not_replaced_if_no_snapshot_can_be_taken(containers: Containers) -> None:
    url = containers.commit("full", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    options = {"storage": "256Mi"}
    spec = WorkspaceSpec(
        uid=FULL_UID, namespace="project", name="full", owner="ada", source=GitSource(url), options=options
    )
    await engine.up(spec, RecordedTask())
    await run(engine, "head -c 130M /dev/zero >/opt/large", FULL_UID)
    await run(engine, "echo mine >/workspaces/full/mine", FULL_UID)
    for wanted in (dataclasses.replace(spec, recreate=True), dataclasses.replace(spec, reset=True)):
        with pytest.raises(EngineError, match="so the container was not replaced") as raised:
            await engine.up(dataclasses.replace(wanted, takes_snapshot=True), RecordedTask())
        assert raised.value.reason == Reason.WORKSPACE_DISK_FULL
        await engine.up(spec, RecordedTask())
        shown = await run(engine, "stat -c %s /opt/large; cat /workspaces/full/mine", FULL_UID)
        assert shown == f"{130 << 20}\nmine\n"
    await engine.delete(FULL_UID, RecordedTask())


# --- programs that fail -----------------------------------------------------------------------------------------------


class LocalHolder:
    """Runs the programs of a holder on the machine, in folders of the test: `program` is in place of podman."""

    def __init__(self, folder: Path, **programs: str) -> None:
        self.folder = folder
        self.commands: list[Sequence[str]] = []
        for path in ("tmp", "programs", "upper/opt"):
            (folder / path).mkdir(parents=True)
        (folder / "upper/opt/file").write_text("text")
        for name, text in programs.items():
            (folder / "programs" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "programs" / name).chmod(0o755)

    async def run(self, *command: str) -> Result:
        self.commands.append(command)
        local = [
            each.replace("/tmp/", f"{self.folder}/tmp/").replace(SNAPSHOTS, str(self.snapshots)) for each in command
        ]
        path = f"{self.folder}/programs:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, HARNESS_VARIABLE: "1"}
        ended = await asyncio.to_thread(
            subprocess.run, local, capture_output=True, text=True, env=environment, check=False
        )
        return Result(ended.returncode, ended.stdout, ended.stderr)

    @property
    def snapshots(self) -> Path:
        return self.folder / "snapshots"

    @property
    def state(self) -> WorkspaceFolder:
        folder = open_folder(self.folder / "state", UID)
        folder.root.mkdir(parents=True, exist_ok=True)
        return folder

    async def take(self, task_id: str = "0123456789abcdef") -> RecordedTask:
        task, settings = RecordedTask(task_id), Settings(self.folder, "runner", podman="program")
        await take_snapshot(settings, self.state, cast(Holder, self), task)
        return task


def describe_podman(folder: Path, recovery: str = "") -> str:
    """A podman with one container, whose files are in a folder. `recovery` is its label."""
    return f"""
case "$1 $4" in
    "ps "*) echo c1 ;;
    "container "*UpperDir*) echo {folder}/upper ;;
    "container "*Labels*) echo {recovery} ;;
    "container "*) echo ./mounted ;;
    "mount "*) echo {folder}/upper ;;
esac"""


async def test_a_deleted_snapshot_is_gone_at_once_while_the_workspace_runs(tmp_path: Path) -> None:
    holder = LocalHolder(tmp_path, program=describe_podman(tmp_path))
    await holder.take("first")
    await holder.take("second")
    await delete_snapshot(holder.state, cast(Holder, holder), "first")
    assert [each.id for each in list_snapshots(holder.state)] == ["second"]
    assert [each.name for each in holder.snapshots.iterdir()] == ["second.tar"]


async def test_a_podman_that_cannot_list_containers_does_not_count_as_one_without_them(tmp_path: Path) -> None:
    holder = LocalHolder(tmp_path, program="echo 'the database is locked' >&2; exit 125")
    with pytest.raises(EngineError, match="was not replaced: the database is locked") as raised:
        await holder.take()
    assert raised.value.reason == Reason.SNAPSHOT_FAILED
    assert [each[2] for each in holder.commands] == [TAKE]
    without = LocalHolder(tmp_path / "without", program="exit 0")
    assert "no snapshot is taken: there is no container" in (await without.take()).text


@pytest.mark.parametrize("failing", ["", "find", "grep"])
async def test_an_archive_that_lacks_files_is_not_kept(tmp_path: Path, failing: str) -> None:
    broken = {"find": "printf './opt\\0'; exit 1", "grep": "printf './opt\\0'; cat >/dev/null; exit 2"}
    holder = LocalHolder(tmp_path, program=describe_podman(tmp_path), **{failing: broken[failing]} if failing else {})
    if failing:
        with pytest.raises(EngineError, match="so the container was not replaced"):
            await holder.take()
    else:
        assert "the snapshot 01234567 has what the container had changed" in (await holder.take()).text
    assert [each.name for each in holder.snapshots.iterdir()] == ([] if failing else ["01234567.tar"])


async def test_recorded_times_decide_which_snapshots_are_kept_not_those_of_files(tmp_path: Path) -> None:
    holder = LocalHolder(tmp_path, program=describe_podman(tmp_path))
    recorded = {"first": 3, "second": 2, "third": 1}
    now = datetime.now(UTC)
    holder.snapshots.mkdir()
    for name, days in recorded.items():
        (holder.snapshots / f"{name}.tar").touch()
        os.utime(holder.snapshots / f"{name}.tar", times=(0, (now + timedelta(days=days)).timestamp()))
    store_snapshots(holder.state, [Snapshot(name, now - timedelta(days=days), 1) for name, days in recorded.items()])
    await holder.take("newest")
    assert [each.id for each in list_snapshots(holder.state)] == ["newest", "third", "second"]
    assert sorted(each.name for each in holder.snapshots.iterdir()) == ["newest.tar", "second.tar", "third.tar"]


def test_a_start_removes_what_is_no_snapshot_that_is_kept(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, UID)
    folder.root.mkdir(parents=True)
    now = datetime.now(UTC)
    store_snapshots(folder, [Snapshot("old", now - timedelta(days=15), 1), Snapshot("kept", now, 1)])
    kept = [each.id for each in read_snapshots(folder)]
    snapshots = tmp_path / "snapshots"
    script = PRUNE_SNAPSHOTS.replace(SNAPSHOTS, str(snapshots))

    def prune() -> None:
        subprocess.run(["/bin/sh", "-euc", script, "prune", *kept], check=True)

    prune()
    snapshots.mkdir()
    for name in ("old.tar", "kept.tar", "kept.tar.new", "kep.tar", "unknown.tar"):
        (snapshots / name).touch()
    prune()
    assert [each.name for each in snapshots.iterdir()] == ["kept.tar"]


async def test_the_container_that_runs_after_a_failed_build_pushes_no_snapshot_out(tmp_path: Path) -> None:
    holder = LocalHolder(tmp_path, program=describe_podman(tmp_path, recovery="true"))
    now = datetime.now(UTC)
    store_snapshots(holder.state, [Snapshot(name, now, 1) for name in ("first", "second", "third")])
    task = await holder.take("newest")
    assert "only the one that runs after a failed build" in task.text
    assert [each.id for each in list_snapshots(holder.state)] == ["third", "second", "first"]
    assert not holder.snapshots.exists()
