"""kinds/instances/templates.py: validation, columns and passwords of templates."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, build_example, computed_cells, problem_reasons

KINDS = ["DevPodWorkspaceTemplate", "SpaceTemplate", "VirtualClusterTemplate"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def build_template(kind: str, **spec: Any) -> Object:
    return build_example(kind, spec=spec)


@each_kind
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"versions": [{"version": "1.0.0"}, {"version": "1.0.1"}]}, []),
        ({"versions": [{}]}, ["spec.versions[0].version"]),
        ({"versions": [{"version": "1.x.x"}]}, ["spec.versions[0].version"]),
        ({"versions": [{"version": "1.0.0"}, {"version": "1.0.0"}]}, ["spec.versions[1].version"]),
        ({"versions": [{"version": "1.0.0"}, {"version": "01.0.0"}]}, ["spec.versions[1].version"]),
        ({"parameters": [{"variable": "a", "validation": "("}]}, ["spec.parameters[0].validation"]),
        (
            {"versions": [{"version": "1.0.0", "parameters": [{"variable": ""}]}]},
            ["spec.versions[0].parameters[0].variable"],
        ),
        ({"owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
    ],
)
def test_templates_are_validated(kind: str, spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_template(kind, **spec))] == expected


@each_kind
def test_tables_show_the_newest_version(kind: str) -> None:
    obj = build_template(kind, versions=[{"version": "1.9.0"}, {"version": "1.10.0"}], parameters=[{"variable": "a"}])
    assert computed_cells(BY_NAME[kind], obj) == {"Newest": "1.10.0", "Parameters": 1}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("DevPodWorkspaceTemplate", "spec.versions.template.spaceTemplate.charts.password"),
        ("SpaceTemplate", "spec.versions.template.charts.password"),
        ("VirtualClusterTemplate", "spec.template.helmRelease.chart.password"),
    ],
)
def test_passwords_in_all_versions_are_write_only(kind: str, path: str) -> None:
    assert path in BY_NAME[kind].write_only
