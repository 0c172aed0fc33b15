"""kinds/instances/workspace.py: validation of workspaces, and their runner."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.instances.workspace import sleep_time
from tests.harness.kind_examples import (
    BY_NAME,
    apply_defaults,
    build_example,
    computed_cells,
    find_problems,
    problem_reasons,
)


def build_workspace(**spec: Any) -> Object:
    return build_example("DevPodWorkspaceInstance", spec=spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"runnerRef": {}, "templateRef": {}}, []),
        ({"templateRef": {"name": "python"}, "template": {}}, []),
        ({"template": {"provider": {"name": "docker"}}}, []),
        ({"templateRef": {"name": "t"}, "template": {"provider": {"name": "docker"}}}, ["spec.template"]),
        ({"templateRef": {"name": "<b>"}}, ["spec.templateRef.name"]),
        ({"environmentRef": {"name": "python", "version": "1.x.x"}}, []),
        ({"environmentRef": {"name": "<b>"}}, ["spec.environmentRef.name"]),
        ({"owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
        ({"target": {"cluster": {"name": "c"}}}, []),
        ({"target": {"cluster": {"name": "c"}, "virtualCluster": {"name": "v"}}}, ["spec.target.virtualCluster"]),
    ],
)
def test_workspaces_are_validated(spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_workspace(**spec))] == expected


@pytest.mark.parametrize("sent", [{}, {"runnerRef": {}}, {"runnerRef": {"runner": ""}}])
def test_an_update_without_the_runner_keeps_it(sent: Object) -> None:
    old = build_workspace(runnerRef={"runner": "local"})
    assert apply_defaults(build_workspace(**sent), old)["spec"]["runnerRef"] == {"runner": "local"}


def test_a_runner_cannot_be_changed() -> None:
    old, new = build_workspace(runnerRef={"runner": "local"}), build_workspace(runnerRef={"runner": "other"})
    assert problem_reasons(new, old) == [("spec.runnerRef.runner", "FieldValueInvalid")]


@pytest.mark.parametrize("before", [{}, {"runnerRef": {}}, {"runnerRef": {"runner": ""}}])
def test_a_runner_can_be_set_once(before: Object) -> None:
    assert find_problems(build_workspace(runnerRef={"runner": "local"}), build_workspace(**before)) == []


def test_an_empty_runner_reference_stays_empty_while_no_runner_is_set() -> None:
    sent = build_workspace(runnerRef={})
    assert apply_defaults(sent, build_workspace(runnerRef={}))["spec"] == {"runnerRef": {}}


def test_the_owner_column_shows_users_and_teams() -> None:
    kind = BY_NAME["DevPodWorkspaceInstance"]
    assert computed_cells(kind, build_workspace(owner={"user": "ada"}))["Owner"] == "ada"
    assert computed_cells(kind, build_workspace(owner={"team": "core"}))["Owner"] == "core"


def test_passwords_inside_inline_templates_are_sensitive() -> None:
    sensitive = BY_NAME["DevPodWorkspaceInstance"].sensitive
    assert "spec.template.virtualClusterTemplate.helmRelease.chart.password" in sensitive
    assert "status.instance.spaceTemplate.charts.password" in sensitive


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, ""), (1_800_000_000, "2027-01-15T08:00:00Z"), (10**12, ""), (10**30, ""), (-(10**15), "")],
)
def test_a_time_of_sleep_that_is_no_date_is_not_shown(seconds: int, shown: str) -> None:
    assert sleep_time({"status": {"sleepModeConfig": {"status": {"scheduledSleep": seconds}}}}) == shown
