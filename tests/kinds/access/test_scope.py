"""kinds/access/scope.py: schema and validation of the scope field."""

from dataclasses import fields
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.scope import CLI_FIELD, Scope, ScopeRole, ScopeRule
from fairlead.kinds.access.scope import SCOPE, scope_problems, scope_warnings
from fairlead.registry.schema import obj
from fairlead.registry.validate import Validator

FULL_SCOPE: dict[str, Any] = {
    "allowServiceCli": True,
    "projects": [{"project": "web"}, {"project": "*"}],
    "spaces": [{"project": "web", "space": "dev"}, {"project": "web", "space": "*"}],
    "virtualClusters": [{"project": "web", "virtualCluster": "ci"}],
    "clusters": [{"cluster": "berlin.example.com"}],
    "roles": [{"role": "runner", "projects": ["web"], "virtualClusters": [{"project": "web", "virtualCluster": "ci"}]}],
    "rules": [
        {
            "verbs": ["get", "*"],
            "resources": [{"group": "apps", "resources": ["deployments", "*/status"], "resourceNames": ["x"]}],
            "resourceNames": ["y"],
            "namespaces": ["", "default"],
            "requestTargets": ["Management", "Cluster", "ProjectSpace", "ProjectVirtualCluster", "VirtualCluster"],
            "cluster": "berlin",
            "virtualClusters": [{"name": "ci", "namespace": "service-p-web"}, {}],
        },
        {"nonResourceURLs": ["/metrics", "/logs/*", "*", "/"]},
    ],
}


def problem_reasons(scope: Any) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in scope_problems(scope, "spec.scope")]


def rule_problem_reasons(rule: Any) -> list[tuple[str, str]]:
    found = problem_reasons({"rules": [rule]})
    return [(path.removeprefix("spec.scope.rules[0]."), reason) for path, reason in found]


def problem_message(scope: Any) -> str:
    [problem] = scope_problems(scope, "spec.scope")
    return problem.message


def test_a_scope_with_all_fields_is_valid() -> None:
    findings = Validator(obj(scope=SCOPE)).validate({"scope": FULL_SCOPE})
    assert (findings.unknown_fields, findings.problems) == ([], [])
    assert problem_reasons(FULL_SCOPE) == []


def test_the_schema_has_exactly_the_fields_that_are_parsed() -> None:
    """A field missing in the schema could never be set, and one that is not parsed would have no effect."""
    parsed = Scope.parse(FULL_SCOPE)
    assert parsed is not None and not parsed.is_empty
    assert all(getattr(parsed, each.name) for each in fields(Scope))
    assert all(any(getattr(rule, name) for rule in parsed.rules) for name in ScopeRule.__slots__)
    assert all(getattr(parsed.roles[0], name) for name in ScopeRole.__slots__)
    assert len(SCOPE["properties"]) == len(fields(Scope))
    assert len(SCOPE["properties"]["rules"]["items"]["properties"]) == len(ScopeRule.__slots__)
    assert CLI_FIELD in SCOPE["properties"]


@pytest.mark.parametrize("scope", [None, {}, {"projects": []}, {"rules": [{}]}, {"rules": None, "projects": None}])
def test_an_empty_or_partial_scope_is_valid(scope: Any) -> None:
    assert problem_reasons(scope) == []


@pytest.mark.parametrize(
    ("scope", "field", "reason"),
    [
        ({"projects": [{}]}, "projects[0].project", "FieldValueRequired"),
        ({"projects": [{"project": "web"}, {"project": ""}]}, "projects[1].project", "FieldValueRequired"),
        ({"projects": [{"project": "Web"}]}, "projects[0].project", "FieldValueInvalid"),
        ({"projects": [{"project": "web*"}]}, "projects[0].project", "FieldValueInvalid"),
        ({"spaces": [{"space": "dev"}]}, "spaces[0].project", "FieldValueRequired"),
        ({"spaces": [{"project": "web"}]}, "spaces[0].space", "FieldValueRequired"),
        ({"spaces": [{"project": "*", "space": "dev"}]}, "spaces[0].project", "FieldValueInvalid"),
        ({"virtualClusters": [{"project": "web"}]}, "virtualClusters[0].virtualCluster", "FieldValueRequired"),
        ({"virtualClusters": [{"virtualCluster": "*"}]}, "virtualClusters[0].project", "FieldValueRequired"),
        ({"clusters": [{"cluster": ""}]}, "clusters[0].cluster", "FieldValueRequired"),
        ({"roles": [{"role": "admin"}]}, "roles[0].role", "FieldValueNotSupported"),
        ({"roles": [{}]}, "roles[0].role", "FieldValueNotSupported"),
    ],
)
def test_an_entry_must_name_its_object(scope: Any, field: str, reason: str) -> None:
    assert problem_reasons(scope) == [(f"spec.scope.{field}", reason)]


@pytest.mark.parametrize(
    ("rule", "field", "reason"),
    [
        ({"resourceNames": ["x"]}, "resourceNames", "FieldValueForbidden"),
        ({"resources": [{"resourceNames": ["x"]}]}, "resources[0].resourceNames", "FieldValueForbidden"),
        ({"resources": [{"group": "*"}]}, "resources[0].group", "FieldValueInvalid"),
        ({"verbs": ["GET"]}, "verbs[0]", "FieldValueInvalid"),
        ({"verbs": [""]}, "verbs[0]", "FieldValueInvalid"),
        ({"namespaces": ["*"]}, "namespaces[0]", "FieldValueInvalid"),
        ({"namespaces": ["a.b"]}, "namespaces[0]", "FieldValueInvalid"),
        ({"requestTargets": ["management"]}, "requestTargets[0]", "FieldValueNotSupported"),
        ({"cluster": "*"}, "cluster", "FieldValueInvalid"),
        ({"virtualClusters": [{"name": "*"}]}, "virtualClusters[0].name", "FieldValueInvalid"),
        ({"virtualClusters": [{"namespace": "*"}]}, "virtualClusters[0].namespace", "FieldValueInvalid"),
        ({"nonResourceURLs": ["/x"], "resources": [{}]}, "resources", "FieldValueForbidden"),
        ({"nonResourceURLs": ["/x"], "namespaces": [""]}, "namespaces", "FieldValueForbidden"),
    ],
)
def test_a_contradictory_rule_is_rejected(rule: Any, field: str, reason: str) -> None:
    assert rule_problem_reasons(rule) == [(field, reason)]


