from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.projects.project import project_kind
from fairlead.registry.kind import Change
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, problems

PREFIX = "service-p-"


def named(name: str) -> Object:
    return example("Project", metadata={"name": name})


def with_spec(**spec: Any) -> Object:
    return example("Project", spec=spec)


def test_a_name_leaves_room_for_the_prefix_of_its_namespace() -> None:
    longest = 63 - len(PREFIX)
    assert problems(named("p" * longest)) == []
    [problem] = problems(named("p" * (longest + 1)))
    assert problem.field == "metadata.name"
    assert "service-p-<name>" in problem.message
    assert "choose a shorter name" in problem.message


def test_another_prefix_moves_the_limit_and_the_namespace() -> None:
    kind = project_kind("x-")
    new = named("p" * 61)
    assert list(kind.check(Change("create", kind, User("ada"), None, new))) == []
    assert cells(kind, named("demo"))["Namespace"] == "x-demo"


def test_names_are_labels() -> None:
    assert BY_NAME["Project"].name_is_label


@pytest.mark.parametrize("amount", ["0", "10", "1.5", "500m", "2Gi", "3k"])
def test_quotas_are_quantities(amount: str) -> None:
    assert problems(with_spec(quotas={"project": {"limits.cpu": amount}})) == []


@pytest.mark.parametrize("amount", ["", "ten", "-1", "1 Gi", "1gi", "٣"])
def test_a_quota_that_cannot_be_read_is_refused(amount: str) -> None:
    sent = with_spec(quotas={"user": {"spaceinstances": amount}})
    assert complaints(sent) == [("spec.quotas.user[spaceinstances]", "FieldValueInvalid")]


def test_one_template_of_each_kind_can_be_the_default() -> None:
    def template(kind: str, name: str, default: bool) -> Object:
        return {"kind": kind, "name": name, "isDefault": default}

    fine = [template("A", "a", True), template("A", "b", False), template("B", "c", True)]
    assert problems(with_spec(allowedTemplates=fine)) == []
    twice = [*fine, template("A", "d", True)]
    assert complaints(with_spec(allowedTemplates=twice)) == [
        ("spec.allowedTemplates[3].isDefault", "FieldValueInvalid")
    ]


@pytest.mark.parametrize("member", [{"kind": "User"}, {"name": "ada"}, {"kind": "Robot", "name": "r2"}])
def test_a_member_is_a_named_user_or_team(member: Object) -> None:
    sent = with_spec(members=[member])
    assert Validator(BY_NAME["Project"].schema()).validate(sent).problems


def test_the_table_shows_namespace_readiness_and_members() -> None:
    shown = cells(BY_NAME["Project"], example("Project"))
    assert shown == {"Namespace": "service-p-demo", "Ready": "True", "Members": 2}
