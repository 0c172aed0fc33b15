"""A stopped workspace starts with the container that is there; and what its sessions have as variables."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fairlead.runner.engines.contract import EngineError, ExecOptions, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer import creation
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "5e55104e-0000-4000-8000-00000000a9a1"
SECRET = "canary-of-a-secret"
CONFIGURATION = {
    "image": IMAGE,
    "remoteUser": "dev",
    "containerEnv": {"BASE": "/opt/base"},
    "remoteEnv": {
        "PATH": "${containerEnv:PATH}:/opt/tools",
        "PLACE": "${containerEnv:BASE}/in/${containerWorkspaceFolderBasename}",
        "ABSENT": "[${containerEnv:NO_SUCH:default}]",
        "QUOTED": "a 'b' \"c\" $d",
    },
    "postCreateCommand": "echo created >>/tmp/commands",
    "postStartCommand": "echo started >>/tmp/commands",
}


@dataclass(slots=True)
class Workspace:
    containers: Containers
    engine: DevcontainerEngine
    spec: WorkspaceSpec

    async def up(self, **changes: object) -> RecordedTask:
        task = RecordedTask()
        await self.engine.up(dataclasses.replace(self.spec, **changes), task)  # type: ignore[arg-type]
        return task

    async def run(self, script: str, **options: object) -> list[str]:
        outcome = await run_inside(self.engine, UID, script, ExecOptions(**options))  # type: ignore[arg-type]
        assert outcome.code == 0, outcome.errors
        return outcome.output.splitlines()

    async def container(self) -> str:
        found = await self.engine.observer.find_container(UID)
        assert found is not None
        return found.id


@pytest.fixture(scope="module")
def workspace(containers: Containers) -> Iterator[Workspace]:
    url = containers.commit("again", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    spec = WorkspaceSpec(
        uid=UID,
        namespace="project",
        name="again",
        owner="ada",
        source=GitSource(url),
        secrets={"API_TOKEN": SECRET, "LICENSE": "files only", "FAIRLEAD_GIT_TOKEN": "canary-of-git"},
        options={"secretVariables": "API_TOKEN"},
        template_hash="first",
    )
    created = Workspace(containers, containers.engine(), spec)
    asyncio.run(created.up())
    yield created


async def test_sessions_have_the_remote_environment_of_the_configuration(workspace: Workspace) -> None:
    path, place, absent, quoted = await workspace.run('echo "$PATH"; echo "$PLACE"; echo "$ABSENT"; echo "$QUOTED"')
    assert path.endswith(":/opt/tools") and "/usr/bin" in path
    assert (place, absent, quoted) == ("/opt/base/in/again", "[default]", "a 'b' \"c\" $d")
    assert await workspace.run('echo "$PLACE"', environment={"PLACE": "mine"}) == ["mine"]


async def test_sessions_have_those_secrets_as_variables_that_the_template_names(workspace: Workspace) -> None:
    assert await workspace.run('echo "$API_TOKEN,${LICENSE-none},${FAIRLEAD_GIT_TOKEN-none}"') == [
        f"{SECRET},none,none"
    ]
    described = workspace.containers.podman(UID, "container", "inspect", CONTAINER)
    assert "BASE=/opt/base" in described and SECRET not in described
    stored = [path for path in workspace.engine.settings.state_folder.rglob("*.json") if SECRET in path.read_text()]
    assert stored == []


async def test_a_secret_that_the_template_does_not_have_is_an_error(workspace: Workspace) -> None:
    await workspace.engine.stop(UID, RecordedTask())
    with pytest.raises(EngineError) as raised:
        await workspace.up(options={"secretVariables": "API_TOKEN, OTHER"})
    assert raised.value.reason == Reason.CONFIGURATION_INVALID and "'OTHER'" in raised.value.message


async def test_a_start_neither_reads_nor_builds_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    await workspace.up()
    before = await workspace.container()
    await workspace.engine.stop(UID, RecordedTask())
    monkeypatch.setattr(creation, "read_configuration", None)
    task = await workspace.up()
    assert task.steps == ["Prepare", "Configure", "Start", "LifecycleCommands"]
    assert await workspace.container() == before
    commands = await workspace.run("cat /tmp/commands; echo $PLACE")
    assert (commands.count("created"), commands[-2:]) == (1, ["started", "/opt/base/in/again"])


async def test_a_changed_template_does_not_replace_the_container_that_is_woken(workspace: Workspace) -> None:
    before = await workspace.container()
    await workspace.up(template_hash="second", keeps_container=True)
    assert await workspace.container() == before
    await workspace.engine.stop(UID, RecordedTask())
    await workspace.up(template_hash="second", keeps_container=True, permissions=frozenset({"unknown"}))
    assert await workspace.container() == before
    assert (await workspace.engine.status(UID)).template_hash == "first"
    assert (await workspace.run("cat /tmp/commands")).count("created") == 1
    await workspace.up(template_hash="second")
    assert await workspace.container() != before
    assert (await workspace.engine.status(UID)).template_hash == "second"


async def test_a_configuration_that_has_changed_is_checked_before_the_start(workspace: Workspace) -> None:
    changed = json.dumps({**CONFIGURATION, "features": {"registry.example.com/other/tool:1": {}}})
    await workspace.run(f"cat >.devcontainer/devcontainer.json <<'END'\n{changed}\nEND\n")
    await workspace.engine.stop(UID, RecordedTask())
    with pytest.raises(EngineError) as raised:
        await workspace.up(template_hash="second")
    assert raised.value.reason == Reason.POLICY_VIOLATION and "other/tool" in raised.value.message
