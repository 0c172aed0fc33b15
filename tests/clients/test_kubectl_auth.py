"""`kubectl auth` and `kubectl create clusterrole` and the like, which send protobuf."""

import json
import re

from tests.clients.server import ROOT, VERSION
from tests.harness.kubectl import Kubectl

REVIEW = {
    "apiVersion": VERSION,
    "kind": "SubjectAccessReview",
    "spec": {
        "user": "somebody",
        "groups": ["system:masters"],
        "resourceAttributes": {"verb": "list", "group": "management.service.sh", "resource": "apps"},
    },
}


def is_denied(kubectl: Kubectl, *arguments: str) -> bool:
    """`can-i` prints `no` and exits with 1, as `diff` does for differences."""
    return kubectl.expect_diff("auth", "can-i", *arguments).startswith("no")


def test_can_i_prints_yes(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "delete", "apps").strip() == "yes"
    assert kubectl("auth", "can-i", "get", "/version").strip() == "yes"
    assert kubectl("auth", "can-i", "get", "configmaps/x", "--subresource=status", "-n", "demo").strip() == "yes"


def test_can_i_list_prints_the_permissions(kubectl: Kubectl) -> None:
    assert "*.*" in kubectl("auth", "can-i", "--list")


def test_whoami_prints_user_name_and_groups(kubectl: Kubectl) -> None:
    user_info = json.loads(kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert user_info["username"] == "admin"
    assert "system:masters" in user_info["groups"]


def test_roles_and_bindings_created_by_kubectl_grant_permissions(kubectl: Kubectl) -> None:
    arguments = ("list", "apps", "--all-namespaces", "--as", "somebody", "--as-group", "readers")
    assert is_denied(kubectl, *arguments)
    kubectl("create", "clusterrole", "app-reader", "--verb=get,list", "--resource=apps")
    kubectl("create", "clusterrolebinding", "app-readers", "--clusterrole=app-reader", "--group=readers")
    assert kubectl("auth", "can-i", *arguments).strip() == "yes"
    kubectl("create", "role", "one", "--verb=get", "--resource=configmaps", "--resource-name=one")
    kubectl("create", "rolebinding", "one", "--role=one", "--user=somebody")
    assert kubectl("auth", "can-i", "get", "configmaps/one", "--as", "somebody").strip() == "yes"
    assert is_denied(kubectl, "get", "configmaps/two", "--as", "somebody")


def test_a_review_from_a_file_has_the_path_of_the_decision(kubectl: Kubectl) -> None:
    review = json.loads(kubectl("create", "-f", "-", "-o", "json", body=json.dumps(REVIEW)))
    verdicts = {step["step"]: step["verdict"] for step in review["status"]["path"]}
    assert (verdicts["administrators"], verdicts["rbac"]) == ("allow", "not evaluated")
    page = (ROOT / "docs" / "permissions.md").read_text().partition("## Identities")[0]
    assert list(verdicts) == re.findall(r"^\| [^|]+ \| `([^`]+)` \|", page, re.MULTILINE), (
        "the steps differ from the documentation"
    )


def test_reviews_are_not_in_the_category_fairlead(kubectl: Kubectl) -> None:
    assert "user.management.service.sh/admin" in kubectl("get", "fairlead", "-o", "name")


def test_a_cluster_role_for_pods_can_be_created(kubectl: Kubectl) -> None:
    kubectl("create", "clusterrole", "pod-reader", "--verb=get,list", "--resource=pods,pods/log")
    rule = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
    assert kubectl.get_json("clusterrole", "pod-reader")["rules"] == [rule]
    kubectl("delete", "clusterrole", "pod-reader")


def test_pods_are_an_empty_read_only_resource(kubectl: Kubectl) -> None:
    assert kubectl.get_names("pods", "--all-namespaces") == []
    assert "No resources found" in kubectl.expect_warnings("get", "pods")
    assert 'pods "x" not found' in kubectl.expect_failure("get", "pod", "x")
    assert "MethodNotAllowed" in kubectl.expect_failure("run", "x", "--image=x")
