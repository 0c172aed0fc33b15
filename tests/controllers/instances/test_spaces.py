"""Spaces in connected clusters: what is made there, put right, and removed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.remote_instance import DELETION_POLL_SECONDS, RemoteInstanceStore
from fairlead.controllers.instances.spaces import RESYNC_SECONDS, SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import Kube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    labels,
    set_online,
)

SPACE = "SpaceInstance"
PLACE = "/api/v1/namespaces/demo-one"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-one/rolebindings"
TIER, NOTE = "tenant.service.sh/tier", "tenant.service.sh/note"
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {hello: world}
"""


@pytest.fixture
async def working(api: RegistryFixture, reach: FakeAccess) -> AsyncIterator[RegistryFixture]:
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    )
    async with running_controllers(api, *controllers):
        yield api


async def space(api: RegistryFixture, name: str = "one", **spec: Any) -> Object:
    ref = spec.pop("clusterRef", {"cluster": "c"})
    spec = {"owner": {"user": "ada"}, "clusterRef": ref, **spec}
    return await api.create(SPACE, name, spec=spec)


async def ready(api: RegistryFixture) -> None:
    await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))


async def test_a_space_gets_its_namespace(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    made = await space(working)
    await ready(working)
    assert labels(kube.objects[PLACE]) == {
        "pod-security.kubernetes.io/enforce": "baseline",
        "service.sh/managed": "fairlead",
        "service.sh/project": "demo",
        "service.sh/space": "one",
        "service.sh/uid": made["metadata"]["uid"],
    }
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Ready")
    seen = working.see(SPACE, "one")
    assert get_path(seen, "spec.clusterRef") == {"cluster": "c", "namespace": "demo-one"}
    assert get_path(seen, "metadata.finalizers") == ["service.sh/space"]
    assert get_path(seen, "status.online") is True


async def test_the_owner_gets_the_role_admin_in_it(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    binding = kube.objects[f"{BINDINGS}/service.sh:admin"]
    assert binding["roleRef"]["name"] == "admin"
    assert {(each["kind"], each["name"]) for each in binding["subjects"]} == {
        ("User", "fairlead:ada"),
        ("Group", "fairlead:service:user:ada"),
    }


async def test_without_a_real_cluster_nothing_is_written(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await working.create("Cluster", "paper", spec={})
    await space(working, clusterRef={"cluster": "paper"})
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "ClusterNotConnected"))
    await asyncio.sleep(2 * RESYNC_SECONDS)
    seen = working.see(SPACE, "one")
    assert get_path(seen, "status.phase") == "Pending"
    assert "finalizers" not in (seen or {})["metadata"]
    assert get_path(seen, "spec.clusterRef") == {"cluster": "paper"}
    assert condition_status(working, SPACE, "SpaceSynced") == (None, None)
    assert kube.log == []


async def test_a_cluster_that_is_connected_later_gets_its_spaces(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await working.delete("Cluster", "c")
    await space(working)
    await working.create("Cluster", "c", spec={})
    await asyncio.sleep(RESYNC_SECONDS)
    assert kube.objects == {}
    await working.patch("Cluster", "c", lambda each: each["spec"].update(config={"secretName": "kubeconfig"}))
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "ClusterNotProbed"))
    assert kube.log == []
    await set_online(working, True)
    await ready(working)


async def test_a_namespace_that_is_not_ours_is_never_taken_over(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    theirs = kube.put("/api/v1/namespaces/kube-system", metadata={"labels": {"team": "ops"}})
    await space(working, clusterRef={"cluster": "c", "namespace": "kube-system"})
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "NamespaceConflict"))
    assert "delete it there" in condition_message(working, SPACE, "SpaceSynced")
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Failed")
    await working.delete(SPACE, "one")
    await eventually(lambda: working.see(SPACE, "one") is None)
    assert kube.objects == {"/api/v1/namespaces/kube-system": theirs}
    assert labels(theirs) == {"team": "ops"}
    assert {method for method, _ in kube.log} == {"GET"}


