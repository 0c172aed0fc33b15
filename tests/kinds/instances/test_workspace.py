from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, prepared, problems


def workspace(**spec: Any) -> Object:
    return example("DevPodWorkspaceInstance", spec=spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"runnerRef": {}, "templateRef": {}}, []),
        ({"templateRef": {"name": "python"}, "template": {}}, []),
        ({"template": {"provider": {"name": "docker"}}}, []),
        ({"templateRef": {"name": "t"}, "template": {"provider": {"name": "docker"}}}, ["spec.template"]),
        ({"templateRef": {"name": "<b>"}}, ["spec.templateRef.name"]),
        ({"owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
        ({"target": {"cluster": {"name": "c"}}}, []),
        ({"target": {"cluster": {"name": "c"}, "virtualCluster": {"name": "v"}}}, ["spec.target.virtualCluster"]),
    ],
)
def test_the_rules_of_a_workspace(spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in complaints(workspace(**spec))] == expected


@pytest.mark.parametrize("sent", [{}, {"runnerRef": {}}, {"runnerRef": {"runner": ""}}])
def test_a_workspace_stays_on_its_runner_when_the_reference_is_left_out(sent: Object) -> None:
    old = workspace(runnerRef={"runner": "local"})
    assert prepared(workspace(**sent), old)["spec"]["runnerRef"] == {"runner": "local"}


def test_a_runner_cannot_be_exchanged() -> None:
    old, new = workspace(runnerRef={"runner": "local"}), workspace(runnerRef={"runner": "other"})
    assert complaints(new, old) == [("spec.runnerRef.runner", "FieldValueInvalid")]


@pytest.mark.parametrize("before", [{}, {"runnerRef": {}}, {"runnerRef": {"runner": ""}}])
def test_a_runner_can_be_set_once(before: Object) -> None:
    assert problems(workspace(runnerRef={"runner": "local"}), workspace(**before)) == []


def test_an_empty_reference_stays_empty_while_no_runner_is_set() -> None:
    sent = workspace(runnerRef={})
    assert prepared(sent, workspace(runnerRef={}))["spec"] == {"runnerRef": {}}


def test_the_owner_column_shows_users_and_teams() -> None:
    kind = BY_NAME["DevPodWorkspaceInstance"]
    assert cells(kind, workspace(owner={"user": "ada"}))["Owner"] == "ada"
    assert cells(kind, workspace(owner={"team": "core"}))["Owner"] == "core"


def test_passwords_inside_written_out_templates_are_secret() -> None:
    secret = BY_NAME["DevPodWorkspaceInstance"].sensitive
    assert "spec.template.virtualClusterTemplate.helmRelease.chart.password" in secret
    assert "status.instance.spaceTemplate.charts.password" in secret
