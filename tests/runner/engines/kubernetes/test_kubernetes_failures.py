"""What does not come up in a cluster says why."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, FolderSource, GitSource, Reason
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Deadlines, Settings
from tests.fake_cluster.workspace_node import WorkspaceNode, record
from tests.runner.engines.kubernetes.conftest import UID, Commit, make_spec
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

POD_SECURITY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: memory=4Gi, used: memory=0, limited: memory=1Gi'


async def fail(engine: KubernetesEngine, url: str, **changes: object) -> tuple[EngineError, RecordedTask]:
    task = RecordedTask()
    with pytest.raises(EngineError) as error:
        await engine.up(make_spec(url, **changes), task)
    return error.value, task


@pytest.mark.parametrize(
    ("recording", "reason", "words"),
    [
        ("never-pull", Reason.IMAGE_PULL_FAILED, "ErrImageNeverPull"),
        ("invalid-image", Reason.IMAGE_PULL_FAILED, "InvalidImageName"),
        ("pull", Reason.IMAGE_PULL_FAILED, "imagePullSecret"),
        ("root", Reason.START_FAILED, "runAsNonRoot"),
        ("no-shell", Reason.START_FAILED, "/bin/nothing"),
        ("init-failed", Reason.START_FAILED, "init container clone ended with code 128"),
        ("oom", Reason.START_FAILED, "OutOfMemory"),
    ],
)
async def test_a_pod_that_cannot_run_fails_at_once_and_is_removed(
    recording: str, reason: str, words: str, node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    node.statuses["broken"] = record(recording)
    url = commit({".devcontainer.json": '{"image": "broken"}'})
    error, _ = await fail(engine, url)
    assert (error.reason, error.step) == (reason, "Start")
    assert words in error.message
    await engine.stop(UID, RecordedTask())
    assert (await engine.status(UID)).state is ContainerState.STOPPED
    assert not any(each.startswith(("pods/", "secrets/")) for each in node.list_objects())


async def test_a_pod_that_waits_says_what_for(node: WorkspaceNode, settings: Settings, commit: Commit) -> None:
    node.statuses["broken"] = record("unschedulable")
    engine = KubernetesEngine(replace(settings, deadlines=Deadlines(start=0.5)))
    error, task = await fail(engine, commit({".devcontainer.json": '{"image": "broken"}'}))
    assert (error.reason, error.step) == (Reason.STEP_TIMED_OUT, "Start")
    assert "0/1 nodes are available: 1 Insufficient memory" in error.message
    assert task.text.count("Insufficient memory") == 1  # once, however often it is seen
    await engine.contexts.close()


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (POD_SECURITY, Reason.POLICY_VIOLATION, "the option `user`"),
        (QUOTA, Reason.START_FAILED, "exceeded quota"),
        ('pods is forbidden: User "x" cannot create', Reason.ENGINE_UNAVAILABLE, "kubeconfig does not suffice"),
    ],
)
async def test_a_refusal_of_the_cluster_says_who_can_solve_it(
    message: str, reason: str, words: str, node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    node.denied["pods"] = (403, "Forbidden", message)
    error, _ = await fail(engine, commit({"README": ""}))
    assert error.reason == reason and words in error.message


async def test_a_clone_that_fails_shows_the_last_line_of_git(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    url = commit({"README": ""})
    error, task = await fail(engine, url.replace("repository", "missing"))
    assert (error.reason, error.step) == (Reason.CLONE_FAILED, "Clone")
    assert "not found" in error.message and "not found" in task.text
    await engine.up(make_spec(url, source=GitSource(url)), RecordedTask("2"))  # nothing of the first one is in the way


async def test_a_failed_command_leaves_the_workspace_running_and_is_repeated(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    configuration = {"image": "tools:1", "postCreateCommand": "echo trying; test -e allowed"}
    spec = make_spec(commit({".devcontainer.json": json.dumps(configuration)}))
    task = RecordedTask("1")
    with pytest.raises(EngineError) as error:
        await engine.up(spec, task)
    assert (error.value.reason, error.value.step) == (Reason.COMMAND_FAILED, "LifecycleCommands")
    assert "postCreateCommand failed with exit code 1" in error.value.message and "trying" in task.text
    pod = node.get(f"pods/fairlead-{UID}")["metadata"]["uid"]
    assert (await run_inside(engine, UID, "touch allowed")).code == 0
    await engine.up(spec, RecordedTask("2"))
    assert node.get(f"pods/fairlead-{UID}")["metadata"]["uid"] == pod


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"imag": "x"}}, "no option imag"),
        ({"options": {"storage": "much"}}, "a size such as 10Gi"),
        ({"options": {"user": "0"}}, "other than root"),
        ({"options": {"cluster": "other"}}, "has not listed the context 'other'"),
        ({"options": {"image": ""}}, "cloneImage"),
        ({"permissions": frozenset({"gpu"})}, "does not know"),
        ({"source": FolderSource("/etc")}, "use a repository"),
        ({"source": GitSource("ext::sh -c id")}, "protocol"),
        ({"source": GitSource("file:///etc")}, "use a repository"),
        ({"dev_container_path": "../x"}, "leaves the repository"),
    ],
)
async def test_templates_and_sources_are_checked(
    changes: dict[str, object], words: str, node: WorkspaceNode, engine: KubernetesEngine
) -> None:
    error, _ = await fail(engine, "http://127.0.0.1:1/x.git", **changes)
    assert words in error.message
    assert not any(each.startswith("pods/") for each in node.list_objects())


async def test_a_repository_cannot_ask_for_a_build(
    node: WorkspaceNode, engine: KubernetesEngine, commit: Commit
) -> None:
    configuration = {"build": {"dockerfile": "Dockerfile"}, "features": {"x": {}}, "initializeCommand": "id"}
    error, _ = await fail(engine, commit({".devcontainer.json": json.dumps(configuration)}))
    assert (error.reason, error.step) == (Reason.POLICY_VIOLATION, "Configure")
    assert "devcontainer build --push" in error.message and "initializeCommand" in error.message


async def test_a_cluster_that_is_down_is_waited_for_within_tasks(
    node: WorkspaceNode, engine: KubernetesEngine, settings: Settings
) -> None:
    node.cluster.stop()
    with pytest.raises(EngineError) as error:
        await engine.status(UID)
    assert error.value.reason == Reason.ENGINE_UNAVAILABLE
    findings = await engine.check()
    assert any(each.problem and "unreachable" in each.problem for each in findings)


async def test_the_doctor_says_what_the_kubeconfig_lacks(
    node: WorkspaceNode, settings: Settings, tmp_path: Path
) -> None:
    missing = KubernetesEngine(Settings(tmp_path, "test"))
    assert "--kubeconfig" in (await missing.check())[0].problem
    allowed = KubernetesEngine(settings)
    findings = await allowed.check()
    assert [each.subject for each in findings] == ["kubeconfig", "cluster fake"]
    await allowed.contexts.close()
