"""kubectl and service accounts: an account in a project, its role, its token, and the end of both."""

import json

import pytest

from tests.clients.objects import project
from tests.clients.server import Server
from tests.harness.kubectl import Kubectl

NAMESPACE = "service-p-robots"


@pytest.fixture(scope="module")
def robots(kubectl: Kubectl) -> Kubectl:
    """A project with a service account that may read config maps there."""
    kubectl("create", "-f", "-", body=json.dumps(project("robots")))
    kubectl("create", "serviceaccount", "ci", "-n", NAMESPACE)
    kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps", "-n", NAMESPACE)
    kubectl("create", "rolebinding", "ci", "--role=reader", f"--serviceaccount={NAMESPACE}:ci", "-n", NAMESPACE)
    return kubectl


def token(kubectl: Kubectl, *options: str, account: str = "ci") -> str:
    return kubectl("create", "token", account, "-n", NAMESPACE, *options).strip()


def test_a_token_acts_as_the_account_with_the_rights_of_its_roles(robots: Kubectl) -> None:
    mine = f"--token={token(robots)}"
    assert robots("get", "configmaps", "-n", NAMESPACE, mine, "-o", "name") == ""
    assert "cannot list resource" in robots.refused("get", "configmaps", "-n", "default", mine)
    assert "cannot list resource" in robots.refused("get", "secrets", "-n", NAMESPACE, mine)
    who = json.loads(robots("auth", "whoami", mine, "-o", "json"))["status"]["userInfo"]
    assert who["username"] == f"system:serviceaccount:{NAMESPACE}:ci"
    assert who["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    assert who["uid"] == robots.read("serviceaccount", "ci", "-n", NAMESPACE)["metadata"]["uid"]
    assert robots("auth", "can-i", "list", "configmaps", "-n", NAMESPACE, mine).strip() == "yes"


def test_a_duration_is_bounded_on_both_sides(robots: Kubectl) -> None:
    assert "may not specify a duration less than 10 minutes" in robots.refused(
        "create", "token", "ci", "-n", NAMESPACE, "--duration=60s"
    )
    command = ("create", "token", "ci", "-n", NAMESPACE, "--duration=48h", "-o", "json")
    assert "requested expiration of 172800 seconds shortened to 86400 seconds" in robots.warned(*command)
    assert json.loads(robots(*command))["spec"]["expirationSeconds"] == 86400


def test_tokens_are_for_this_server_alone_and_not_bound_to_objects(robots: Kubectl) -> None:
    command = ("create", "token", "ci", "-n", NAMESPACE)
    assert "the only audience of tokens of this server" in robots.refused(*command, "--audience=vault")
    bound = ("--bound-object-kind=Secret", "--bound-object-name=x")
    assert "leave out spec.boundObjectRef" in robots.refused(*command, *bound)


def test_a_token_is_an_access_key_that_an_administrator_can_revoke(robots: Kubectl) -> None:
    before = set(robots.names("ownedaccesskeys"))
    mine = f"--token={token(robots)}"
    (key,) = set(robots.names("ownedaccesskeys")) - before
    assert key.startswith("serviceaccount-ci-")
    robots("get", "configmaps", "-n", NAMESPACE, mine)
    robots("delete", "ownedaccesskey", key)
    assert "invalid bearer token" in robots.refused("get", "configmaps", "-n", NAMESPACE, mine)


def test_deleting_the_account_ends_its_tokens_at_once(robots: Kubectl) -> None:
    robots("create", "serviceaccount", "brief", "-n", NAMESPACE)
    mine = f"--token={token(robots, account='brief')}"
    robots("auth", "whoami", mine)
    robots("delete", "serviceaccount", "brief", "-n", NAMESPACE)
    assert "invalid bearer token" in robots.refused("auth", "whoami", mine)
    robots("create", "serviceaccount", "brief", "-n", NAMESPACE)
    assert "invalid bearer token" in robots.refused("auth", "whoami", mine)


def test_an_account_that_is_not_there_has_no_tokens(robots: Kubectl) -> None:
    refused = robots.refused("create", "token", "nobody", "-n", NAMESPACE)
    assert 'serviceaccounts "nobody" not found' in refused


def test_who_may_ask_is_a_matter_of_roles(robots: Kubectl) -> None:
    mine = f"--token={token(robots)}"
    refused = robots.refused("create", "token", "ci", "-n", NAMESPACE, mine)
    assert 'cannot create resource "serviceaccounts/token"' in refused
    robots("create", "role", "minter", "--verb=create", "--resource=serviceaccounts/token", "-n", NAMESPACE)
    robots("create", "rolebinding", "minter", "--role=minter", f"--serviceaccount={NAMESPACE}:ci", "-n", NAMESPACE)
    made = json.loads(robots("create", "token", "ci", "-n", NAMESPACE, "--duration=20h", mine, "-o", "json"))
    assert made["spec"]["expirationSeconds"] <= 3600, "a token that was made with a token does not outlive it"


def test_accounts_go_with_their_project(kubectl: Kubectl, server: Server) -> None:
    kubectl("create", "-f", "-", body=json.dumps(project("passing")))
    kubectl("create", "serviceaccount", "ci", "-n", "service-p-passing")
    mine = f"--token={kubectl('create', 'token', 'ci', '-n', 'service-p-passing').strip()}"
    kubectl("auth", "whoami", mine)
    kubectl("delete", "project", "passing", "--wait")
    assert "invalid bearer token" in kubectl.refused("auth", "whoami", mine)
