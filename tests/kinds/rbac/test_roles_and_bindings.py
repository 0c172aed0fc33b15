"""Roles and bindings come back in Kubernetes' shape, and are refused in its words."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry import object_metadata
from fairlead.registry.table import table_columns
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, prepared, problems

GROUP = "rbac.authorization.k8s.io"
ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
REFERENCE = {"kind": "ClusterRole", "name": "r"}


def told(new: Object, old: Object | None = None) -> list[str]:
    return [str(problem) for problem in problems(new, old)]


def role(*rules: Object, kind: str = "Role", **fields: Any) -> Object:
    return example(kind, rules=list(rules), **{"aggregationRule": None, **fields})


def aggregated(*selectors: Object) -> Object:
    return example("ClusterRole", aggregationRule={"clusterRoleSelectors": list(selectors)})


def binding(*subjects: Object, kind: str = "RoleBinding", **fields: Any) -> Object:
    return example(kind, **{"subjects": list(subjects), "roleRef": REFERENCE, **fields})


@pytest.mark.parametrize("kind", ROLES)
@pytest.mark.parametrize("rules", [None, []])
def test_a_role_without_rules_says_so(kind: str, rules: list[Object] | None) -> None:
    assert prepared(example(kind, rules=rules))["rules"] is None


@pytest.mark.parametrize("kind", ROLES)
def test_empty_lists_inside_a_rule_are_left_out(kind: str) -> None:
    sent = {"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "resourceNames": [], "nonResourceURLs": []}
    assert prepared(role(sent, kind=kind))["rules"] == [{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            {"apiGroups": [""], "resources": ["x"]},
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
        ),
        (
            {"verbs": ["get"]},
            [
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            {"nonResourceURLs": ["/x"], "apiGroups": [""], "resources": ["x"], "verbs": ["get"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/x"]: '
                "rules cannot apply to both regular resources and non-resource URLs"
            ],
        ),
        ({"nonResourceURLs": ["/x", "/y/*"], "verbs": ["*"]}, []),
        ({"apiGroups": ["*"], "resources": ["*", "a/b", "*/c"], "verbs": ["*"], "resourceNames": [""]}, []),
    ],
)
def test_what_a_rule_needs(rule: Object, expected: list[str]) -> None:
    assert told(role(rule, kind="ClusterRole")) == expected


def test_a_rule_inside_a_namespace_is_not_about_paths() -> None:
    assert told(role({"nonResourceURLs": ["/x"], "verbs": ["get"]})) == [
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'
    ]


def test_every_rule_is_looked_at() -> None:
    good = {"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}
    assert [path for path, _ in complaints(role(good, {"verbs": ["get"]}, good, {}))] == [
        *("rules[1].apiGroups", "rules[1].resources"),
        *("rules[3].verbs", "rules[3].apiGroups", "rules[3].resources"),
    ]


def test_selectors_come_back_without_what_is_empty_in_them() -> None:
    new = aggregated({"matchLabels": {}, "matchExpressions": []}, {"matchLabels": {"a": ""}})
    assert prepared(new)["aggregationRule"] == {"clusterRoleSelectors": [{}, {"matchLabels": {"a": ""}}]}
    sent = [{"key": "a", "operator": "Exists", "values": []}]
    (selector,) = prepared(aggregated({"matchExpressions": sent}))["aggregationRule"]["clusterRoleSelectors"]
    assert selector == {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


@pytest.mark.parametrize("rule", [{}, {"clusterRoleSelectors": []}])
def test_an_aggregation_rule_needs_a_selector(rule: Object) -> None:
    assert told(example("ClusterRole", aggregationRule=rule)) == [
        "aggregationRule.clusterRoleSelectors: Required value: "
        "at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, []),
        ({"matchExpressions": [{"key": "x.io/a", "operator": "NotIn", "values": ["b", ""]}]}, []),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, []),
        ({"matchLabels": {"-": "b"}}, [("matchLabels", "FieldValueInvalid")]),
        ({"matchLabels": {"a": "b c"}}, [("matchLabels", "FieldValueInvalid")]),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            [("matchExpressions[0].values", "FieldValueRequired")],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            [("matchExpressions[0].values", "FieldValueForbidden")],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            [("matchExpressions[0].operator", "FieldValueInvalid")],
        ),
        (
            {"matchExpressions": [{"key": "/", "operator": "In", "values": ["b", "!"]}]},
            [
                ("matchExpressions[0].key", "FieldValueInvalid"),
                ("matchExpressions[0].values[1]", "FieldValueInvalid"),
            ],
        ),
    ],
)
def test_what_a_selector_needs(selector: Object, expected: list[tuple[str, str]]) -> None:
    at = "aggregationRule.clusterRoleSelectors[0]"
    found = dict.fromkeys(complaints(aggregated(selector)))
    assert list(found) == [(f"{at}.{path}", reason) for path, reason in expected]


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_is_completed(kind: str) -> None:
    account = {"kind": "ServiceAccount", "name": "sa", "namespace": "demo"}
    user, group = {"kind": "User", "name": "bob", "apiGroup": ""}, {"kind": "Group", "name": "team", "namespace": ""}
    new = prepared(binding(user, group, account, kind=kind))
    assert new["roleRef"] == {"apiGroup": GROUP, **REFERENCE}
    assert new["subjects"] == [
        {"apiGroup": GROUP, "kind": "User", "name": "bob"},
        {"apiGroup": GROUP, "kind": "Group", "name": "team"},
        account,
    ]


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_without_subjects_has_no_field_for_them(kind: str) -> None:
    assert "subjects" not in prepared(binding(kind=kind))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"kind": "Nope", "name": "r"}, ['roleRef.kind: Unsupported value: "Nope": supported values: "ClusterRole"']),
        ({"kind": "Role", "name": "r"}, ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"']),
        ({"kind": "ClusterRole", "name": ""}, ["roleRef.name: Required value"]),
        ({"kind": "ClusterRole", "name": "a/b"}, ["roleRef.name: Invalid value: \"a/b\": may not contain '/'"]),
        (
            {"kind": "ClusterRole", "name": "r", "apiGroup": "x.io"},
            [f'roleRef.apiGroup: Unsupported value: "x.io": supported values: "{GROUP}"'],
        ),
        (
            {},
            [
                'roleRef.kind: Unsupported value: "": supported values: "ClusterRole"',
                "roleRef.name: Required value",
            ],
        ),
    ],
)
def test_which_roles_can_be_bound_for_the_cluster(reference: Object, expected: list[str]) -> None:
    assert told(binding(kind="ClusterRoleBinding", roleRef=reference)) == expected


def test_inside_a_namespace_roles_can_be_bound_too() -> None:
    assert told(binding(roleRef={"kind": "Role", "name": "r"})) == []
    assert told(binding(roleRef={"kind": "Nope", "name": "r"})) == [
        'roleRef.kind: Unsupported value: "Nope": supported values: "Role", "ClusterRole"'
    ]


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_without_a_role_is_refused(kind: str) -> None:
    assert [path for path, _ in complaints(example(kind, roleRef=None))] == ["roleRef.kind", "roleRef.name"]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ({"kind": "Nope", "name": "x"}, [("kind", "FieldValueNotSupported")]),
        ({"kind": "User", "name": ""}, [("name", "FieldValueRequired")]),
        ({"kind": "Group"}, [("name", "FieldValueRequired")]),
        ({"kind": "User", "name": "x", "apiGroup": "x.io"}, [("apiGroup", "FieldValueNotSupported")]),
        ({"kind": "ServiceAccount", "name": "x"}, [("namespace", "FieldValueRequired")]),
        ({"kind": "ServiceAccount", "name": "X_", "namespace": "n"}, [("name", "FieldValueInvalid")]),
        (
            {"kind": "ServiceAccount", "name": "x", "namespace": "n", "apiGroup": GROUP},
            [("apiGroup", "FieldValueNotSupported")],
        ),
        ({"kind": "Group", "name": "system:authenticated"}, []),
        ({"kind": "User", "name": "Ada Lovelace <ada@example.com>"}, []),
    ],
)
def test_what_a_subject_needs(subject: Object, expected: list[tuple[str, str]]) -> None:
    found = complaints(binding(subject, kind="ClusterRoleBinding"))
    assert found == [(f"subjects[0].{path}", reason) for path, reason in expected]


def test_inside_a_namespace_a_service_account_is_at_home() -> None:
    assert told(binding({"kind": "ServiceAccount", "name": "x"})) == []


@pytest.mark.parametrize("kind", BINDINGS)
@pytest.mark.parametrize("changed", [{"name": "other"}, {"kind": "Role"}, {"apiGroup": "x.io"}])
def test_the_role_of_a_binding_cannot_change(kind: str, changed: Object) -> None:
    old = prepared(binding(kind=kind))
    new = binding(kind=kind, roleRef={**REFERENCE, **changed})
    assert ("roleRef", "FieldValueInvalid") in complaints(new, old)
    sent = {"apiGroup": GROUP, **REFERENCE, **changed}
    shown = f'{{"APIGroup":"{sent["apiGroup"]}","Kind":"{sent["kind"]}","Name":"{sent["name"]}"}}'
    assert f"roleRef: Invalid value: {shown}: field is immutable" in told(new, old)


@pytest.mark.parametrize("kind", BINDINGS)
def test_the_subjects_of_a_binding_can_change(kind: str) -> None:
    assert told(binding({"kind": "User", "name": "bob"}, kind=kind), prepared(binding(kind=kind))) == []


@pytest.mark.parametrize("kind", [*ROLES, *BINDINGS])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a:B_c", ""),
        ("system:discovery", ""),
        ("with space.", ""),
        ("a%b", "may not contain '%'"),
        ("a/b", "may not contain '/'"),
        ("..", "may not be '..'"),
        ("a\x00b", "may not contain a NUL byte"),
        ("x" * 1025, "must be no more than 1024 characters"),
    ],
)
def test_names_are_whatever_a_path_can_hold(kind: str, name: str, fault: str) -> None:
    obj = example(kind, metadata={"name": name})
    found = list(object_metadata.problems(obj, BY_NAME[kind]))
    assert [problem.field for problem in found] == (["metadata.name"] if fault else [])
    assert all(problem.message.endswith(fault) for problem in found)


@pytest.mark.parametrize("kind", ROLES)
def test_roles_are_listed_with_the_date_of_their_creation(kind: str) -> None:
    assert [column.name for column in table_columns(BY_NAME[kind])] == ["Name", "Created At"]


@pytest.mark.parametrize("kind", BINDINGS)
def test_bindings_are_listed_with_their_role_and_subjects(kind: str) -> None:
    columns = table_columns(BY_NAME[kind])
    assert [column.name for column in columns] == ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]
    assert [column.name for column in columns if column.wide] == ["Users", "Groups", "ServiceAccounts"]
    people = [{"kind": "User", "name": name} for name in ("ada", "bob")]
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "demo"}
    shown = cells(BY_NAME[kind], binding(*people, {"kind": "Group", "name": "core"}, account, kind=kind))
    assert shown == {
        "Role": "ClusterRole/r",
        "Users": "ada, bob",
        "Groups": "core",
        "ServiceAccounts": "demo/robot",
    }
