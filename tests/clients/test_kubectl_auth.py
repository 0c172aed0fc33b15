"""`kubectl auth` and the commands that give rights: what they ask, they ask in protobuf."""

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


def says_no(kubectl: Kubectl, *question: str) -> bool:
    """`can-i` says no with the exit code 1, too, as `diff` does."""
    return kubectl.differing("auth", "can-i", *question).startswith("no")


def test_can_i_is_answered(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "delete", "apps").strip() == "yes"
    assert kubectl("auth", "can-i", "get", "/version").strip() == "yes"
    assert kubectl("auth", "can-i", "get", "configmaps/x", "--subresource=status", "-n", "demo").strip() == "yes"


def test_can_i_lists_what_one_may_do(kubectl: Kubectl) -> None:
    assert "*.*" in kubectl("auth", "can-i", "--list")


def test_whoami_tells_the_name_and_the_groups(kubectl: Kubectl) -> None:
    told = json.loads(kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert told["username"] == "admin"
    assert "system:masters" in told["groups"]


def test_roles_and_bindings_that_kubectl_makes_give_rights(kubectl: Kubectl) -> None:
    asking = ("list", "apps", "--all-namespaces", "--as", "somebody", "--as-group", "readers")
    assert says_no(kubectl, *asking)
    kubectl("create", "clusterrole", "app-reader", "--verb=get,list", "--resource=apps")
    kubectl("create", "clusterrolebinding", "app-readers", "--clusterrole=app-reader", "--group=readers")
    assert kubectl("auth", "can-i", *asking).strip() == "yes"
    kubectl("create", "role", "one", "--verb=get", "--resource=configmaps", "--resource-name=one")
    kubectl("create", "rolebinding", "one", "--role=one", "--user=somebody")
    assert kubectl("auth", "can-i", "get", "configmaps/one", "--as", "somebody").strip() == "yes"
    assert says_no(kubectl, "get", "configmaps/two", "--as", "somebody")


def test_a_review_from_a_file_tells_how_it_is_decided(kubectl: Kubectl) -> None:
    told = json.loads(kubectl("create", "-f", "-", "-o", "json", body=json.dumps(REVIEW)))
    verdicts = {step["step"]: step["verdict"] for step in told["status"]["path"]}
    assert (verdicts["administrators"], verdicts["rbac"]) == ("allow", "not evaluated")
    page = (ROOT / "docs" / "permissions.md").read_text().partition("## Identities")[0]
    assert list(verdicts) == re.findall(r"^\| [^|]+ \| `([^`]+)` \|", page, re.MULTILINE), (
        "as documented, in that order"
    )


def test_what_is_only_asked_is_not_in_the_way_of_get(kubectl: Kubectl) -> None:
    assert "user.management.service.sh/admin" in kubectl("get", "fairlead", "-o", "name")


def test_a_role_about_pods_is_made_as_in_any_kubernetes(kubectl: Kubectl) -> None:
    kubectl("create", "clusterrole", "pod-reader", "--verb=get,list", "--resource=pods,pods/log")
    rule = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
    assert kubectl.read("clusterrole", "pod-reader")["rules"] == [rule]
    kubectl("delete", "clusterrole", "pod-reader")


def test_there_are_no_pods_and_no_error_about_it(kubectl: Kubectl) -> None:
    assert kubectl.names("pods", "--all-namespaces") == []
    assert "No resources found" in kubectl.warned("get", "pods")
    assert 'pods "x" not found' in kubectl.refused("get", "pod", "x")
    assert "MethodNotAllowed" in kubectl.refused("run", "x", "--image=x")
