"""`fairlead config`: single settings of the Config change, and the others stay."""

from typing import Any

import pytest

from fairlead.authn.token_issuer import Lifetimes
from fairlead.cli.access.config import BUILT_IN, DEFAULTS
from fairlead.core import yaml
from fairlead.kinds.clusters.config import SETTINGS_FIELDS
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure_status

CONFIG = f"{M}/configs/service-manager-config"
SETTINGS = "auth:\n  accessKeyMaxTTLSeconds: 60\n  password:\n    disabled: true\n"


def serve(user: CliFixture, raw: str | None) -> None:
    spec = {} if raw is None else {"raw": raw}
    user.fake.on("GET", CONFIG, (200, {"metadata": {"resourceVersion": "7"}, "spec": spec}))
    user.fake.on("PATCH", CONFIG, (200, {}))


def written(user: CliFixture) -> Any:
    """The settings that the command wrote; None if it removed the field."""
    (request,) = user.fake.requests_to("PATCH", CONFIG)
    body = request.body
    assert body["metadata"] == {"resourceVersion": "7"}
    raw = body["spec"]["raw"]
    return None if raw is None else yaml.decode(raw.encode())[0]


def test_set_keeps_the_other_settings(user: CliFixture) -> None:
    serve(user, SETTINGS)
    result = user.run("config", "set", "audit.level=Request", "auth.password.disabled=false")
    assert (result.code, result.err) == (0, "set audit.level, auth.password.disabled\n")
    auth = {"accessKeyMaxTTLSeconds": 60, "password": {"disabled": False}}
    assert written(user) == {"auth": auth, "audit": {"level": "Request"}}


def test_set_writes_the_first_settings_of_a_new_server(user: CliFixture) -> None:
    serve(user, None)
    assert user.run("config", "set", "auth.customHttpHeaders={X-Frame-Options: DENY}").code == 0
    assert written(user) == {"auth": {"customHttpHeaders": {"X-Frame-Options": "DENY"}}}


def test_unset_removes_a_setting_and_its_empty_group(user: CliFixture) -> None:
    serve(user, SETTINGS)
    assert user.run("config", "unset", "auth.password.disabled").code == 0
    assert written(user) == {"auth": {"accessKeyMaxTTLSeconds": 60}}


def test_unset_of_the_last_setting_removes_the_field(user: CliFixture) -> None:
    serve(user, SETTINGS)
    assert user.run("config", "unset", "auth").code == 0
    assert written(user) is None


def test_show_prints_the_text_with_its_comments(user: CliFixture) -> None:
    serve(user, f"# why\n{SETTINGS}")
    assert user.run("config", "show").out == f"# why\n{SETTINGS}"
    serve(user, None)
    result = user.run("config", "show")
    assert (result.out, "has no settings" in result.err) == ("", True)


def serve_written_by(user: CliFixture, *managers: str) -> None:
    owned: dict[str, Any] = {"f:spec": {"f:raw": {}}}
    time = "2026-01-02T03:04:05Z"
    fields = [{"manager": each, "operation": "Update", "time": time, "fieldsV1": owned} for each in managers]
    fields.append({"manager": "other", "operation": "Update", "time": time, "fieldsV1": {"f:metadata": {}}})
    config = {"metadata": {"resourceVersion": "7", "managedFields": fields}, "spec": {"raw": SETTINGS}}
    user.fake.on("GET", CONFIG, (200, config))


def explain(user: CliFixture, setting: str) -> dict[str, str]:
    """The rows of one setting."""
    result = user.run("config", "show", setting)
    assert result.code == 0, result.err
    return {line[:10].strip(): line[10:].strip() for line in result.out.splitlines()}


@pytest.mark.parametrize("manager", ["fairlead", "fairlead-cli", "fairlead-console", "kubectl-edit"])
def test_show_explains_a_setting_of_the_config(user: CliFixture, manager: str) -> None:
    serve_written_by(user, manager)
    assert explain(user, "auth.password.disabled") == {
        "setting": "auth.password.disabled",
        "value": "true",
        "from": f"the Config, written by {manager} at 2026-01-02T03:04:05Z",
        "change": (
            "`fairlead config set auth.password.disabled=VALUE`, or `fairlead config unset auth.password.disabled`"
        ),
    }


