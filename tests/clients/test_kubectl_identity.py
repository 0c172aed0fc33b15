"""kubectl with several users: identity, visible objects, impersonation, and escalation checks."""

import json

import pytest
import yaml

from tests.clients.objects import build_app, build_project, to_yaml
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

DEMO = "service-p-demo"


def build_object(kind: str, name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def admin_kubectl(kubectl: Kubectl) -> Kubectl:
    """The administrator's kubectl, with a project, a team, two apps, and the users ada and bob."""
    objects = (
        build_project("demo", members=[{"kind": "User", "name": "ada", "clusterRole": "admin"}]),
        build_object("User", "ada", displayName="Ada"),
        build_object("User", "bob", displayName="Bob"),
        build_object("Team", "ops", users=["bob"]),
        build_app("shared", access=[{"users": ["bob"], "verbs": ["get"]}]),
        build_app("other"),
    )
    kubectl("create", "-f", "-", body=to_yaml(*objects))
    return kubectl


@pytest.fixture(scope="module")
def bobs_key(admin_kubectl: Kubectl) -> str:
    key = build_object("OwnedAccessKey", "bobs", user="bob")
    created = json.loads(admin_kubectl("create", "-o", "json", "-f", "-", body=to_yaml(key)))
    return str(created["spec"]["key"])


def test_whoami_prints_the_user_and_its_teams(admin_kubectl: Kubectl, bobs_key: str) -> None:
    review = json.loads(admin_kubectl("auth", "whoami", "-o", "json", f"--token={bobs_key}"))
    assert review["status"]["userInfo"]["username"] == "bob"
    assert {"service:team:ops", "system:authenticated"} <= set(review["status"]["userInfo"]["groups"])


def test_can_i_respects_the_access_of_an_app(admin_kubectl: Kubectl, bobs_key: str) -> None:
    assert admin_kubectl("auth", "can-i", "get", f"apps.{GROUP}/shared", f"--token={bobs_key}").strip() == "yes"
    result = admin_kubectl.run("auth", "can-i", "get", f"apps.{GROUP}/other", f"--token={bobs_key}")
    assert (result.returncode, result.stdout.strip()) == (1, "no")


def test_as_uses_the_permissions_of_the_impersonated_user(admin_kubectl: Kubectl) -> None:
    assert admin_kubectl("get", "configmaps", "-n", DEMO, "--as=ada") == ""
    error = admin_kubectl.expect_failure("get", "configmaps", "-n", DEMO, "--as=bob")
    assert 'User "bob" cannot list resource "configmaps"' in error
    review = json.loads(admin_kubectl("auth", "whoami", "-o", "json", "--as=eve", "--as-group=dev"))
    assert review["status"]["userInfo"]["groups"] == ["dev", "system:authenticated"]


def test_impersonation_without_permission_is_forbidden(admin_kubectl: Kubectl, bobs_key: str) -> None:
    error = admin_kubectl.expect_failure("get", "apps", "--as=ada", f"--token={bobs_key}")
    assert 'User "bob" cannot impersonate resource "users"' in error


def test_a_list_has_only_objects_that_the_user_may_read(admin_kubectl: Kubectl, bobs_key: str) -> None:
    assert admin_kubectl.get_names("apps", f"--token={bobs_key}") == ["shared"]
    assert admin_kubectl.get_names("projects", f"--token={bobs_key}") == []
    assert admin_kubectl.get_names("users", f"--token={bobs_key}") == ["bob"]
    assert admin_kubectl.get_names("ownedaccesskeys", f"--token={bobs_key}") == ["bobs"]


def test_t17_the_forbidden_error_is_the_same_for_existing_and_missing_objects(
    admin_kubectl: Kubectl, bobs_key: str
) -> None:
    existing = admin_kubectl.expect_failure("get", "app", "other", f"--token={bobs_key}")
    missing = admin_kubectl.expect_failure("get", "app", "othex", f"--token={bobs_key}")
    assert existing.replace("other", "othex") == missing


def test_permissions_follow_created_and_deleted_bindings(admin_kubectl: Kubectl, bobs_key: str) -> None:
    admin_kubectl("create", "clusterrole", "app-reader", "--verb=get,list,watch", f"--resource=apps.{GROUP}")
    admin_kubectl(
        "create", "clusterrolebinding", "ops-read-apps", "--clusterrole=app-reader", "--group=service:team:ops"
    )
    assert admin_kubectl.get_names("apps", f"--token={bobs_key}") == ["other", "shared"]
    admin_kubectl("create", "role", "config", "-n", DEMO, "--verb=*", "--resource=configmaps")
    admin_kubectl("create", "rolebinding", "bob-config", "-n", DEMO, "--role=config", "--user=bob")
    admin_kubectl("create", "configmap", "made-by-bob", "-n", DEMO, f"--token={bobs_key}")
    admin_kubectl("delete", "clusterrolebinding", "ops-read-apps")
    assert admin_kubectl.get_names("apps", f"--token={bobs_key}") == ["shared"]


def test_granting_permissions_that_the_user_does_not_have_is_forbidden(admin_kubectl: Kubectl, bobs_key: str) -> None:
    admin_kubectl("create", "clusterrole", "role-maker", "--verb=create", "--resource=clusterroles,clusterrolebindings")
    admin_kubectl("create", "clusterrolebinding", "bob-makes-roles", "--clusterrole=role-maker", "--user=bob")
    error = admin_kubectl.expect_failure(
        "create", "clusterrolebinding", "me-admin", "--clusterrole=cluster-admin", "--user=bob", f"--token={bobs_key}"
    )
    assert "attempting to grant RBAC permissions not currently held" in error


def test_the_value_of_a_key_is_returned_only_on_creation(admin_kubectl: Kubectl) -> None:
    body = to_yaml(build_object("OwnedAccessKey", "once", displayName="x"))
    created = yaml.safe_load(admin_kubectl("create", "-o", "yaml", "-f", "-", body=body))
    assert created["spec"]["key"].startswith("fairlead_") and created["spec"]["user"] == "admin"
    output = admin_kubectl("get", "ownedaccesskey", "once", "-o", "yaml", "--show-managed-fields")
    assert "key" not in yaml.safe_load(output)["spec"] and created["spec"]["key"] not in output
    admin_kubectl("patch", "ownedaccesskey", "once", "--type=merge", "-p", '{"spec":{"displayName":"y"}}')
    assert "once" in admin_kubectl("get", "ownedaccesskeys", f"--token={created['spec']['key']}")
    admin_kubectl("patch", "ownedaccesskey", "once", "--type=merge", "-p", '{"spec":{"disabled":true}}')
    assert "must be logged in" in admin_kubectl.expect_failure("get", "apps", f"--token={created['spec']['key']}")