@pytest.mark.parametrize(
    "url", ["metrics", "/lo*", "/*/x", "/a*/b", "**", "/x/**", "/x/*/", "/a/../b", "/./a", "/a//b", ""]
)
def test_a_wildcard_is_the_whole_last_segment_of_a_path(url: str) -> None:
    assert rule_problem_reasons({"nonResourceURLs": [url]}) == [("nonResourceURLs[0]", "FieldValueInvalid")]


@pytest.mark.parametrize("name", ["", "/", "a/", "/b", "a/b/c", "conf*", "a/st*", "*/*", "**"])
def test_a_resource_has_one_of_five_forms(name: str) -> None:
    assert rule_problem_reasons({"resources": [{"resources": [name]}]}) == [
        ("resources[0].resources[0]", "FieldValueInvalid")
    ]


@pytest.mark.parametrize(
    ("names", "is_valid"),
    [
        (["a", "b"], True),
        (["a", "a/status"], True),
        (["a", "a/*"], True),
        (["a/*", "b/*"], True),
        (["*/status", "*/scale"], True),
        (["*/status", "a/scale"], True),
        (["*/status", "a"], True),
        (["*", "a"], False),
        (["a/x", "*"], False),
        (["a/*", "a/status"], False),
        (["*/status", "a/status"], False),
        (["a/*", "*/status"], False),
        (["a", "a"], False),
    ],
)
def test_resources_included_in_a_wildcard_must_not_be_repeated(names: list[str], is_valid: bool) -> None:
    in_one_entry = rule_problem_reasons({"resources": [{"resources": names}]})
    in_separate_entries = rule_problem_reasons({"resources": [{"resources": [name]} for name in names]})
    in_other_groups = rule_problem_reasons(
        {"resources": [{"group": f"g{i}", "resources": [each]} for i, each in enumerate(names)]}
    )
    assert (not in_one_entry, not in_separate_entries, not in_other_groups) == (is_valid, is_valid, True)


def test_all_problems_are_reported_together() -> None:
    scope = {"projects": [{}], "rules": [{"verbs": ["Get"], "requestTargets": ["x"], "resourceNames": ["y"]}]}
    assert len(problem_reasons(scope)) == 4


@pytest.mark.parametrize(
    ("scope", "advice"),
    [
        ({"projects": [{}]}, "Required value: set a name, or `*` for all of them"),
        ({"rules": [{"cluster": "*"}]}, "wildcards are not supported here; leave it empty to allow all of them"),
        ({"rules": [{"resources": [{"resources": ["*", "a"]}]}]}, 'overlaps with "*"'),
        (
            {"rules": [{"resourceNames": ["x"]}]},
            "set the resources that the names belong to in spec.scope.rules[0].resources",
        ),
        ({"rules": [{"nonResourceURLs": ["/lo*"]}]}, "`*` can only be the whole last segment of a path, as in /apis/*"),
        ({"rules": [{"requestTargets": ["x"]}]}, 'supported values: "Management", "Cluster", "ProjectSpace"'),
    ],
)
def test_errors_explain_what_to_do(scope: Any, advice: str) -> None:
    assert advice in problem_message(scope)


def scope_of_names(count: int) -> Object:
    rules = [
        {"resources": [{"resources": ["apps"], "resourceNames": [f"n{n}" for n in range(at, min(count, at + 1_000))]}]}
        for at in range(0, count, 1_000)
    ]
    return {"rules": rules}


def test_the_names_in_all_rules_together_are_limited() -> None:
    fitting, large, larger = (scope_of_names(count) for count in (19_000, 25_000, 26_000))
    assert not list(scope_problems(fitting, "spec.scope"))
    (problem,) = scope_problems(large, "spec.scope")
    assert (problem.field, problem.reason) == ("spec.scope.rules", "FieldValueTooMany")
    assert problem.message == "Too many: 25050: must have at most 20000 names in all rules together"
    assert list(scope_problems(larger, "spec.scope", large))


def test_a_scope_that_was_stored_with_more_names_can_stay_or_shrink() -> None:
    large, smaller = scope_of_names(25_000), scope_of_names(24_000)
    assert not list(scope_problems(large, "spec.scope", large))
    assert not list(scope_problems(smaller, "spec.scope", large))


def test_a_role_that_allows_nothing_causes_a_warning() -> None:
    scope = {"roles": [{"role": "service-cli"}, {"role": "runner"}, {"role": "agent"}]}
    assert list(scope_warnings(scope, "spec.scope")) == [
        "spec.scope.roles[1] has no effect: only the role service-cli allows anything; name what to allow"
    ]


@pytest.mark.parametrize("scope", [None, {}, {"roles": [{"role": "service-cli"}]}, {"projects": [{"project": "a"}]}])
def test_what_a_scope_allows_causes_no_warning(scope: Object | None) -> None:
    assert list(scope_warnings(scope, "spec.scope")) == []
