"""Tests of `fairlead.controllers.instances.confinement`: an untrusted template has only the rights of the owner."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.templates import mark_trusted_templates
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import ADA, RegistryFixture, open_registry
from tests.harness.remote import (
    INSTANCE_CONFIG,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    get_labels,
)

SPACE, TEMPLATE = "SpaceInstance", "SpaceTemplate"
NAMESPACE_PATH = "/api/v1/namespaces/demo-one"
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
async def server(access: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(mark_trusted_templates(GROUP),)) as api:
        await create_cluster(api)
        async with running_controllers(
            api,
            InstanceTemplateController(api.registry, INSTANCE_CONFIG),
            build_space_controller(api, access),
        ):
            yield api


async def create_space(api: RegistryFixture, **spec: Any) -> Object:
    return await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, **spec})


async def create_from_template(api: RegistryFixture, user: User = ROOT, **template: Any) -> None:
    await api.submit(TEMPLATE, api.build_object(TEMPLATE, "t", spec={"template": template}), WriteOptions(user))
    await create_space(api, templateRef={"name": "t"})


async def update_spec(api: RegistryFixture, kind: str, name: str, user: User = ADA, **spec: Any) -> None:
    await api.patch(kind, name, lambda obj: obj["spec"].update(spec), WriteOptions(user))


async def set_trust_annotation(api: RegistryFixture, trusted: str | None, user: User = ROOT) -> None:
    await api.patch(
        TEMPLATE, "t", lambda obj: obj["metadata"].update(annotations=trust_annotation(trusted)), WriteOptions(user)
    )


def trust_annotation(trusted: str | None) -> Object:
    return {} if trusted is None else {"service.sh/trusted": trusted}


async def wait_until_ready(api: RegistryFixture) -> None:
    await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("True", "Synced"))


async def wait_for_failure(api: RegistryFixture, reason: str) -> str:
    await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("False", reason))
    return condition_message(api, SPACE, "SpaceSynced")


def template_objects(kube: FakeKube) -> set[str]:
    """The paths of the objects from templates: all but the namespace and the server's own bindings."""
    return {path for path in kube.objects if path != NAMESPACE_PATH and not path.startswith(f"{BINDINGS}/service.sh:")}


async def test_allowed_objects_of_an_inline_template_are_created_by_the_deployer(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(server, template={"objects": f"{CONFIG_MAP}\n---\n{BINDING.replace('ROLE', 'edit')}"})
    await wait_until_ready(server)
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/configmaps/greeting", f"{BINDINGS}/mine"}
    assert {user for user, _, _ in kube.impersonated_requests} == {DEPLOYER}
    subjects = kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"]
    assert DEPLOYER in {subject["name"] for subject in subjects}
    assert get_path(server.get(SPACE, "one"), "status.templateTrust") == "Confined"


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (POD, "AdmissionDenied", "violates PodSecurity"),
        (BINDING.replace("ROLE", "cluster-admin"), "OwnerForbidden", "attempting to grant RBAC permissions"),
        (QUOTA, "OwnerForbidden", 'cannot patch resource "resourcequotas"'),
        (CRD, "InvalidTemplateObjects", "is cluster-scoped"),
    ],
)
async def test_objects_that_the_owner_cannot_create_are_rejected(
    server: RegistryFixture, kube: FakeKube, text: str, reason: str, expected: str
) -> None:
    await create_space(server, template={"objects": text})
    assert expected in await wait_for_failure(server, reason)
    assert template_objects(kube) == set()


@pytest.mark.parametrize("text", [POD, BINDING.replace("ROLE", "cluster-admin"), QUOTA])
async def test_an_administrators_template_has_the_rights_of_the_stored_credential(
    server: RegistryFixture, kube: FakeKube, text: str
) -> None:
    await create_from_template(server, objects=text)
    await wait_until_ready(server)
    assert len(template_objects(kube)) == 1
    assert kube.impersonated_requests == []
    assert ENFORCE not in get_labels(kube.objects[NAMESPACE_PATH])


