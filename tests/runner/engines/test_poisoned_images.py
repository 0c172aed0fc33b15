"""A build that has taken its holder over, and wants to give its image to workspaces that build something else."""

import asyncio
import json
from dataclasses import replace

import pytest

from fairlead.runner.engines.contract import GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.inside.builds import SHARED
from tests.harness.eventually import eventually
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.tasks import RecordedTask

MALLORY, BOB = "901504ed-0000-4000-8000-000000000001", "901504ed-0000-4000-8000-000000000002"
VICTIM = "f" * 32
"""The key of what another workspace would build."""
CONFIGURATION = {"build": {"dockerfile": "Dockerfile"}, "remoteUser": "dev", "userEnvProbe": "none"}
TAKE_OVER = f"""
podman tag {IMAGE} {SHARED}:{VICTIM} 2>/dev/null || podman image list
echo {VICTIM} >/ws/built
grep -lsxE 'head|timeout' /proc/[0-9]*/comm | sed 's/^/reader /'
rm -f /run/build-key /run/build-key-taken
mkfifo /run/build-key
(timeout 8 sh -c 'while :; do echo {VICTIM} >/run/build-key; done' >/dev/null 2>&1 &)
"""


def make_spec(containers: Containers, uid: str, name: str, dockerfile: str) -> WorkspaceSpec:
    files = {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION), ".devcontainer/Dockerfile": dockerfile}
    return WorkspaceSpec(uid, "project", "demo", "ada", GitSource(containers.commit(name, files)))


async def list_saved(engine: DevcontainerEngine) -> list[str]:
    await asyncio.gather(*engine.images._saves)
    return sorted(path.name for path in engine.images.folder.glob("*/*"))


@pytest.mark.timeout(240)
async def test_what_runs_in_a_build_chooses_no_other_image(containers: Containers) -> None:
    engine, task = containers.engine(), RecordedTask()
    spec = make_spec(containers, MALLORY, "takes-over", f"FROM {IMAGE}\nUSER root\nRUN echo runs; sleep 10\n")
    starting = asyncio.create_task(engine.up(spec, task))
    try:
        await eventually(lambda: starting.done() or "sleep 10" in task.text, seconds=120)
        assert not starting.done()
        seen = await asyncio.to_thread(containers.run, MALLORY, "/bin/sh", "-c", TAKE_OVER)
        assert "reader" not in seen, "a process of the runner could be made to say something else"
        await starting
        saved = await list_saved(engine)
        assert len(saved) == 1 and saved != [f"{VICTIM}.tar"]
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        await engine.delete(MALLORY, RecordedTask("cleanup"))
        for path in engine.images.folder.glob("*/*"):
            path.unlink()


@pytest.mark.timeout(240)
async def test_what_is_built_where_a_workspace_has_run_is_not_for_others(containers: Containers) -> None:
    """Its image store, from which the base images come, may be anything by then."""
    engine = containers.engine()
    spec = make_spec(containers, BOB, "rebuilds", f"FROM {IMAGE}\nUSER root\nRUN echo first >/built\n")
    await engine.up(spec, RecordedTask())
    first = await list_saved(engine)
    assert len(first) == 1
    change = "sed -i s/first/second/ /workspaces/demo/.devcontainer/Dockerfile"
    await asyncio.to_thread(containers.run, BOB, "/bin/sh", "-c", change)
    task = RecordedTask("task-2")
    await engine.up(replace(spec, recreate=True), task)
    assert "second" in task.text
    assert await list_saved(engine) == first
    await engine.delete(BOB, RecordedTask("cleanup"))


@pytest.mark.timeout(240)
async def test_a_build_that_is_not_shared_lets_no_later_one_be(containers: Containers) -> None:
    """Its key is not known, so the runner expects none any more before anything of it runs."""
    engine, task = containers.engine(), RecordedTask()
    spec = make_spec(containers, MALLORY, "is-not-shared", f"FROM {IMAGE}\nUSER root\nRUN sleep 10\n")
    configuration = {**CONFIGURATION, "build": {"dockerfile": "Dockerfile", "options": ["--squash"]}}
    files = {".devcontainer/devcontainer.json": json.dumps(configuration)}
    containers.commit("is-not-shared", files)
    spec = replace(spec, permissions=frozenset({"buildOptions"}))
    before = await list_saved(engine)
    starting = asyncio.create_task(engine.up(spec, task))
    try:
        await eventually(lambda: starting.done() or "sleep 10" in task.text, seconds=120)
        assert not starting.done()
        seen = await asyncio.to_thread(containers.run, MALLORY, "/bin/sh", "-c", TAKE_OVER)
        assert "reader" not in seen
        await starting
        assert await list_saved(engine) == before
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        await engine.delete(MALLORY, RecordedTask("cleanup"))
