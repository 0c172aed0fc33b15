"""kubectl with service accounts: accounts in a project, their roles, tokens, and deletion."""

import json

import pytest

from tests.clients.objects import build_project
from tests.clients.server import Server
from tests.harness.kubectl import Kubectl

NAMESPACE = "service-p-robots"


@pytest.fixture(scope="module")
def kubectl_with_account(kubectl: Kubectl) -> Kubectl:
    """kubectl, with a project whose service account `ci` may read its config maps."""
    kubectl("create", "-f", "-", body=json.dumps(build_project("robots")))
    kubectl("create", "serviceaccount", "ci", "-n", NAMESPACE)
    kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps", "-n", NAMESPACE)
    kubectl("create", "rolebinding", "ci", "--role=reader", f"--serviceaccount={NAMESPACE}:ci", "-n", NAMESPACE)
    return kubectl


def create_token(kubectl: Kubectl, *options: str, account: str = "ci") -> str:
    return kubectl("create", "token", account, "-n", NAMESPACE, *options).strip()


def test_a_token_has_the_identity_and_permissions_of_its_account(kubectl_with_account: Kubectl) -> None:
    token_flag = f"--token={create_token(kubectl_with_account)}"
    assert kubectl_with_account("get", "configmaps", "-n", NAMESPACE, token_flag, "-o", "name") == ""
    assert "cannot list resource" in kubectl_with_account.expect_failure(
        "get", "configmaps", "-n", "default", token_flag
    )
    assert "cannot list resource" in kubectl_with_account.expect_failure("get", "secrets", "-n", NAMESPACE, token_flag)
    user_info = json.loads(kubectl_with_account("auth", "whoami", token_flag, "-o", "json"))["status"]["userInfo"]
    assert user_info["username"] == f"system:serviceaccount:{NAMESPACE}:ci"
    assert user_info["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{NAMESPACE}",
        "system:authenticated",
    ]
    assert user_info["uid"] == kubectl_with_account.get_json("serviceaccount", "ci", "-n", NAMESPACE)["metadata"]["uid"]
    assert kubectl_with_account("auth", "can-i", "list", "configmaps", "-n", NAMESPACE, token_flag).strip() == "yes"


def test_a_duration_is_bounded_on_both_sides(kubectl_with_account: Kubectl) -> None:
    assert "may not specify a duration less than 10 minutes" in kubectl_with_account.expect_failure(
        "create", "token", "ci", "-n", NAMESPACE, "--duration=60s"
    )
    command = ("create", "token", "ci", "-n", NAMESPACE, "--duration=48h", "-o", "json")
    assert "requested expiration of 172800 seconds shortened to 86400 seconds" in kubectl_with_account.expect_warnings(
        *command
    )
    assert json.loads(kubectl_with_account(*command))["spec"]["expirationSeconds"] == 86400


def test_other_audiences_and_bound_objects_are_rejected(kubectl_with_account: Kubectl) -> None:
    command = ("create", "token", "ci", "-n", NAMESPACE)
    assert "the only audience of tokens of this server" in kubectl_with_account.expect_failure(
        *command, "--audience=vault"
    )
    flags = ("--bound-object-kind=Secret", "--bound-object-name=x")
    assert "leave out spec.boundObjectRef" in kubectl_with_account.expect_failure(*command, *flags)


def test_a_token_is_an_access_key_that_an_administrator_can_revoke(kubectl_with_account: Kubectl) -> None:
    before = set(kubectl_with_account.get_names("ownedaccesskeys"))
    token_flag = f"--token={create_token(kubectl_with_account)}"
    (key,) = set(kubectl_with_account.get_names("ownedaccesskeys")) - before
    assert key.startswith("serviceaccount-ci-")
    kubectl_with_account("get", "configmaps", "-n", NAMESPACE, token_flag)
    kubectl_with_account("delete", "ownedaccesskey", key)
    assert "invalid bearer token" in kubectl_with_account.expect_failure(
        "get", "configmaps", "-n", NAMESPACE, token_flag
    )


def test_deleting_the_account_revokes_its_tokens_at_once(kubectl_with_account: Kubectl) -> None:
    kubectl_with_account("create", "serviceaccount", "brief", "-n", NAMESPACE)
    token_flag = f"--token={create_token(kubectl_with_account, account='brief')}"
    kubectl_with_account("auth", "whoami", token_flag)
    kubectl_with_account("delete", "serviceaccount", "brief", "-n", NAMESPACE)
    assert "invalid bearer token" in kubectl_with_account.expect_failure("auth", "whoami", token_flag)
    kubectl_with_account("create", "serviceaccount", "brief", "-n", NAMESPACE)
    assert "invalid bearer token" in kubectl_with_account.expect_failure("auth", "whoami", token_flag)


def test_a_token_of_a_missing_account_is_an_error(kubectl_with_account: Kubectl) -> None:
    error = kubectl_with_account.expect_failure("create", "token", "nobody", "-n", NAMESPACE)
    assert 'serviceaccounts "nobody" not found' in error


def test_creating_a_token_needs_permission(kubectl_with_account: Kubectl) -> None:
    token_flag = f"--token={create_token(kubectl_with_account)}"
    error = kubectl_with_account.expect_failure("create", "token", "ci", "-n", NAMESPACE, token_flag)
    assert 'cannot create resource "serviceaccounts/token"' in error
    kubectl_with_account(
        "create", "role", "minter", "--verb=create", "--resource=serviceaccounts/token", "-n", NAMESPACE
    )
    kubectl_with_account(
        "create", "rolebinding", "minter", "--role=minter", f"--serviceaccount={NAMESPACE}:ci", "-n", NAMESPACE
    )
    token = json.loads(
        kubectl_with_account("create", "token", "ci", "-n", NAMESPACE, "--duration=20h", token_flag, "-o", "json")
    )
    assert token["spec"]["expirationSeconds"] <= 3600, "a token created with a token outlives it"


def test_deleting_a_project_revokes_the_tokens_of_its_accounts(kubectl: Kubectl, server: Server) -> None:
    kubectl("create", "-f", "-", body=json.dumps(build_project("passing")))
    kubectl("create", "serviceaccount", "ci", "-n", "service-p-passing")
    token_flag = f"--token={kubectl('create', 'token', 'ci', '-n', 'service-p-passing').strip()}"
    kubectl("auth", "whoami", token_flag)
    kubectl("delete", "project", "passing", "--wait")
    assert "invalid bearer token" in kubectl.expect_failure("auth", "whoami", token_flag)


def test_a_service_can_review_the_tokens_of_its_clients(kubectl_with_account: Kubectl) -> None:
    """With the ClusterRole that every Kubernetes has for it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    body = json.dumps({**review, "spec": {"token": create_token(kubectl_with_account)}})
    command = ("create", "-f", "-", "-o", "jsonpath={.status.user.username}")
    token_flag = f"--token={create_token(kubectl_with_account)}"
    assert "cannot create resource" in kubectl_with_account.expect_failure(*command, token_flag, body=body)
    kubectl_with_account(
        *("create", "clusterrolebinding", "reviewer", "--clusterrole=system:auth-delegator"),
        f"--serviceaccount={NAMESPACE}:ci",
    )
    assert kubectl_with_account(*command, token_flag, body=body) == f"system:serviceaccount:{NAMESPACE}:ci"
