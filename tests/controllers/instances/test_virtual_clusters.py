"""Tests of `fairlead.controllers.instances.virtual_clusters`: imported ones, and those deployed with a chart."""

import asyncio
import json

import pytest

from fairlead.controllers.helm.deploy import FAILED_RETRY_SECONDS
from fairlead.controllers.helm.deployments import CHECK_SECONDS
from fairlead.controllers.instances.full_reconciles import FULL_RECONCILE_SECONDS
from fairlead.controllers.instances.remote_namespace import distinguish_namespace
from fairlead.controllers.instances.spaces import RESYNC_SECONDS
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.registry.namespace_move import MoveRequest, move
from fairlead.upstream.errors import Unreachable
from tests.controllers.instances.helm_fixture import (
    BINDINGS,
    CHART,
    KUBECONFIG,
    NAMESPACE_PATH,
    RELEASE,
    VC,
    FakeHelm,
    access,
    create_from_template,
    create_virtual_cluster,
    helm,
    server,
    wait_until_ready,
)
from tests.fake_cluster.helm_releases import remove_release
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options
from tests.harness.remote import (
    PROJECT,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    encode_base64,
    get_labels,
)

__all__ = ["access", "helm", "server"]


async def test_an_imported_virtual_cluster_is_probed(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await server.create("Project", PROJECT, spec={})
    await server.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    assert get_path(server.get(VC, "one"), "status.online") is False
    await eventually(lambda: condition_status(server, VC, "Ready") == ("False", "Unreachable"))
    await wait_until_ready(server, access)
    assert condition_status(server, VC, "VirtualClusterDeployed") == ("True", "Imported")
    assert condition_status(server, VC, "Scheduled") == ("True", "Imported")
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")
    assert get_path(server.get(VC, "one"), "status.online") is True
    access.virtual_down = Unreachable("gone again")
    await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    access.virtual_down = None
    await server.delete(VC, "one")
    await eventually(lambda: server.get(VC, "one") is None)
    assert (helm.installed, helm.uninstalled, access.kube.request_log) == ([], [], [])


CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def test_users_with_access_have_a_role_inside_the_virtual_cluster(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_cluster(server)
    rules = [{"teams": ["red"], "clusterRole": "view"}]
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "extraAccessRules": rules}
    await server.create(VC, "one", spec=spec)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("True", "Synced"))
    admins = access.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:cluster-admin"]
    assert {"User fairlead:eve", "User fairlead:ada"} <= {
        f"{subject['kind']} {subject['name']}" for subject in admins["subjects"]
    }
    assert "namespace" not in admins["metadata"]
    viewers = access.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:view"]
    assert [subject["name"] for subject in viewers["subjects"]] == ["fairlead:service:team:red"]
    await server.patch(VC, "one", lambda obj: obj["spec"].pop("extraAccessRules"))
    await eventually(lambda: f"{CLUSTER_BINDINGS}/service.sh:view" not in access.virtual.objects)


async def test_a_virtual_cluster_that_rejects_role_bindings_is_still_ready(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_cluster(server)
    access.virtual.failing_paths["clusterrolebindings"] = 403
    await server.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}})
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", "Forbidden"))
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")


async def test_an_external_virtual_cluster_is_not_changed(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "external": True}
    await server.create(VC, "one", spec=spec)
    await wait_until_ready(server, access)
    await asyncio.sleep(100)
    assert not any(path.startswith(CLUSTER_BINDINGS) for path in access.virtual.objects)
    assert condition_status(server, VC, "AccessSynced") == (None, None)


async def test_a_virtual_cluster_that_rejects_the_credential_is_online_and_not_ready(
    server: RegistryFixture, access: FakeAccess
) -> None:
    access.virtual_down = None
    access.virtual.failing_paths["/version"] = 401
    await server.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(server, VC, "VirtualClusterReady") == ("False", "NotReady"))
    assert condition_status(server, VC, "VirtualClusterOnline")[0] == "True"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterRef": {"cluster": "unconnected"}, "template": RELEASE}, ("False", "ClusterNotConnected")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "external": True}, ("Unknown", "NotReported")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "networkPeer": True}, ("Unknown", "NotReported")),
    ],
)
async def test_virtual_clusters_that_others_deploy_are_not_changed(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm, spec: Object, expected: tuple[str, str]
) -> None:
    await create_cluster(server)
    await server.create("Cluster", "unconnected", spec={})
    await create_virtual_cluster(server, **spec)
    await asyncio.sleep(2 * RESYNC_SECONDS)
    assert condition_status(server, VC, "Ready") == expected
    assert get_path(server.get(VC, "one"), "status.phase") == "Pending"
    assert "finalizers" not in (server.get(VC, "one") or {})["metadata"]
    assert (helm.installed, access.kube.request_log) == ([], [])
    assert condition_status(server, VC, "VirtualClusterDeployed") == (None, None)


