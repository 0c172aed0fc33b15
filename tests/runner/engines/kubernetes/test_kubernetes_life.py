"""The life of a workspace in a cluster: up, stop, start, delete, and runners that are killed meanwhile."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, ImageSource, Reason
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Settings
from tests.fake_cluster.workspace_node import WorkspaceNode, record
from tests.runner.engines.kubernetes.conftest import UID, Commit, make_spec
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

NAME = f"fairlead-{UID}"
CONFIGURATION = {
    "image": "tools:1",
    "containerEnv": {"LEVEL": "$(B) $$"},
    "remoteEnv": {"BOTH": "${containerEnv:LEVEL}/${containerEnv:NONE:x y}"},
    "onCreateCommand": "echo created with $TOKEN >>log; echo $TOKEN",
    "postStartCommand": {"one": "echo one", "two": ["echo", "two  words"]},
}


def files(**changes: object) -> dict[str, str]:
    text = json.dumps({**CONFIGURATION, **changes})
    return {".devcontainer/devcontainer.json": f"// with a comment\n{text[:-1]},}}", "README": "hello\n"}


async def test_a_workspace_comes_up_stops_starts_and_leaves_nothing(
    node: WorkspaceNode, engine: KubernetesEngine, settings: Settings, commit: Commit
) -> None:
    spec = make_spec(commit(files()), secrets={"TOKEN": "topsecret", "FAIRLEAD_GIT_TOKEN": "cloning"})
    task = RecordedTask("task-1")
    await engine.up(spec, task)
    assert task.steps == ["Prepare", "Clone", "Configure", "Start", "LifecycleCommands"]
    assert "Cloning http://" in task.text and "two  words" in task.text
    assert "topsecret" not in task.text and "cloning" not in task.text
    status = await engine.status(UID)
    assert (status.state, status.template_hash, status.task_id) == (ContainerState.RUNNING, "h1", "task-1")
    assert node.list_objects() == [
        f"networkpolicies/{NAME}",
        f"persistentvolumeclaims/{NAME}",
        f"pods/{NAME}",
        f"secrets/{NAME}",
    ]
    assert list(node.get(f"secrets/{NAME}")["data"]) == ["TOKEN"]  # the credential of the clone is gone
    outcome = await run_inside(engine, UID, 'cat README log; printf "%s" "$BOTH"; git status --short')
    assert outcome.output == "hello\ncreated with topsecret\n$(B) $$/x y?? log\n", outcome

    before = len(node.cluster.requests)
    await engine.up(spec, RecordedTask("task-2"))
    assert {each.method for each in node.cluster.requests[before:]} == {"GET"}  # it runs already

    await engine.stop(UID, RecordedTask())
    assert (await engine.status(UID)).state is ContainerState.STOPPED
    assert node.list_objects() == [f"networkpolicies/{NAME}", f"persistentvolumeclaims/{NAME}"]
    again = RecordedTask("task-3")
    await engine.up(spec, again)
    assert again.steps == ["Prepare", "Configure", "Start", "LifecycleCommands"]  # the claim has the source
    assert (await run_inside(engine, UID, "cat log | wc -l")).output.strip() == "2"

    assert set(await engine.list_workspaces()) == {UID}
    await engine.delete(UID, RecordedTask())
    assert node.list_objects() == []
    assert (await engine.status(UID)).state is ContainerState.NOT_FOUND
    assert list((settings.state_folder / "workspaces").iterdir()) == []
    await engine.delete(UID, RecordedTask())  # also if there is nothing


async def test_an_environment_takes_the_place_of_what_the_repository_has(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    spec = make_spec(commit(files()))
    environment = '{"image": "tools:1", "containerEnv": {"LEVEL": "environment"}} // not that of the repository'
    await engine.up(replace(spec, dev_container=environment), RecordedTask("task-1"))
    assert (await run_inside(engine, UID, "ls; echo $LEVEL")).output.split() == ["README", "environment"]
    other = replace(spec, dev_container='{"containerEnv": {"LEVEL": "other"}}', template_hash="h2")
    await engine.up(other, RecordedTask("task-2"))  # in the image of the template
    assert (await run_inside(engine, UID, "echo $LEVEL")).output.split() == ["other"]
    await engine.up(replace(spec, template_hash="h3"), RecordedTask("task-3"))
    assert (await run_inside(engine, UID, "echo $LEVEL")).output.split() == ["$(B)", "$$"]


async def test_an_environment_gives_no_permissions(node: WorkspaceNode, engine: KubernetesEngine) -> None:
    spec = replace(make_spec("https://example.com/x.git"), source=ImageSource("tools:1"))
    with pytest.raises(EngineError, match="privileged") as error:
        await engine.up(replace(spec, dev_container='{"privileged": true}'), RecordedTask())
    assert error.value.reason == Reason.POLICY_VIOLATION


async def test_an_image_without_a_repository_needs_no_clone(node: WorkspaceNode, engine: KubernetesEngine) -> None:
    task = RecordedTask()
    await engine.up(make_spec("", source=ImageSource("tools:1"), options={"image": ""}), task)
    assert task.steps == ["Prepare", "Configure", "Start"]
    assert (await run_inside(engine, UID, "pwd")).output == f"{node.folders.workspaces}/demo\n"


async def test_the_template_decides_when_the_configuration_is_read_again(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    url = commit({"README": "hello\n"})
    await engine.up(make_spec(url), RecordedTask("1"))
    assert node.get(f"pods/{NAME}")["spec"]["containers"][0]["image"] == "default"
    await run_inside(engine, UID, """echo '{"image": "chosen"}' >.devcontainer.json""")
    await engine.stop(UID, RecordedTask())
    await engine.up(make_spec(url), RecordedTask("2"))
    assert node.get(f"pods/{NAME}")["spec"]["containers"][0]["image"] == "default"
    await engine.up(make_spec(url, recreate=True), RecordedTask("3"))
    assert node.get(f"pods/{NAME}")["spec"]["containers"][0]["image"] == "chosen"
    await engine.up(make_spec(url, reset=True), RecordedTask("4"))  # the edit is gone
    assert node.get(f"pods/{NAME}")["spec"]["containers"][0]["image"] == "default"
    await engine.up(make_spec(url, template_hash="h2"), RecordedTask("5"))
    assert (await engine.status(UID)).template_hash == "h2"


@pytest.mark.parametrize("step", ["Prepare", "Clone", "Configure", "Start", "LifecycleCommands"])
async def test_the_next_runner_goes_on_with_what_a_killed_one_began(
    step: str, node: WorkspaceNode, settings: Settings, commit: Commit
) -> None:
    spec = make_spec(commit(files(onCreateCommand="sleep 0.3; echo done >log")), secrets={"TOKEN": "topsecret"})
    first, task = KubernetesEngine(settings), RecordedTask("task-1")
    working = asyncio.create_task(first.up(spec, task))
    await task.wait_for_step(step)
    await asyncio.sleep(0.1)
    working.cancel()  # and it is not marked as cancelled: the process ends
    await asyncio.gather(working, return_exceptions=True)
    await first.contexts.close()

    second = KubernetesEngine(settings)
    assert not await second.adopt(UID, RecordedTask("task-1"))
    await second.up(spec, RecordedTask("task-1"))
    assert (await second.status(UID)).state is ContainerState.RUNNING
    assert (await run_inside(second, UID, "cat log README")).output == "done\nhello\n"
    created = [each for each in node.cluster.request_lines() if each.startswith("POST") and "/pods?" in each]
    assert len(created) <= 3  # one for each Pod, and one attempt that finds it there
    await second.delete(UID, RecordedTask())
    assert node.list_objects() == []
    await second.contexts.close()


async def test_a_cancelled_up_leaves_only_the_claim(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    node.statuses["default"] = record("unschedulable")
    task = RecordedTask()
    working = asyncio.create_task(engine.up(make_spec(commit({"README": ""}), options={"cloneImage": "git"}), task))
    await task.wait_for_step("Start")
    while "Insufficient memory" not in task.text:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    task.is_cancelled = True
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await engine.stop(UID, RecordedTask())
    assert node.list_objects() == [f"networkpolicies/{NAME}", f"persistentvolumeclaims/{NAME}"]


async def test_a_start_waits_for_a_claim_that_is_being_deleted(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    spec = make_spec(commit({"README": ""}))
    await engine.up(spec, RecordedTask("1"))
    first = node.get(f"persistentvolumeclaims/{NAME}")["metadata"]["uid"]
    await engine.contexts.open("").delete(f"/api/v1/namespaces/dev/persistentvolumeclaims/{NAME}")
    await engine.stop(UID, RecordedTask())
    await engine.up(spec, RecordedTask("2"))
    assert node.get(f"persistentvolumeclaims/{NAME}")["metadata"]["uid"] != first
    assert (await run_inside(engine, UID, "cat README")).code == 0  # cloned again


async def test_a_lost_state_folder_does_not_lose_workspaces(
    node: WorkspaceNode, engine: KubernetesEngine, settings: Settings, commit: Commit
) -> None:
    await engine.up(make_spec(commit({"README": ""})), RecordedTask())
    (settings.state_folder / "workspaces" / f"{UID}.json").unlink()
    later = KubernetesEngine(settings)
    assert (await later.list_workspaces())[UID].state is ContainerState.RUNNING
    assert (await later.status(UID)).state is ContainerState.RUNNING
    (settings.state_folder / "workspaces" / f"{UID}.json").unlink()
    last = KubernetesEngine(settings)
    await last.delete(UID, RecordedTask())
    assert node.list_objects() == []
    for each in (later, last):
        await each.contexts.close()


async def test_a_pod_on_a_dead_node_does_not_block_the_deletion(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    await engine.up(make_spec(commit({"README": ""})), RecordedTask())
    node.keeps_terminating = True
    task = RecordedTask()
    await engine.delete(UID, task)
    assert node.list_objects() == []
    assert "does not confirm" in task.text


@pytest.mark.parametrize(("recording", "cause"), [("oom", "OutOfMemory"), ("evicted", "Evicted"), ("exit", "Exited")])
async def test_a_workspace_that_ended_says_why_and_comes_up_again(
    recording: str, cause: str, node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    spec = make_spec(commit({"README": ""}))
    await engine.up(spec, RecordedTask("1"))
    node.end_pod(NAME, record(recording))
    status = await engine.status(UID)
    assert status.state is ContainerState.STOPPED and status.cause.startswith(cause)
    with pytest.raises(EngineError) as error:
        await run_inside(engine, UID, "true")
    assert error.value.reason == Reason.NOT_RUNNING
    await engine.up(spec, RecordedTask("2"))
    assert (await engine.status(UID)).state is ContainerState.RUNNING


async def test_what_another_state_folder_made_is_listed_with_its_installation(
    settings: Settings, engine: KubernetesEngine, commit: Commit, tmp_path: Path
) -> None:
    await engine.up(make_spec(commit({"README": ""}), installation="one"), RecordedTask())
    assert (await engine.list_workspaces())[UID].installation == ""
    later = KubernetesEngine(replace(settings, state_folder=tmp_path / "later"))
    assert (await later.list_workspaces())[UID].installation == "one"
    assert later.records.get(UID) is None, "it is not taken over by listing it"
    await later.contexts.close()


async def test_objects_of_an_earlier_version_without_a_record_are_not_listed(
    node: WorkspaceNode, settings: Settings, engine: KubernetesEngine, commit: Commit, tmp_path: Path
) -> None:
    await engine.up(make_spec(commit({"README": ""})), RecordedTask())
    for each in node.kube.objects.values():
        (each["metadata"].get("annotations") or {}).pop("fairlead.installation", None)
    assert set(await engine.list_workspaces()) == {UID}
    later = KubernetesEngine(replace(settings, state_folder=tmp_path / "later"))
    assert await later.list_workspaces() == {}
    await later.contexts.close()


async def test_a_policy_or_secret_that_is_all_that_is_left_is_listed_and_deleted(
    node: WorkspaceNode, settings: Settings, engine: KubernetesEngine, commit: Commit, tmp_path: Path
) -> None:
    await engine.up(make_spec(commit({"README": ""}), installation="one"), RecordedTask())
    await engine.stop(UID, RecordedTask())
    for path in [path for path in node.kube.objects if "/persistentvolumeclaims/" in path]:
        del node.kube.objects[path]
    assert node.list_objects()
    later = KubernetesEngine(replace(settings, state_folder=tmp_path / "later"))
    status = (await later.list_workspaces())[UID]
    assert (status.state, status.installation) == (ContainerState.NOT_FOUND, "one")
    await later.delete(UID, RecordedTask())
    assert node.list_objects() == []
    await later.contexts.close()
