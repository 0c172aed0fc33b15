"""server.audit.policy: policy files in the format of Kubernetes, and their errors at startup."""

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
HEADER = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def load_policy_text(folder: Path, text: str) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(text)
    return load_policy(path)


def load_errors(folder: Path, text: str) -> list[str]:
    with pytest.raises(StartError) as error:
        load_policy_text(folder, text)
    path = folder / "policy.yaml"
    return [line.removeprefix(f"{path}: ") for line in str(error.value).splitlines()]


def test_every_field_is_parsed(tmp_path: Path) -> None:
    policy = load_policy_text(
        tmp_path,
        HEADER
        + """
metadata: {name: example}
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


def test_without_omit_stages_all_stages_are_recorded(tmp_path: Path) -> None:
    policy = load_policy_text(tmp_path, HEADER + "rules: [{level: Metadata}]")
    assert policy.rules == (PolicyRule(METADATA),)
    assert policy.records_received


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [{level: Metadata}]", "apiVersion: must be audit.k8s.io/v1, with `kind: Policy`"),
        (HEADER.replace("v1", "v1beta1") + "rules: [{level: Metadata}]", "apiVersion: must be audit.k8s.io/v1"),
        ("- level: Metadata", "the file: must be a mapping"),
        ("", "the file: must be a mapping"),
        (HEADER, "rules: must not be empty"),
        (HEADER + "rules: []", "rules: must not be empty"),
        (HEADER + "rules: {level: None}", "rules: must be a list"),
        (HEADER + "rules: [Metadata]", "rules[0]: must be a mapping"),
        (HEADER + "rules: [{}]", "rules[0].level: must be one of None, Metadata, Request, RequestResponse"),
        (HEADER + "rules: [{level: metadata}]", "rules[0].level: must be one of"),
        (HEADER + "rules: [{level: null}]", "rules[0].level: must be one of"),
        (HEADER + "rules: [{level: [None]}]", "rules[0].level: must be one of"),
        (
            HEADER + "rules: [{level: Request, user: [a]}]",
            "rules[0].user: unknown field; expected one of level, users",
        ),
        (HEADER + "rules: [{level: Request}]\nrule: []", "rule: unknown field"),
        (HEADER + "rules: [{level: Request, users: alice}]", "rules[0].users: must be a list of strings"),
        (HEADER + "rules: [{level: Request, verbs: [1]}]", "rules[0].verbs: must be a list of strings"),
        (HEADER + "rules: [{level: Request, omitStages: [Received]}]", "rules[0].omitStages: may only contain"),
        (HEADER + "rules: [{level: Request}]\nomitStages: [Complete]", "omitStages: may only contain"),
        (
            HEADER + "rules: [{level: Request, omitManagedFields: false}]",
            "rules[0].omitManagedFields: managedFields are",
        ),
        (HEADER + "rules: [{level: Request, resources: [apps]}]", "rules[0].resources[0]: must be a mapping"),
        (HEADER + "rules: [{level: Request, resources: [{group: apps/v1}]}]", "rules[0].resources[0].group: must be"),
        (
            HEADER + "rules: [{level: Request, resources: [{resourceNames: [a]}]}]",
            "rules[0].resources[0].resourceNames:",
        ),
        (HEADER + "rules: [{level: Request, resources: [{names: [a]}]}]", "rules[0].resources[0].names: unknown field"),
        (HEADER + "rules: [{level: Request, nonResourceURLs: [healthz]}]", 'rules[0].nonResourceURLs: "healthz" must'),
        (HEADER + "rules: [{level: Request, nonResourceURLs: ['/a*b']}]", 'rules[0].nonResourceURLs: "/a*b" must'),
        (
            HEADER + "rules: [{level: Request, nonResourceURLs: ['/a'], namespaces: [b]}]",
            "rules[0]: nonResourceURLs cannot",
        ),
        (HEADER + "rules: [{level: Request, level: None}]", "rules[0].level: duplicate field"),
        (HEADER + "rules: [{level: Request", "not an audit policy: yaml: line 3"),
    ],
)
def test_an_invalid_policy_is_rejected_at_startup(tmp_path: Path, text: str, message: str) -> None:
    assert any(line.startswith(message) for line in load_errors(tmp_path, text)), load_errors(tmp_path, text)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    messages = load_errors(tmp_path, HEADER + "rules:\n- level: Most\n- level: Request\n  users: alice\n")
    assert len(messages) == 2


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no such file; write an audit policy there, or leave out audit_policy"):
        load_policy(tmp_path / "nothing.yaml")


def test_the_example_in_the_documentation_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(apiVersion: audit.*?)```", PAGE.read_text(), re.DOTALL)
    policy = load_policy_text(tmp_path, example)
    assert policy.rule_for(None, RequestInfo("get", "/healthz")).level == NONE
    assert (
        policy.rule_for(None, RequestInfo("create", "", "m", "rbac.authorization.k8s.io", "v1", "roles")).level
        > METADATA
    )


def test_the_documentation_names_every_stage() -> None:
    for stage in STAGES:
        assert f"`{stage}`" in PAGE.read_text()
