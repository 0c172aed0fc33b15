"""A real cluster lets a template that is no administrator's do what the owner of a space may do there, and no more."""

import json
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, merge_patch, post_object
from tests.reference.connected_cluster import CLUSTER, World, condition

PROJECT = "confined"
NAMESPACE = f"service-p-{PROJECT}"
SPACES = f"{M}/namespaces/{NAMESPACE}/spaceinstances"
ENFORCE = "pod-security.kubernetes.io/enforce"
RBAC = "rbac.authorization.k8s.io"


def config_map(name: str = "greeting") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def pod(**context: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "securityContext": context}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


def binding(role: str) -> dict[str, Any]:
    return {
        **{"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "mine"}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "x"}],
    }


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
CRD = {
    **{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"},
    "metadata": {"name": "gizmos.example.com"},
}
OWN_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {ENFORCE: "privileged"}}}
ROLE = {
    **{"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "all"}},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.fixture(scope="module")
def settled(world: World) -> World:
    with world.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": CLUSTER}])
        create_resource(admin, "users", "User", "olga")
    return world


def make_space(world: World, name: str, *objects: dict[str, Any], **spec: Any) -> None:
    template = {"objects": "\n---\n".join(map(json.dumps, objects)), **spec.pop("template", {})}
    wanted = {"owner": {"user": "olga"}, "clusterRef": {"cluster": CLUSTER}, "template": template, **spec}
    with world.server.client() as admin:
        body = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": name}}
        post_object(admin, SPACES, {**body, "spec": wanted})


def see(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.management().get_json("spaceinstance", name, "-n", NAMESPACE)
    return found


def synced(world: World, name: str) -> tuple[Any, Any]:
    found = condition(see(world, name), "SpaceSynced")
    return found.get("status"), found.get("reason")


def names(world: World, name: str, resource: str) -> set[str]:
    """What there is of a resource in the namespace of a space."""
    namespace = see(world, name)["spec"]["clusterRef"]["namespace"]
    return set(world.direct().get_names(resource, "-n", namespace))


@pytest.mark.parametrize(
    ("name", "obj", "reason", "shown"),
    [
        ("privileged", pod(privileged=True), "AdmissionDenied", "violates PodSecurity"),
        ("granting", binding("cluster-admin"), "OwnerForbidden", "attempting to grant RBAC permissions"),
        ("wide", ROLE, "OwnerForbidden", "attempting to grant RBAC permissions"),
        ("quota", QUOTA, "OwnerForbidden", 'cannot patch resource "resourcequotas"'),
        ("crd", CRD, "InvalidTemplateObjects", "is cluster-scoped"),
        ("relabelling", OWN_NAMESPACE, "InvalidTemplateObjects", "is cluster-scoped"),
    ],
)
def test_what_the_owner_may_not_make_is_refused(
    settled: World, name: str, obj: dict[str, Any], reason: str, shown: str
) -> None:
    make_space(settled, name, obj)
    wait_until(lambda: synced(settled, name) == ("False", reason), 60)
    assert shown in condition(see(settled, name), "SpaceSynced")["message"]
    if reason != "InvalidTemplateObjects":
        assert obj["metadata"]["name"] not in names(settled, name, obj["kind"].lower())


def test_labels_that_mean_something_to_the_cluster_are_left_out(settled: World) -> None:
    asked = {ENFORCE: "privileged", "istio-injection": "enabled", "tenant.service.sh/team": "web"}
    make_space(settled, "labelled", template={"metadata": {"labels": asked, "annotations": asked}})
    wait_until(lambda: synced(settled, "labelled") == ("True", "Synced"), 60)
    namespace = see(settled, "labelled")["spec"]["clusterRef"]["namespace"]
    found = settled.direct().get_json("namespace", namespace)["metadata"]
    assert found["labels"][ENFORCE] == "baseline"
    assert "istio-injection" not in found["labels"] and found["labels"]["tenant.service.sh/team"] == "web"
    assert found["annotations"] == {"tenant.service.sh/team": "web"}


def test_honest_objects_are_made_at_once_and_removed_again(settled: World) -> None:
    """The namespace, the right to write in it, and the objects come in one pass: nothing is refused on the way."""
    make_space(settled, "honest", config_map(), pod(), binding("edit"))
    wait_until(lambda: synced(settled, "honest")[0] is not None, 60)
    wait_until(lambda: synced(settled, "honest") == ("True", "Synced"), 60)
    assert "greeting" in names(settled, "honest", "configmap") and "mine" in names(settled, "honest", "rolebinding")
    events = settled.management().get_json("events", "-n", NAMESPACE, "--field-selector=involvedObject.name=honest")
    assert "Warning" not in {each["type"] for each in events["items"]}
    with settled.server.client() as admin:
        merge_patch(admin, f"{SPACES}/honest", {"spec": {"template": {"objects": json.dumps(config_map("other"))}}})
    wait_until(lambda: "greeting" not in names(settled, "honest", "configmap"), 60)


def test_an_administrators_template_is_made_with_the_stored_credential(settled: World) -> None:
    objects = "\n---\n".join(map(json.dumps, (QUOTA, pod(privileged=True))))
    with settled.server.client() as admin:
        made = create_resource(admin, "spacetemplates", "SpaceTemplate", "trusted", template={"objects": objects})
        assert made["metadata"]["annotations"] == {"service.sh/trusted": "true"}
    with settled.server.client() as admin:
        spec = {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": "trusted"}}
        create_resource(admin, f"namespaces/{NAMESPACE}/spaceinstances", "SpaceInstance", "trusted", **spec)
    wait_until(lambda: synced(settled, "trusted") == ("True", "Synced"), 60)
    assert "q" in names(settled, "trusted", "resourcequota")
