"""fairlead.cli.access.key: the sent objects, the printed tables, and that a key's value is printed once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.access.key import describe_rows, key_state, table_row
from fairlead.cli.access.keys import FIRST_KEY_ANNOTATION, expiry_time, find_expiry
from fairlead.core.clock import timestamp as format_timestamp
from fairlead.domain import key_lifetime
from fairlead.kinds.access import access_key
from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, build_object, failure_status, list_response

KEYS = f"{M}/ownedaccesskeys"
NOW = datetime(2026, 1, 10, tzinfo=UTC)


def build_key(name: str, **spec: Any) -> dict[str, Any]:
    return build_object(name, spec={"user": "alice", "type": "User"} | spec, status={})


@pytest.fixture
def key_cli(user: CliFixture) -> CliFixture:
    user.fake.on("POST", KEYS, lambda request: (201, build_key("key-x7k2p", key="fairlead_new-value")))
    return user


def get_last_created(cli: CliFixture) -> dict[str, Any]:
    body: dict[str, Any] = cli.fake.requests_to("POST", KEYS)[-1].body
    return body


def test_the_value_of_a_new_key_is_the_only_output_on_stdout(key_cli: CliFixture) -> None:
    result = key_cli.run("key", "create")
    assert (result.code, result.out) == (0, "fairlead_new-value\n")
    assert "the key key-x7k2p; it is shown only once" in result.err
    assert "fairlead_new-value" not in result.err
    assert get_last_created(key_cli) == {
        "apiVersion": "management.service.sh/v1",
        "kind": "OwnedAccessKey",
        "metadata": {"generateName": "key-"},
        "spec": {},
    }


@pytest.mark.parametrize(("spec", "warns"), [({}, True), ({"ttl": 60}, False), ({"scope": {}}, False)])
def test_a_key_without_limits_gets_a_warning(key_cli: CliFixture, spec: dict[str, Any], warns: bool) -> None:
    key_cli.fake.on("POST", KEYS, (201, build_key("key-x7k2p", key="fairlead_new-value", **spec)))
    for output in ("table", "json"):
        result = key_cli.run("key", "create", "-o", output)
        warning = "warning: this key never expires and has all permissions of its owner; limit the next one with --ttl"
        assert (warning in result.err, "warning" in result.out) == (warns, False)


def test_json_and_yaml_have_the_whole_object(key_cli: CliFixture) -> None:
    assert json.loads(key_cli.run("key", "create", "-o", "json").out)["spec"]["key"] == "fairlead_new-value"
    assert parse_yaml(key_cli.run("key", "create", "-o", "yaml").out)["metadata"]["name"] == "key-x7k2p"


def test_every_flag_becomes_a_field(key_cli: CliFixture) -> None:
    texts = ("--name", "ci", "--display-name", "CI", "--description", "for builds", "--user", "bob", "--type", "Other")
    lifetime = ("--ttl", "30d", "--ttl-after-activity", "--disabled")
    assert key_cli.run("key", "create", *texts, *lifetime).code == 0
    assert get_last_created(key_cli)["metadata"] == {"name": "ci"}
    assert get_last_created(key_cli)["spec"] == {
        "displayName": "CI",
        "description": "for builds",
        "user": "bob",
        "type": "Other",
        "ttl": 2_592_000,
        "ttlAfterLastActivity": True,
        "disabled": True,
    }


def test_a_scope_is_built_from_flags(key_cli: CliFixture) -> None:
    parts = ("--project", "a", "--project", "b", "--space", "a/s", "--virtual-cluster", "a/v", "--cluster", "c")
    assert key_cli.run("key", "create", *parts, "--allow-cli").code == 0
    assert get_last_created(key_cli)["spec"]["scope"] == {
        "projects": [{"project": "a"}, {"project": "b"}],
        "spaces": [{"project": "a", "space": "s"}],
        "virtualClusters": [{"project": "a", "virtualCluster": "v"}],
        "clusters": [{"cluster": "c"}],
        "allowServiceCli": True,
    }


def test_a_scope_can_come_from_a_file_even_an_empty_scope(key_cli: CliFixture, tmp_path: Path) -> None:
    path = tmp_path / "scope.yaml"
    for text, scope in (("rules: [{verbs: [get]}]", {"rules": [{"verbs": ["get"]}]}), ("{}", {})):
        path.write_text(text)
        assert key_cli.run("key", "create", "--scope-file", str(path)).code == 0
        assert get_last_created(key_cli)["spec"]["scope"] == scope


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("--space", "a"), "'a' is not a valid scope entry; use the format PROJECT/SPACE"),
        (("--space", "a/"), "use the format PROJECT/SPACE"),
        (("--project", "a/b"), "use the format PROJECT"),
        (("--scope-file", "/nowhere.yaml"), "/nowhere.yaml: no such file"),
        (("--scope-file", "/nowhere.yaml", "--project", "a"), "use either the file or the flags"),
    ],
)
def test_an_invalid_scope_flag_is_a_usage_error(key_cli: CliFixture, flags: tuple[str, ...], advice: str) -> None:
    result = key_cli.run("key", "create", *flags)
    assert (result.code, result.out) == (2, "")
    assert advice in result.err
    assert not key_cli.fake.requests_to("POST", KEYS)


@pytest.mark.parametrize("content", ["- a", "a: [b", "{a: 1, a: 2}", ""])
def test_an_invalid_scope_file_never_creates_a_key_without_scope(
    key_cli: CliFixture, tmp_path: Path, content: str
) -> None:
    (tmp_path / "scope.yaml").write_text(content)
    result = key_cli.run("key", "create", "--scope-file", str(tmp_path / "scope.yaml"))
    assert result.code == 2
    assert "scope.yaml: " in result.err
    assert not key_cli.fake.requests_to("POST", KEYS)


def test_an_invalid_duration_is_a_usage_error(key_cli: CliFixture) -> None:
    result = key_cli.run("key", "create", "--ttl", "a while")
    assert result.code == 2
    assert "use the format 30d, 12h, 90m, 45s" in " ".join(result.err.replace("│", " ").split())


def test_a_forbidden_request_is_reported_with_its_message(key_cli: CliFixture) -> None:
    key_cli.fake.on("POST", KEYS, (403, failure_status(403, "Forbidden", "spec.scope reaches further than your key")))
    result = key_cli.run("key", "create")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("fairlead: spec.scope reaches further than your key\n")


def test_a_ttl_over_the_limit_is_reported_with_its_flag(key_cli: CliFixture) -> None:
    key_cli.fake.on("POST", KEYS, (403, failure_status(403, "Forbidden", "set spec.ttl to at most 60")))
    assert "set it with --ttl" in key_cli.run("key", "create").err


def test_a_rejected_scope_is_reported_with_its_file(key_cli: CliFixture, tmp_path: Path) -> None:
    file = tmp_path / "scope.yaml"
    file.write_text("rules: [{verb: [get]}]")
    key_cli.fake.on("POST", KEYS, (400, failure_status(400, "BadRequest", 'unknown field "spec.scope.rules[0].verb"')))
    result = key_cli.run("key", "create", "--scope-file", str(file))
    assert (result.code, f"spec.scope is the content of {file}" in result.err) == (1, True)


def test_warnings_of_the_server_go_to_stderr(key_cli: CliFixture) -> None:
    key_cli.fake.warnings.append('299 - "spec.scope is empty"')
    result = key_cli.run("key", "create")
    assert len(result.out.splitlines()) == 1
    assert "warning: spec.scope is empty\n" in result.err


def serve_keys(cli: CliFixture) -> None:
    cli.fake.on(
        "GET",
        KEYS,
        list_response(build_key("mine"), build_key("bobs", user="bob"), build_object("ops", spec={"team": "ops"})),
    )


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), ["mine"]),
        (("--user", "bob"), ["bobs"]),
        (("--team", "ops"), ["ops"]),
        (("--all",), ["mine", "bobs", "ops"]),
    ],
)
def test_list_shows_the_keys_of_the_requested_owner(user: CliFixture, flags: tuple[str, ...], names: list[str]) -> None:
    serve_keys(user)
    result = user.run("key", "list", *flags)
    header, *rows = result.out.splitlines()
    assert header.split()[:3] == ["NAME", "OWNER", "TYPE"]
    assert [line.split()[0] for line in rows] == names
    listed = json.loads(user.run("key", "list", *flags, "-o", "json").out)
    assert [each["metadata"]["name"] for each in listed["items"]] == names


def test_a_team_key_lists_the_keys_of_the_team(user: CliFixture) -> None:
    serve_keys(user)
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"team": {"name": "ops"}}}))
    assert [line.split()[0] for line in user.run("key", "list").out.splitlines()[1:]] == ["ops"]


def test_an_empty_list_is_reported_on_stderr(user: CliFixture) -> None:
    user.fake.on("GET", KEYS, list_response())
    result = user.run("key", "list")
    assert (result.code, result.out) == (0, "")
    assert "no keys; create one with `fairlead key create`" in result.err
    assert "no keys of team ops that you may read" in user.run("key", "list", "--team", "ops").err


def test_owner_flags_are_mutually_exclusive(user: CliFixture) -> None:
    result = user.run("key", "list", "--team", "ops", "--all")
    assert (result.code, "choose one" in result.err) == (2, True)


def test_a_table_row_has_state_expiry_last_use_and_scope() -> None:
    scope = {"projects": [{"project": "a"}, {"project": "b"}]}
    key = build_key("ci", ttl=86400 * 30, scope=scope, displayName="CI")
    key["status"]["lastActivity"] = "2026-01-09T22:00:00Z"
    expected = ("ci", "alice", "User", "active", "in 21d", "2h ago", "project a (+1)", "CI", "9d")
    assert table_row(key, NOW) == expected
    assert table_row(build_object("ops", spec={"team": "ops"}), NOW)[1:8] == (
        "team ops",
        "-",
        "active",
        "never",
        "-",
        "all",
        "-",
    )


def test_the_row_of_an_expired_key_says_since_when() -> None:
    assert table_row(build_key("old", ttl=86400), NOW)[3:5] == ("expired", "8d ago")


def test_the_first_key_expires_unless_it_is_replaced(user: CliFixture) -> None:
    assert FIRST_KEY_ANNOTATION == key_lifetime.FIRST_KEY_ANNOTATION
    key = build_key("admin-first-key")
    key["metadata"]["annotations"] = {FIRST_KEY_ANNOTATION: "2026-01-10T23:30:00Z"}
    time = "2026-01-10 23:30:00 UTC"
    assert table_row(key, NOW)[3:5] == ("active", "in 23h, unless replaced")
    assert dict(describe_rows(key, NOW))["expires"] == f"{time}, unless there is another way in by then"
    key["status"]["expired"] = "2026-01-10T23:30:00Z"
    assert table_row(key, NOW + timedelta(days=1))[3:5] == ("expired", "30m ago")
    user.fake.on("GET", f"{KEYS}/admin-first-key", (200, key))
    out = user.run("key", "show", "admin-first-key").out
    assert (time in out, "another way in" in out) == (True, False)


LATER = "2026-01-10T23:30:00Z"
FIRST = {FIRST_KEY_ANNOTATION: LATER}


@pytest.mark.parametrize(
    ("spec", "status", "annotations"),
    [
        ({}, {}, {}),
        ({"disabled": True}, {}, {}),
        ({"ttl": 86400 * 30}, {}, {}),
        ({"disabled": True, "ttl": 60}, {"expired": LATER}, {}),
        ({"ttl": 60, "ttlAfterLastActivity": True}, {"lastActivity": "2026-01-10T00:00:00Z"}, {}),
        ({"ttl": 60, "ttlAfterLastActivity": True}, {"expired": LATER}, {}),
        ({}, {}, FIRST),
        ({}, {"expired": LATER}, FIRST),
        ({"ttl": 86400 * 30}, {}, FIRST),
        ({"ttl": 86400 * 9 + 60}, {}, FIRST),
        ({"ttl": 86400 * 30, "ttlAfterLastActivity": True}, {}, FIRST),
    ],
)
def test_the_state_and_the_expiry_are_those_in_the_tables_of_the_server(
    spec: dict[str, Any], status: dict[str, Any], annotations: dict[str, str]
) -> None:
    key = build_key("a", **spec)
    key["status"] |= status
    key["metadata"]["annotations"] = annotations
    end, is_conditional = find_expiry(key)
    time = "never" if end is None else format_timestamp(end)
    assert key_state(key, NOW) == access_key.key_state(key).lower()
    assert access_key.key_expiry(key) == (f"{time}, unless replaced" if is_conditional else time)


def test_a_ttl_after_last_activity_counts_from_the_last_use() -> None:
    fixed, sliding = build_key("a", ttl=3600), build_key("b", ttl=3600, ttlAfterLastActivity=True)
    assert expiry_time(fixed) == expiry_time(sliding) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    for each in (fixed, sliding):
        each["status"]["lastActivity"] = "2026-01-09T23:30:00Z"
    assert expiry_time(sliding) == NOW + timedelta(minutes=30)
    assert (key_state(fixed, NOW), key_state(sliding, NOW)) == ("expired", "active")
    assert key_state(build_key("c", disabled=True, ttl=1), NOW) == "expired"
    assert key_state(build_key("c", disabled=True, ttl=86400 * 30), NOW) == "disabled"
    assert key_state(build_object("d", spec={}, status={"expired": "2026-01-02T00:00:00Z"}), NOW) == "expired"


def test_one_key_is_shown_without_its_value(user: CliFixture) -> None:
    user.fake.on("GET", f"{KEYS}/ci", (200, build_key("ci", ttl=3600, ttlAfterLastActivity=True, description="builds")))
    out = user.run("key", "show", "ci").out
    assert "2026-01-01 01:00:00 UTC, 1h after its last use" in out
    assert "builds" in out
    assert parse_yaml(user.run("key", "show", "ci", "-o", "yaml").out)["spec"]["ttl"] == 3600
    missing = user.run("key", "show", "none")
    assert missing.code == 1
    assert "not found" in missing.err


@pytest.mark.parametrize(("command", "disabled"), [("disable", True), ("enable", False)])
def test_keys_are_disabled_and_enabled(user: CliFixture, command: str, disabled: bool) -> None:
    user.fake.on("PATCH", f"{KEYS}/ci", (200, build_key("ci")))
    assert user.run("key", command, "ci").code == 0
    assert user.fake.requests_to("PATCH", f"{KEYS}/ci")[0].body == {"spec": {"disabled": disabled}}


def test_enabling_an_expired_key_does_not_claim_that_it_works(user: CliFixture) -> None:
    user.fake.on("PATCH", f"{KEYS}/ci", (200, build_key("ci", ttl=1)))
    assert "the key ci is enabled, but has expired" in user.run("key", "enable", "ci").err


def test_rotate_prints_the_new_value_and_keeps_the_old_one_for_the_overlap(user: CliFixture) -> None:
    user.fake.on("POST", f"{KEYS}/ci/rotate", (201, build_key("ci", key="fairlead_second")))
    result = user.run("key", "rotate", "ci", "--overlap", "1h")
    assert (result.code, result.out) == (0, "fairlead_second\n")
    assert "the old value stays valid for 1h" in result.err
    assert user.fake.requests_to("POST", f"{KEYS}/ci/rotate")[0].body == {"spec": {"overlapSeconds": 3600}}
    assert "the old value is revoked" in user.run("key", "rotate", "ci").err
    assert user.fake.requests_to("POST", f"{KEYS}/ci/rotate")[1].body == {"spec": {}}
    assert user.load_contexts().contexts["test"].key != "fairlead_second"


def test_rotating_the_key_in_use_keeps_the_login_working(user: CliFixture) -> None:
    user.fake.on("POST", f"{KEYS}/alice-key/rotate", (201, build_key("alice-key", key="fairlead_second")))
    result = user.run("key", "rotate", "alice-key")
    assert result.out == "fairlead_second\n"
    assert "the login 'test' now uses the new value" in result.err
    assert user.load_contexts().contexts["test"].key == "fairlead_second"


def test_revoke_needs_a_confirmation(user: CliFixture) -> None:
    user.fake.on("GET", f"{KEYS}/ci", (200, build_key("ci")))
    user.fake.on("DELETE", f"{KEYS}/ci", (200, {}))
    result = user.run("key", "revoke", "ci")
    assert result.code == 2
    assert "Permanently revoke the key ci of user alice? Cannot ask for confirmation" in result.err
    user.use_terminal()
    assert user.run("key", "revoke", "ci", stdin="n\n").code == 2
    assert not user.fake.requests_to("DELETE", f"{KEYS}/ci")
    assert user.run("key", "revoke", "ci", stdin="y\n").code == 0
    assert user.run("key", "revoke", "ci", "--yes").code == 0
    assert len(user.fake.requests_to("DELETE", f"{KEYS}/ci")) == 2


@pytest.mark.parametrize("command", ["revoke", "disable"])
def test_revoking_or_disabling_the_key_in_use_needs_a_confirmation(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{KEYS}/alice-key", (200, build_key("alice-key")))
    user.use_terminal()
    result = user.run("key", command, "alice-key", stdin="\n")
    assert result.code == 2
    assert f"alice-key is the key that you are using now. Really {command} it?" in result.err
    assert not [each for each in user.fake.requests if each.method in ("DELETE", "PATCH")]
