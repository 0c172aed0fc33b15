"""Rules of workload identity: what is wrong with them is said when they are written."""

from typing import Any

import pytest
import yaml

from fairlead.kinds.clusters.config import GITHUB_ISSUER, GITLAB_ISSUER, MAX_RULES, parse_settings

SCOPE = {"projects": [{"project": "web"}]}
GITHUB = {"name": "deploy", "issuer": GITHUB_ISSUER, "claims": {"repository_id": "74"}, "user": "ci", "scope": SCOPE}
CLUSTER = {
    **{"name": "pods", "cluster": "oslo", "namespace": "default", "serviceAccountName": "builder"},
    **{"user": "ci", "scope": SCOPE},
}


def _problems(*rules: dict[str, Any], audience: str | None = "fairlead:1") -> str:
    settings = {"auth": {"workloadIdentity": {"audience": audience, "rules": list(rules)}}}
    if audience is None:
        del settings["auth"]["workloadIdentity"]["audience"]
    return "\n".join(problem.message for problem in parse_settings(yaml.safe_dump(settings))[1])


@pytest.mark.parametrize(
    "rule",
    [
        GITHUB,
        CLUSTER,
        {**GITHUB, "claims": {"repository_owner_id": "9", "repository_owner": "acme", "ref": "refs/heads/main"}},
        {**GITHUB, "issuer": GITLAB_ISSUER, "claims": {"project_id": "22", "project_path": "acme/web"}},
        {**GITHUB, "issuer": "https://ci.example/", "claims": {"sub": "job"}},
        {**GITHUB, "user": None, "team": "ops"} | {"maxTTLSeconds": 3600, "allowPullRequests": True},
        {**GITHUB, "user": None, "serviceAccount": "default/deployer", "uid": "1"},
        {**GITHUB, "scope": {}},
        {**CLUSTER, "clusterUID": "1", "serviceAccountUID": "2"},
    ],
)
def test_a_complete_rule_is_accepted(rule: dict[str, Any]) -> None:
    assert _problems({name: value for name, value in rule.items() if value is not None}) == ""


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({**GITHUB, "name": "De ploy"}, "rules[0].name: must be"),
        ({**GITHUB, "name": "x" * 64}, "rules[0].name: must be"),
        ({**GITHUB, "cluster": "oslo"}, "set either issuer or cluster"),
        ({**GITHUB, "issuer": ""}, "set either issuer or cluster"),
        ({**GITHUB, "issuer": "http://ci.example"}, "must be an https URL"),
        ({**GITHUB, "issuer": "file:///etc/passwd"}, "must be an https URL"),
        ({**GITHUB, "claims": {}}, "set at least one claim"),
        ({**GITHUB, "issuer": "https://ci.example", "claims": {"aud": "x"}}, "set at least one claim"),
        ({**GITHUB, "claims": {"repository_id": ""}}, "must not be empty"),
        (
            {**GITHUB, "claims": {"sub": "repo:acme/web:ref:refs/heads/main"}},
            "set repository_id or",
        ),
        ({**GITHUB, "claims": {"repository": "acme/web"}}, "can be given to someone else"),
        ({**GITHUB, "issuer": "https://github.acme.example", "claims": {"repository": "acme/web"}}, "also set"),
        ({**GITHUB, "issuer": GITLAB_ISSUER, "claims": {"project_path": "acme/web"}}, "also set project_id"),
        ({**GITHUB, "issuer": GITLAB_ISSUER + "/", "claims": {"sub": "x"}}, "set project_id or namespace_id"),
        ({**GITHUB, "claims": {"repository_id": 74}}, "claims"),
        ({**GITHUB, "namespace": "default"}, "is for clusters only"),
        ({**GITHUB, "team": "ops"}, "set exactly one of"),
        ({**GITHUB, "user": ""}, "set exactly one of"),
        ({**GITHUB, "user": "", "serviceAccount": "deployer"}, "NAMESPACE/NAME"),
        ({**GITHUB, "user": "", "serviceAccount": "a/b/c"}, "NAMESPACE/NAME"),
        ({name: value for name, value in GITHUB.items() if name != "scope"}, "scope: is required"),
        ({**GITHUB, "scope": {"project": "web"}}, "unknown setting"),
        ({**GITHUB, "scope": {"roles": [{"role": "emperor"}]}}, "scope"),
        ({**GITHUB, "maxTTLSeconds": 3601}, "maxTTLSeconds"),
        ({**GITHUB, "maxTTLSeconds": 0}, "maxTTLSeconds"),
        ({**GITHUB, "claim": {"ref": "x"}}, "unknown setting"),
        ({**CLUSTER, "serviceAccountName": ""}, "set namespace and serviceAccountName"),
        ({**CLUSTER, "claims": {"sub": "x"}}, "are for issuers only"),
    ],
)
def test_an_incomplete_or_too_wide_rule_is_rejected(rule: dict[str, Any], problem: str) -> None:
    assert problem in _problems(rule)


def test_rules_need_the_audience_of_the_installation() -> None:
    assert "audience: is required" in _problems(GITHUB, audience=None)
    assert "audience: is required" in _problems(GITHUB, audience="")


def test_names_of_rules_are_unique_and_their_number_is_limited() -> None:
    assert "is the name of an earlier rule" in _problems(GITHUB, CLUSTER, GITHUB)
    many = [{**GITHUB, "name": f"rule-{number}"} for number in range(MAX_RULES + 1)]
    assert _problems(*many[:-1]) == ""
    assert "rules" in _problems(*many)
