"""The scope field: its schema, and what is refused although it fits."""

from dataclasses import fields
from typing import Any

import pytest

from fairlead.core.scope import CLI_FIELD, Scope, ScopeRole, ScopeRule
from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.registry.schema import obj
from fairlead.registry.validate import Validator

EVERYTHING: dict[str, Any] = {
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


def complaints(scope: Any) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in scope_problems(scope, "spec.scope")]


def rule_complaints(rule: Any) -> list[tuple[str, str]]:
    found = complaints({"rules": [rule]})
    return [(path.removeprefix("spec.scope.rules[0]."), reason) for path, reason in found]


def message(scope: Any) -> str:
    [problem] = scope_problems(scope, "spec.scope")
    return problem.message


def test_a_scope_with_everything_in_it_fits_the_schema_and_the_rules() -> None:
    findings = Validator(obj(scope=SCOPE)).validate({"scope": EVERYTHING})
    assert (findings.unknown_fields, findings.problems) == ([], [])
    assert complaints(EVERYTHING) == []


def test_the_schema_has_every_field_that_is_read_and_no_other() -> None:
    """A field of the value that the schema does not know could never be set, and the other way round never count."""
    read = Scope.parse(EVERYTHING)
    assert read is not None and not read.is_empty
    assert all(getattr(read, each.name) for each in fields(Scope))
    assert all(any(getattr(rule, name) for rule in read.rules) for name in ScopeRule.__slots__)
    assert all(getattr(read.roles[0], name) for name in ScopeRole.__slots__)
    assert len(SCOPE["properties"]) == len(fields(Scope))
    assert len(SCOPE["properties"]["rules"]["items"]["properties"]) == len(ScopeRule.__slots__)
    assert CLI_FIELD in SCOPE["properties"]


@pytest.mark.parametrize("scope", [None, {}, {"projects": []}, {"rules": [{}]}, {"rules": None, "projects": None}])
def test_little_is_fine_too(scope: Any) -> None:
    assert complaints(scope) == []


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
def test_an_entry_names_what_it_is_for(scope: Any, field: str, reason: str) -> None:
    assert complaints(scope) == [(f"spec.scope.{field}", reason)]


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
def test_a_rule_that_could_not_mean_what_it_says_is_refused(rule: Any, field: str, reason: str) -> None:
    assert rule_complaints(rule) == [(field, reason)]


@pytest.mark.parametrize(
    "url", ["metrics", "/lo*", "/*/x", "/a*/b", "**", "/x/**", "/x/*/", "/a/../b", "/./a", "/a//b", ""]
)
def test_a_wildcard_is_the_whole_last_step_of_a_plain_path(url: str) -> None:
    assert rule_complaints({"nonResourceURLs": [url]}) == [("nonResourceURLs[0]", "FieldValueInvalid")]


@pytest.mark.parametrize("name", ["", "/", "a/", "/b", "a/b/c", "conf*", "a/st*", "*/*", "**"])
def test_a_resource_is_written_in_one_of_five_ways(name: str) -> None:
    assert rule_complaints({"resources": [{"resources": [name]}]}) == [
        ("resources[0].resources[0]", "FieldValueInvalid")
    ]


@pytest.mark.parametrize(
    ("names", "fine"),
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
def test_what_a_wildcard_includes_is_not_repeated(names: list[str], fine: bool) -> None:
    together = rule_complaints({"resources": [{"resources": names}]})
    apart = rule_complaints({"resources": [{"resources": [name]} for name in names]})
    elsewhere = rule_complaints(
        {"resources": [{"group": f"g{i}", "resources": [each]} for i, each in enumerate(names)]}
    )
    assert (not together, not apart, not elsewhere) == (fine, fine, True)


def test_every_problem_is_told_at_once() -> None:
    scope = {"projects": [{}], "rules": [{"verbs": ["Get"], "requestTargets": ["x"], "resourceNames": ["y"]}]}
    assert len(complaints(scope)) == 4


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
def test_a_refusal_says_what_to_do(scope: Any, advice: str) -> None:
    assert advice in message(scope)