async def test_a_template_of_another_user_is_confined_until_it_is_trusted(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_from_template(server, user=ADA, objects=QUOTA)
    await wait_for_failure(server, "OwnerForbidden")
    await set_trust_annotation(server, "true")
    await wait_until_ready(server)
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/resourcequotas/limit"}


async def test_an_object_of_others_is_not_deleted_because_a_template_named_it(
    server: RegistryFixture, kube: FakeKube
) -> None:
    """The deployer could not create it; an administrator's template without it must not delete it either."""
    await create_space(server, templateRef={"name": "t"})
    body = server.build_object(TEMPLATE, "t", spec={"template": {"objects": f"{QUOTA}\n---\n{CONFIG_MAP}"}})
    await server.submit(TEMPLATE, body, WriteOptions(ADA))
    kube.objects[f"{NAMESPACE_PATH}/resourcequotas/limit"] = {"metadata": {"name": "limit", "uid": "theirs"}}
    await wait_for_failure(server, "OwnerForbidden")
    await server.submit(TEMPLATE, server.build_object(TEMPLATE, "other", spec={"template": {}}), WriteOptions(ROOT))
    await update_spec(server, SPACE, "one", templateRef={"name": "other"})
    await wait_until_ready(server)
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.templateApplied") == "Trusted")
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/resourcequotas/limit"}


async def test_labels_and_annotations_that_are_not_allowed_are_left_out(
    server: RegistryFixture, kube: FakeKube
) -> None:
    allowed, rejected = {"tenant.service.sh/x": "1"}, {ENFORCE: "privileged", "istio-injection": "enabled"}
    template = {
        "metadata": {"labels": {**allowed, **rejected}, "annotations": {"linkerd.io/inject": "enabled", **allowed}}
    }
    await create_space(server, template=template)
    await wait_until_ready(server)
    metadata = kube.objects[NAMESPACE_PATH]["metadata"]
    assert metadata["annotations"] == allowed
    assert {key: value for key, value in metadata["labels"].items() if not key.startswith("service.sh/")} == {
        **allowed,
        ENFORCE: "baseline",
    }
    message = condition_message(server, SPACE, "SpaceSynced")
    assert "istio-injection, linkerd.io/inject, pod-security.kubernetes.io/enforce" in message
    assert "space_metadata" in message


async def test_a_label_set_by_others_in_the_cluster_is_kept(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    await wait_until_ready(server)
    kube.edit_object(NAMESPACE_PATH, lambda obj: obj["metadata"]["labels"].update({ENFORCE: "restricted"}))
    managed = kube.objects[NAMESPACE_PATH]["metadata"]["managedFields"]
    del managed[0]["fieldsV1"]["f:metadata"]["f:labels"][f"f:{ENFORCE}"]
    await update_spec(server, SPACE, "one", displayName="another")
    await eventually(lambda: kube.request_log.count(("PATCH", NAMESPACE_PATH)) >= 2)
    assert get_labels(kube.objects[NAMESPACE_PATH])[ENFORCE] == "restricted"


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"access": {"defaultClusterRole": "cluster-admin"}}},
        {"template": {"access": {"rules": [{"users": ["ada"], "clusterRole": "cluster-admin"}]}}},
        {"extraAccessRules": [{"users": ["ada"], "clusterRole": "cluster-admin"}]},
    ],
)
async def test_roles_that_are_not_in_the_setting_are_not_bound(
    server: RegistryFixture, kube: FakeKube, spec: Object
) -> None:
    await create_space(server, **spec)
    await wait_until_ready(server)
    assert [path for path in kube.objects if path.startswith(BINDINGS)] == [f"{BINDINGS}/service.sh:admin"]
    assert "space_roles does not list (cluster-admin)" in condition_message(server, SPACE, "SpaceSynced")


async def test_the_deployer_has_no_more_permissions_than_the_owner(server: RegistryFixture, kube: FakeKube) -> None:
    access = {"rules": [{"users": ["ada"], "clusterRole": "view"}]}
    await create_space(server, template={"access": access, "objects": CONFIG_MAP})
    assert 'cannot patch resource "configmaps"' in await wait_for_failure(server, "OwnerForbidden")


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ({"user": "missing"}, "OwnerNotFound"),
        ({"team": "missing"}, "OwnerNotFound"),
        ({"user": "off"}, "OwnerDisabled"),
    ],
)
async def test_nothing_is_created_for_a_missing_or_disabled_owner(
    server: RegistryFixture, kube: FakeKube, owner: Object, reason: str
) -> None:
    await server.create("User", "off", spec={"disabled": True})
    await create_space(server, owner=owner, template={"objects": CONFIG_MAP})
    assert "spec.owner" in await wait_for_failure(server, reason)
    assert template_objects(kube) == set()


async def test_a_team_can_be_the_owner(server: RegistryFixture, kube: FakeKube) -> None:
    await server.create("Team", "web", spec={})
    await create_space(server, owner={"team": "web"}, template={"objects": CONFIG_MAP})
    await wait_until_ready(server)
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/configmaps/greeting"}


async def test_no_objects_are_created_without_permission_to_impersonate(
    server: RegistryFixture, kube: FakeKube
) -> None:
    kube.can_impersonate = False
    await create_space(server, template={"objects": CONFIG_MAP})
    assert "may not impersonate" in await wait_for_failure(server, "ImpersonationForbidden")
    assert template_objects(kube) == set()


async def test_requests_are_retried_until_a_new_binding_is_effective(server: RegistryFixture, kube: FakeKube) -> None:
    """The authorizer of a real cluster takes a moment to see a new binding."""
    kube.stale_rbac_requests = 2
    await create_space(server, template={"objects": CONFIG_MAP})
    await wait_until_ready(server)
    assert kube.impersonated_requests[:3] == [(DEPLOYER, "PATCH", f"{NAMESPACE_PATH}/configmaps/greeting")] * 3
    events = [server.get("Event", name) or {} for name in server.list_names("Event")]
    assert {event["type"] for event in events} <= {"Normal"}


