"""kinds/instances/preset.py: validation and columns of presets."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, build_example, computed_cells, find_problems, problem_reasons

KIND = "DevPodWorkspacePreset"
COMPLETE: Object = {"source": {"git": "https://example.com/a.git"}, "templateRef": {"name": "t"}}
TWO_SOURCES = {"git": "https://example.com/a.git", "image": "debian:12"}


def build_preset(**spec: Any) -> Object:
    return build_example(KIND, spec=spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (COMPLETE, []),
        ({**COMPLETE, "source": {"image": "debian:12"}}, []),
        ({"versions": [{**COMPLETE, "version": "1.0.0"}]}, []),
        ({}, ["spec.source", "spec.templateRef.name"]),
        ({**COMPLETE, "source": TWO_SOURCES}, ["spec.source.image"]),
        ({**COMPLETE, "source": {"git": "https://ada:secret@example.com/a.git"}}, ["spec.source.git"]),
        ({**COMPLETE, "templateRef": {"name": "<b>"}}, ["spec.templateRef.name"]),
        ({**COMPLETE, "templateRef": {"name": "t", "version": "1"}}, ["spec.templateRef.version"]),
        ({**COMPLETE, "environmentRef": {"name": "<b>"}}, ["spec.environmentRef.name"]),
        ({**COMPLETE, "environmentRef": {"name": "e", "version": "latest"}}, ["spec.environmentRef.version"]),
        ({**COMPLETE, "parameters": "["}, ["spec.parameters"]),
        ({**COMPLETE, "parameters": "a: 1\na: 2"}, ["spec.parameters[a]"]),
        ({**COMPLETE, "versions": [{**COMPLETE, "version": "1"}]}, ["spec.versions[0].version"]),
        (
            {"versions": [{"version": "1.0.0", "parameters": "["}]},
            ["spec.versions[0].source", "spec.versions[0].templateRef.name", "spec.versions[0].parameters"],
        ),
        ({**COMPLETE, "owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
    ],
)
def test_presets_are_validated(spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_preset(**spec))] == expected


def test_the_password_of_a_url_is_not_in_the_message() -> None:
    problems = find_problems(build_preset(**{**COMPLETE, "source": {"git": "https://ada:secret@example.com/a.git"}}))
    assert "secret" not in " ".join(str(each) for each in problems)


def test_tables_show_the_source_and_the_newest_version() -> None:
    versions = [{**COMPLETE, "version": "1.9.0"}, {**COMPLETE, "version": "1.10.0"}]
    cells = computed_cells(BY_NAME[KIND], build_preset(source={"image": "debian:12"}, versions=versions))
    assert cells == {"Source": "debian:12", "Newest": "1.10.0"}
