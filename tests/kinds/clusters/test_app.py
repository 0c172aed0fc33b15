"""kinds/clusters/app.py: sources, owners, deprecated fields and passwords of apps."""

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import (
    BY_NAME,
    apply_defaults,
    build_example,
    find_problems,
    problem_reasons,
)
from tests.harness.kind_warnings import find_warnings

CHART = {"name": "nginx", "repoURL": "https://charts.example.com"}


def build_app(**spec: object) -> Object:
    return build_example("App", spec=spec)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"chart": CHART},
        {"chart": {}, "manifests": "kind: ConfigMap"},
        {"chart": CHART, "manifests": "", "bash": {"script": ""}},
        {"bash": {"script": "true", "image": "busybox"}},
        {"chart": CHART, "values": "a: b", "annotations": {"x": "y"}},
    ],
)
def test_at_most_one_source_is_valid(config: Object) -> None:
    assert find_problems(build_app(config=config)) == []


@pytest.mark.parametrize(
    ("config", "surplus"),
    [
        ({"chart": CHART, "manifests": "kind: ConfigMap"}, ["manifests"]),
        ({"chart": {"repoURL": "https://x"}, "bash": {"script": "true", "image": "x"}}, ["bash"]),
        ({"manifests": "x", "bash": {"script": "true", "image": "x"}}, ["bash"]),
        ({"chart": CHART, "manifests": "x", "bash": {"script": "true", "image": "x"}}, ["manifests", "bash"]),
    ],
)
def test_more_than_one_source_is_rejected(config: Object, surplus: list[str]) -> None:
    expected = [(f"spec.config.{name}", "FieldValueForbidden") for name in surplus]
    assert problem_reasons(build_app(config=config)) == expected


def test_each_version_has_at_most_one_source() -> None:
    versions = [{"version": "1.0.0", "chart": CHART}, {"version": "1.1.0", "chart": CHART, "manifests": "x"}]
    assert problem_reasons(build_app(versions=versions)) == [("spec.versions[1].manifests", "FieldValueForbidden")]


def test_errors_explain_what_to_do() -> None:
    [problem] = find_problems(build_app(config={"chart": CHART, "manifests": "x"}))
    assert problem.message == "Forbidden: spec.config.chart is set too; keep one of chart, manifests and bash"


def test_an_owner_is_a_user_or_a_team() -> None:
    assert problem_reasons(build_app(owner={"user": "ada", "team": "core"})) == [
        ("spec.owner.team", "FieldValueForbidden")
    ]


def test_deprecated_fields_are_accepted_with_a_warning() -> None:
    sent = build_app(helm={"name": "nginx"}, manifests="x", streamContainer={"container": "c"})
    assert find_warnings(sent) == [
        "spec.manifests is deprecated: use spec.config.manifests",
        "spec.helm is deprecated: use spec.config.chart",
        "spec.streamContainer is deprecated and has no effect",
    ]
    assert apply_defaults(sent)["spec"]["helm"] == {"name": "nginx"}


def test_an_ordinary_app_gets_no_warning() -> None:
    assert find_warnings(build_example("App")) == []


@pytest.mark.parametrize("spec", [None, {}, {"access": [{}], "icon": "", "config": {}, "recommendedApp": ["other"]}])
def test_empty_and_free_form_values_are_kept(spec: Object | None) -> None:
    sent = build_example("App", spec=spec)
    assert find_problems(sent) == []
    assert apply_defaults(sent) == build_example("App", spec=spec)


def test_passwords_of_repositories_are_sensitive_in_every_field() -> None:
    assert set(BY_NAME["App"].sensitive) == {
        "spec.config.chart.password",
        "spec.versions.chart.password",
        "spec.helm.password",
    }


def test_the_status_is_not_a_subresource() -> None:
    assert not BY_NAME["App"].status_subresource


def test_a_timeout_must_be_a_duration_in_its_limits() -> None:
    assert find_problems(build_app(timeout="90s")) == []
    assert problem_reasons(build_app(timeout="1h")) == [("spec.timeout", "FieldValueInvalid")]
