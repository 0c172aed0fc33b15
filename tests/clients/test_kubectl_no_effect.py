"""kubectl shows that a field has no effect, in each way to write an object."""

import json

import pytest

from tests.clients.objects import to_yaml
from tests.clients.server import VERSION
from tests.harness.kubectl import Kubectl

WARNING = "Warning: spec.opencost has no effect\n"


def build_cluster(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": {"networkPeer": True, **spec}}


@pytest.fixture(scope="module")
def cluster(kubectl: Kubectl) -> str:
    """The name of a cluster with a field that has no effect."""
    body = to_yaml(build_cluster("priced", opencost={"enabled": True}))
    assert kubectl.expect_warnings("create", "-f", "-", body=body) == WARNING
    return "priced"


def test_apply_and_its_dry_run_show_the_warning(kubectl: Kubectl) -> None:
    body = to_yaml(build_cluster("applied", opencost={"enabled": True}))
    assert kubectl.expect_warnings("apply", "--dry-run=server", "-f", "-", body=body) == WARNING
    assert kubectl.expect_warnings("apply", "-f", "-", body=body) == WARNING
    assert kubectl.expect_warnings("apply", "--server-side", "--force-conflicts", "-f", "-", body=body) == WARNING


def test_patch_replace_and_label_show_the_warning(kubectl: Kubectl, cluster: str) -> None:
    patch = json.dumps({"spec": {"opencost": {"enabled": 2}}})
    assert kubectl.expect_warnings("patch", "cluster", cluster, "--type=merge", "-p", patch) == WARNING
    stored = json.dumps(kubectl.get_json("cluster", cluster))
    assert kubectl.expect_warnings("replace", "-f", "-", body=stored) == WARNING
    assert kubectl.expect_warnings("label", "cluster", cluster, "a=b") == WARNING


def test_without_the_field_there_is_no_warning(kubectl: Kubectl) -> None:
    assert kubectl.expect_warnings("create", "-f", "-", body=to_yaml(build_cluster("plain", opencost={}))) == ""


def test_explain_says_that_a_field_has_no_effect(kubectl: Kubectl) -> None:
    assert "Has no effect" in kubectl("explain", "cluster.spec.opencost")


def test_a_kind_that_is_not_stored_has_the_warnings_too(kubectl: Kubectl) -> None:
    scope = {"roles": [{"role": "service-cli", "projects": ["a"]}, {"role": "agent"}]}
    token = {"apiVersion": VERSION, "kind": "DirectClusterEndpointToken", "spec": {"scope": scope}}
    warnings = kubectl.expect_warnings(
        "create", "--raw", f"/apis/{VERSION}/directclusterendpointtokens", "-f", "-", body=json.dumps(token)
    )
    assert "spec.scope.roles[0].projects has no effect" in warnings
    assert "spec.scope.roles[1] has no effect: only the role service-cli allows anything" in warnings