async def test_two_spaces_do_not_share_a_namespace(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    first = await space(working)
    await ready(working)
    await space(working, "two", clusterRef={"cluster": "c", "namespace": "demo-one"})
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced", "two") == ("False", "NamespaceConflict"))
    await working.delete(SPACE, "two")
    await eventually(lambda: working.see(SPACE, "two") is None)
    assert labels(kube.objects[PLACE])["service.sh/uid"] == first["metadata"]["uid"]


async def test_drift_that_no_watch_tells_of_is_repaired_at_the_next_look(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    reach.way.broken = Unreachable("no watches here")
    await create_cluster(working)
    await space(working, template={"metadata": {"labels": {TIER: "gold"}}, "objects": CONFIG_MAP})
    await ready(working)
    kube.objects[PLACE]["metadata"]["labels"].update({TIER: "lead", "mine": "stays"})
    kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"] = []
    kube.put(f"{BINDINGS}/service.sh:gone", metadata={"labels": {"service.sh/managed": "fairlead"}})
    kube.put(f"{BINDINGS}/own", metadata={"labels": {}})
    del kube.objects[f"{PLACE}/configmaps/greeting"]
    await eventually(lambda: kube.objects[PLACE]["metadata"]["labels"][TIER] == "gold", 2 * RESYNC_SECONDS)
    await eventually(lambda: f"{PLACE}/configmaps/greeting" in kube.objects)
    assert kube.objects[PLACE]["metadata"]["labels"]["mine"] == "stays"
    assert kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"] != []
    assert f"{BINDINGS}/service.sh:gone" not in kube.objects
    assert f"{BINDINGS}/own" in kube.objects


async def test_a_namespace_that_somebody_deleted_comes_back(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    kube.slow_to_go = True
    kube.asked("DELETE", PLACE)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "NamespaceTerminating"))
    kube.finish()
    await ready(working)
    assert PLACE in kube.objects


async def test_a_template_sets_labels_but_none_of_ours(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    marks = {"service.sh/uid": "another", "service.sh/project": "other"}
    template = {"metadata": {"labels": {TIER: "gold", **marks}, "annotations": {NOTE: "n", **marks}}}
    made = await space(working, template=template)
    await ready(working)
    found = kube.objects[PLACE]["metadata"]
    assert (found["labels"][TIER], found["annotations"]) == ("gold", {NOTE: "n"})
    assert found["labels"]["service.sh/uid"] == made["metadata"]["uid"]
    assert found["labels"]["service.sh/project"] == "demo"


async def test_objects_come_and_go_with_the_template(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await space(working, template={"objects": CONFIG_MAP})
    await ready(working)
    at = f"{PLACE}/configmaps/greeting"
    assert kube.objects[at]["data"] == {"hello": "world"}
    other = CONFIG_MAP.replace("greeting", "other")
    await working.patch(SPACE, "one", lambda each: each["spec"].update(template={"objects": f"---\n{other}"}))
    await eventually(lambda: f"{PLACE}/configmaps/other" in kube.objects)
    await eventually(lambda: at not in kube.objects)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ("{", "document 1 is invalid"),
        ("kind: ConfigMap", "no valid apiVersion, kind and metadata.name"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: ../../x}}", "no valid apiVersion, kind and metadata.name"),
        ("{apiVersion: v1, kind: Gizmo, metadata: {name: x}}", "does not serve Gizmo of v1"),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: x}}", "is cluster-scoped"),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}}",
            "is cluster-scoped",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: kube-system}}",
            "is not in the namespace of the space",
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: 'service.sh:admin'}}",
            "reserved for the server",
        ),
    ],
)
async def test_a_template_reaches_nothing_outside_the_namespace(
    working: RegistryFixture, kube: Kube, objects: str, why: str
) -> None:
    await create_cluster(working)
    await space(working, template={"objects": objects})
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "InvalidTemplateObjects"))
    assert why in condition_message(working, SPACE, "SpaceSynced")
    assert not [path for path in kube.objects if not path.startswith((PLACE, BINDINGS))]
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Failed")


async def test_an_object_that_is_refused_keeps_no_other_from_being_made(working: RegistryFixture, kube: Kube) -> None:
    """Nor from being removed when the template drops it."""
    await create_cluster(working)
    kube.refused["/configmaps/refused"] = 422
    one, refused, other = (CONFIG_MAP.replace("greeting", name) for name in ("one", "refused", "other"))
    await space(working, template={"objects": "---".join((one, refused, other))})
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Refused"))
    assert "as the test wants it" in condition_message(working, SPACE, "SpaceSynced")
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Failed")
    assert {f"{PLACE}/configmaps/one", f"{PLACE}/configmaps/other"} <= kube.objects.keys()
    kube.refused.clear()
    await working.patch(SPACE, "one", lambda each: each["spec"].update(template={"objects": one}))
    await ready(working)
    await eventually(lambda: f"{PLACE}/configmaps/other" not in kube.objects)
    assert f"{PLACE}/configmaps/one" in kube.objects


