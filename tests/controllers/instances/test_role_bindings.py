"""Tests of `fairlead.controllers.instances.role_bindings`: roles of users and teams in the namespace of a space."""

from typing import Any

import pytest

from fairlead.controllers.instances.role_bindings import build_role_bindings
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.domain.typed_objects import Project, SpaceInstance

IDENTITY_MAPPER = ClusterIdentityMapper("fairlead:")
ADA = {"owner": {"user": "ada"}}


def subjects_by_role(spec: dict[str, Any], access: dict[str, Any] | None = None, **project: Any) -> dict[str, set[str]]:
    """The subjects of each role."""
    space = SpaceInstance({"spec": spec})
    bindings = build_role_bindings(IDENTITY_MAPPER, space, access or {}, Project({"spec": project}), "ns")
    assert [binding["metadata"]["name"] for binding in bindings] == [
        f"service.sh:{binding['roleRef']['name']}" for binding in bindings
    ]
    return {
        binding["roleRef"]["name"]: {f"{s['kind']} {s['name']}" for s in binding["subjects"]} for binding in bindings
    }


ADA_SUBJECTS = {"User fairlead:ada", "Group fairlead:service:user:ada"}


@pytest.mark.parametrize(
    ("spec", "access", "expected"),
    [
        (ADA, None, {"admin": ADA_SUBJECTS}),
        ({"owner": {"team": "red"}}, None, {"admin": {"Group fairlead:service:team:red"}}),
        ({"owner": {"user": "*"}}, None, {}),
        ({"owner": {"user": "system:serviceaccount:service-p-web:ci"}}, None, {}),
        (ADA, {"defaultClusterRole": "edit"}, {"edit": ADA_SUBJECTS}),
        (ADA, {"rules": [{"users": ["ada"], "clusterRole": "view"}]}, {"view": ADA_SUBJECTS}),
        (
            ADA,
            {"rules": [{"users": ["ada"], "clusterRole": "view"}, {"users": ["ada"], "clusterRole": "edit"}]},
            {"view": ADA_SUBJECTS, "edit": ADA_SUBJECTS},
        ),
        (
            ADA,
            {"rules": [{"teams": ["red"], "clusterRole": "view"}]},
            {"admin": ADA_SUBJECTS, "view": {"Group fairlead:service:team:red"}},
        ),
        (ADA, {"rules": [{"users": ["*"], "clusterRole": "view"}]}, {"view": {"Group fairlead:service:user:*"}}),
        (
            {**ADA, "extraAccessRules": [{"teams": ["red"], "clusterRole": "edit"}]},
            None,
            {"admin": ADA_SUBJECTS, "edit": {"Group fairlead:service:team:red"}},
        ),
        (
            {**ADA, "access": [{"teams": ["red"], "verbs": ["use"]}, {"users": ["eve"], "verbs": ["get"]}]},
            None,
            {"admin": ADA_SUBJECTS | {"Group fairlead:service:team:red"}},
        ),
    ],
)
def test_rules_are_merged_and_others_get_the_default_role(spec: Any, access: Any, expected: Any) -> None:
    assert subjects_by_role(spec, access) == expected


def test_administrators_of_the_project_are_administrators_of_its_spaces() -> None:
    members = [
        {"kind": "Team", "name": "ops", "clusterRole": "admin"},
        {"kind": "User", "name": "eve", "clusterRole": "user"},
    ]
    bindings = subjects_by_role(ADA, None, owner={"user": "bob"}, members=members)
    assert bindings == {
        "admin": ADA_SUBJECTS
        | {"User fairlead:bob", "Group fairlead:service:user:bob", "Group fairlead:service:team:ops"}
    }


def test_the_prefix_applies_to_every_subject() -> None:
    spec = {"owner": {"user": "ada"}, "access": [{"teams": ["red"], "users": ["system:admin"], "verbs": ["use"]}]}
    for prefix in ("corp:", ""):
        (binding,) = build_role_bindings(
            ClusterIdentityMapper(prefix), SpaceInstance({"spec": spec}), {}, Project({}), "ns"
        )
        assert {subject["name"] for subject in binding["subjects"]} == {
            *(f"{prefix}ada", f"{prefix}service:user:ada", f"{prefix}service:team:red"),
            f"{prefix}service:user:system:admin",
        }


def test_reserved_names_of_kubernetes_are_not_bound() -> None:
    rules = [{"users": ["system:anonymous"], "clusterRole": "view"}]
    space = SpaceInstance({"spec": {}})
    (binding,) = build_role_bindings(ClusterIdentityMapper(""), space, {"rules": rules}, Project({}), "ns")
    assert [subject["name"] for subject in binding["subjects"]] == ["service:user:system:anonymous"]