def test_show_names_the_manager_that_would_write_a_setting_again(user: CliFixture) -> None:
    serve_written_by(user, "argocd-controller")
    rows = explain(user, "auth.accessKeyMaxTTLSeconds")
    assert rows["value"] == "60"
    assert rows["from"] == "the Config, written by argocd-controller at 2026-01-02T03:04:05Z"
    assert rows["change"].startswith("where argocd-controller has it from; it may write this value again")


def test_show_explains_what_applies_without_a_setting(user: CliFixture) -> None:
    serve(user, None)
    rows = explain(user, "auth.loginAccessKeyTTLSeconds")
    assert rows["value"] == "that of `login_key_ttl` at the server's start; 1728000 by default"
    assert "--login-key-ttl, FAIRLEAD_LOGIN_KEY_TTL" in rows["from"]
    assert rows["change"] == "`fairlead config set auth.loginAccessKeyTTLSeconds=VALUE`, without a restart"
    rows = explain(user, "auth.connectors")
    assert (rows["value"], rows["from"]) == ("none", "the default: nothing sets it")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("auth.pasword.disabled", "there is no setting 'auth.pasword.disabled'; did you mean auth.password.disabled?"),
        ("auth", "auth is a group of settings"),
        ("login_key_ttl", "login_key_ttl is a setting of the server's start; set --login-key-ttl"),
        ("nonsense", "there is no setting 'nonsense'; there are auth.accessKeyMaxTTLSeconds, auth."),
        ("", "there is no setting ''"),
    ],
)
def test_show_of_what_is_no_setting_of_the_config_is_an_error(user: CliFixture, setting: str, message: str) -> None:
    serve(user, SETTINGS)
    result = user.run("config", "show", setting)
    assert (result.code, message in " ".join(result.err.split())) == (2, True), result.err


def test_the_settings_and_defaults_are_those_of_the_server() -> None:
    assert {each.removesuffix(".disabled") for each in DEFAULTS} == {
        f"{group}.{name}" for group, schema in SETTINGS_FIELDS.items() for name in schema["properties"]
    }
    lifetimes = Lifetimes()
    assert BUILT_IN["auth.directTokenTTLSeconds"] == str(lifetimes.default)
    assert BUILT_IN["auth.directTokenMaxTTLSeconds"] == str(lifetimes.maximum)


def test_a_change_that_loses_comments_says_so(user: CliFixture) -> None:
    serve(user, f"# why\n{SETTINGS}")
    assert "comments in the Config are not preserved" in user.run("config", "set", "audit.level=Request").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "audit.level"), "not in the form SETTING=VALUE"),
        (("set", "audit.level="), "not in the form SETTING=VALUE"),
        (("set", "audit..level=Request"), "is not a setting"),
        (("set", "=Request"), "is not a setting"),
        (("set", "audit.level=["), "is not YAML"),
        (("set", "auth.accessKeyMaxTTLSeconds.x=1"), "is not a group of settings"),
        (("unset", "auth.connectors"), "auth.connectors is not set"),
        (("unset", "auth.accessKeyMaxTTLSeconds.x"), "auth.accessKeyMaxTTLSeconds.x is not set"),
    ],
)
def test_mistakes_are_usage_errors_and_change_nothing(
    user: CliFixture, arguments: tuple[str, ...], message: str
) -> None:
    serve(user, SETTINGS)
    result = user.run("config", *arguments)
    assert (result.code, message in result.err) == (2, True), result.err
    assert user.fake.requests_to("PATCH", CONFIG) == []


def test_a_change_that_the_server_rejects_is_an_error(user: CliFixture) -> None:
    serve(user, SETTINGS)
    status = failure_status(422, "Invalid", "unknown setting auth.nope")
    user.fake.on("PATCH", CONFIG, (422, status))
    result = user.run("config", "set", "auth.nope=1")
    assert (result.code, "unknown setting auth.nope" in result.err) == (1, True)
