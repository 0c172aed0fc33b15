"""Virtual clusters: imported ones, those that are deployed with a chart, and how they are told to do."""

import asyncio

import pytest

from fairlead.controllers.helm.deploy import FAILED_RETRY_SECONDS
from fairlead.controllers.instances.spaces import RESYNC_SECONDS
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.upstream.errors import Unreachable
from tests.controllers.instances.helm_fixture import (
    BINDINGS,
    CHART,
    KUBECONFIG,
    PLACE,
    RELEASE,
    VC,
    FakeHelm,
    from_template,
    helm,
    reach,
    ready,
    virtual_cluster,
    working,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    PROJECT,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    encoded,
    labels,
)

__all__ = ["helm", "reach", "working"]


async def test_an_imported_one_is_looked_at(working: RegistryFixture, reach: FakeAccess, helm: FakeHelm) -> None:
    await working.create("Project", PROJECT, spec={})
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    assert get_path(working.see(VC, "one"), "status.online") is False
    await eventually(lambda: condition_status(working, VC, "Ready") == ("False", "Unreachable"))
    await ready(working, reach)
    assert condition_status(working, VC, "VirtualClusterDeployed") == ("True", "Imported")
    assert condition_status(working, VC, "Scheduled") == ("True", "Imported")
    await eventually(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")
    assert get_path(working.see(VC, "one"), "status.online") is True
    reach.virtual_down = Unreachable("gone again")
    await eventually(lambda: condition_status(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    reach.virtual_down = None
    await working.delete(VC, "one")
    await eventually(lambda: working.see(VC, "one") is None)
    assert (helm.installed, helm.removed, reach.kube.log) == ([], [], [])


CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def test_who_may_use_it_has_a_role_inside(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    rules = [{"teams": ["red"], "clusterRole": "view"}]
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "extraAccessRules": rules}
    await working.create(VC, "one", spec=spec)
    await ready(working, reach)
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("True", "Synced"))
    admins = reach.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:cluster-admin"]
    assert {"User fairlead:eve", "User fairlead:ada"} <= {
        f"{each['kind']} {each['name']}" for each in admins["subjects"]
    }
    assert "namespace" not in admins["metadata"]
    viewers = reach.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:view"]
    assert [each["name"] for each in viewers["subjects"]] == ["fairlead:service:team:red"]
    await working.patch(VC, "one", lambda obj: obj["spec"].pop("extraAccessRules"))
    await eventually(lambda: f"{CLUSTER_BINDINGS}/service.sh:view" not in reach.virtual.objects)


async def test_one_that_lets_nobody_bind_roles_is_ready_all_the_same(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    await create_cluster(working)
    reach.virtual.refused["clusterrolebindings"] = 403
    await working.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}})
    await ready(working, reach)
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", "Forbidden"))
    await eventually(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")


async def test_what_is_somebody_elses_is_not_changed(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "external": True}
    await working.create(VC, "one", spec=spec)
    await ready(working, reach)
    await asyncio.sleep(100)
    assert not any(path.startswith(CLUSTER_BINDINGS) for path in reach.virtual.objects)
    assert condition_status(working, VC, "AccessSynced") == (None, None)


async def test_one_that_answers_but_refuses_is_online_and_not_ready(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    reach.virtual_down = None
    reach.virtual.refused["/version"] = 401
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(working, VC, "VirtualClusterReady") == ("False", "NotReady"))
    assert condition_status(working, VC, "VirtualClusterOnline")[0] == "True"


@pytest.mark.parametrize(
    ("spec", "verdict"),
    [
        ({"clusterRef": {"cluster": "paper"}, "template": RELEASE}, ("False", "ClusterNotConnected")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "external": True}, ("Unknown", "NotReported")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "networkPeer": True}, ("Unknown", "NotReported")),
    ],
)
async def test_what_is_not_ours_to_deploy_is_left_alone(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm, spec: Object, verdict: tuple[str, str]
) -> None:
    await create_cluster(working)
    await working.create("Cluster", "paper", spec={})
    await virtual_cluster(working, **spec)
    await asyncio.sleep(2 * RESYNC_SECONDS)
    assert condition_status(working, VC, "Ready") == verdict
    assert get_path(working.see(VC, "one"), "status.phase") == "Pending"
    assert "finalizers" not in (working.see(VC, "one") or {})["metadata"]
    assert (helm.installed, reach.kube.log) == ([], [])
    assert condition_status(working, VC, "VirtualClusterDeployed") == (None, None)