async def test_a_chart_is_deployed_and_its_kubeconfig_stored(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    created = await create_from_template(server)
    await wait_until_ready(server, access)
    (release,) = helm.installed
    assert (release.name, release.namespace, release.values) == ("one", "demo-v-one", "a: b")
    assert (release.chart.name, release.chart.repo, release.chart.version) == ("vc", "https://charts.example", "1.2.3")
    secret = server.get("Secret", "vc-one-kubeconfig") or {}
    assert secret["data"] == {"config": encode_base64(KUBECONFIG)}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    for type in ("SpaceSynced", "SpaceReady", "VirtualClusterDeployed", "VirtualClusterSynced", "VirtualClusterOnline"):
        assert condition_status(server, VC, type)[0] == "True"
    assert get_path(server.get(VC, "one"), "spec.clusterRef.virtualCluster") == "one"
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")
    await asyncio.sleep(5 * RESYNC_SECONDS)
    assert len(helm.installed) == 1


async def test_without_helm_nothing_is_created_and_that_is_reported(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    helm.is_missing = True
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "HelmNotFound"))
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Failed")
    assert "import a running virtual cluster" in condition_message(server, VC, "VirtualClusterDeployed")
    assert access.kube.request_log == []
    helm.is_missing = False
    await wait_until_ready(server, access)


async def test_a_template_without_a_chart_is_reported(server: RegistryFixture) -> None:
    await create_cluster(server)
    await create_virtual_cluster(server, template={})
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "ChartNotSet"))


