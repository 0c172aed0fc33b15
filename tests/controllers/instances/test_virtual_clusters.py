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
from tests.harness.controllers import until
from tests.harness.registry import World
from tests.harness.remote import PROJECT, FakeReach, encoded, furnish, labels, message, told

__all__ = ["helm", "reach", "working"]


async def test_an_imported_one_is_looked_at(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await working.create("Project", PROJECT, spec={})
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await until(lambda: told(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    assert get_path(working.see(VC, "one"), "status.online") is False
    await until(lambda: told(working, VC, "Ready") == ("False", "Unreachable"))
    await ready(working, reach)
    assert told(working, VC, "VirtualClusterDeployed") == ("True", "Imported")
    assert told(working, VC, "Scheduled") == ("True", "Imported")
    await until(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")
    assert get_path(working.see(VC, "one"), "status.online") is True
    reach.virtual_down = Unreachable("gone again")
    await until(lambda: told(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    reach.virtual_down = None
    await working.delete(VC, "one")
    await until(lambda: working.see(VC, "one") is None)
    assert (helm.installed, helm.removed, reach.kube.log) == ([], [], [])


CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def test_who_may_use_it_has_a_role_inside(working: World, reach: FakeReach) -> None:
    await furnish(working)
    rules = [{"teams": ["red"], "clusterRole": "view"}]
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "extraAccessRules": rules}
    await working.create(VC, "one", spec=spec)
    await ready(working, reach)
    await until(lambda: told(working, VC, "AccessSynced") == ("True", "Synced"))
    admins = reach.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:cluster-admin"]
    assert {"User fairlead:eve", "User fairlead:ada"} <= {
        f"{each['kind']} {each['name']}" for each in admins["subjects"]
    }
    assert "namespace" not in admins["metadata"]
    viewers = reach.virtual.objects[f"{CLUSTER_BINDINGS}/service.sh:view"]
    assert [each["name"] for each in viewers["subjects"]] == ["fairlead:service:team:red"]
    await working.patch(VC, "one", lambda obj: obj["spec"].pop("extraAccessRules"))
    await until(lambda: f"{CLUSTER_BINDINGS}/service.sh:view" not in reach.virtual.objects)


async def test_one_that_lets_nobody_bind_roles_is_ready_all_the_same(working: World, reach: FakeReach) -> None:
    await furnish(working)
    reach.virtual.refused["clusterrolebindings"] = 403
    await working.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}})
    await ready(working, reach)
    await until(lambda: told(working, VC, "AccessSynced") == ("False", "Forbidden"))
    await until(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")


async def test_what_is_somebody_elses_is_not_changed(working: World, reach: FakeReach) -> None:
    await furnish(working)
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "external": True}
    await working.create(VC, "one", spec=spec)
    await ready(working, reach)
    await asyncio.sleep(100)
    assert not any(path.startswith(CLUSTER_BINDINGS) for path in reach.virtual.objects)
    assert told(working, VC, "AccessSynced") == (None, None)


async def test_one_that_answers_but_refuses_is_online_and_not_ready(working: World, reach: FakeReach) -> None:
    reach.virtual_down = None
    reach.virtual.refused["/version"] = 401
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await until(lambda: told(working, VC, "VirtualClusterReady") == ("False", "NotReady"))
    assert told(working, VC, "VirtualClusterOnline")[0] == "True"


@pytest.mark.parametrize(
    ("spec", "verdict"),
    [
        ({"clusterRef": {"cluster": "paper"}, "template": RELEASE}, ("False", "ClusterNotConnected")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "external": True}, ("Unknown", "NotReported")),
        ({"clusterRef": {"cluster": "c"}, "template": RELEASE, "networkPeer": True}, ("Unknown", "NotReported")),
    ],
)
async def test_what_is_not_ours_to_deploy_is_left_alone(
    working: World, reach: FakeReach, helm: FakeHelm, spec: Object, verdict: tuple[str, str]
) -> None:
    await furnish(working)
    await working.create("Cluster", "paper", spec={})
    await virtual_cluster(working, **spec)
    await asyncio.sleep(2 * RESYNC_SECONDS)
    assert told(working, VC, "Ready") == verdict
    assert get_path(working.see(VC, "one"), "status.phase") == "Pending"
    assert "finalizers" not in (working.see(VC, "one") or {})["metadata"]
    assert (helm.installed, reach.kube.log) == ([], [])
    assert told(working, VC, "VirtualClusterDeployed") == (None, None)


async def test_a_chart_is_deployed_and_its_kubeconfig_kept(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    made = await from_template(working)
    await ready(working, reach)
    (release,) = helm.installed
    assert (release.name, release.namespace, release.values) == ("one", "demo-v-one", "a: b")
    assert (release.chart.name, release.chart.repo, release.chart.version) == ("vc", "https://charts.example", "1.2.3")
    secret = working.see("Secret", "vc-one-kubeconfig") or {}
    assert secret["data"] == {"config": encoded(KUBECONFIG)}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    for each in ("SpaceSynced", "SpaceReady", "VirtualClusterDeployed", "VirtualClusterSynced", "VirtualClusterOnline"):
        assert told(working, VC, each)[0] == "True"
    assert get_path(working.see(VC, "one"), "spec.clusterRef.virtualCluster") == "one"
    await until(lambda: get_path(working.see(VC, "one"), "status.phase") == "Ready")
    await asyncio.sleep(5 * RESYNC_SECONDS)
    assert len(helm.installed) == 1


async def test_without_helm_it_says_so_and_makes_nothing(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    helm.missing = True
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "HelmNotFound"))
    await until(lambda: get_path(working.see(VC, "one"), "status.phase") == "Failed")
    assert reach.kube.log == []
    helm.missing = False
    await ready(working, reach)


async def test_a_template_without_a_chart_is_said(working: World) -> None:
    await furnish(working)
    await virtual_cluster(working, template={})
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "ChartNotSet"))


