"""fairlead.cli.access.sso: `fairlead sso test` and `fairlead sso preview`."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M

REVIEWS = f"{M}/signonreviews"
STATUS = {
    "allowed": True,
    "connector": "okta",
    "subject": "1",
    "user": "alice",
    "userExists": False,
    "email": "a@example.com",
    "emailVerified": True,
    "ssoGroups": ["okta:staff"],
    "teams": ["core"],
    "groups": ["viewers"],
    "rules": [
        {"id": "staff", "claim": "groups", "value": "staff", "matched": True, "teams": ["core"], "groups": ["viewers"]},
        {"id": "rule-2", "claim": "groups", "value": "admins", "matched": False, "groups": ["service:admins"]},
    ],
}


def answer(user: CliFixture, status: dict[str, Any]) -> None:
    user.fake.on("POST", REVIEWS, (201, {"status": status}))


def sent(user: CliFixture) -> dict[str, Any]:
    spec: dict[str, Any] = user.fake.requests_to("POST", REVIEWS)[0].body["spec"]
    return spec


def test_a_user_is_shown_with_the_rules_that_matched(user: CliFixture, tmp_path: Path) -> None:
    answer(user, STATUS)
    file = tmp_path / "claims.json"
    file.write_text('{"sub": "1", "groups": ["staff"]}')
    result = user.run("sso", "test", "--claims", str(file), "--connector", "okta")
    assert (result.code, result.err) == (0, "")
    assert sent(user) == {"claims": {"sub": "1", "groups": ["staff"]}, "connector": "okta"}
    for text in ("alice (would be created)", "a@example.com (verified)", "team core, group viewers"):
        assert text in result.out
    rows = [line.split()[:2] for line in result.out.splitlines()]
    assert ["staff", "yes"] in rows
    assert ["rule-2", "no"] in rows


def test_a_refusal_is_shown_with_its_reason_and_an_exit_code(user: CliFixture, tmp_path: Path) -> None:
    answer(user, {"allowed": False, "reason": "groups_invalid", "detail": "too many"})
    file = tmp_path / "claims.yaml"
    file.write_text("sub: '1'\ngroups: [a]\n")
    result = user.run("sso", "test", "--claims", str(file))
    assert result.code == 1
    assert "no: groups_invalid (too many)" in result.out


def test_an_id_token_is_decoded(user: CliFixture, tmp_path: Path) -> None:
    answer(user, STATUS)
    payload = base64.urlsafe_b64encode(json.dumps({"sub": "7"}).encode()).decode().rstrip("=")
    file, config = tmp_path / "token", tmp_path / "config.yaml"
    file.write_text(f"e30.{payload}.c2ln\n")
    config.write_text("auth: {}\n")
    assert user.run("sso", "test", "--claims", str(file), "--config", str(config)).code == 0
    assert sent(user) == {"claims": {"sub": "7"}, "config": "auth: {}\n"}


@pytest.mark.parametrize("content", ["[1]", "just text", "a: [", "a.b.c", "\ufeff{"])
def test_a_file_without_claims_is_reported(user: CliFixture, tmp_path: Path, content: str) -> None:
    file = tmp_path / "claims"
    file.write_text(content)
    result = user.run("sso", "test", "--claims", str(file))
    assert result.code != 0
    assert result.err


def test_a_missing_or_large_file_is_reported(user: CliFixture, tmp_path: Path) -> None:
    assert "cannot be read" in user.run("sso", "test", "--claims", str(tmp_path / "gone")).err
    file = tmp_path / "large"
    file.write_bytes(b"a" * (1024 * 1024 + 1))
    assert "is larger than" in user.run("sso", "test", "--claims", str(file)).err


def test_the_users_that_a_config_would_affect_are_listed(user: CliFixture, tmp_path: Path) -> None:
    before, after = {"allowed": True, "teams": ["core"]}, {"allowed": False, "reason": "no_rule_matched"}
    answer(user, {"users": [{"name": "alice", "before": before, "after": after}], "changedUsers": 3})
    config = tmp_path / "config.yaml"
    config.write_text("auth: {}\n")
    result = user.run("sso", "preview", str(config))
    assert "no: no_rule_matched" in result.out
    assert "team core" in result.out
    assert "2 more users are affected" in result.err


def test_nothing_to_preview_is_said(user: CliFixture, tmp_path: Path) -> None:
    answer(user, {"users": [], "changedUsers": 0})
    config = tmp_path / "config.yaml"
    config.write_text("auth: {}\n")
    result = user.run("sso", "preview", str(config))
    assert "no present user is affected" in result.out + result.err
