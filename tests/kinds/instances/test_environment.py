"""kinds/instances/templates.py: validation and columns of environments."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry import limits
from tests.harness.kind_examples import BY_NAME, build_example, computed_cells, find_problems, problem_reasons

KIND = "DevPodEnvironmentTemplate"
TEXT = '{"image": "debian:12"} // a comment'
INLINE = {"inline": TEXT}


def build_environment(**spec: Any) -> Object:
    return build_example(KIND, spec=spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"template": INLINE}, []),
        ({"versions": [{"version": "1.0.0", "template": INLINE}]}, []),
        ({}, ["spec.template.inline"]),
        ({"template": {}}, ["spec.template.inline"]),
        ({"template": {}, "versions": [{"version": "1.0.0", "template": INLINE}]}, ["spec.template.inline"]),
        ({"versions": [{"version": "1.0.0"}]}, ["spec.versions[0].template.inline"]),
        ({"versions": [{"version": "1.x.x", "template": INLINE}]}, ["spec.versions[0].version"]),
        ({"versions": [{"version": "1.0.0", "template": INLINE}] * 2}, ["spec.versions[1].version"]),
        ({"template": {"inline": "image: debian"}}, ["spec.template.inline"]),
        ({"template": {"inline": "[]"}}, ["spec.template.inline"]),
        ({"template": {"inline": "{" * 500}}, ["spec.template.inline"]),
        (
            {"template": INLINE, "versions": [{"version": "1.0.0", "template": {"inline": "{"}}]},
            ["spec.versions[0].template.inline"],
        ),
        ({"template": INLINE, "owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
    ],
)
def test_environments_are_validated(spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_environment(**spec))] == expected


def test_a_text_that_cannot_be_read_is_explained_without_being_repeated() -> None:
    (problem,) = find_problems(build_environment(template={"inline": '{"image": "canary",'}))
    assert "is no devcontainer.json: unexpected end of JSON input" in problem.message
    assert "canary" not in problem.message


def with_versions(count: int, size: int) -> Object:
    text = f"{{}} //{'x' * (size - 5)}"
    versions = [{"version": f"1.{number}.0", "template": {"inline": text}} for number in range(count)]
    return build_environment(versions=versions)


def test_all_versions_together_have_a_limit_and_stored_ones_may_stay() -> None:
    most = limits.DEVCONTAINERS // limits.DEVCONTAINER
    full, more = with_versions(most, limits.DEVCONTAINER), with_versions(most + 1, limits.DEVCONTAINER)
    assert find_problems(full) == []
    assert problem_reasons(more, full) == [("spec.versions", "FieldValueTooMany")]


def test_tables_show_the_newest_version() -> None:
    versions = [{"version": "1.9.0", "template": INLINE}, {"version": "1.10.0", "template": INLINE}]
    assert computed_cells(BY_NAME[KIND], build_environment(versions=versions)) == {"Newest": "1.10.0"}
