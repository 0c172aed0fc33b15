"""Policy files: Kubernetes' own work, and whatever is wrong with one is told before the server starts."""

import re
from pathlib import Path

import pytest

from fairlead.core.call import RequestInfo
from fairlead.server.audit.policy import (
    METADATA,
    NONE,
    REQUEST,
    REQUEST_RESPONSE,
    STAGES,
    GroupResources,
    Policy,
    PolicyRule,
    load_policy,
)
from fairlead.settings import StartError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "audit.md"
HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def loaded(folder: Path, text: str) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(text)
    return load_policy(path)


def complaints(folder: Path, text: str) -> list[str]:
    with pytest.raises(StartError) as caught:
        loaded(folder, text)
    path = folder / "policy.yaml"
    return [line.removeprefix(f"{path}: ") for line in str(caught.value).splitlines()]


def test_every_field_is_read(tmp_path: Path) -> None:
    policy = loaded(
        tmp_path,
        HEAD
        + """
metadata: {name: ours}
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  userGroups: [robots]
  verbs: [watch]
  resources:
  - group: ""
    resources: [endpoints, "services/*"]
    resourceNames: [one]
  - group: apps
  namespaces: [kube-system, ""]
  omitStages: [ResponseStarted]
- level: RequestResponse
  nonResourceURLs: ["/version", "/api*"]
- level: Request
- level: Metadata
""",
    )
    first, second, third, fourth = policy.rules
    assert first == PolicyRule(
        NONE,
        frozenset({"system:kube-proxy"}),
        frozenset({"robots"}),
        frozenset({"watch"}),
        (GroupResources("", frozenset({"endpoints", "services/*"}), frozenset({"one"})), GroupResources("apps")),
        frozenset({"kube-system", ""}),
        (),
        frozenset({"RequestReceived", "ResponseStarted"}),
    )
    assert (second.level, set(second.paths)) == (REQUEST_RESPONSE, {"/version", "/api*"})
    assert second.omit_stages == third.omit_stages == {"RequestReceived"}
    assert (third.level, fourth.level) == (REQUEST, METADATA)


def test_without_omitted_stages_all_are_written(tmp_path: Path) -> None:
    policy = loaded(tmp_path, HEAD + "rules: [{level: Metadata}]")
    assert policy.rules == (PolicyRule(METADATA),)
    assert policy.records_received


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules: [{level: Metadata}]", "apiVersion: must be audit.k8s.io/v1, with `kind: Policy`"),
        (HEAD.replace("v1", "v1beta1") + "rules: [{level: Metadata}]", "apiVersion: must be audit.k8s.io/v1"),
        ("- level: Metadata", "the file: must be a mapping"),
        ("", "the file: must be a mapping"),
        (HEAD, "rules: must not be empty"),
        (HEAD + "rules: []", "rules: must not be empty"),
        (HEAD + "rules: {level: None}", "rules: must be a list"),
        (HEAD + "rules: [Metadata]", "rules[0]: must be a mapping"),
        (HEAD + "rules: [{}]", "rules[0].level: must be one of None, Metadata, Request, RequestResponse"),
        (HEAD + "rules: [{level: metadata}]", "rules[0].level: must be one of"),
        (HEAD + "rules: [{level: null}]", "rules[0].level: must be one of"),
        (HEAD + "rules: [{level: [None]}]", "rules[0].level: must be one of"),
        (
            HEAD + "rules: [{level: Request, user: [a]}]",
            "rules[0].user: unknown field; expected one of level, users",
        ),
        (HEAD + "rules: [{level: Request}]\nrule: []", "rule: unknown field"),
        (HEAD + "rules: [{level: Request, users: alice}]", "rules[0].users: must be a list of strings"),
        (HEAD + "rules: [{level: Request, verbs: [1]}]", "rules[0].verbs: must be a list of strings"),
        (HEAD + "rules: [{level: Request, omitStages: [Received]}]", "rules[0].omitStages: may only contain"),
        (HEAD + "rules: [{level: Request}]\nomitStages: [Complete]", "omitStages: may only contain"),
        (HEAD + "rules: [{level: Request, omitManagedFields: false}]", "rules[0].omitManagedFields: managedFields are"),
        (HEAD + "rules: [{level: Request, resources: [apps]}]", "rules[0].resources[0]: must be a mapping"),
        (HEAD + "rules: [{level: Request, resources: [{group: apps/v1}]}]", "rules[0].resources[0].group: must be"),
        (HEAD + "rules: [{level: Request, resources: [{resourceNames: [a]}]}]", "rules[0].resources[0].resourceNames:"),
        (HEAD + "rules: [{level: Request, resources: [{names: [a]}]}]", "rules[0].resources[0].names: unknown field"),
        (HEAD + "rules: [{level: Request, nonResourceURLs: [healthz]}]", 'rules[0].nonResourceURLs: "healthz" must'),
        (HEAD + "rules: [{level: Request, nonResourceURLs: ['/a*b']}]", 'rules[0].nonResourceURLs: "/a*b" must'),
        (
            HEAD + "rules: [{level: Request, nonResourceURLs: ['/a'], namespaces: [b]}]",
            "rules[0]: nonResourceURLs cannot",
        ),
        (HEAD + "rules: [{level: Request, level: None}]", "rules[0].level: duplicate field"),
        (HEAD + "rules: [{level: Request", "not an audit policy: yaml: line 3"),
    ],
)
def test_a_policy_that_is_not_understood_stops_the_start(tmp_path: Path, text: str, complaint: str) -> None:
    assert any(each.startswith(complaint) for each in complaints(tmp_path, text)), complaints(tmp_path, text)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    found = complaints(tmp_path, HEAD + "rules:\n- level: Most\n- level: Request\n  users: alice\n")
    assert len(found) == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no such file; write an audit policy there, or leave out audit_policy"):
        load_policy(tmp_path / "nothing.yaml")


def test_the_example_in_the_documentation_is_a_policy(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(apiVersion: audit.*?)```", PAGE.read_text(), re.DOTALL)
    policy = loaded(tmp_path, example)
    assert policy.rule_for(None, RequestInfo("get", "/healthz")).level == NONE
    assert (
        policy.rule_for(None, RequestInfo("create", "", "m", "rbac.authorization.k8s.io", "v1", "roles")).level
        > METADATA
    )


def test_the_documentation_names_every_stage() -> None:
    for stage in STAGES:
        assert f"`{stage}`" in PAGE.read_text()
