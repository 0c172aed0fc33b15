import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, complaints, example, prepared, problems, warnings

CHART = {"name": "nginx", "repoURL": "https://charts.example.com"}


def app(**spec: object) -> Object:
    return example("App", spec=spec)


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
def test_one_source_is_fine(config: Object) -> None:
    assert problems(app(config=config)) == []


@pytest.mark.parametrize(
    ("config", "surplus"),
    [
        ({"chart": CHART, "manifests": "kind: ConfigMap"}, ["manifests"]),
        ({"chart": {"repoURL": "https://x"}, "bash": {"script": "true"}}, ["bash"]),
        ({"manifests": "x", "bash": {"script": "true"}}, ["bash"]),
        ({"chart": CHART, "manifests": "x", "bash": {"script": "true"}}, ["manifests", "bash"]),
    ],
)
def test_more_than_one_source_is_refused(config: Object, surplus: list[str]) -> None:
    expected = [(f"spec.config.{name}", "FieldValueForbidden") for name in surplus]
    assert complaints(app(config=config)) == expected


def test_each_version_has_one_source_too() -> None:
    versions = [{"version": "1.0.0", "chart": CHART}, {"version": "1.1.0", "chart": CHART, "manifests": "x"}]
    assert complaints(app(versions=versions)) == [("spec.versions[1].manifests", "FieldValueForbidden")]


def test_a_refusal_says_what_to_do() -> None:
    [problem] = problems(app(config={"chart": CHART, "manifests": "x"}))
    assert problem.message == "Forbidden: spec.config.chart is set too; keep one of chart, manifests and bash"


def test_an_owner_is_a_user_or_a_team() -> None:
    assert complaints(app(owner={"user": "ada", "team": "core"})) == [("spec.owner.team", "FieldValueForbidden")]


def test_deprecated_fields_are_kept_with_a_warning() -> None:
    sent = app(helm={"name": "nginx"}, manifests="x", streamContainer={"container": "c"})
    assert warnings(sent) == [
        "spec.streamContainer is deprecated: nothing reads it any more",
        "spec.manifests is deprecated: use spec.config.manifests",
        "spec.helm is deprecated: use spec.config.chart",
    ]
    assert prepared(sent)["spec"]["helm"] == {"name": "nginx"}


def test_an_ordinary_app_is_not_warned_about() -> None:
    assert warnings(example("App")) == []


@pytest.mark.parametrize("spec", [None, {}, {"access": [{}], "icon": "", "config": {}, "recommendedApp": ["other"]}])
def test_empty_and_free_values_stay_as_sent(spec: Object | None) -> None:
    sent = example("App", spec=spec)
    assert problems(sent) == []
    assert prepared(sent) == example("App", spec=spec)


def test_passwords_of_repositories_are_secret_wherever_they_stand() -> None:
    assert set(BY_NAME["App"].sensitive) == {
        "spec.config.chart.password",
        "spec.versions.chart.password",
        "spec.helm.password",
    }


def test_the_status_is_part_of_the_object() -> None:
    assert not BY_NAME["App"].status_subresource