async def test_a_chart_is_deployed_and_its_kubeconfig_kept(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    made = await from_template(working)
    await ready(working, reach)
    (release,) = helm.installed
    assert (release.name, release.namespace, release.values) == ("one", "demo-v-one", "a: b")
    assert (release.chart.name, release.chart.repo, release.chart.version) == ("vc", "https://charts.example", "1.2.3")
    secret = working.see("Secret", "vc-one-kubeconfig") or {}
    assert secret["data"] == {"config": encoded(KUBECONFIG)}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    for each in ("SpaceSynced", "SpaceReady", "VirtualClusterDeployed", "VirtualClusterSynced", "VirtualClusterOnline"):
        assert condition_status(working, VC, each)[0] == "True"
    assert get_path(working.see(VC, "one"), "spec.clusterRef.virtualCluster") == "one"
    await eventually(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")
    await asyncio.sleep(5 * RESYNC_SECONDS)
    assert len(helm.installed) == 1


async def test_without_helm_it_says_so_and_makes_nothing(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    helm.missing = True
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "HelmNotFound"))
    await eventually(lambda: get_path(working.see(VC, "one"), "status.phase") == "Failed")
    assert reach.kube.log == []
    helm.missing = False
    await ready(working, reach)


async def test_a_template_without_a_chart_is_said(working: RegistryFixture) -> None:
    await create_cluster(working)
    await virtual_cluster(working, template={})
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "ChartNotSet"))


async def test_new_values_are_deployed(working: RegistryFixture, reach: FakeAccess, helm: FakeHelm) -> None:
    await create_cluster(working)
    await virtual_cluster(working, template=RELEASE)
    await ready(working, reach)
    news = {"helmRelease": {"chart": CHART, "values": "a: c"}}
    await working.patch(VC, "one", lambda each: each["spec"].update(template=news))
    await eventually(lambda: [each.values for each in helm.installed] == ["a: b", "a: c"])


NOTE = f"{PLACE}/secrets/sh.helm.release.v1.one.v1"
PENDING = {"owner": "helm", "name": "one", "status": "pending-install"}


async def test_a_release_that_an_interrupted_run_left_pending_is_deployed_again(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    reach.kube.put(NOTE, metadata={"labels": PENDING, "creationTimestamp": "2000-01-01T00:00:00Z"})
    await from_template(working)
    await ready(working, reach)
    assert len(helm.installed) == 2 and NOTE not in reach.kube.objects


async def test_a_run_that_goes_on_elsewhere_is_not_disturbed(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    reach.kube.put(NOTE, metadata={"labels": PENDING, "creationTimestamp": "2999-01-01T00:00:00Z"})
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "ReleasePending"))
    assert NOTE in reach.kube.objects


