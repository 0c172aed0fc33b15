"""The roles that are printed for clusters: what is in them, and what is not. That they suffice: tests/reference."""

from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli import make_app
from fairlead.cli.resources.cluster_role import RolePart, build_objects
from fairlead.controllers.clusters.probe import EXTRA_RIGHT, REQUIRED_RIGHTS

RUNNER = CliRunner()


def printed(*arguments: str) -> list[dict[str, Any]]:
    ended = RUNNER.invoke(make_app(), ["cluster", "role", *arguments])
    assert ended.exit_code == 0, ended.output
    return list(yaml.safe_load_all(ended.stdout))


def rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]


@pytest.mark.parametrize(
    ("parts", "roles"),
    [
        ([], ["gateways"]),
        (["gateways"], ["gateways"]),
        (["spaces"], ["gateways", "spaces"]),
        (["virtual-clusters", "spaces"], ["gateways", "spaces", "virtual-clusters"]),
    ],
)
def test_each_part_is_a_role_bound_to_one_service_account_with_a_token(parts: list[str], roles: list[str]) -> None:
    objects = printed(*parts)
    account, token, *others = objects
    assert (account["kind"], account["metadata"]) == (
        "ServiceAccount",
        {"name": "fairlead", "namespace": "kube-system"},
    )
    assert token["type"] == "kubernetes.io/service-account-token"
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "fairlead"}
    names = [(each["kind"], each["metadata"]["name"]) for each in others]
    assert names == [(kind, f"fairlead:{role}") for role in roles for kind in ("ClusterRole", "ClusterRoleBinding")]
    for binding in others[1::2]:
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "fairlead", "namespace": "kube-system"}]


def test_every_right_that_is_probed_is_in_the_role_for_gateways() -> None:
    given = {
        (group, resource)
        for rule in rules(printed("gateways"))
        if "impersonate" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    probed = {(right.group, right.resource) for right in REQUIRED_RIGHTS}
    assert given == {*probed, (EXTRA_RIGHT.group, f"{EXTRA_RIGHT.resource}/{EXTRA_RIGHT.subresource}")}


def test_no_role_gives_everything_or_the_right_to_take_more() -> None:
    everything = [rule for rule in rules(printed("spaces", "virtual-clusters")) if "*" in str(rule)]
    taking = [rule for rule in rules(printed("spaces", "virtual-clusters")) if "escalate" in rule["verbs"]]
    assert (everything, taking) == ([], [])
    bound = [rule["resourceNames"] for rule in rules(printed("spaces", "virtual-clusters")) if "bind" in rule["verbs"]]
    assert bound == [["admin", "edit", "view"]] * 2


@pytest.mark.parametrize("arguments", [["gateways"], ["spaces"], ["--help"]])
def test_it_says_that_the_right_to_impersonate_is_as_strong_as_that_of_an_administrator(arguments: list[str]) -> None:
    said = " ".join(RUNNER.invoke(make_app(), ["cluster", "role", *arguments]).stdout.replace("# ", "").split())
    assert "impersonate all users and groups" in said
    assert "including system:masters" in said and "equivalent to cluster-admin" in said


def test_other_cluster_roles_and_another_account_can_be_named() -> None:
    objects = printed("spaces", "--cluster-role", "tenant", "--account", "hub", "--namespace", "ops")
    assert [rule["resourceNames"] for rule in rules(objects) if "bind" in rule["verbs"]] == [["tenant"]]
    assert objects[0]["metadata"] == {"name": "hub", "namespace": "ops"}
    assert objects == build_objects([RolePart.SPACES], ["tenant"], "hub", "ops")


def test_an_unknown_part_is_refused_with_those_that_there_are() -> None:
    ended = RUNNER.invoke(make_app(), ["cluster", "role", "everything"])
    assert ended.exit_code == 2
    assert "virtual-clusters" in ended.output


def test_cluster_add_prints_all_roles_without_a_name_or_a_server() -> None:
    ended = RUNNER.invoke(make_app(), ["cluster", "add", "--print-role"])
    assert ended.exit_code == 0, ended.output
    assert list(yaml.safe_load_all(ended.stdout)) == printed(*(part.value for part in RolePart))