async def test_new_values_are_deployed(server: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> None:
    await create_cluster(server)
    await create_virtual_cluster(server, template=RELEASE)
    await wait_until_ready(server, access)
    changed_template = {"helmRelease": {"chart": CHART, "values": "a: c"}}
    await server.patch(VC, "one", lambda obj: obj["spec"].update(template=changed_template))
    await eventually(lambda: [release.values for release in helm.installed] == ["a: b", "a: c"])


RELEASE_SECRET_PATH = f"{NAMESPACE_PATH}/secrets/sh.helm.release.v1.one.v1"
PENDING_LABELS = {"owner": "helm", "name": "one", "status": "pending-install"}


async def test_a_pending_release_of_an_interrupted_run_is_deployed_again(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    access.kube.add_object(
        RELEASE_SECRET_PATH, metadata={"labels": PENDING_LABELS, "creationTimestamp": "2000-01-01T00:00:00Z"}
    )
    await create_from_template(server)
    await wait_until_ready(server, access)
    assert len(helm.installed) == 2
    assert access.kube.objects[RELEASE_SECRET_PATH]["metadata"]["labels"]["status"] == "deployed"


async def test_a_pending_release_of_another_run_is_not_disturbed(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    access.kube.add_object(
        RELEASE_SECRET_PATH, metadata={"labels": PENDING_LABELS, "creationTimestamp": "2999-01-01T00:00:00Z"}
    )
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "ReleasePending"))
    assert RELEASE_SECRET_PATH in access.kube.objects


async def test_a_failed_run_is_retried_after_a_delay(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    helm.is_failing = True
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    await asyncio.sleep(FAILED_RETRY_SECONDS / 2)
    assert len(helm.installed) == 1
    helm.is_failing = False
    await wait_until_ready(server, access)
    assert len(helm.installed) == 2


async def test_the_chart_of_a_trusted_template_has_the_rights_of_the_stored_credential(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    assert helm.installed[0].impersonate_user == ""
    assert not [path for path in access.kube.objects if path.startswith(BINDINGS)]


async def test_the_chart_of_an_inline_template_is_confined_to_its_namespace(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_virtual_cluster(server, template=RELEASE)
    await wait_until_ready(server, access)
    assert helm.installed[0].impersonate_user == "service:deployer:demo-v-one"
    binding = access.kube.objects[f"{BINDINGS}/service.sh:deployer"]
    assert [subject["name"] for subject in binding["subjects"]] == ["service:deployer:demo-v-one"]
    assert binding["roleRef"]["name"] == "admin"


async def test_the_controller_waits_for_the_kubeconfig(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    helm.kubeconfig = b""
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", "WaitingForKubeconfig"))
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Pending")
    access.kube.add_object(f"{NAMESPACE_PATH}/secrets/vc-one", data={"config": encode_base64(KUBECONFIG)})
    await wait_until_ready(server, access)
    assert len(helm.installed) == 1


async def test_t12_a_kubeconfig_that_runs_programs_is_rejected(server: RegistryFixture, helm: FakeHelm) -> None:
    await create_cluster(server)
    helm.kubeconfig = KUBECONFIG.replace(b"token: inner-token", b"exec: {command: evil}")
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", "InvalidKubeconfig"))
    assert server.get("Secret", "vc-one-kubeconfig") is None


async def test_a_secret_of_others_is_not_overwritten(server: RegistryFixture) -> None:
    await create_cluster(server)
    await server.create("Secret", "vc-one-kubeconfig", data={"config": encode_base64(b"mine")})
    await create_from_template(server)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", "SecretConflict"))
    assert (server.get("Secret", "vc-one-kubeconfig") or {})["data"] == {"config": encode_base64(b"mine")}


async def test_a_changed_kubeconfig_is_stored(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    new_kubeconfig = KUBECONFIG.replace(b"inner-token", b"next-token")
    access.kube.objects[f"{NAMESPACE_PATH}/secrets/vc-one"]["data"]["config"] = encode_base64(new_kubeconfig)
    await eventually(
        lambda: (server.get("Secret", "vc-one-kubeconfig") or {})["data"]["config"] == encode_base64(new_kubeconfig),
        2 * FULL_RECONCILE_SECONDS,
    )


async def test_a_deleted_namespace_is_created_and_deployed_again(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    chart = {"name": "redis", "repoURL": "https://charts.example"}
    template = {**RELEASE, "spaceTemplate": {"charts": [chart]}}
    await create_from_template(server, template)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "AppsSynced")[0] == "True")
    assert [each.name for each in helm.installed] == ["one", "redis"]
    helm.is_failing = True
    access.kube.handle_request("DELETE", NAMESPACE_PATH)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    helm.is_failing = False
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed")[0] == "True")
    assert f"{NAMESPACE_PATH}/secrets/vc-one" in access.kube.objects
    await eventually(lambda: [each.name for each in helm.installed].count("redis") == 2)
    events = [decode(entry) for entry in server.view.entries("", "events", "demo")]
    assert [event["message"] for event in events if event["reason"] == "NamespaceDeleted"]


async def test_a_release_that_others_uninstall_is_deployed_again_soon(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    """Right after it was checked. With it go the Secret of the chart, and the API server."""
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    remove_release(access.kube, helm.installed[0])
    access.kube.remove_object(f"{NAMESPACE_PATH}/secrets/vc-one")
    access.virtual_down = Unreachable("no ready pod")
    await eventually(lambda: len(helm.installed) == 2, CHECK_SECONDS - 10)
    await wait_until_ready(server, access)


async def test_objects_that_the_template_drops_are_deleted(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    quota = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}}
    await create_from_template(server, {**RELEASE, "spaceTemplate": {"objects": json.dumps(quota)}}, version="x.x.x")
    path = f"{NAMESPACE_PATH}/configmaps/limits"
    await wait_until_ready(server, access)
    assert path in access.kube.objects
    await server.patch("VirtualClusterTemplate", "t", lambda each: each["spec"].update(template=RELEASE))
    await eventually(lambda: path not in access.kube.objects)


async def test_deletion_uninstalls_the_release_and_deletes_the_namespace(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    access.kube.delays_deletion = True
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(RESYNC_SECONDS)
    assert [release.name for release in helm.uninstalled] == ["one"]
    access.kube.finish_deletions()
    await eventually(lambda: server.get(VC, "one") is None)
    assert access.kube.objects == {}


async def test_deletion_waits_for_an_offline_cluster_until_it_is_abandoned(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    access.down = Unreachable("no response")
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "SpaceSynced") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in condition_message(server, VC, "SpaceSynced")
    await server.patch(VC, "one", lambda obj: obj["metadata"].update(annotations={"service.sh/abandon": "true"}))
    await eventually(lambda: server.get(VC, "one") is None)


async def test_deletion_continues_without_helm(server: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    helm.is_missing = True
    await server.delete(VC, "one")
    await eventually(lambda: server.get(VC, "one") is None)
    assert access.kube.objects == {}


async def test_a_namespace_is_labelled_with_the_permanent_service_uid(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    instance = server.get(VC, "one")
    assert get_labels(access.kube.objects[NAMESPACE_PATH])["service.sh/uid"] == get_path(instance, "status.serviceUID")


@pytest.mark.parametrize("namespace", ["../kube-system", "UPPER", ".."])
async def test_a_finalizer_set_by_hand_reaches_nothing(
    server: RegistryFixture, access: FakeAccess, namespace: str
) -> None:
    await create_cluster(server)
    spec = {"clusterRef": {"cluster": "c", "namespace": namespace}, "external": True}
    await server.create(VC, "one", spec=spec, metadata={"finalizers": ["service.sh/virtual-cluster"]})
    await server.delete(VC, "one")
    await eventually(lambda: server.get(VC, "one") is None)
    assert access.kube.request_log == []


async def test_events_about_failures_are_warnings(server: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> None:
    def list_events() -> set[tuple[str, str]]:
        events = [server.get("Event", name) or {} for name in server.list_names("Event")]
        return {(event["type"], event["reason"]) for event in events}

    await create_cluster(server)
    helm.is_missing = True
    await create_from_template(server)
    await eventually(lambda: ("Warning", "HelmNotFound") in list_events())
    helm.is_missing, helm.kubeconfig = False, b""
    await eventually(lambda: ("Normal", "WaitingForKubeconfig") in list_events(), 300)
    helm.kubeconfig = KUBECONFIG
    access.kube.add_object(f"{NAMESPACE_PATH}/secrets/vc-one", data={"config": encode_base64(KUBECONFIG)})
    await eventually(lambda: ("Warning", "Unreachable") in list_events(), 300)
    access.virtual_down = None
    await eventually(lambda: ("Normal", "Usable") in list_events(), 300)


async def test_after_a_migration_it_runs_on_and_its_name_can_be_used_again(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server, members=[{"kind": "User", "name": "eve", "clusterRole": "admin"}])
    members = [{"kind": "User", "name": "bob", "clusterRole": "admin"}]
    await server.create("Project", "default", spec={"owner": {"user": "ada"}, "members": members})
    for user in ("bob", "eve"):
        await server.create("User", user, spec={})
    await create_from_template(server)
    await wait_until_ready(server, access)
    await eventually(lambda: list_subjects(access) == {"fairlead:ada", "fairlead:eve"})
    request = MoveRequest(server.resource(VC), "one", PROJECT, "default", (), lambda objects: None)
    await move(server.registry, request, write_options())
    await eventually(lambda: get_labels(access.kube.objects[NAMESPACE_PATH])["service.sh/project"] == "default")
    await eventually(lambda: list_subjects(access) == {"fairlead:ada", "fairlead:bob"})
    assert (PROJECT, "one") in access.closed
    assert (len(helm.installed), helm.uninstalled) == (1, [])

    again = await create_virtual_cluster(server, templateRef={"name": "t"})
    await eventually(lambda: len(helm.installed) == 2)
    namespace = distinguish_namespace("demo-v-one", again["metadata"]["uid"])
    assert helm.installed[1].namespace == namespace
    assert namespace.startswith("demo-v-one--") and f"/api/v1/namespaces/{namespace}" in access.kube.objects


def list_subjects(access: FakeAccess) -> set[str]:
    """The users that have roles in the virtual cluster."""
    bindings = [each for path, each in access.virtual.objects.items() if path.startswith(CLUSTER_BINDINGS)]
    subjects = [subject for binding in bindings for subject in binding["subjects"]]
    return {subject["name"] for subject in subjects if subject["kind"] == "User"}
