"""Tests of `fairlead.controllers.workspaces.runner_deployments`: conditions, namespaces of others, and removal."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fairlead.controllers.workspaces.runner_deployments import (
    RESYNC_SECONDS,
    RunnerDeploymentConfig,
)
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER
from fairlead.core.errors import Conflict
from fairlead.core.objects import get_path
from fairlead.registry.codec import decode
from fairlead.upstream.errors import Unreachable
from tests.controllers.workspaces.runner_deployment_fixture import (
    NAME,
    NAMESPACE_PATH,
    PATHS,
    Keys,
    config,
    create_runner,
    deploy,
    deployed,
    get_container,
    keys,
    make_available,
    message,
    object_paths,
    run_controllers,
    server,
)
from tests.fake_cluster.kube import FakeKube
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, create_cluster, set_online

__all__ = ["config", "keys", "server"]

# --- conditions ---


@pytest.mark.parametrize(
    ("change", "reason", "setting"),
    [({"image": ""}, "ImageNotSet", "runner_image"), ({"public_url": ""}, "PublicUrlNotSet", "public_url")],
)
async def test_without_a_setting_nothing_is_created_and_the_condition_names_it(
    api: RegistryFixture,
    access: FakeAccess,
    config: RunnerDeploymentConfig,
    keys: Keys,
    change: dict[str, Any],
    reason: str,
    setting: str,
) -> None:
    async with run_controllers(api, access, replace(config, **change)):
        await create_cluster(api)
        await create_runner(api)
        await eventually(lambda: deployed(api) == ("False", reason))
        assert setting in message(api)
        assert access.kube.objects == {}
        assert keys.requests == []


async def test_the_image_of_the_pod_template_suffices(
    api: RegistryFixture, access: FakeAccess, config: RunnerDeploymentConfig, kube: FakeKube
) -> None:
    async with run_controllers(api, access, replace(config, image="")):
        await deploy(api, kube, podTemplate={"spec": {"image": "mine"}})
        assert get_container(kube)["image"] == "mine"


async def test_a_key_that_cannot_be_read_is_reported(server: RegistryFixture, kube: FakeKube, keys: Keys) -> None:
    keys.error = Conflict("its access key was rotated separately")
    await create_cluster(server)
    await create_runner(server)
    await eventually(lambda: deployed(server) == ("False", "KeyUnavailable"))
    assert "rotated separately" in message(server)
    assert kube.objects == {}


async def test_what_the_pod_waits_for_is_reported(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_runner(server)
    await eventually(lambda: deployed(server) == ("False", "Progressing"))
    labels = kube.objects[PATHS["Deployment"]]["spec"]["selector"]["matchLabels"]
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.example.com/fairlead:1"'}
    status = {"containerStatuses": [{"name": "runner", "state": {"waiting": waiting}}]}
    pod = kube.add_object(f"{NAMESPACE_PATH}/pods/{NAME}-x", metadata={"labels": labels}, status=status)
    await eventually(lambda: deployed(server) == ("False", "PodNotStarted"))
    assert "container runner: ImagePullBackOff: Back-off pulling image" in message(server)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    pod["status"] = {"conditions": [unscheduled]}
    await eventually(lambda: deployed(server) == ("False", "PodNotScheduled"))
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    kube.objects[PATHS["Deployment"]]["status"] = {"conditions": [failure]}
    await eventually(lambda: deployed(server) == ("False", "PodNotCreated"))
    assert "FailedCreate: exceeded quota" in message(server)
    make_available(kube)
    await eventually(lambda: deployed(server) == ("True", "Available"))


async def test_without_the_permission_to_list_pods_the_rollout_is_still_reported(
    server: RegistryFixture, kube: FakeKube
) -> None:
    kube.failing_paths["/pods"] = 403
    await create_cluster(server)
    await create_runner(server)
    await eventually(lambda: deployed(server) == ("False", "Forbidden"))
    assert "may not list its Pods" in message(server)
    make_available(kube)
    await eventually(lambda: deployed(server) == ("True", "Available"))


async def test_a_missing_permission_is_reported_and_retried(server: RegistryFixture, kube: FakeKube) -> None:
    kube.failing_paths["/roles/"] = 403
    await create_cluster(server)
    await create_runner(server)
    await eventually(lambda: deployed(server) == ("False", "Forbidden"))
    assert "may not apply Role" in message(server)
    del kube.failing_paths["/roles/"]
    await eventually(lambda: PATHS["Role"] in kube.objects)


async def test_a_cluster_that_is_unreachable_or_missing_is_reported(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await deploy(server, kube)
    access.down = Unreachable("connection refused")
    await eventually(lambda: deployed(server)[1] == "Unreachable")
    await set_online(server, False)
    await eventually(lambda: deployed(server) == ("False", "ClusterOffline"))
    await server.delete("Cluster", "c")
    await eventually(lambda: deployed(server) == ("False", "ClusterNotFound"))


async def test_a_cluster_ref_that_no_administrator_has_set_is_not_deployed(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_cluster(server)
    await server.create("Runner", "r", spec={"clusterRef": {"cluster": "c"}})
    await eventually(lambda: deployed(server) == ("False", "NotApproved"))
    await asyncio.sleep(2 * RESYNC_SECONDS)
    assert kube.request_log == []


# --- namespaces ---


@pytest.mark.parametrize(
    ("ref", "labels"),
    [
        ({}, {}),
        ({}, {"service.sh/managed": "fairlead", "service.sh/runner": "r", "service.sh/uid": "of-another"}),
        ({"namespace": NAME}, {"service.sh/managed": "fairlead", "service.sh/space": "s", "service.sh/uid": "u"}),
    ],
)
async def test_a_namespace_of_someone_else_is_not_used(
    server: RegistryFixture, kube: FakeKube, ref: dict[str, str], labels: dict[str, str]
) -> None:
    kube.add_object(NAMESPACE_PATH, metadata={"labels": labels})
    await create_cluster(server)
    await create_runner(server, **ref)
    await eventually(lambda: deployed(server) == ("False", "NamespaceConflict"))
    assert "spec.clusterRef.namespace" in message(server)
    assert kube.objects.keys() == {NAMESPACE_PATH}
    await server.delete("Runner", "r")
    await eventually(lambda: server.get("Runner", "r") is None)
    assert kube.objects.keys() == {NAMESPACE_PATH}


async def test_an_existing_namespace_is_used_if_it_is_named_and_stays(server: RegistryFixture, kube: FakeKube) -> None:
    namespace = kube.add_object("/api/v1/namespaces/shared", metadata={"labels": {"team": "a"}})
    kube.add_object("/api/v1/namespaces/shared/configmaps/theirs")
    await deploy(server, kube, namespace="shared")
    assert namespace["metadata"]["labels"] == {"team": "a"}
    await server.delete("Runner", "r")
    await eventually(lambda: server.get("Runner", "r") is None)
    assert kube.objects.keys() == {"/api/v1/namespaces/shared", "/api/v1/namespaces/shared/configmaps/theirs"}


@pytest.mark.parametrize("kind", PATHS)
async def test_objects_of_others_are_neither_taken_over_nor_deleted(
    server: RegistryFixture, kube: FakeKube, kind: str
) -> None:
    kube.add_object("/api/v1/namespaces/shared")
    path = object_paths("shared")[kind]
    theirs = kube.add_object(path, data={"theirs": "1"})
    before = dict(theirs)
    await create_cluster(server)
    await create_runner(server, namespace="shared")
    await eventually(lambda: deployed(server) == ("False", "ObjectConflict"))
    assert f'{kind} "{NAME}"' in message(server)
    await server.delete("Runner", "r")
    await eventually(lambda: server.get("Runner", "r") is None)
    assert kube.objects[path] == before
    assert kube.objects.keys() == {"/api/v1/namespaces/shared", path}


# --- removal ---


async def test_the_namespace_is_deleted_with_the_runner(server: RegistryFixture, kube: FakeKube) -> None:
    kube.delays_deletion = True
    await deploy(server, kube)
    await server.delete("Runner", "r")
    await eventually(lambda: deployed(server) == ("False", "Deleting"))
    assert get_path(server.get("Runner", "r"), "metadata.finalizers") == [DEPLOYMENT_FINALIZER]
    kube.finish_deletions()
    await eventually(lambda: server.get("Runner", "r") is None)
    assert kube.objects == {}


async def test_a_deletion_waits_for_the_cluster_unless_it_is_abandoned(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await deploy(server, kube)
    access.down = Unreachable("connection refused")
    await server.delete("Runner", "r")
    await eventually(lambda: "service.sh/abandon=true" in message(server))
    assert deployed(server) == ("False", "Unreachable")
    annotations = {"service.sh/abandon": "true"}
    await server.patch("Runner", "r", lambda each: each["metadata"].update(annotations=annotations))
    await eventually(lambda: server.get("Runner", "r") is None)
    assert PATHS["Deployment"] in kube.objects
    events = [decode(entry) for entry in server.registry.view.entries("", "events")]
    assert any(each["reason"] == "Abandoned" and NAME in each["message"] for each in events)


async def test_a_deletion_that_the_cluster_forbids_is_retried(server: RegistryFixture, kube: FakeKube) -> None:
    kube.add_object("/api/v1/namespaces/shared")
    await deploy(server, kube, namespace="shared")
    kube.failing_paths["/secrets/"] = 403
    await server.delete("Runner", "r")
    await eventually(lambda: deployed(server) == ("False", "Forbidden"))
    del kube.failing_paths["/secrets/"]
    await eventually(lambda: server.get("Runner", "r") is None)
    assert kube.objects.keys() == {"/api/v1/namespaces/shared"}


async def test_an_unchanged_runner_is_not_written_again(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    await asyncio.sleep(RESYNC_SECONDS)
    revision = await server.store.revision()
    await asyncio.sleep(10 * RESYNC_SECONDS)
    assert await server.store.revision() == revision
