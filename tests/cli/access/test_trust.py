"""fairlead.cli.access.trust: rules are written into the Config, next to its other settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli import CliFixture, CommandResult, parse_yaml
from tests.harness.fake_server import M, failure_status, list_response
from tests.harness.openid_issuer import sign

CONFIG = f"{M}/configs/service-manager-config"
GITHUB, GITLAB = "https://token.actions.githubusercontent.com", "https://gitlab.com"
AS = ("--as", "user/ci", "--project", "web")
SCOPE = {"projects": [{"project": "web"}]}


class StoredConfig:
    """A Config that the fake server keeps."""

    def __init__(self, user: CliFixture, raw: str = "") -> None:
        self.raw = raw
        self.version = 1
        self.conflicts = 0
        user.fake.on("GET", CONFIG, lambda request: (200, self._build()))
        user.fake.on("PATCH", CONFIG, lambda request: self._patch(request.body))

    def _build(self) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(self.version)}, "spec": {"raw": self.raw}}

    def _patch(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["metadata"]["resourceVersion"] == str(self.version)
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
            return 409, failure_status(409, "Conflict", "the object has been modified")
        self.raw, self.version = body["spec"]["raw"], self.version + 1
        return 200, self._build()

    @property
    def trust(self) -> dict[str, Any]:
        found: dict[str, Any] = parse_yaml(self.raw)["auth"]["workloadIdentity"]
        return found


@pytest.fixture
def config(user: CliFixture) -> StoredConfig:
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"instanceID": "1234"}}))
    user.fake.on("GET", f"{M}/users/ci", (200, {"metadata": {"name": "ci", "uid": "uid-of-ci"}}))
    user.fake.on("GET", f"{M}/teams/ops", (200, {"metadata": {"name": "ops", "uid": "uid-of-ops"}}))
    return StoredConfig(user)


def _run(user: CliFixture, *arguments: str, stdin: str = "") -> CommandResult:
    return user.run("trust", *arguments, stdin=stdin)


def test_a_github_repository_is_trusted_by_its_id(user: CliFixture, config: StoredConfig) -> None:
    result = _run(user, "github", "deploy", "--repository-id", "74", "--ref", "refs/heads/main", *AS, "--ttl", "10m")
    assert result.code == 0, result.err
    assert "request tokens with the audience fairlead:1234" in result.err
    rule = {
        **{"name": "deploy", "issuer": GITHUB, "claims": {"repository_id": "74", "ref": "refs/heads/main"}},
        **{"user": "ci", "uid": "uid-of-ci", "scope": SCOPE, "maxTTLSeconds": 600},
    }
    assert config.trust == {"audience": "fairlead:1234", "rules": [rule]}


def test_an_issuer_on_the_machine_of_the_server_is_trusted_with_a_flag(user: CliFixture, config: StoredConfig) -> None:
    issuer = ("issuer", "deploy", "--url", "https://localhost:9444", "--claim", "sub=job", *AS)
    assert _run(user, *issuer, "--allow-loopback").code == 0
    assert config.trust["rules"][0]["allowLoopback"] is True


def test_rules_are_added_next_to_other_settings_also_after_a_conflict(user: CliFixture, config: StoredConfig) -> None:
    config.raw = (
        "# ours\nauth: {loginAccessKeyTTLSeconds: 60, workloadIdentity: {audience: mine, rules: []}}\naudit: {}\n"
    )
    config.conflicts = 2
    first = _run(user, "gitlab", "a", "--project-id", "22", "--claim", "ref_protected=true", *AS)
    assert first.code == 0, first.err
    assert "comments in the Config are not preserved" in first.err
    assert _run(user, "gitlab", "b", "--project-id", "23", "--as", "team/ops", "--project", "web").code == 0
    settings = parse_yaml(config.raw)
    assert (settings["auth"]["loginAccessKeyTTLSeconds"], settings["audit"]) == (60, {})
    assert config.trust["audience"] == "mine"
    assert [rule["name"] for rule in config.trust["rules"]] == ["a", "b"]
    assert config.trust["rules"][0]["claims"] == {"project_id": "22", "ref_protected": "true"}
    assert (config.trust["rules"][1]["team"], config.trust["rules"][1]["uid"]) == ("ops", "uid-of-ops")


def test_a_token_of_a_job_fills_in_the_ids(user: CliFixture, config: StoredConfig, tmp_path: Path) -> None:
    claims = {
        **{"iss": GITHUB, "repository": "acme/web", "repository_id": "74", "repository_owner_id": "9"},
        **{"ref": "refs/heads/main", "jti": "secret-id", "sub": "repo:acme/web:ref:refs/heads/main"},
    }
    file = tmp_path / "token.jwt"
    file.write_text(sign(claims) + "\n")
    result = _run(user, "github", "deploy", "--from-token", str(file), *AS)
    assert result.code == 0, result.err
    expected = {"repository_id": "74", "repository_owner_id": "9", "ref": "refs/heads/main"}
    assert config.trust["rules"][0]["claims"] == expected
    assert "not verified: repository_id=74" in result.err
    piped = sign({**claims, "environment": "production"})
    assert _run(user, "github", "prod", "--from-token", "-", *AS, stdin=piped).code == 0
    expected = {"repository_id": "74", "repository_owner_id": "9", "environment": "production"}
    assert config.trust["rules"][1]["claims"] == expected
    # Flags take precedence, and nothing of the token is sent to the server.
    assert _run(user, "github", "dev", "--from-token", str(file), "--ref", "refs/heads/dev", *AS).code == 0
    assert config.trust["rules"][2]["claims"]["ref"] == "refs/heads/dev"
    assert "secret-id" not in config.raw


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("no token", "does not contain a token"),
        ("a.b.c", "cannot be decoded"),
        ("a." + "x" * 20_000 + ".c", "does not contain a token"),
        (sign({"iss": GITHUB, "repository": "acme/web"}), "the token has no repository_id and no repository_owner_id"),
        (
            sign({"iss": "https://evil.example", "repository_id": "1", "repository_owner_id": "2"}),
            "the token is from the issuer https://evil.example",
        ),
    ],
)
def test_files_without_a_suitable_token_are_rejected(
    user: CliFixture, config: StoredConfig, tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "token.jwt"
    file.write_text(content)
    result = _run(user, "github", "deploy", "--from-token", str(file), *AS)
    assert result.code in (1, 2) and problem in result.err
    assert config.raw == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("github", "a", *AS), "set --repository-id, or --from-token"),
        (("gitlab", "a", *AS), "set --project-id, or --from-token"),
        (("github", "a", "--repository-id", "7", "--as", "user/ci"), "set what the keys may be used for"),
        (("github", "a", "--repository-id", "7", "--as", "ci", "--project", "web"), "is not a principal"),
        (("github", "a", "--repository-id", "7", "--as", "serviceaccount/x", "--project", "w"), "is not a principal"),
        (("github", "a", "--repository-id", "7", "--as", "user/a/b", "--project", "w"), "is not a principal"),
        (("github", "a", "--repository-id", "7", "--claim", "ref", *AS), "use the format NAME=VALUE"),
        (("issuer", "a", "--url", "https://ci.example", *AS), "set at least one --claim"),
        (("issuer", "a", "--url", "https://c.example", "--claim", "a=b", "--claim", "a=c", *AS), "is set twice"),
        (("issuer", "a", "--url", "https://c.example", "--claim", "a=b", "--ca-file", "/absent", *AS), "no such file"),
    ],
)
def test_incomplete_commands_write_nothing(
    user: CliFixture, config: StoredConfig, arguments: tuple[str, ...], problem: str
) -> None:
    result = _run(user, *arguments)
    assert result.code == 2 and problem in result.err
    assert config.raw == ""


def test_a_principal_that_does_not_exist_is_reported(user: CliFixture, config: StoredConfig) -> None:
    user.fake.on("GET", f"{M}/users/absent", (404, failure_status(404, "NotFound", "not found")))
    result = _run(user, "github", "a", "--repository-id", "7", "--as", "user/absent", "--project", "web")
    assert result.code == 1 and "user/absent does not exist" in result.err
    assert config.raw == ""


def test_a_service_account_of_a_cluster_is_trusted_with_one_command(user: CliFixture, config: StoredConfig) -> None:
    user.fake.on("GET", f"{M}/clusters/oslo", (200, {"metadata": {"name": "oslo", "uid": "uid-of-oslo"}}))
    path = "/kubernetes/cluster/oslo/api/v1/namespaces/build/serviceaccounts/builder"
    user.fake.on("GET", path, (200, {"metadata": {"name": "builder", "uid": "uid-of-builder"}}))
    account = ("--namespace", "build", "--service-account", "builder")
    result = _run(user, "cluster", "oslo", *account, *AS)
    assert result.code == 0, result.err
    assert "send the field cluster=oslo" in result.err
    source = {
        **{"cluster": "oslo", "clusterUID": "uid-of-oslo", "namespace": "build"},
        **{"serviceAccountName": "builder", "serviceAccountUID": "uid-of-builder"},
    }
    rule = {"name": "oslo-build-builder", **source, "user": "ci", "uid": "uid-of-ci", "scope": SCOPE}
    assert config.trust["rules"] == [rule]
    assert _run(user, "cluster", "oslo", *account, *AS, "--name", "any", "--allow-recreated").code == 0
    assert "serviceAccountUID" not in config.trust["rules"][1]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((404, failure_status(404, "NotFound", "no")), "the user ci is gone; `fairlead trust remove deploy`"),
        ((200, {"metadata": {"uid": "another"}}), "the user ci is another one now"),
        ((403, failure_status(403, "Forbidden", "no")), ""),
    ],
)
def test_a_rule_whose_principal_is_gone_is_marked(
    user: CliFixture, config: StoredConfig, answer: Any, problem: str
) -> None:
    _run(user, "github", "deploy", "--repository-id", "74", *AS)
    user.fake.on("GET", f"{M}/users/ci", answer)
    listed = _run(user, "list")
    assert listed.code == 0
    assert problem in listed.err and ("accepts no tokens" in listed.err) == bool(problem)


def test_rules_are_listed_and_removed_with_their_keys(user: CliFixture, config: StoredConfig) -> None:
    assert "no rules" in _run(user, "list").err
    _run(user, "github", "deploy", "--repository-id", "74", *AS)
    listed = _run(user, "list")
    assert "deploy" in listed.out and "repository_id=74" in listed.out and "user/ci" in listed.out
    assert "tokens must have the audience fairlead:1234" in listed.err
    assert json.loads(_run(user, "list", "-o", "json").out)["audience"] == "fairlead:1234"
    again = _run(user, "github", "deploy", "--repository-id", "74", *AS)
    assert again.code == 1 and "already a rule named deploy" in again.err
    keys = f"{M}/ownedaccesskeys"
    user.fake.on("GET", keys, list_response({"metadata": {"name": "exchanged-deploy-1"}}))
    user.fake.on("DELETE", f"{keys}/exchanged-deploy-1", (200, {}))
    removed = _run(user, "remove", "deploy")
    assert removed.code == 0 and "revoked 1 key" in removed.err
    assert user.fake.requests_to("GET", keys)[0].query["labelSelector"] == "service.sh/trust-rule=deploy"
    assert len(user.fake.requests_to("DELETE", f"{keys}/exchanged-deploy-1")) == 1
    assert config.trust["rules"] == []
    absent = _run(user, "remove", "deploy")
    assert absent.code == 1 and "there is no rule named deploy" in absent.err


def test_a_config_that_cannot_be_parsed_is_not_overwritten(user: CliFixture, config: StoredConfig) -> None:
    config.raw = "auth: ["
    result = _run(user, "github", "deploy", "--repository-id", "74", *AS)
    assert result.code == 1 and "the Config cannot be parsed" in result.err
    assert config.raw == "auth: ["
