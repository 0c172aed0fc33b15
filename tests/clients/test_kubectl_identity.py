"""kubectl as several people: who they are, what they see, whom they act as, and what they give away."""

import json

import pytest
import yaml

from tests.clients.objects import app, as_yaml, project
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

DEMO = "service-p-demo"


def identity(kind: str, name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def peopled(kubectl: Kubectl) -> Kubectl:
    """The administrator's kubectl, with a project, a team, and Ada and Bob around."""
    people = (
        project("demo", members=[{"kind": "User", "name": "ada", "clusterRole": "admin"}]),
        identity("User", "ada", displayName="Ada"),
        identity("User", "bob", displayName="Bob"),
        identity("Team", "ops", users=["bob"]),
        app("shared", access=[{"users": ["bob"], "verbs": ["get"]}]),
        app("other"),
    )
    kubectl("create", "-f", "-", body=as_yaml(*people))
    return kubectl


@pytest.fixture(scope="module")
def bobs_key(peopled: Kubectl) -> str:
    key = identity("OwnedAccessKey", "bobs", user="bob")
    created = json.loads(peopled("create", "-o", "json", "-f", "-", body=as_yaml(key)))
    return str(created["spec"]["key"])


def test_whoami_tells_the_user_and_its_teams(peopled: Kubectl, bobs_key: str) -> None:
    told = json.loads(peopled("auth", "whoami", "-o", "json", f"--token={bobs_key}"))
    assert told["status"]["userInfo"]["username"] == "bob"
    assert {"service:team:ops", "system:authenticated"} <= set(told["status"]["userInfo"]["groups"])


def test_can_i_knows_what_is_shared(peopled: Kubectl, bobs_key: str) -> None:
    assert peopled("auth", "can-i", "get", f"apps.{GROUP}/shared", f"--token={bobs_key}").strip() == "yes"
    refused = peopled.outcome("auth", "can-i", "get", f"apps.{GROUP}/other", f"--token={bobs_key}")
    assert (refused.returncode, refused.stdout.strip()) == (1, "no")


def test_as_acts_with_the_rights_of_another(peopled: Kubectl) -> None:
    assert peopled("get", "configmaps", "-n", DEMO, "--as=ada") == ""
    complaint = peopled.refused("get", "configmaps", "-n", DEMO, "--as=bob")
    assert 'User "bob" cannot list resource "configmaps"' in complaint
    told = json.loads(peopled("auth", "whoami", "-o", "json", "--as=eve", "--as-group=dev"))
    assert told["status"]["userInfo"]["groups"] == ["dev", "system:authenticated"]


def test_nobody_acts_as_others_without_the_right(peopled: Kubectl, bobs_key: str) -> None:
    complaint = peopled.refused("get", "apps", "--as=ada", f"--token={bobs_key}")
    assert 'User "bob" cannot impersonate resource "users"' in complaint


def test_a_list_shows_what_is_shared_and_nothing_else(peopled: Kubectl, bobs_key: str) -> None:
    assert peopled.names("apps", f"--token={bobs_key}") == ["shared"]
    assert peopled.names("projects", f"--token={bobs_key}") == []
    assert peopled.names("users", f"--token={bobs_key}") == ["bob"]
    assert peopled.names("ownedaccesskeys", f"--token={bobs_key}") == ["bobs"]


def test_t17_a_refusal_is_alike_for_what_is_there_and_what_is_not(peopled: Kubectl, bobs_key: str) -> None:
    there = peopled.refused("get", "app", "other", f"--token={bobs_key}")
    missing = peopled.refused("get", "app", "othex", f"--token={bobs_key}")
    assert there.replace("other", "othex") == missing


def test_rights_come_and_go_with_bindings(peopled: Kubectl, bobs_key: str) -> None:
    peopled("create", "clusterrole", "app-reader", "--verb=get,list,watch", f"--resource=apps.{GROUP}")
    peopled("create", "clusterrolebinding", "ops-read-apps", "--clusterrole=app-reader", "--group=service:team:ops")
    assert peopled.names("apps", f"--token={bobs_key}") == ["other", "shared"]
    peopled("create", "role", "config", "-n", DEMO, "--verb=*", "--resource=configmaps")
    peopled("create", "rolebinding", "bob-config", "-n", DEMO, "--role=config", "--user=bob")
    peopled("create", "configmap", "made-by-bob", "-n", DEMO, f"--token={bobs_key}")
    peopled("delete", "clusterrolebinding", "ops-read-apps")
    assert peopled.names("apps", f"--token={bobs_key}") == ["shared"]


def test_nobody_gives_away_rights_that_they_do_not_have(peopled: Kubectl, bobs_key: str) -> None:
    peopled("create", "clusterrole", "role-maker", "--verb=create", "--resource=clusterroles,clusterrolebindings")
    peopled("create", "clusterrolebinding", "bob-makes-roles", "--clusterrole=role-maker", "--user=bob")
    complaint = peopled.refused(
        "create", "clusterrolebinding", "me-admin", "--clusterrole=cluster-admin", "--user=bob", f"--token={bobs_key}"
    )
    assert "attempting to grant RBAC permissions not currently held" in complaint


def test_a_key_is_shown_once_and_never_again(peopled: Kubectl) -> None:
    body = as_yaml(identity("OwnedAccessKey", "once", displayName="x"))
    made = yaml.safe_load(peopled("create", "-o", "yaml", "-f", "-", body=body))
    assert made["spec"]["key"].startswith("fairlead_") and made["spec"]["user"] == "admin"
    again = peopled("get", "ownedaccesskey", "once", "-o", "yaml", "--show-managed-fields")
    assert "key" not in yaml.safe_load(again)["spec"] and made["spec"]["key"] not in again
    peopled("patch", "ownedaccesskey", "once", "--type=merge", "-p", '{"spec":{"displayName":"y"}}')
    assert "once" in peopled("get", "ownedaccesskeys", f"--token={made['spec']['key']}")
    peopled("patch", "ownedaccesskey", "once", "--type=merge", "-p", '{"spec":{"disabled":true}}')
    assert "must be logged in" in peopled.refused("get", "apps", f"--token={made['spec']['key']}")