async def test_new_values_are_deployed(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    await virtual_cluster(working, template=RELEASE)
    await ready(working, reach)
    news = {"helmRelease": {"chart": CHART, "values": "a: c"}}
    await working.patch(VC, "one", lambda each: each["spec"].update(template=news))
    await until(lambda: [each.values for each in helm.installed] == ["a: b", "a: c"])


NOTE = f"{PLACE}/secrets/sh.helm.release.v1.one.v1"
PENDING = {"owner": "helm", "name": "one", "status": "pending-install"}


async def test_a_release_that_an_interrupted_run_left_pending_is_deployed_again(
    working: World, reach: FakeReach, helm: FakeHelm
) -> None:
    await furnish(working)
    reach.kube.put(NOTE, metadata={"labels": PENDING, "creationTimestamp": "2000-01-01T00:00:00Z"})
    await from_template(working)
    await ready(working, reach)
    assert len(helm.installed) == 2 and NOTE not in reach.kube.objects


async def test_a_run_that_goes_on_elsewhere_is_not_disturbed(working: World, reach: FakeReach) -> None:
    await furnish(working)
    reach.kube.put(NOTE, metadata={"labels": PENDING, "creationTimestamp": "2999-01-01T00:00:00Z"})
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "ReleasePending"))
    assert NOTE in reach.kube.objects


async def test_a_failed_run_is_tried_again_but_not_at_once(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    helm.fails = True
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    await asyncio.sleep(FAILED_RETRY_SECONDS / 2)
    assert len(helm.installed) == 1
    helm.fails = False
    await ready(working, reach)
    assert len(helm.installed) == 2


async def test_a_chart_out_of_a_template_has_the_clusters_rights(
    working: World, reach: FakeReach, helm: FakeHelm
) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    assert helm.installed[0].impersonate_user == ""
    assert not [path for path in reach.kube.objects if path.startswith(BINDINGS)]


async def test_a_chart_that_is_written_out_in_place_is_confined_to_its_namespace(
    working: World, reach: FakeReach, helm: FakeHelm
) -> None:
    await furnish(working)
    await virtual_cluster(working, template=RELEASE)
    await ready(working, reach)
    assert helm.installed[0].impersonate_user == "service:deployer:demo-v-one"
    binding = reach.kube.objects[f"{BINDINGS}/service.sh:deployer"]
    assert [each["name"] for each in binding["subjects"]] == ["service:deployer:demo-v-one"]
    assert binding["roleRef"]["name"] == "admin"


async def test_t22_a_repository_inside_is_not_asked(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    reach.blocked.add("charts.example")
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "RepositoryUnreachable"))
    assert helm.installed == []


