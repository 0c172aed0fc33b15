"""fairlead.cli.resources.cluster_role: the content of the printed roles. tests/reference tests that they suffice."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli import make_app
from fairlead.cli.resources.cluster_role import AGENT_PARTS, RolePart, build_objects
from fairlead.controllers.clusters.identity import CONFIG_MAP
from fairlead.controllers.clusters.probe import EXTRA_RIGHT, REQUIRED_RIGHTS
from fairlead.controllers.workspaces.runner_manifests import ROLE_RULES

RUNNER = CliRunner()


def print_roles(*arguments: str) -> list[dict[str, Any]]:
    result = RUNNER.invoke(make_app(), ["cluster", "role", *arguments])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def get_cluster_role_rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]


@pytest.mark.parametrize(
    ("parts", "roles"),
    [
        ([], ["gateways"]),
        (["gateways"], ["gateways"]),
        (["spaces"], ["gateways", "spaces"]),
        (["virtual-clusters", "spaces"], ["gateways", "spaces", "virtual-clusters"]),
        (["runners"], ["gateways", "runners"]),
        (["apps"], ["gateways", "apps"]),
    ],
)
def test_each_part_is_a_role_bound_to_one_service_account_with_a_token(parts: list[str], roles: list[str]) -> None:
    objects = print_roles(*parts)
    account, token, role, role_binding, *others = objects
    assert (account["kind"], account["metadata"]) == (
        "ServiceAccount",
        {"name": "fairlead", "namespace": "kube-system"},
    )
    assert token["type"] == "kubernetes.io/service-account-token"
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "fairlead"}
    place = {"name": "fairlead:installation", "namespace": "kube-system"}
    assert [(each["kind"], each["metadata"]) for each in (role, role_binding)] == [
        ("Role", place),
        ("RoleBinding", place),
    ]
    assert (role_binding["roleRef"]["kind"], role_binding["roleRef"]["name"]) == ("Role", "fairlead:installation")
    assert role["rules"][1]["resourceNames"] == [CONFIG_MAP]
    names = [(each["kind"], each["metadata"]["name"]) for each in others]
    assert names == [(kind, f"fairlead:{role}") for role in roles for kind in ("ClusterRole", "ClusterRoleBinding")]
    for binding in others[1::2]:
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "fairlead", "namespace": "kube-system"}]


def test_every_probed_permission_is_in_the_role_for_gateways() -> None:
    granted = {
        (group, resource)
        for rule in get_cluster_role_rules(print_roles("gateways"))
        if "impersonate" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    probed = {(right.group, right.resource) for right in REQUIRED_RIGHTS}
    assert granted == {*probed, (EXTRA_RIGHT.group, f"{EXTRA_RIGHT.resource}/{EXTRA_RIGHT.subresource}")}


def test_no_role_grants_everything_or_allows_escalation() -> None:
    everything = [
        rule for rule in get_cluster_role_rules(print_roles("spaces", "virtual-clusters", "apps")) if "*" in str(rule)
    ]
    escalating = [
        rule
        for rule in get_cluster_role_rules(print_roles("spaces", "virtual-clusters", "apps"))
        if "escalate" in rule["verbs"]
    ]
    assert (everything, escalating) == ([], [])
    bindable = [
        rule["resourceNames"]
        for rule in get_cluster_role_rules(print_roles("spaces", "virtual-clusters", "apps"))
        if "bind" in rule["verbs"]
    ]
    assert bindable == [["admin", "edit", "view"]] * 3


def test_the_role_for_runners_has_all_permissions_that_the_server_grants_to_a_runner() -> None:
    granted = set(iter_permissions(get_cluster_role_rules(build_objects([RolePart.RUNNERS], [], "hub", "ops"))))
    assert granted >= set(iter_permissions(ROLE_RULES)), "a cluster refuses a Role with more than that"


CHART_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": [""],
        "resources": ["configmaps", "secrets", "services", "pods", "pods/attach", "pods/portforward", "pods/exec"],
        "verbs": ["create", "delete", "patch", "update", "get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["create", "delete", "list", "watch"]},
    {
        "apiGroups": [""],
        "resources": ["pods/status", "pods/ephemeralcontainers", "pods/resize"],
        "verbs": ["patch", "update"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["statefulsets", "replicasets", "deployments"],
        "verbs": ["get", "list", "watch", "patch", "update"],
    },
    {"apiGroups": [""], "resources": ["endpoints", "pods/log"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create", "list", "get", "delete"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "update", "get"]},
]
"""What the Role of the open-source vcluster chart grants with Kubernetes 1.35, from version 0.20 on; the leases with
several replicas."""


def test_the_role_for_virtual_clusters_has_all_permissions_that_the_chart_grants() -> None:
    granted = set(iter_permissions(get_cluster_role_rules(print_roles("virtual-clusters"))))
    assert set(iter_permissions(CHART_RULES)) - granted == set(), "a cluster refuses a Role with more than that"


def iter_permissions(rules: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        yield from product(rule.get("apiGroups", ()), rule.get("resources", ()), rule["verbs"])


@pytest.mark.parametrize("arguments", [["gateways"], ["spaces"], ["--help"]])
def test_the_output_warns_that_impersonation_is_equivalent_to_cluster_admin(arguments: list[str]) -> None:
    output = " ".join(RUNNER.invoke(make_app(), ["cluster", "role", *arguments]).stdout.replace("# ", "").split())
    assert "impersonate all users and groups" in output
    assert "including system:masters" in output and "equivalent to cluster-admin" in output


def test_cluster_roles_and_service_account_can_be_changed() -> None:
    objects = print_roles("spaces", "--cluster-role", "tenant", "--account", "hub", "--namespace", "ops")
    assert [rule["resourceNames"] for rule in get_cluster_role_rules(objects) if "bind" in rule["verbs"]] == [
        ["tenant"]
    ]
    assert objects[0]["metadata"] == {"name": "hub", "namespace": "ops"}
    assert objects == build_objects([RolePart.SPACES], ["tenant"], "hub", "ops")


def test_an_unknown_part_is_rejected_with_the_available_ones() -> None:
    result = RUNNER.invoke(make_app(), ["cluster", "role", "everything"])
    assert result.exit_code == 2
    assert "virtual-clusters" in result.output


def test_cluster_add_prints_all_roles_without_a_name_or_a_server() -> None:
    result = RUNNER.invoke(make_app(), ["cluster", "add", "--print-role"])
    assert result.exit_code == 0, result.output
    assert list(yaml.safe_load_all(result.stdout)) == print_roles(*(part.value for part in AGENT_PARTS))


def test_an_account_that_renews_its_token_may_do_so_for_itself_alone_and_has_no_token_without_end() -> None:
    objects = print_roles("spaces", "renewal", "--account", "hub", "--namespace", "ops")
    assert not [each for each in objects if each["kind"] == "Secret"]
    role, binding = (each for each in objects if each["metadata"]["name"] == "hub:renewal")
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "ops")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"], "resourceNames": ["hub"]}
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "hub", "namespace": "ops"}]
    without = {yaml.safe_dump(each) for each in print_roles("spaces", "--account", "hub", "--namespace", "ops")}
    assert {yaml.safe_dump(each) for each in objects} - without == {yaml.safe_dump(each) for each in (role, binding)}
