"""Runners in a cluster in memory: the controllers, the keys, and what the cluster itself does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.admission.runners import protect_cluster_ref
from fairlead.controllers.workspaces.runner_deployments import (
    RunnerDeploymentConfig,
    RunnerDeploymentController,
)
from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.fake_cluster.kube import FakeKube
from tests.harness.calls import ADMIN
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status, create_cluster

NAME = "fairlead-runner-r"
NAMESPACE_PATH = f"/api/v1/namespaces/{NAME}"
KEY = "key-of-the-runner"


def object_paths(namespace: str = NAME) -> dict[str, str]:
    core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    return {
        "ServiceAccount": f"{core}/serviceaccounts/{NAME}",
        "Role": f"{rbac}/roles/{NAME}",
        "RoleBinding": f"{rbac}/rolebindings/{NAME}",
        "Secret": f"{core}/secrets/{NAME}",
        "PersistentVolumeClaim": f"{core}/persistentvolumeclaims/{NAME}",
        "Deployment": f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}",
    }


PATHS = object_paths()


@dataclass
class Keys:
    """The keys of runners. With `error`, none can be read."""

    value: str = KEY
    error: Exception | None = None
    requests: list[str] = field(default_factory=list)

    async def get(self, name: str) -> str:
        self.requests.append(name)
        if self.error is not None:
            raise self.error
        return self.value


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def config(keys: Keys) -> RunnerDeploymentConfig:
    return RunnerDeploymentConfig(
        api_group=GROUP,
        system_namespace="service-system",
        public_url="https://fairlead.example.com",
        image="registry.example.com/fairlead:1",
        pod_security="baseline",
        read_authority=lambda: "PEM of the server",
        get_key=keys.get,
    )


@pytest.fixture
async def server(
    api: RegistryFixture, access: FakeAccess, config: RunnerDeploymentConfig
) -> AsyncIterator[RegistryFixture]:
    async with run_controllers(api, access, config) as running:
        yield running


@asynccontextmanager
async def run_controllers(
    api: RegistryFixture, access: FakeAccess, config: RunnerDeploymentConfig
) -> AsyncIterator[RegistryFixture]:
    controllers = RunnerController(api.registry, GROUP), RunnerDeploymentController(api.registry, config, access)
    async with running_controllers(api, *controllers):
        yield api


async def create_runner(api: RegistryFixture, **ref: Any) -> Object:
    """As an administrator creates it."""
    guarded = api.with_rules(protect_cluster_ref(GROUP))
    body = api.build_object("Runner", "r", spec={"clusterRef": {"cluster": "c", **ref}})
    return await guarded.submit("Runner", body, WriteOptions(ADMIN))


def deployed(api: RegistryFixture) -> tuple[Any, Any]:
    return condition_status(api, "Runner", "Deployed", "r")


def message(api: RegistryFixture) -> str:
    return condition_message(api, "Runner", "Deployed", "r")


def make_available(kube: FakeKube, path: str = PATHS["Deployment"]) -> None:
    """What the controllers of a cluster do."""
    generation = kube.objects[path]["metadata"]["generation"]
    counts = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    kube.objects[path]["status"] = {"observedGeneration": generation, **counts}


async def deploy(api: RegistryFixture, kube: FakeKube, **ref: Any) -> Object:
    await create_cluster(api)
    created = await create_runner(api, **ref)
    path = object_paths(ref.get("namespace", NAME))["Deployment"]
    await eventually(lambda: path in kube.objects)
    make_available(kube, path)
    await eventually(lambda: deployed(api) == ("True", "Available"))
    return created


def get_container(kube: FakeKube) -> Object:
    (container,) = kube.objects[PATHS["Deployment"]]["spec"]["template"]["spec"]["containers"]
    return dict(container)
