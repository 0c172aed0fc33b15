"""What no administrator has settled is made in a cluster with no more rights than the owner of the space has there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.templates import mark_trusted_templates
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.fake_cluster.kube import Kube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import ADA, RegistryFixture, open_registry
from tests.harness.remote import (
    INSTANCE_CONFIG,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    labels,
)

SPACE, TEMPLATE = "SpaceInstance", "SpaceTemplate"
PLACE = "/api/v1/namespaces/demo-one"
RBAC = "rbac.authorization.k8s.io"
BINDINGS = f"/apis/{RBAC}/v1/namespaces/demo-one/rolebindings"
DEPLOYER = "service:deployer:demo-one"
ENFORCE = "pod-security.kubernetes.io/enforce"
ROOT = User("root", ("system:masters",))

CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {a: b}}"
QUOTA = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: limit}}"
POD = (
    "{apiVersion: v1, kind: Pod, metadata: {name: p}, "
    "spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}}"
)
BINDING = (
    f"{{apiVersion: {RBAC}/v1, kind: RoleBinding, metadata: {{name: mine}}, "
    f"roleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: ROLE}}, "
    f"subjects: [{{apiGroup: {RBAC}, kind: User, name: x}}]}}"
)
CRD = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b.c}}"


@pytest.fixture
async def working(reach: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(mark_trusted_templates(GROUP),)) as api:
        await create_cluster(api)
        async with running_controllers(
            api,
            InstanceTemplateController(api.registry, INSTANCE_CONFIG),
            SpaceController(api.registry, INSTANCE_CONFIG, reach),
        ):
            yield api


async def space(api: RegistryFixture, **spec: Any) -> Object:
    return await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, **spec})


async def from_template(api: RegistryFixture, by: User = ROOT, **template: Any) -> None:
    await api.submit(TEMPLATE, api.body(TEMPLATE, "t", spec={"template": template}), WriteOptions(by))
    await space(api, templateRef={"name": "t"})


async def change(api: RegistryFixture, kind: str, name: str, by: User = ADA, **spec: Any) -> None:
    await api.patch(kind, name, lambda each: each["spec"].update(spec), WriteOptions(by))


async def annotate(api: RegistryFixture, mark: str | None, by: User = ROOT) -> None:
    await api.patch(TEMPLATE, "t", lambda each: each["metadata"].update(annotations=marked(mark)), WriteOptions(by))


def marked(mark: str | None) -> Object:
    return {} if mark is None else {"service.sh/trusted": mark}


async def ready(api: RegistryFixture) -> None:
    await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("True", "Synced"))


async def refused(api: RegistryFixture, reason: str) -> str:
    await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("False", reason))
    return condition_message(api, SPACE, "SpaceSynced")


def objects(kube: Kube) -> set[str]:
    """What was made of a template: all but the namespace and our own bindings."""
    return {path for path in kube.objects if path != PLACE and not path.startswith(f"{BINDINGS}/service.sh:")}


async def test_honest_objects_of_a_template_in_place_are_made_by_the_deployer(
    working: RegistryFixture, kube: Kube
) -> None:
    await space(working, template={"objects": f"{CONFIG_MAP}\n---\n{BINDING.replace('ROLE', 'edit')}"})
    await ready(working)
    assert objects(kube) == {f"{PLACE}/configmaps/greeting", f"{BINDINGS}/mine"}
    assert {user for user, _, _ in kube.acted} == {DEPLOYER}
    subjects = kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"]
    assert DEPLOYER in {each["name"] for each in subjects}
    assert get_path(working.see(SPACE, "one"), "status.templateTrust") == "Confined"


@pytest.mark.parametrize(
    ("text", "reason", "why"),
    [
        (POD, "AdmissionDenied", "violates PodSecurity"),
        (BINDING.replace("ROLE", "cluster-admin"), "OwnerForbidden", "attempting to grant RBAC permissions"),
        (QUOTA, "OwnerForbidden", 'cannot patch resource "resourcequotas"'),
        (CRD, "InvalidTemplateObjects", "is cluster-scoped"),
    ],
)
async def test_what_the_owner_may_not_make_is_refused(
    working: RegistryFixture, kube: Kube, text: str, reason: str, why: str
) -> None:
    await space(working, template={"objects": text})
    assert why in await refused(working, reason)
    assert objects(kube) == set()


@pytest.mark.parametrize("text", [POD, BINDING.replace("ROLE", "cluster-admin"), QUOTA])
async def test_an_administrators_template_has_the_rights_of_the_stored_credential(
    working: RegistryFixture, kube: Kube, text: str
) -> None:
    await from_template(working, objects=text)
    await ready(working)
    assert len(objects(kube)) == 1
    assert kube.acted == []
    assert ENFORCE not in labels(kube.objects[PLACE])


async def test_a_template_that_somebody_else_wrote_is_none_of_an_administrator(
    working: RegistryFixture, kube: Kube
) -> None:
    await from_template(working, by=ADA, objects=QUOTA)
    await refused(working, "OwnerForbidden")
    await annotate(working, "true")
    await ready(working)
    assert objects(kube) == {f"{PLACE}/resourcequotas/limit"}


async def test_what_others_had_made_is_not_removed_for_a_template_that_named_it(
    working: RegistryFixture, kube: Kube
) -> None:
    """The deployer was refused it; an administrator's template, which does not have it, must not delete it either."""
    await space(working, templateRef={"name": "t"})
    body = working.body(TEMPLATE, "t", spec={"template": {"objects": f"{QUOTA}\n---\n{CONFIG_MAP}"}})
    await working.submit(TEMPLATE, body, WriteOptions(ADA))
    kube.objects[f"{PLACE}/resourcequotas/limit"] = {"metadata": {"name": "limit", "uid": "theirs"}}
    await refused(working, "OwnerForbidden")
    await working.submit(TEMPLATE, working.body(TEMPLATE, "other", spec={"template": {}}), WriteOptions(ROOT))
    await change(working, SPACE, "one", templateRef={"name": "other"})
    await ready(working)
    await eventually(lambda: get_path(working.see(SPACE, "one"), "status.templateApplied") == "Trusted")
    assert objects(kube) == {f"{PLACE}/resourcequotas/limit"}


