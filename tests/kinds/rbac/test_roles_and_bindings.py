"""kinds/rbac/roles.py and bindings.py: defaults and validation of roles and bindings, as in kube-apiserver."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.rbac.roles import canonicalize_rules
from fairlead.registry import object_metadata
from fairlead.registry.table import table_columns
from tests.harness.kind_examples import (
    BY_NAME,
    apply_defaults,
    build_example,
    computed_cells,
    find_problems,
    problem_reasons,
)

GROUP = "rbac.authorization.k8s.io"
ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
REFERENCE = {"kind": "ClusterRole", "name": "r"}


def find_messages(new: Object, old: Object | None = None) -> list[str]:
    return [str(problem) for problem in find_problems(new, old)]


def build_role(*rules: Object, kind: str = "Role", **fields: Any) -> Object:
    return build_example(kind, rules=list(rules), **{"aggregationRule": None, **fields})


def build_aggregated_role(*selectors: Object) -> Object:
    return build_example("ClusterRole", aggregationRule={"clusterRoleSelectors": list(selectors)})


def build_binding(*subjects: Object, kind: str = "RoleBinding", **fields: Any) -> Object:
    return build_example(kind, **{"subjects": list(subjects), "roleRef": REFERENCE, **fields})


@pytest.mark.parametrize("kind", ROLES)
@pytest.mark.parametrize("rules", [None, []])
def test_a_role_without_rules_has_null_rules(kind: str, rules: list[Object] | None) -> None:
    role = apply_defaults(build_example(kind, rules=rules))
    assert role["rules"] == rules, "the client that sends an empty list owns it"
    canonicalize_rules(role)
    assert role["rules"] is None


@pytest.mark.parametrize("kind", ROLES)
def test_empty_lists_in_a_rule_are_removed(kind: str) -> None:
    sent = {"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "resourceNames": [], "nonResourceURLs": []}
    assert apply_defaults(build_role(sent, kind=kind))["rules"] == [
        {"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}
    ]


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
def test_a_rule_is_validated(rule: Object, expected: list[str]) -> None:
    assert find_messages(build_role(rule, kind="ClusterRole")) == expected


def test_a_rule_of_a_namespaced_role_rejects_non_resource_urls() -> None:
    assert find_messages(build_role({"nonResourceURLs": ["/x"], "verbs": ["get"]})) == [
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'
    ]


def test_every_rule_is_validated() -> None:
    valid = {"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}
    assert [path for path, _ in problem_reasons(build_role(valid, {"verbs": ["get"]}, valid, {}))] == [
        *("rules[1].apiGroups", "rules[1].resources"),
        *("rules[3].verbs", "rules[3].apiGroups", "rules[3].resources"),
    ]


def test_empty_fields_of_selectors_are_removed() -> None:
    new = build_aggregated_role({"matchLabels": {}, "matchExpressions": []}, {"matchLabels": {"a": ""}})
    assert apply_defaults(new)["aggregationRule"] == {"clusterRoleSelectors": [{}, {"matchLabels": {"a": ""}}]}
    sent = [{"key": "a", "operator": "Exists", "values": []}]
    (selector,) = apply_defaults(build_aggregated_role({"matchExpressions": sent}))["aggregationRule"][
        "clusterRoleSelectors"
    ]
    assert selector == {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


@pytest.mark.parametrize("rule", [{}, {"clusterRoleSelectors": []}])
def test_an_aggregation_rule_needs_a_selector(rule: Object) -> None:
    assert find_messages(build_example("ClusterRole", aggregationRule=rule)) == [
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
def test_a_selector_is_validated(selector: Object, expected: list[tuple[str, str]]) -> None:
    prefix = "aggregationRule.clusterRoleSelectors[0]"
    found = dict.fromkeys(problem_reasons(build_aggregated_role(selector)))
    whole = [(prefix, "FieldValueInvalid")] if expected else []
    assert list(found) == [*((f"{prefix}.{path}", reason) for path, reason in expected), *whole]


@pytest.mark.parametrize("kind", BINDINGS)
def test_defaults_of_a_binding_are_set(kind: str) -> None:
    account = {"kind": "ServiceAccount", "name": "sa", "namespace": "demo"}
    user, group = {"kind": "User", "name": "bob", "apiGroup": ""}, {"kind": "Group", "name": "team", "namespace": ""}
    new = apply_defaults(build_binding(user, group, account, kind=kind))
    assert new["roleRef"] == {"apiGroup": GROUP, **REFERENCE}
    assert new["subjects"] == [
        {"apiGroup": GROUP, "kind": "User", "name": "bob"},
        {"apiGroup": GROUP, "kind": "Group", "name": "team"},
        account,
    ]


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_without_subjects_has_no_subjects_field(kind: str) -> None:
    assert "subjects" not in apply_defaults(build_binding(kind=kind))


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
def test_a_cluster_role_binding_accepts_only_cluster_roles(reference: Object, expected: list[str]) -> None:
    assert find_messages(build_binding(kind="ClusterRoleBinding", roleRef=reference)) == expected


def test_a_role_binding_accepts_roles_too() -> None:
    assert find_messages(build_binding(roleRef={"kind": "Role", "name": "r"})) == []
    assert find_messages(build_binding(roleRef={"kind": "Nope", "name": "r"})) == [
        'roleRef.kind: Unsupported value: "Nope": supported values: "Role", "ClusterRole"'
    ]


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_without_a_role_is_rejected(kind: str) -> None:
    assert [path for path, _ in problem_reasons(build_example(kind, roleRef=None))] == ["roleRef.kind", "roleRef.name"]


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
def test_a_subject_is_validated(subject: Object, expected: list[tuple[str, str]]) -> None:
    found = problem_reasons(build_binding(subject, kind="ClusterRoleBinding"))
    assert found == [(f"subjects[0].{path}", reason) for path, reason in expected]


def test_the_namespace_of_a_service_account_defaults_to_that_of_the_binding() -> None:
    assert find_messages(build_binding({"kind": "ServiceAccount", "name": "x"})) == []


@pytest.mark.parametrize("kind", BINDINGS)
@pytest.mark.parametrize("changed", [{"name": "other"}, {"kind": "Role"}, {"apiGroup": "x.io"}])
def test_the_role_of_a_binding_is_immutable(kind: str, changed: Object) -> None:
    old = apply_defaults(build_binding(kind=kind))
    new = build_binding(kind=kind, roleRef={**REFERENCE, **changed})
    assert ("roleRef", "FieldValueInvalid") in problem_reasons(new, old)
    sent = {"apiGroup": GROUP, **REFERENCE, **changed}
    shown = f'{{"APIGroup":"{sent["apiGroup"]}","Kind":"{sent["kind"]}","Name":"{sent["name"]}"}}'
    assert f"roleRef: Invalid value: {shown}: field is immutable" in find_messages(new, old)


@pytest.mark.parametrize("kind", BINDINGS)
def test_the_subjects_of_a_binding_can_change(kind: str) -> None:
    assert (
        find_messages(
            build_binding({"kind": "User", "name": "bob"}, kind=kind), apply_defaults(build_binding(kind=kind))
        )
        == []
    )


@pytest.mark.parametrize("kind", [*ROLES, *BINDINGS])
@pytest.mark.parametrize(
    ("name", "error"),
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
def test_names_can_contain_all_characters_of_a_path_segment(kind: str, name: str, error: str) -> None:
    obj = build_example(kind, metadata={"name": name})
    found = list(object_metadata.problems(obj, BY_NAME[kind]))
    assert [problem.field for problem in found] == (["metadata.name"] if error else [])
    assert all(problem.message.endswith(error) for problem in found)


@pytest.mark.parametrize("kind", ROLES)
def test_the_table_of_roles_has_the_creation_date(kind: str) -> None:
    assert [column.name for column in table_columns(BY_NAME[kind])] == ["Name", "Created At"]


@pytest.mark.parametrize("kind", BINDINGS)
def test_the_table_of_bindings_has_role_and_subjects(kind: str) -> None:
    columns = table_columns(BY_NAME[kind])
    assert [column.name for column in columns] == ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]
    assert [column.name for column in columns if column.wide] == ["Users", "Groups", "ServiceAccounts"]
    users = [{"kind": "User", "name": name} for name in ("ada", "bob")]
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "demo"}
    row = computed_cells(BY_NAME[kind], build_binding(*users, {"kind": "Group", "name": "core"}, account, kind=kind))
    assert row == {
        "Role": "ClusterRole/r",
        "Users": "ada, bob",
        "Groups": "core",
        "ServiceAccounts": "demo/robot",
    }
