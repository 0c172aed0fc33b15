"""A home folder that outlives the containers of its workspace."""

import dataclasses
import json

from fairlead.runner.engines.contract import ExecOptions, GitSource, WorkspaceSpec
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "40e00000-0000-4000-8000-000000000001"
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "userEnvProbe": "none"}


async def test_the_home_outlives_containers_belongs_to_the_user_and_not_to_the_next_owner(
    containers: Containers,
) -> None:
    url = containers.commit("home", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    engine = containers.engine()
    spec = WorkspaceSpec(
        uid=UID,
        namespace="project",
        name="home",
        owner="ada",
        source=GitSource(url),
        options={"home": "keep"},
        template_hash="first",
    )

    async def run(script: str, user: str = "") -> list[str]:
        outcome = await run_inside(engine, UID, script, ExecOptions(user=user))
        assert outcome.code == 0, outcome.errors
        return outcome.output.split()

    await engine.up(spec, RecordedTask())
    assert await run("cd; stat -c %U .; pwd; echo kept >mine; stat -c %U mine") == ["dev", "/home/dev", "dev"]
    filled = await run("ls -A /etc/skel; ls -A ~")
    await engine.up(dataclasses.replace(spec, recreate=True), RecordedTask())
    assert await run("cat ~/mine; touch ~/again") == ["kept"]
    assert set(filled) - set(await run("ls -A ~")) <= set(await run("ls -A /etc/skel"))

    changed = json.dumps({**CONFIGURATION, "remoteUser": "root", "containerUser": "root"})
    await run(f"printf %s '{changed}' >.devcontainer/devcontainer.json")
    await engine.up(dataclasses.replace(spec, recreate=True), RecordedTask())
    assert await run("cat ~/mine; stat -c %U ~ ~/mine") == ["kept", "root", "root"]

    await engine.up(dataclasses.replace(spec, recreate=True, discards_home=True, owner="bob"), RecordedTask())
    assert await run("ls ~/mine 2>/dev/null || echo gone") == ["gone"]
    await engine.delete(UID, RecordedTask())
    assert not (engine.settings.state_folder / "workspaces" / UID).exists()
