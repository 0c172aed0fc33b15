"""Tests of `core/scope.py`: parsing the scope of a key, where invalid parts never widen it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.scope import Scope, ScopeResources, ScopeRole, ScopeRule
from tests.harness.properties import at_least


def test_a_missing_scope_differs_from_an_empty_one() -> None:
    assert Scope.parse(None) is None
    assert Scope.parse({}) == Scope()
    assert Scope().is_empty


def test_every_entry_is_parsed() -> None:
    scope = Scope.parse(
        {
            "allowServiceCli": True,
            "projects": [{"project": "web"}, {"project": "*"}],
            "spaces": [{"project": "web", "space": "dev"}],
            "virtualClusters": [{"project": "web", "virtualCluster": "*"}],
            "clusters": [{"cluster": "berlin"}],
            "roles": [
                {"role": "runner", "projects": ["web"], "virtualClusters": [{"project": "p", "virtualCluster": "v"}]}
            ],
            "rules": [{"verbs": ["get"]}],
        }
    )
    assert scope == Scope(
        allow_cli=True,
        projects=("web", "*"),
        spaces=(("web", "dev"),),
        virtual_clusters=(("web", "*"),),
        clusters=("berlin",),
        rules=(ScopeRule(verbs=("get",)),),
        roles=(ScopeRole("runner", ("web",), (("p", "v"),)),),
    )


def test_every_field_of_a_rule_is_parsed() -> None:
    rule = {
        "verbs": ["get", "list"],
        "resources": [{"group": "g", "resources": ["a", "b/c"], "resourceNames": ["x"]}, {}],
        "resourceNames": ["y"],
        "namespaces": ["", "default"],
        "nonResourceURLs": ["/x/*"],
        "requestTargets": ["Cluster"],
        "cluster": "berlin",
        "virtualClusters": [{"name": "v"}, {"namespace": "n"}, {}],
    }
    assert Scope.parse({"rules": [rule]}) == Scope(
        rules=(
            ScopeRule(
                verbs=("get", "list"),
                resources=(ScopeResources("g", ("a", "b/c"), ("x",)), ScopeResources("")),
                object_names=("y",),
                namespaces=("", "default"),
                paths=("/x/*",),
                targets=("Cluster",),
                cluster="berlin",
                virtual_clusters=(("v", ""), ("", "n"), ("", "")),
            ),
        )
    )


@pytest.mark.parametrize("absent", [None, [], {}])
def test_a_missing_field_of_a_rule_matches_everything(absent: Any) -> None:
    rule = absent or {}
    assert Scope.parse({"rules": [{}, {"verbs": None, "resources": [], "cluster": None, **rule}]}) == Scope(
        rules=(ScopeRule(), ScopeRule())
    )


def test_the_role_of_the_command_line_tool_is_the_same_as_its_flag() -> None:
    assert Scope.parse({"roles": [{"role": "service-cli"}]}) == Scope.parse({"allowServiceCli": True})


def test_roles_alone_allow_nothing() -> None:
    scope = Scope.parse({"roles": [{"role": "agent"}, {"role": "never-heard-of"}]})
    assert scope == Scope(roles=(ScopeRole("agent"), ScopeRole("never-heard-of")))
    assert scope.is_empty


@pytest.mark.parametrize(
    "entries",
    [
        {"allowServiceCli": "true"},
        {"allowServiceCli": 1},
        {"projects": [{}, {"project": ""}, {"project": None}, {"project": 7}, "web", None]},
        {"projects": {"project": "web"}},
        {"projects": "web"},
        {"spaces": [{"project": "web"}, {"space": "dev"}, {"project": "", "space": "dev"}]},
        {"virtualClusters": [{"project": "web", "virtualCluster": 1}]},
        {"clusters": [{"project": "web"}]},
        {"roles": [{"role": ""}, {"role": 1}, {}, "agent"]},
        {"rules": [None, "get", []]},
        {"rules": {"verbs": ["get"]}},
        {"unknown": [{"project": "web"}]},
    ],
)
def test_an_entry_that_violates_the_schema_allows_nothing(entries: dict[str, Any]) -> None:
    assert Scope.parse(entries) == Scope()


@pytest.mark.parametrize("scope", [[], "web", 0, True, False])
def test_a_value_that_is_not_a_scope_allows_nothing(scope: Any) -> None:
    assert Scope.parse(scope) == Scope()


@pytest.mark.parametrize(
    "part",
    [
        {"verbs": "get"},
        {"verbs": [1]},
        {"verbs": [None]},
        {"resources": ["configmaps"]},
        {"resources": [{"group": 1}]},
        {"resources": [{"resources": "configmaps"}]},
        {"resources": [{"resourceNames": [None]}]},
        {"resourceNames": {}},
        {"namespaces": [["default"]]},
        {"nonResourceURLs": [False]},
        {"requestTargets": 0},
        {"cluster": ["berlin"]},
        {"virtualClusters": [None]},
        {"virtualClusters": [{"name": 1}]},
    ],
)
def test_an_invalid_rule_is_ignored_and_never_widened(part: dict[str, Any]) -> None:
    assert Scope.parse({"rules": [{"verbs": ["get"], **part}, {"verbs": ["list"]}]}) == Scope(
        rules=(ScopeRule(verbs=("list",)),)
    )


@pytest.mark.parametrize(
    "scope",
    [
        Scope(allow_cli=True),
        Scope(projects=("web",)),
        Scope(spaces=(("web", "dev"),)),
        Scope(virtual_clusters=(("web", "ci"),)),
        Scope(clusters=("berlin",)),
        Scope(rules=(ScopeRule(),)),
    ],
)
def test_a_scope_with_any_valid_entry_allows_something(scope: Scope) -> None:
    assert not scope.is_empty


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("rules", "projects", "project", "verbs", "resources", "spaces", "roles", "role", "cluster")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=at_least(100))
@given(json)
def test_any_value_can_be_parsed_and_compared(scope: Any) -> None:
    read = Scope.parse(scope)
    assert (read is None) == (scope is None)
    assert hash(read) == hash(Scope.parse(scope))