async def test_a_failed_run_is_tried_again_but_not_at_once(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    helm.fails = True
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    await asyncio.sleep(FAILED_RETRY_SECONDS / 2)
    assert len(helm.installed) == 1
    helm.fails = False
    await ready(working, reach)
    assert len(helm.installed) == 2


async def test_a_chart_out_of_a_template_has_the_clusters_rights(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    assert helm.installed[0].impersonate_user == ""
    assert not [path for path in reach.kube.objects if path.startswith(BINDINGS)]


async def test_a_chart_that_is_written_out_in_place_is_confined_to_its_namespace(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await virtual_cluster(working, template=RELEASE)
    await ready(working, reach)
    assert helm.installed[0].impersonate_user == "service:deployer:demo-v-one"
    binding = reach.kube.objects[f"{BINDINGS}/service.sh:deployer"]
    assert [each["name"] for each in binding["subjects"]] == ["service:deployer:demo-v-one"]
    assert binding["roleRef"]["name"] == "admin"


async def test_t22_a_repository_inside_is_not_asked(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    reach.blocked.add("charts.example")
    await from_template(working)
    await eventually(
        lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "RepositoryUnreachable")
    )
    assert helm.installed == []


async def test_a_kubeconfig_is_waited_for(working: RegistryFixture, reach: FakeAccess, helm: FakeHelm) -> None:
    await create_cluster(working)
    helm.content = b""
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterSynced") == ("False", "WaitingForKubeconfig"))
    await eventually(lambda: get_path(working.see(VC, "one"), "status.phase") == "Pending")
    reach.kube.put(f"{PLACE}/secrets/vc-one", data={"config": encoded(KUBECONFIG)})
    await ready(working, reach)
    assert len(helm.installed) == 1


async def test_t12_a_kubeconfig_that_runs_programs_is_not_taken(working: RegistryFixture, helm: FakeHelm) -> None:
    await create_cluster(working)
    helm.content = KUBECONFIG.replace(b"token: inner-token", b"exec: {command: evil}")
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterSynced") == ("False", "InvalidKubeconfig"))
    assert working.see("Secret", "vc-one-kubeconfig") is None


async def test_somebody_elses_secret_is_not_overwritten(working: RegistryFixture) -> None:
    await create_cluster(working)
    await working.create("Secret", "vc-one-kubeconfig", data={"config": encoded(b"mine")})
    await from_template(working)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterSynced") == ("False", "SecretConflict"))
    assert (working.see("Secret", "vc-one-kubeconfig") or {})["data"] == {"config": encoded(b"mine")}


async def test_a_changed_kubeconfig_is_taken_over(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    new = KUBECONFIG.replace(b"inner-token", b"next-token")
    reach.kube.objects[f"{PLACE}/secrets/vc-one"]["data"]["config"] = encoded(new)
    await eventually(lambda: (working.see("Secret", "vc-one-kubeconfig") or {})["data"]["config"] == encoded(new))


async def test_a_namespace_that_was_deleted_is_made_again_with_all_that_was_deployed(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    helm.fails = True
    reach.kube.asked("DELETE", PLACE)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    helm.fails = False
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed")[0] == "True")
    assert f"{PLACE}/secrets/vc-one" in reach.kube.objects
    found = [decode(each) for each in working.view.entries("", "events", "demo")]
    assert [each["message"] for each in found if each["reason"] == "NamespaceDeleted"]


async def test_deletion_uninstalls_and_removes_the_namespace(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    reach.kube.slow_to_go = True
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(RESYNC_SECONDS)
    assert [each.name for each in helm.removed] == ["one"]
    reach.kube.finish()
    await eventually(lambda: working.see(VC, "one") is None)
    assert reach.kube.objects == {}


async def test_deletion_waits_for_an_offline_cluster_until_it_is_given_up(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    reach.down = Unreachable("nobody answers")
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "SpaceSynced") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in condition_message(working, VC, "SpaceSynced")
    await working.patch(VC, "one", lambda each: each["metadata"].update(annotations={"service.sh/abandon": "true"}))
    await eventually(lambda: working.see(VC, "one") is None)


async def test_deletion_goes_on_without_helm(working: RegistryFixture, reach: FakeAccess, helm: FakeHelm) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    helm.missing = True
    await working.delete(VC, "one")
    await eventually(lambda: working.see(VC, "one") is None)
    assert reach.kube.objects == {}


async def test_a_namespace_is_known_by_what_survives_a_move(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)
    seen = working.see(VC, "one")
    assert labels(reach.kube.objects[PLACE])["service.sh/uid"] == get_path(seen, "status.serviceUID")


@pytest.mark.parametrize("namespace", ["../kube-system", "UPPER", ".."])
async def test_a_finalizer_set_by_hand_reaches_nothing(
    working: RegistryFixture, reach: FakeAccess, namespace: str
) -> None:
    await create_cluster(working)
    spec = {"clusterRef": {"cluster": "c", "namespace": namespace}, "external": True}
    await working.create(VC, "one", spec=spec, metadata={"finalizers": ["service.sh/virtual-cluster"]})
    await working.delete(VC, "one")
    await eventually(lambda: working.see(VC, "one") is None)
    assert reach.kube.log == []


async def test_events_about_failures_are_warnings(working: RegistryFixture, reach: FakeAccess, helm: FakeHelm) -> None:
    def events() -> set[tuple[str, str]]:
        seen = [working.see("Event", name) or {} for name in working.names("Event")]
        return {(each["type"], each["reason"]) for each in seen}

    await create_cluster(working)
    helm.missing = True
    await from_template(working)
    await eventually(lambda: ("Warning", "HelmNotFound") in events())
    helm.missing, helm.content = False, b""
    await eventually(lambda: ("Normal", "WaitingForKubeconfig") in events(), 300)
    helm.content = KUBECONFIG
    reach.kube.put(f"{PLACE}/secrets/vc-one", data={"config": encoded(KUBECONFIG)})
    await eventually(lambda: ("Warning", "Unreachable") in events(), 300)
    reach.virtual_down = None
    await eventually(lambda: ("Normal", "Usable") in events(), 300)
