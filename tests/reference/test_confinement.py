"""Templates that are not an administrator's can do only what the owner of the space can do in a real cluster."""

import json
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, merge_patch, post_object
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, find_condition

PROJECT = "confined"
NAMESPACE = f"service-p-{PROJECT}"
SPACES = f"{M}/namespaces/{NAMESPACE}/spaceinstances"
ENFORCE = "pod-security.kubernetes.io/enforce"
RBAC = "rbac.authorization.k8s.io"


def build_config_map(name: str = "greeting") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def build_pod(**context: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "securityContext": context}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


def build_binding(role: str) -> dict[str, Any]:
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
def connected_project(connected: ConnectedCluster) -> ConnectedCluster:
    with connected.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": CLUSTER}])
        create_resource(admin, "users", "User", "olga")
    return connected


def create_space(connected: ConnectedCluster, name: str, *objects: dict[str, Any], **spec: Any) -> None:
    template = {"objects": "\n---\n".join(map(json.dumps, objects)), **spec.pop("template", {})}
    spec_of_space = {"owner": {"user": "olga"}, "clusterRef": {"cluster": CLUSTER}, "template": template, **spec}
    with connected.server.client() as admin:
        body = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": name}}
        post_object(admin, SPACES, {**body, "spec": spec_of_space})


def get_space(connected: ConnectedCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = connected.management_kubectl().get_json("spaceinstance", name, "-n", NAMESPACE)
    return found


def get_synced_condition(connected: ConnectedCluster, name: str) -> tuple[Any, Any]:
    found = find_condition(get_space(connected, name), "SpaceSynced")
    return found.get("status"), found.get("reason")


def list_names(connected: ConnectedCluster, name: str, resource: str) -> set[str]:
    """The names of the objects of a resource in the namespace of a space."""
    namespace = get_space(connected, name)["spec"]["clusterRef"]["namespace"]
    return set(connected.direct_kubectl().get_names(resource, "-n", namespace))


@pytest.mark.parametrize(
    ("name", "obj", "reason", "expected_message"),
    [
        ("privileged", build_pod(privileged=True), "AdmissionDenied", "violates PodSecurity"),
        ("granting", build_binding("cluster-admin"), "OwnerForbidden", "attempting to grant RBAC permissions"),
        ("wide", ROLE, "OwnerForbidden", "attempting to grant RBAC permissions"),
        ("quota", QUOTA, "OwnerForbidden", 'cannot patch resource "resourcequotas"'),
        ("crd", CRD, "InvalidTemplateObjects", "is cluster-scoped"),
        ("relabelling", OWN_NAMESPACE, "InvalidTemplateObjects", "is cluster-scoped"),
    ],
)
def test_objects_that_the_owner_cannot_create_are_rejected(
    connected_project: ConnectedCluster, name: str, obj: dict[str, Any], reason: str, expected_message: str
) -> None:
    create_space(connected_project, name, obj)
    wait_until(lambda: get_synced_condition(connected_project, name) == ("False", reason), 60)
    assert expected_message in find_condition(get_space(connected_project, name), "SpaceSynced")["message"]
    if reason != "InvalidTemplateObjects":
        assert obj["metadata"]["name"] not in list_names(connected_project, name, obj["kind"].lower())


def test_labels_that_the_cluster_interprets_are_dropped(connected_project: ConnectedCluster) -> None:
    labels = {ENFORCE: "privileged", "istio-injection": "enabled", "tenant.service.sh/team": "web"}
    create_space(connected_project, "labelled", template={"metadata": {"labels": labels, "annotations": labels}})
    wait_until(lambda: get_synced_condition(connected_project, "labelled") == ("True", "Synced"), 60)
    namespace = get_space(connected_project, "labelled")["spec"]["clusterRef"]["namespace"]
    found = connected_project.direct_kubectl().get_json("namespace", namespace)["metadata"]
    assert found["labels"][ENFORCE] == "baseline"
    assert "istio-injection" not in found["labels"] and found["labels"]["tenant.service.sh/team"] == "web"
    assert found["annotations"] == {"tenant.service.sh/team": "web"}


def test_allowed_objects_are_created_at_once_and_removed_again(connected_project: ConnectedCluster) -> None:
    """The namespace, the permission to write in it, and the objects are created in one pass without rejections."""
    create_space(connected_project, "honest", build_config_map(), build_pod(), build_binding("edit"))
    wait_until(lambda: get_synced_condition(connected_project, "honest")[0] is not None, 60)
    wait_until(lambda: get_synced_condition(connected_project, "honest") == ("True", "Synced"), 60)
    assert "greeting" in list_names(connected_project, "honest", "configmap") and "mine" in list_names(
        connected_project, "honest", "rolebinding"
    )
    events = connected_project.management_kubectl().get_json(
        "events", "-n", NAMESPACE, "--field-selector=involvedObject.name=honest"
    )
    assert "Warning" not in {each["type"] for each in events["items"]}
    with connected_project.server.client() as admin:
        merge_patch(
            admin, f"{SPACES}/honest", {"spec": {"template": {"objects": json.dumps(build_config_map("other"))}}}
        )
    wait_until(lambda: "greeting" not in list_names(connected_project, "honest", "configmap"), 60)


def test_an_administrators_template_is_applied_with_the_stored_credential(connected_project: ConnectedCluster) -> None:
    objects = "\n---\n".join(map(json.dumps, (QUOTA, build_pod(privileged=True))))
    with connected_project.server.client() as admin:
        created = create_resource(admin, "spacetemplates", "SpaceTemplate", "trusted", template={"objects": objects})
        assert created["metadata"]["annotations"] == {"service.sh/trusted": "true"}
    with connected_project.server.client() as admin:
        spec = {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": "trusted"}}
        create_resource(admin, f"namespaces/{NAMESPACE}/spaceinstances", "SpaceInstance", "trusted", **spec)
    wait_until(lambda: get_synced_condition(connected_project, "trusted") == ("True", "Synced"), 60)
    assert "q" in list_names(connected_project, "trusted", "resourcequota")