async def test_labels_and_annotations_that_mean_something_to_others_are_left_out(
    working: RegistryFixture, kube: Kube
) -> None:
    own, foreign = {"tenant.service.sh/x": "1"}, {ENFORCE: "privileged", "istio-injection": "enabled"}
    template = {"metadata": {"labels": {**own, **foreign}, "annotations": {"linkerd.io/inject": "enabled", **own}}}
    await space(working, template=template)
    await ready(working)
    found = kube.objects[PLACE]["metadata"]
    assert found["annotations"] == own
    assert {key: value for key, value in found["labels"].items() if not key.startswith("service.sh/")} == {
        **own,
        ENFORCE: "baseline",
    }
    said = condition_message(working, SPACE, "SpaceSynced")
    assert "istio-injection, linkerd.io/inject, pod-security.kubernetes.io/enforce" in said
    assert "space_metadata" in said


async def test_a_label_of_before_goes_and_one_that_the_cluster_has_set_stays(
    working: RegistryFixture, kube: Kube
) -> None:
    await space(working)
    await ready(working)
    kube.edit(PLACE, lambda each: each["metadata"]["labels"].update({ENFORCE: "restricted"}))
    managed = kube.objects[PLACE]["metadata"]["managedFields"]
    del managed[0]["fieldsV1"]["f:metadata"]["f:labels"][f"f:{ENFORCE}"]
    await change(working, SPACE, "one", displayName="another")
    await eventually(lambda: kube.log.count(("PATCH", PLACE)) >= 2)
    assert labels(kube.objects[PLACE])[ENFORCE] == "restricted"


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"access": {"defaultClusterRole": "cluster-admin"}}},
        {"template": {"access": {"rules": [{"users": ["ada"], "clusterRole": "cluster-admin"}]}}},
        {"extraAccessRules": [{"users": ["ada"], "clusterRole": "cluster-admin"}]},
    ],
)
async def test_roles_that_no_setting_lists_are_not_given(working: RegistryFixture, kube: Kube, spec: Object) -> None:
    await space(working, **spec)
    await ready(working)
    assert [path for path in kube.objects if path.startswith(BINDINGS)] == [f"{BINDINGS}/service.sh:admin"]
    assert "space_roles does not list (cluster-admin)" in condition_message(working, SPACE, "SpaceSynced")


async def test_the_deployer_has_no_more_than_the_owner(working: RegistryFixture, kube: Kube) -> None:
    access = {"rules": [{"users": ["ada"], "clusterRole": "view"}]}
    await space(working, template={"access": access, "objects": CONFIG_MAP})
    assert 'cannot patch resource "configmaps"' in await refused(working, "OwnerForbidden")


@pytest.mark.parametrize(
    ("owner", "reason"),
    [({"user": "nobody"}, "OwnerNotFound"), ({"team": "nobody"}, "OwnerNotFound"), ({"user": "off"}, "OwnerDisabled")],
)
async def test_an_owner_who_could_not_act_has_nothing_made(
    working: RegistryFixture, kube: Kube, owner: Object, reason: str
) -> None:
    await working.create("User", "off", spec={"disabled": True})
    await space(working, owner=owner, template={"objects": CONFIG_MAP})
    assert "spec.owner" in await refused(working, reason)
    assert objects(kube) == set()


async def test_a_team_can_be_the_owner(working: RegistryFixture, kube: Kube) -> None:
    await working.create("Team", "web", spec={})
    await space(working, owner={"team": "web"}, template={"objects": CONFIG_MAP})
    await ready(working)
    assert objects(kube) == {f"{PLACE}/configmaps/greeting"}


async def test_a_cluster_that_allows_no_impersonation_gets_no_objects(working: RegistryFixture, kube: Kube) -> None:
    kube.may_impersonate = False
    await space(working, template={"objects": CONFIG_MAP})
    assert "may not impersonate" in await refused(working, "ImpersonationForbidden")
    assert objects(kube) == set()