async def test_a_kubeconfig_is_waited_for(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    helm.content = b""
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterSynced") == ("False", "WaitingForKubeconfig"))
    await until(lambda: get_path(working.see(VC, "one"), "status.phase") == "Pending")
    reach.kube.put(f"{PLACE}/secrets/vc-one", data={"config": encoded(KUBECONFIG)})
    await ready(working, reach)
    assert len(helm.installed) == 1


async def test_t12_a_kubeconfig_that_runs_programs_is_not_taken(working: World, helm: FakeHelm) -> None:
    await furnish(working)
    helm.content = KUBECONFIG.replace(b"token: inner-token", b"exec: {command: evil}")
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterSynced") == ("False", "InvalidKubeconfig"))
    assert working.see("Secret", "vc-one-kubeconfig") is None


async def test_somebody_elses_secret_is_not_overwritten(working: World) -> None:
    await furnish(working)
    await working.create("Secret", "vc-one-kubeconfig", data={"config": encoded(b"mine")})
    await from_template(working)
    await until(lambda: told(working, VC, "VirtualClusterSynced") == ("False", "SecretConflict"))
    assert (working.see("Secret", "vc-one-kubeconfig") or {})["data"] == {"config": encoded(b"mine")}


async def test_a_changed_kubeconfig_is_taken_over(working: World, reach: FakeReach) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    new = KUBECONFIG.replace(b"inner-token", b"next-token")
    reach.kube.objects[f"{PLACE}/secrets/vc-one"]["data"]["config"] = encoded(new)
    await until(lambda: (working.see("Secret", "vc-one-kubeconfig") or {})["data"]["config"] == encoded(new))


async def test_a_namespace_that_was_deleted_is_made_again_with_all_that_was_deployed(
    working: World, reach: FakeReach, helm: FakeHelm
) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    helm.fails = True
    reach.kube.asked("DELETE", PLACE)
    await until(lambda: told(working, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    helm.fails = False
    await until(lambda: told(working, VC, "VirtualClusterDeployed")[0] == "True")
    assert f"{PLACE}/secrets/vc-one" in reach.kube.objects
    found = [decode(each) for each in working.view.entries("", "events", "demo")]
    assert [each["message"] for each in found if each["reason"] == "NamespaceDeleted"]


async def test_deletion_uninstalls_and_removes_the_namespace(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    reach.kube.slow_to_go = True
    await working.delete(VC, "one")
    await until(lambda: told(working, VC, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(RESYNC_SECONDS)
    assert [each.name for each in helm.removed] == ["one"]
    reach.kube.finish()
    await until(lambda: working.see(VC, "one") is None)
    assert reach.kube.objects == {}


async def test_deletion_waits_for_an_offline_cluster_until_it_is_given_up(working: World, reach: FakeReach) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    reach.down = Unreachable("nobody answers")
    await working.delete(VC, "one")
    await until(lambda: told(working, VC, "SpaceSynced") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in message(working, VC, "SpaceSynced")
    await working.patch(VC, "one", lambda each: each["metadata"].update(annotations={"service.sh/abandon": "true"}))
    await until(lambda: working.see(VC, "one") is None)


async def test_deletion_goes_on_without_helm(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    helm.missing = True
    await working.delete(VC, "one")
    await until(lambda: working.see(VC, "one") is None)
    assert reach.kube.objects == {}


async def test_a_namespace_is_known_by_what_survives_a_move(working: World, reach: FakeReach) -> None:
    await furnish(working)
    await from_template(working)
    await ready(working, reach)
    seen = working.see(VC, "one")
    assert labels(reach.kube.objects[PLACE])["service.sh/uid"] == get_path(seen, "status.serviceUID")


@pytest.mark.parametrize("namespace", ["../kube-system", "UPPER", ".."])
async def test_a_finalizer_set_by_hand_reaches_nothing(working: World, reach: FakeReach, namespace: str) -> None:
    await furnish(working)
    spec = {"clusterRef": {"cluster": "c", "namespace": namespace}, "external": True}
    await working.create(VC, "one", spec=spec, metadata={"finalizers": ["service.sh/virtual-cluster"]})
    await working.delete(VC, "one")
    await until(lambda: working.see(VC, "one") is None)
    assert reach.kube.log == []


async def test_events_about_failures_are_warnings(working: World, reach: FakeReach, helm: FakeHelm) -> None:
    def events() -> set[tuple[str, str]]:
        seen = [working.see("Event", name) or {} for name in working.names("Event")]
        return {(each["type"], each["reason"]) for each in seen}

    await furnish(working)
    helm.missing = True
    await from_template(working)
    await until(lambda: ("Warning", "HelmNotFound") in events())
    helm.missing, helm.content = False, b""
    await until(lambda: ("Normal", "WaitingForKubeconfig") in events(), 300)
    helm.content = KUBECONFIG
    reach.kube.put(f"{PLACE}/secrets/vc-one", data={"config": encoded(KUBECONFIG)})
    await until(lambda: ("Warning", "Unreachable") in events(), 300)
    reach.virtual_down = None
    await until(lambda: ("Normal", "Usable") in events(), 300)