@pytest.mark.parametrize("spec", [{"templateRef": None, "template": {}}, {"templateRef": {"name": "other"}}])
async def test_objects_of_an_administrators_template_are_not_replaced_by_an_untrusted_one(
    server: RegistryFixture, kube: FakeKube, spec: Object
) -> None:
    await create_from_template(server, objects=QUOTA, metadata={"labels": {ENFORCE: "restricted"}})
    await wait_until_ready(server)
    await server.create(TEMPLATE, "other", spec={"template": {}})
    await update_spec(server, SPACE, "one", **spec)
    assert "created from an administrator's template" in await wait_for_failure(server, "TemplateNotTrusted")
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/resourcequotas/limit"}
    assert get_labels(kube.objects[NAMESPACE_PATH])[ENFORCE] == "restricted"
    await update_spec(server, SPACE, "one", templateRef={"name": "t"}, template=None)
    await wait_until_ready(server)


async def test_an_edit_by_another_user_is_not_applied_with_an_administrators_rights(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await server.submit(
        TEMPLATE, server.build_object(TEMPLATE, "t", spec={"template": {"objects": CONFIG_MAP}}), WriteOptions(ROOT)
    )
    await create_space(server, templateRef={"name": "t", "version": "x.x.x"})
    await wait_until_ready(server)
    await update_spec(server, TEMPLATE, "t", template={"objects": QUOTA})
    await wait_for_failure(server, "TemplateNotTrusted")
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/configmaps/greeting"}


async def test_an_object_that_the_owner_cannot_delete_is_not_deleted(server: RegistryFixture, kube: FakeKube) -> None:
    """A template names an object of the administrators of the cluster, and then no longer does."""
    kube.add_object(f"{NAMESPACE_PATH}/resourcequotas/limit")
    await create_space(server, template={"objects": QUOTA})
    await wait_for_failure(server, "OwnerForbidden")
    await update_spec(server, SPACE, "one", template={"objects": CONFIG_MAP})
    await wait_until_ready(server)
    assert f"{NAMESPACE_PATH}/resourcequotas/limit" in kube.objects
    assert "ResourceQuota limit of a former template were kept" in condition_message(server, SPACE, "SpaceSynced")


async def test_a_template_without_a_trust_annotation_creates_nothing_new(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_from_template(server, objects=QUOTA)
    await wait_until_ready(server)
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    await remove_trust_annotation(server)
    await create_space(server, templateRef={"name": "t"})
    assert "kubectl annotate spacetemplate t service.sh/trusted=true" in await wait_for_failure(
        server, "TemplateNotTrusted"
    )
    assert kube.objects == {}
    await set_trust_annotation(server, "true")
    await wait_until_ready(server)
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/resourcequotas/limit"}


async def test_an_existing_space_of_a_template_without_a_trust_annotation_is_kept(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_from_template(server, objects=QUOTA, metadata={"labels": {ENFORCE: "restricted", "tier": "gold"}})
    await wait_until_ready(server)
    await remove_trust_from_status(server)
    await remove_trust_annotation(server)
    await eventually(lambda: "kubectl annotate spacetemplate t" in condition_message(server, SPACE, "SpaceSynced"))
    assert condition_status(server, SPACE, "SpaceSynced") == ("True", "Synced")
    assert template_objects(kube) == {f"{NAMESPACE_PATH}/resourcequotas/limit"}
    assert (get_labels(kube.objects[NAMESPACE_PATH])[ENFORCE], get_labels(kube.objects[NAMESPACE_PATH])["tier"]) == (
        "restricted",
        "gold",
    )
    kube.handle_request("DELETE", NAMESPACE_PATH)
    assert "was deleted, and is not created again" in await wait_for_failure(server, "TemplateNotTrusted")


async def remove_trust_annotation(api: RegistryFixture) -> None:
    """Makes the template look like one that was stored by an earlier version."""
    await api.patch(TEMPLATE, "t", lambda obj: obj["metadata"].pop("annotations"), server_write_options())


async def remove_trust_from_status(api: RegistryFixture) -> None:
    def remove_fields(obj: Object) -> None:
        for field in ("templateTrust", "templateApplied"):
            obj["status"].pop(field)

    await api.patch(SPACE, "one", remove_fields, server_write_options("status"))


@pytest.mark.parametrize("text", [CRD, BINDING.replace("mine", "service.sh:mine")])
async def test_an_invalid_object_does_not_block_after_it_is_removed_from_the_template(
    server: RegistryFixture, text: str
) -> None:
    await create_space(server, template={"objects": text})
    await wait_for_failure(server, "InvalidTemplateObjects")
    await update_spec(server, SPACE, "one", template={"objects": CONFIG_MAP})
    await wait_until_ready(server)