async def test_a_space_waits_until_its_namespace_is_gone(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    kube.slow_to_go = True
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(RESYNC_SECONDS)
    assert working.see(SPACE, "one") is not None
    assert [entry for entry in kube.log if entry == ("DELETE", PLACE)] == [("DELETE", PLACE)]
    kube.finish()
    await eventually(lambda: working.see(SPACE, "one") is None)
    assert kube.objects == {}


async def test_an_offline_cluster_is_said_and_heals(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    reach.down = Unreachable("nobody answers")
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Pending")
    reach.down = None
    await ready(working)
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.phase") == "Ready")


async def test_only_a_namespace_that_was_made_may_be_usable_while_nobody_can_tell(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    """The agent of a cluster lets people into a space whose SpaceReady is True or Unknown."""
    await create_cluster(working)
    reach.down = Unreachable("nobody answers")
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    assert condition_status(working, SPACE, "SpaceReady") == (None, None)
    reach.down = None
    await ready(working)
    reach.down = Unreachable("nobody answers")
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("Unknown", "Unreachable"))
    reach.down = None
    labels(reach.kube.objects[PLACE])["service.sh/uid"] = "another"
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("False", "NamespaceConflict"))


async def test_deletion_waits_for_an_offline_cluster_until_it_is_given_up(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    reach.down = Unreachable("nobody answers")
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in condition_message(working, SPACE, "SpaceSynced")
    await asyncio.sleep(10 * RESYNC_SECONDS)
    assert working.see(SPACE, "one") is not None
    await working.patch(SPACE, "one", lambda each: each["metadata"].update(annotations={"service.sh/abandon": "true"}))
    await eventually(lambda: working.see(SPACE, "one") is None)
    assert PLACE in reach.kube.objects


async def test_a_cluster_that_was_removed_holds_no_space_back(working: RegistryFixture, reach: FakeAccess) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    reach.down = Unreachable("nobody answers")
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    await working.delete("Cluster", "c")
    await eventually(lambda: working.see(SPACE, "one") is None)


async def test_a_credential_without_rights_is_said_without_what_the_cluster_wrote(
    working: RegistryFixture, kube: Kube
) -> None:
    await create_cluster(working)
    kube.refused["/namespaces"] = 403
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Forbidden"))
    assert "grant that permission" in condition_message(working, SPACE, "SpaceSynced")
    assert "as the test wants it" not in condition_message(working, SPACE, "SpaceSynced")


async def test_an_unusable_cluster_gets_no_new_spaces(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await working.patch("Cluster", "c", lambda each: each["spec"].update(unusable=True))
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "ClusterUnusable"))
    assert kube.log == []
    await working.patch("Cluster", "c", lambda each: each["spec"].update(unusable=False))
    await ready(working)


async def test_the_projects_pattern_names_the_namespace(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working, namespacePattern={"space": "team-{{ project }}-{{name}}-x"})
    await space(working)
    await ready(working)
    assert "/api/v1/namespaces/team-demo-one-x" in kube.objects


@pytest.mark.parametrize("pattern", ["{{ nobody }}", "UPPER", "-{{ name }}"])
async def test_a_pattern_that_makes_no_name_is_said(working: RegistryFixture, pattern: str) -> None:
    await create_cluster(working, namespacePattern={"space": pattern})
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "InvalidNamespacePattern"))


async def test_probes_of_a_cluster_wake_no_spaces(working: RegistryFixture, kube: Kube) -> None:
    await create_cluster(working)
    await space(working)
    await ready(working)
    await asyncio.sleep(5)
    before = len(kube.log)

    def probed(cluster: Object) -> None:
        cluster.setdefault("status", {})["lastProbeTime"] = "2026-01-01T00:00:00Z"

    await working.patch("Cluster", "c", probed, server_write_options("status"))
    await asyncio.sleep(5)
    assert get_path(working.see("Cluster", "c"), "status.lastProbeTime")
    assert len(kube.log) == before


async def test_nothing_is_applied_from_what_was_resolved_before_a_change(
    api: RegistryFixture, reach: FakeAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_cluster(api)
    await space(api, template={"objects": CONFIG_MAP})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: get_path(api.see(SPACE, "one"), "status.space"))
    controller = SpaceController(api.registry, INSTANCE_CONFIG, reach)
    outdated = api.see(SPACE, "one")
    await api.patch(SPACE, "one", lambda each: each["spec"].update(template={}))
    monkeypatch.setattr(RemoteInstanceStore, "get_managed", lambda self, key: outdated)
    assert await controller.reconcile((GROUP, "spaceinstances", "demo", "one")) == DELETION_POLL_SECONDS
    assert kube.log == []
