"""kinds/clusters/runner.py: runners and their subresources."""

import pytest

from fairlead.core.workspaces import SILENT
from fairlead.kinds.clusters.runner import (
    RUNNER,
    RUNNER_ACCESS_KEY,
    RUNNER_COMPONENT,
    RUNNER_CONFIG,
    RUNNER_KEY_ROTATION,
)
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import build_example, computed_cells, problem_reasons


@pytest.mark.parametrize(
    "endpoint",
    ["runner", "runner.example.com", "runner.example.com:8443", "https://runner.example.com", "10.0.0.1:1", "[::1]:80"],
)
def test_a_host_is_a_valid_endpoint(endpoint: str) -> None:
    assert problem_reasons(build_example("Runner", spec={"endpoint": endpoint})) == []


@pytest.mark.parametrize(
    "endpoint",
    [
        *("http://runner", "ftp://runner", "user@runner", "https://a:b@runner", "runner/path", "runner?x", "runner#x"),
        *("run ner", "runner:port", "runner:0", "runner:99999", "https://", ":80", "runner\n", "runner\\x", "[::1"),
    ],
)
def test_any_other_endpoint_is_rejected(endpoint: str) -> None:
    assert problem_reasons(build_example("Runner", spec={"endpoint": endpoint})) == [
        ("spec.endpoint", "FieldValueInvalid")
    ]


def test_a_runner_has_at_most_one_owner() -> None:
    owner = {"user": "ada", "team": "core"}
    assert problem_reasons(build_example("Runner", spec={"owner": owner})) == [
        ("spec.owner.team", "FieldValueForbidden")
    ]


def test_a_runner_is_usable_by_default() -> None:
    assert computed_cells(RUNNER, build_example("Runner", spec={}))["Unusable"] is False
    assert computed_cells(RUNNER, build_example("Runner", spec={"unusable": True}))["Unusable"] is True


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("True", "Connected", "Ready"),
        ("False", "Failed", "NotReady"),
        ("Unknown", SILENT, SILENT),
        ("Unknown", "x", ""),
    ],
)
def test_the_table_shows_whether_a_runner_responds(status: str, reason: str, shown: str) -> None:
    ready = {"type": "Ready", "status": status, "reason": reason}
    runner = build_example("Runner", status={"phase": "Initialized", "conditions": [ready]})
    assert computed_cells(RUNNER, runner)["Status"] == shown


def test_names_are_valid_label_values() -> None:
    assert RUNNER.name_is_label
    assert RUNNER_COMPONENT.key_secret_name("local") == "runner-local-key"


def test_subresources_that_return_a_key_are_marked() -> None:
    assert RUNNER_ACCESS_KEY.sensitive == RUNNER_KEY_ROTATION.sensitive == ("accessKey",)
    assert not RUNNER_CONFIG.sensitive
    assert [(action.name, action.verbs) for action in RUNNER.actions] == [
        ("accesskey", ("get",)),
        ("config", ("get",)),
        ("rotatekey", ("create",)),
        ("link", ("get",)),
    ]


def test_an_overlap_must_not_be_negative() -> None:
    findings = Validator(RUNNER_KEY_ROTATION.schema()).validate({"spec": {"overlapSeconds": -1}})
    assert [problem.field for problem in findings.problems] == ["spec.overlapSeconds"]
