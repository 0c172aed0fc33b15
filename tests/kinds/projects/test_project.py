"""kinds/projects/project.py: names, quotas, templates and members of projects."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.projects.project import project_kind
from fairlead.registry.kind import Change
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import BY_NAME, build_example, computed_cells, find_problems, problem_reasons

PREFIX = "service-p-"


def project_named(name: str) -> Object:
    return build_example("Project", metadata={"name": name})


def project_with_spec(**spec: Any) -> Object:
    return build_example("Project", spec=spec)


def test_a_name_leaves_room_for_the_namespace_prefix() -> None:
    longest = 63 - len(PREFIX)
    assert find_problems(project_named("p" * longest)) == []
    [problem] = find_problems(project_named("p" * (longest + 1)))
    assert problem.field == "metadata.name"
    assert "service-p-<name>" in problem.message
    assert "choose a shorter name" in problem.message


def test_another_prefix_changes_the_limit_and_the_namespace() -> None:
    kind = project_kind("x-")
    new = project_named("p" * 61)
    assert list(kind.check(Change("create", kind, User("ada"), None, new))) == []
    assert computed_cells(kind, project_named("demo"))["Namespace"] == "x-demo"


def test_names_are_dns_labels() -> None:
    assert BY_NAME["Project"].name_is_label


@pytest.mark.parametrize("amount", ["0", "10", "1.5", "500m", "2Gi", "3k"])
def test_quotas_are_quantities(amount: str) -> None:
    assert find_problems(project_with_spec(quotas={"project": {"limits.cpu": amount}})) == []


@pytest.mark.parametrize("amount", ["", "ten", "-1", "1 Gi", "1gi", "٣"])
def test_an_invalid_quota_is_rejected(amount: str) -> None:
    sent = project_with_spec(quotas={"user": {"spaceinstances": amount}})
    assert problem_reasons(sent) == [("spec.quotas.user[spaceinstances]", "FieldValueInvalid")]


def test_only_one_template_of_each_kind_can_be_the_default() -> None:
    def allow_template(kind: str, name: str, default: bool) -> Object:
        return {"kind": kind, "name": name, "isDefault": default}

    valid = [allow_template("A", "a", True), allow_template("A", "b", False), allow_template("B", "c", True)]
    assert find_problems(project_with_spec(allowedTemplates=valid)) == []
    twice = [*valid, allow_template("A", "d", True)]
    assert problem_reasons(project_with_spec(allowedTemplates=twice)) == [
        ("spec.allowedTemplates[3].isDefault", "FieldValueInvalid")
    ]


@pytest.mark.parametrize("member", [{"kind": "User"}, {"name": "ada"}, {"kind": "Robot", "name": "r2"}])
def test_a_member_must_be_a_named_user_or_team(member: Object) -> None:
    sent = project_with_spec(members=[member])
    assert Validator(BY_NAME["Project"].schema()).validate(sent).problems


def test_the_table_shows_namespace_readiness_and_members() -> None:
    row = computed_cells(BY_NAME["Project"], build_example("Project"))
    assert row == {"Namespace": "service-p-demo", "Ready": "True", "Members": 2}