async def test_rights_that_were_bound_a_moment_ago_are_waited_for(working: RegistryFixture, kube: Kube) -> None:
    """Authorizers of a real cluster take a moment to hear of a new binding."""
    kube.deaf_for = 2
    await space(working, template={"objects": CONFIG_MAP})
    await ready(working)
    assert kube.acted[:3] == [(DEPLOYER, "PATCH", f"{PLACE}/configmaps/greeting")] * 3
    seen = [working.see("Event", name) or {} for name in working.names("Event")]
    assert {each["type"] for each in seen} <= {"Normal"}


@pytest.mark.parametrize("after", [{"templateRef": None, "template": {}}, {"templateRef": {"name": "other"}}])
async def test_what_an_administrators_template_made_does_not_become_anothers(
    working: RegistryFixture, kube: Kube, after: Object
) -> None:
    await from_template(working, objects=QUOTA, metadata={"labels": {ENFORCE: "restricted"}})
    await ready(working)
    await working.create(TEMPLATE, "other", spec={"template": {}})
    await change(working, SPACE, "one", **after)
    assert "created from an administrator's template" in await refused(working, "TemplateNotTrusted")
    assert objects(kube) == {f"{PLACE}/resourcequotas/limit"}
    assert labels(kube.objects[PLACE])[ENFORCE] == "restricted"
    await change(working, SPACE, "one", templateRef={"name": "t"}, template=None)
    await ready(working)


async def test_an_edit_of_somebody_else_is_not_applied_with_an_administrators_rights(
    working: RegistryFixture, kube: Kube
) -> None:
    await working.submit(
        TEMPLATE, working.body(TEMPLATE, "t", spec={"template": {"objects": CONFIG_MAP}}), WriteOptions(ROOT)
    )
    await space(working, templateRef={"name": "t", "version": "x.x.x"})
    await ready(working)
    await change(working, TEMPLATE, "t", template={"objects": QUOTA})
    await refused(working, "TemplateNotTrusted")
    assert objects(kube) == {f"{PLACE}/configmaps/greeting"}


async def test_what_an_owner_may_not_delete_is_not_deleted_for_him(working: RegistryFixture, kube: Kube) -> None:
    """Somebody names an object of the cluster's administrators in a template, and leaves it out again."""
    kube.put(f"{PLACE}/resourcequotas/limit")
    await space(working, template={"objects": QUOTA})
    await refused(working, "OwnerForbidden")
    await change(working, SPACE, "one", template={"objects": CONFIG_MAP})
    await ready(working)
    assert f"{PLACE}/resourcequotas/limit" in kube.objects
    assert "ResourceQuota limit of a former template were kept" in condition_message(working, SPACE, "SpaceSynced")


async def test_a_template_from_before_there_were_marks_makes_nothing_new(working: RegistryFixture, kube: Kube) -> None:
    await from_template(working, objects=QUOTA)
    await ready(working)
    await working.delete(SPACE, "one")
    await eventually(lambda: working.see(SPACE, "one") is None)
    await take_mark_off(working)
    await space(working, templateRef={"name": "t"})
    assert "kubectl annotate spacetemplate t service.sh/trusted=true" in await refused(working, "TemplateNotTrusted")
    assert kube.objects == {}
    await annotate(working, "true")
    await ready(working)
    assert objects(kube) == {f"{PLACE}/resourcequotas/limit"}


async def test_a_space_from_before_there_were_marks_goes_on_as_it_is(working: RegistryFixture, kube: Kube) -> None:
    await from_template(working, objects=QUOTA, metadata={"labels": {ENFORCE: "restricted", "tier": "gold"}})
    await ready(working)
    await forget_trust(working)
    await take_mark_off(working)
    await eventually(lambda: "kubectl annotate spacetemplate t" in condition_message(working, SPACE, "SpaceSynced"))
    assert condition_status(working, SPACE, "SpaceSynced") == ("True", "Synced")
    assert objects(kube) == {f"{PLACE}/resourcequotas/limit"}
    assert (labels(kube.objects[PLACE])[ENFORCE], labels(kube.objects[PLACE])["tier"]) == ("restricted", "gold")
    kube.asked("DELETE", PLACE)
    assert "was deleted, and is not created again" in await refused(working, "TemplateNotTrusted")


async def take_mark_off(api: RegistryFixture) -> None:
    """As a template is that was stored by an earlier version."""
    await api.patch(TEMPLATE, "t", lambda each: each["metadata"].pop("annotations"), server_write_options())


async def forget_trust(api: RegistryFixture) -> None:
    def forget(each: Object) -> None:
        for field in ("templateTrust", "templateApplied"):
            each["status"].pop(field)

    await api.patch(SPACE, "one", forget, server_write_options("status"))


@pytest.mark.parametrize("text", [CRD, BINDING.replace("mine", "service.sh:mine")])
async def test_what_could_never_be_made_is_not_in_the_way_once_it_is_gone(working: RegistryFixture, text: str) -> None:
    await space(working, template={"objects": text})
    await refused(working, "InvalidTemplateObjects")
    await change(working, SPACE, "one", template={"objects": CONFIG_MAP})
    await ready(working)
