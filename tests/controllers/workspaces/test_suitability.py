"""Workspaces are scheduled to runners that can run them: by engine, labels and size."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.controllers.workspaces.workspaces import WorkspaceController
from fairlead.core.objects import Object, get_path
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options

NAMESPACE = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"
TEMPLATE = "DevPodWorkspaceTemplate"


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", "p")
    config = InstanceConfig(MANAGEMENT_GROUP, NAMESPACE_PREFIX, ClusterIdentityMapper("fairlead:"))
    controllers = (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        InstanceTemplateController(api.registry, config),
        RunnerController(api.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(api, *controllers):
        yield api


async def create_runner(api: RegistryFixture, name: str, *engines: Any, **status: Any) -> None:
    """`engines` are names, or entries of `status.engines`."""
    await api.create("Runner", name)
    listed = [each if isinstance(each, dict) else {"name": each} for each in engines]

    def edit(old: Object) -> Object:
        return {**old, "status": {**(old.get("status") or {}), "phase": "Initialized", "engines": listed, **status}}

    await api.resource("Runner").modify("", name, edit, write_options(subresource="status"))


async def create_template(api: RegistryFixture, provider: str, *, is_trusted: bool = True, **options: str) -> None:
    template = {"provider": {"name": provider, "options": {name: {"value": each} for name, each in options.items()}}}
    annotations = {"service.sh/trusted": "true"} if is_trusted else {}
    await api.create(TEMPLATE, "t", metadata={"annotations": annotations}, spec={"template": template})


async def create_workspace(api: RegistryFixture, **spec: Any) -> None:
    await api.create(KIND, "w", NAMESPACE, spec={"templateRef": {"name": "t"}, **spec})


def read_workspace(api: RegistryFixture) -> Object:
    entry = api.resource(KIND).get_cached(NAMESPACE, "w")
    assert entry is not None
    return decode(entry)


def runner_of(api: RegistryFixture) -> str:
    return get_path(read_workspace(api), "spec.runnerRef.runner") or ""


def scheduled(api: RegistryFixture) -> Object:
    return find_condition(read_workspace(api).get("status"), "Scheduled") or {}


@pytest.mark.parametrize(("provider", "expected"), [("kubernetes", "z"), ("docker", "a"), ("podman", "a")])
async def test_a_workspace_goes_to_a_runner_with_the_engine_of_its_template(
    server: RegistryFixture, provider: str, expected: str
) -> None:
    await create_runner(server, "a", "devcontainer")
    await create_runner(server, "z", "kubernetes")
    await create_template(server, provider)
    await create_workspace(server)
    await eventually(lambda: runner_of(server) == expected)


async def test_without_a_suitable_runner_the_condition_says_what_each_lacks(server: RegistryFixture) -> None:
    await create_runner(server, "a", "devcontainer")
    await create_runner(server, "b", {"name": "kubernetes", "problem": "kubeconfig: is missing"})
    await create_template(server, "kubernetes")
    await create_workspace(server)
    await eventually(lambda: scheduled(server).get("reason") == "NoRunnerForProvider")
    message = scheduled(server)["message"]
    assert 'runner "a" has no engine kubernetes, only devcontainer' in message
    assert 'runner "b" has the engine kubernetes, which cannot run workspaces: kubeconfig: is missing' in message
    assert get_path(read_workspace(server), "status.phase") == "Pending"
    await create_runner(server, "c", "kubernetes")
    await eventually(lambda: runner_of(server) == "c")


async def test_a_named_runner_without_the_engine_does_not_get_the_workspace(server: RegistryFixture) -> None:
    await create_runner(server, "a", "devcontainer")
    await create_template(server, "kubernetes")
    await create_workspace(server, runnerRef={"runner": "a"})
    await eventually(lambda: scheduled(server).get("reason") == "NoRunnerForProvider")


async def test_a_template_without_trust_chooses_only_the_first_engine(server: RegistryFixture) -> None:
    await create_runner(server, "a", "devcontainer", "kubernetes")
    await create_template(server, "kubernetes", is_trusted=False)
    await create_workspace(server)
    await eventually(lambda: scheduled(server).get("reason") == "NoRunnerForProvider")
    assert "not trusted" in scheduled(server)["message"]


async def test_a_runner_that_does_not_report_its_engines_may_have_any(server: RegistryFixture) -> None:
    await create_runner(server, "old")
    await create_template(server, "kubernetes")
    await create_workspace(server)
    await eventually(lambda: runner_of(server) == "old")


async def test_labels_that_the_template_names_select_a_runner(server: RegistryFixture) -> None:
    await create_runner(server, "a", "devcontainer", labels={"kubernetes.io/arch": "arm64"})
    await create_runner(server, "b", "devcontainer", labels={"kubernetes.io/arch": "amd64", "zone": "one"})  # claimed
    await create_template(server, "docker", runnerSelector="kubernetes.io/arch=amd64, zone=one")
    await create_workspace(server)
    await eventually(lambda: scheduled(server).get("reason") == "NoRunnerForProvider")
    assert 'runner "b" lacks the labels zone=one' in scheduled(server)["message"]

    def label(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "labels": {"zone": "one"}}}

    await server.resource("Runner").modify("", "b", label, write_options())
    await eventually(lambda: runner_of(server) == "b")


async def test_a_machine_that_is_smaller_than_wanted_comes_last(server: RegistryFixture) -> None:
    def size(memory: str, cpus: str) -> Object:
        return {"name": "devcontainer", "capacity": {"memory": memory, "cpus": cpus}}

    await create_runner(server, "a", size("2Gi", "8"))
    await create_runner(server, "b", size("64Gi", "1"))
    await create_runner(server, "c", size("64Gi", "8"))
    await create_template(server, "docker", memory="8Gi", cpus="2500m")
    await create_workspace(server)
    await eventually(lambda: runner_of(server) == "c")


async def test_a_template_that_cannot_be_resolved_is_not_scheduled(server: RegistryFixture) -> None:
    await create_runner(server, "a", "devcontainer")
    await create_workspace(server)
    await eventually(lambda: scheduled(server).get("reason") == "TemplateNotResolved")
    assert runner_of(server) == ""
    await create_template(server, "docker")
    await eventually(lambda: runner_of(server) == "a")
