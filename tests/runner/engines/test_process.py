"""The engine for plain processes, which needs nothing but git."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import (
    ContainerState,
    EngineError,
    ExecOptions,
    GitSource,
    ImageSource,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.process_trees import read_mark
from tests.harness.eventually import eventually
from tests.runner.harness.processes import list_pids
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask
from tests.runner.process_engine import ProcessEngine

UID = "90ce5500-0000-4000-8000-000000000001"


@pytest.fixture
def repository(tmp_path: Path) -> str:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "README").write_text("hello\n")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "First")):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return f"file://{folder}"


@pytest.fixture
def engine(tmp_path: Path) -> ProcessEngine:
    return ProcessEngine(tmp_path / "state")


def make_spec(source: Source, **changes: object) -> WorkspaceSpec:
    return WorkspaceSpec(UID, "project", "demo", "ada", source, **changes)  # type: ignore[arg-type]


def find_processes() -> list[int]:
    return [pid for pid in list_pids() if read_mark(pid).startswith(UID)]


async def test_a_workspace_with_an_environment_is_refused(engine: ProcessEngine, repository: str) -> None:
    with pytest.raises(EngineError, match=r"has no environments; remove spec\.environmentRef") as error:
        await engine.up(make_spec(GitSource(repository), dev_container='{"image": "x"}'), RecordedTask())
    assert error.value.reason == Reason.CONFIGURATION_INVALID


async def test_a_workspace_has_its_repository_and_only_its_own_environment(
    engine: ProcessEngine, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_CANARY", "canary")
    await engine.up(make_spec(GitSource(repository), environment={"GIVEN": "1"}), RecordedTask())
    outcome = await run_inside(engine, UID, 'cat README; echo "$GIVEN<$RUNNER_CANARY>"; git log --format=%s')
    assert outcome.output.splitlines() == ["hello", "1<>", "First"]


async def test_stop_ends_also_processes_that_detached_themselves(engine: ProcessEngine, repository: str) -> None:
    await engine.up(make_spec(GitSource(repository)), RecordedTask())
    await run_inside(engine, UID, "setsid sleep 4245 >/dev/null 2>&1 & true")
    await eventually(find_processes)
    await engine.stop(UID, RecordedTask())
    assert find_processes() == []
    assert (await engine.status(UID)).state is ContainerState.STOPPED
    with pytest.raises(EngineError) as raised:
        await engine.exec(UID, ["true"], ExecOptions())
    assert raised.value.reason == Reason.NOT_RUNNING


async def test_files_survive_a_stop_and_not_a_delete(engine: ProcessEngine, repository: str) -> None:
    spec = make_spec(GitSource(repository))
    await engine.up(spec, RecordedTask())
    await run_inside(engine, UID, "echo kept >file")
    await engine.stop(UID, RecordedTask())
    await engine.up(spec, RecordedTask())
    assert (await run_inside(engine, UID, "cat file")).output == "kept\n"
    await engine.delete(UID, RecordedTask())
    assert await engine.list_workspaces() == {}
    assert (await engine.status(UID)).state is ContainerState.NOT_FOUND
    await engine.delete(UID, RecordedTask())


async def test_a_shallow_clone_has_one_commit_also_an_older_one(engine: ProcessEngine, repository: str) -> None:
    folder = repository.removeprefix("file://")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    for title in ("Second", "Third"):
        command = ["git", "-C", folder, *identity, "commit", "-q", "--allow-empty", "-m", title]
        await asyncio.to_thread(subprocess.run, command, check=True)
    command = ["git", "-C", folder, "rev-parse", "HEAD~1"]
    found = await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE, text=True)
    spec = make_spec(GitSource(repository, commit=found.stdout.strip()), clone_strategy="shallow")
    await engine.up(spec, RecordedTask())
    assert (await run_inside(engine, UID, "git log --format=%s")).output == "Second\n"


async def test_a_reset_fetches_the_source_again(engine: ProcessEngine, repository: str) -> None:
    await engine.up(make_spec(GitSource(repository)), RecordedTask())
    await run_inside(engine, UID, "rm README")
    await engine.up(make_spec(GitSource(repository), reset=True), RecordedTask())
    assert (await run_inside(engine, UID, "cat README")).output == "hello\n"


async def test_a_workspace_of_an_earlier_boot_is_stopped(engine: ProcessEngine, repository: str) -> None:
    await engine.up(make_spec(GitSource(repository)), RecordedTask())
    path = engine.state_folder / "processes" / UID / "running.json"
    await asyncio.to_thread(path.write_text, json.dumps({**json.loads(path.read_bytes()), "boot": "earlier"}))
    assert (await engine.status(UID)).state is ContainerState.STOPPED


@pytest.mark.parametrize("source", [GitSource("ext::sh -c id"), GitSource("--help"), ImageSource("debian")], ids=str)
async def test_sources_that_it_cannot_use_are_refused(engine: ProcessEngine, source: Source) -> None:
    with pytest.raises(EngineError) as raised:
        await engine.up(make_spec(source), RecordedTask())
    assert raised.value.reason in (Reason.SOURCE_REFUSED, Reason.CLONE_FAILED)
    assert (await engine.status(UID)).state is ContainerState.NOT_FOUND


async def test_a_uid_is_never_a_path(engine: ProcessEngine) -> None:
    with pytest.raises(ValueError, match="uid"):
        await engine.delete("../../etc", RecordedTask())


async def test_processes_whose_state_folder_is_gone_are_listed_for_their_runner_and_installation(
    tmp_path: Path, repository: str
) -> None:
    engine = ProcessEngine(tmp_path / "state", runner="r")
    await engine.up(make_spec(GitSource(repository), installation="one"), RecordedTask())
    process = await engine.exec(UID, ["sleep", "1000"], ExecOptions())
    later, other = ProcessEngine(tmp_path / "new", runner="r"), ProcessEngine(tmp_path / "other", runner="s")
    await eventually(find_processes)
    status = (await later.list_workspaces())[UID]
    assert (status.state, status.installation) == (ContainerState.NOT_FOUND, "one")
    assert (await engine.list_workspaces())[UID].installation == ""
    assert UID not in await other.list_workspaces()
    await later.delete(UID, RecordedTask())
    assert find_processes() == []
    await process.kill()
