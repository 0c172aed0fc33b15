"""Where workspaces may be in clusters, and with what: what the operator lists, and what templates may choose of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead.core.workspaces import PLACEMENT_OPTIONS
from fairlead.runner.engines.contract import ContainerState, EngineError, Reason
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Settings
from tests.fake_cluster.workspace_node import WorkspaceNode
from tests.runner.engines.kubernetes.conftest import UID, Commit, make_spec
from tests.runner.harness.tasks import RecordedTask

URL = "http://127.0.0.1:1/x.git"


async def refuse(engine: KubernetesEngine, url: str = URL, **changes: Any) -> str:
    """The message of an `up` that is refused."""
    with pytest.raises(EngineError) as raised:
        await engine.up(make_spec(url, **changes), RecordedTask())
    assert raised.value.reason == Reason.POLICY_VIOLATION, raised.value.message
    return raised.value.message


def add_context(settings: Settings, name: str, namespace: str) -> None:
    """A second context for the same cluster."""
    assert settings.kubeconfig is not None
    text = settings.kubeconfig.read_text()
    head, mark, rest = text.partition("contexts:\n")
    entry = f"- name: {name}\n  context:\n    cluster: fake\n    namespace: {namespace}\n    user: fake\n"
    settings.kubeconfig.write_text(head + mark + entry + rest)


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "default", "other"])
async def test_without_a_list_workspaces_are_in_the_namespace_of_the_context_only(
    node: WorkspaceNode, engine: KubernetesEngine, namespace: str
) -> None:
    message = await refuse(engine, options={"namespace": namespace})
    assert f"namespace {namespace}" in message
    assert namespace.startswith("kube-") or f"--kube-namespace {namespace}" in message
    assert node.list_objects() == []


@pytest.mark.parametrize("namespace", ["", "dev"])
async def test_the_namespace_of_the_context_needs_no_list(
    engine: KubernetesEngine, commit: Commit, namespace: str
) -> None:
    await engine.up(make_spec(commit({"README": ""}), options={"namespace": namespace}), RecordedTask())
    assert (await engine.status(UID)).state is ContainerState.RUNNING


async def test_a_template_chooses_among_the_namespaces_that_are_listed(
    node: WorkspaceNode, settings: Settings, commit: Commit
) -> None:
    engine = KubernetesEngine(replace(settings, namespaces=("team", "kube-system")))
    url = commit({"README": ""})
    await engine.up(make_spec(url, options={"namespace": "team"}), RecordedTask())
    assert f"/api/v1/namespaces/team/pods/fairlead-{UID}" in node.kube.objects
    assert "belongs to Kubernetes itself" in await refuse(engine, url, options={"namespace": "kube-system"})
    await engine.contexts.close()


async def test_the_namespace_of_a_context_is_not_one_of_kubernetes_itself(
    node: WorkspaceNode, engine: KubernetesEngine, settings: Settings
) -> None:
    assert settings.kubeconfig is not None
    settings.kubeconfig.write_bytes(node.build_kubeconfig("kube-system"))
    assert "belongs to Kubernetes itself" in await refuse(engine)
    assert node.list_objects() == []


async def test_without_a_list_workspaces_are_in_the_current_context_only(
    node: WorkspaceNode, settings: Settings, commit: Commit
) -> None:
    add_context(settings, "prod", "prod")
    engine = KubernetesEngine(settings)
    for context in ("prod", "missing"):  # whether there is one is not said
        message = await refuse(engine, options={"cluster": context})
        assert f"has not listed the context '{context}'" in message and f"--kube-context {context}" in message
    assert node.list_objects() == []
    listed = KubernetesEngine(replace(settings, contexts=("prod",)))
    url = commit({"README": ""})
    assert "--kube-namespace dev" in await refuse(listed, url, options={"cluster": "prod", "namespace": "dev"})
    await listed.up(make_spec(url, options={"cluster": "prod"}), RecordedTask())
    assert f"/api/v1/namespaces/prod/pods/fairlead-{UID}" in node.kube.objects
    for each in (engine, listed):
        await each.contexts.close()


async def test_a_workspace_in_a_place_that_is_not_listed_any_more_only_stops_and_goes(
    node: WorkspaceNode, settings: Settings, commit: Commit
) -> None:
    before, url = KubernetesEngine(replace(settings, namespaces=("team",))), commit({"README": ""})
    spec = make_spec(url, options={"namespace": "team"})
    await before.up(spec, RecordedTask())
    after = KubernetesEngine(settings)
    assert "--kube-namespace team" in await refuse(after, url, options={"namespace": "team"})
    assert "--kube-namespace team" in await refuse(after, url)
    await after.stop(UID, RecordedTask())
    assert (await after.status(UID)).state is ContainerState.STOPPED
    await after.up(make_spec(url, reset=True), RecordedTask())
    assert all("/namespaces/team/" not in path for path in node.kube.objects)
    await after.delete(UID, RecordedTask())
    assert not node.kube.objects
    for each in (before, after):
        await each.contexts.close()


async def test_a_workspace_that_loses_its_trusted_template_does_not_stay_in_its_namespace(
    settings: Settings, commit: Commit
) -> None:
    chosen = replace(settings, namespaces=("team",), clone_image="git:1")
    engine, url = KubernetesEngine(chosen), commit({"README": ""})
    await engine.up(make_spec(url, options={"namespace": "team"}), RecordedTask())
    message = await refuse(engine, url, is_trusted=False, template_hash="h2")
    assert "is in namespace team" in message and "reset" in message
    await engine.up(make_spec(url, is_trusted=False, template_hash="h2", reset=True), RecordedTask())
    assert (await engine.status(UID)).state is ContainerState.RUNNING
    await engine.contexts.close()


@pytest.mark.parametrize("option", sorted(PLACEMENT_OPTIONS - {"allow"}))
async def test_a_template_without_trust_chooses_nothing_of_the_place(
    node: WorkspaceNode, engine: KubernetesEngine, option: str
) -> None:
    values = {
        "networkPolicy": "false",
        "accessMode": "ReadWriteMany",
        "imagePullPolicy": "Never",
        "nodeSelector": "a=b",
    }
    options = {option: values.get(option, "dev")}
    message = await refuse(engine, is_trusted=False, options=options)
    assert f"the template is not trusted, so it cannot set {option}; use a template that administrators" in message
    assert node.list_objects() == []


@pytest.mark.parametrize("option", ["storage", "ephemeralStorage"])
@pytest.mark.parametrize("size", ["11Gi", "1Ti", "10737418241", "11G", "1P", "99999999k"])
async def test_a_template_without_trust_gets_at_most_the_default_sizes(
    engine: KubernetesEngine, option: str, size: str
) -> None:
    assert f"its option {option} can be at most 10Gi" in await refuse(engine, is_trusted=False, options={option: size})


async def test_a_repository_is_cloned_in_an_image_that_is_trusted(
    node: WorkspaceNode, settings: Settings, commit: Commit
) -> None:
    url, engine = commit({"README": ""}), KubernetesEngine(settings)
    secrets = {"FAIRLEAD_GIT_TOKEN": "cloning"}
    assert "--clone-image" in await refuse(engine, url, is_trusted=False, secrets=secrets)
    assert not any(f"/{plural}/" in path for path in node.kube.objects for plural in ("pods", "secrets"))
    listed = KubernetesEngine(replace(settings, clone_image="git:1"))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"is_trusted": False, "options": {"image": "evil", "storage": "10Gi"}}, "git:1"),
        ({"options": {"image": "tools"}}, "git:1"),
        ({"options": {"image": "tools", "cloneImage": "own"}}, "own"),
    )
    for number, (changes, image) in enumerate(cases):
        before = len(node.cluster.requests)
        await listed.up(make_spec(url, secrets=secrets, reset=True, **changes), RecordedTask(f"task-{number}"))
        created = [json.loads(each.body) for each in node.cluster.requests[before:] if each.method == "POST"]
        source = next(each for each in created if each["metadata"]["name"].endswith("-source"))
        containers = (*source["spec"]["initContainers"], *source["spec"]["containers"])
        assert {each["image"] for each in containers} == {image}
    for each in (engine, listed):
        await each.contexts.close()
