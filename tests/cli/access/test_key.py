"""`fairlead key`: what is sent, what is shown, and that a value is shown once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.access.key import expiry_time, key_state, table_row
from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, failure, items, named

KEYS = f"{M}/ownedaccesskeys"
NOW = datetime(2026, 1, 10, tzinfo=UTC)


def key(name: str, **spec: Any) -> dict[str, Any]:
    return named(name, spec={"user": "alice", "type": "User"} | spec, status={})


@pytest.fixture
def minting(user: CliFixture) -> CliFixture:
    user.fake.on("POST", KEYS, lambda request: (201, key("key-x7k2p", key="fairlead_new-value")))
    return user


def sent(cli: CliFixture) -> dict[str, Any]:
    body: dict[str, Any] = cli.fake.asked("POST", KEYS)[-1].body
    return body


def test_a_new_value_is_alone_on_stdout(minting: CliFixture) -> None:
    ended = minting.type("key", "create")
    assert (ended.code, ended.out) == (0, "fairlead_new-value\n")
    assert "the key key-x7k2p; it is shown only once" in ended.err
    assert "fairlead_new-value" not in ended.err
    assert sent(minting) == {
        "apiVersion": "management.service.sh/v1",
        "kind": "OwnedAccessKey",
        "metadata": {"generateName": "key-"},
        "spec": {},
    }


def test_programs_get_the_whole_object(minting: CliFixture) -> None:
    assert json.loads(minting.type("key", "create", "-o", "json").out)["spec"]["key"] == "fairlead_new-value"
    assert parse_yaml(minting.type("key", "create", "-o", "yaml").out)["metadata"]["name"] == "key-x7k2p"


def test_every_flag_becomes_a_field(minting: CliFixture) -> None:
    told = ("--name", "ci", "--display-name", "CI", "--description", "for builds", "--user", "bob", "--type", "Other")
    life = ("--ttl", "30d", "--ttl-after-activity", "--disabled")
    assert minting.type("key", "create", *told, *life).code == 0
    assert sent(minting)["metadata"] == {"name": "ci"}
    assert sent(minting)["spec"] == {
        "displayName": "CI",
        "description": "for builds",
        "user": "bob",
        "type": "Other",
        "ttl": 2_592_000,
        "ttlAfterLastActivity": True,
        "disabled": True,
    }


def test_a_scope_is_put_together_from_flags(minting: CliFixture) -> None:
    parts = ("--project", "a", "--project", "b", "--space", "a/s", "--virtual-cluster", "a/v", "--cluster", "c")
    assert minting.type("key", "create", *parts, "--allow-cli").code == 0
    assert sent(minting)["spec"]["scope"] == {
        "projects": [{"project": "a"}, {"project": "b"}],
        "spaces": [{"project": "a", "space": "s"}],
        "virtualClusters": [{"project": "a", "virtualCluster": "v"}],
        "clusters": [{"cluster": "c"}],
        "allowServiceCli": True,
    }


def test_a_scope_can_come_from_a_file_even_an_empty_one(minting: CliFixture, tmp_path: Path) -> None:
    path = tmp_path / "scope.yaml"
    for text, scope in (("rules: [{verbs: [get]}]", {"rules": [{"verbs": ["get"]}]}), ("{}", {})):
        path.write_text(text)
        assert minting.type("key", "create", "--scope-file", str(path)).code == 0
        assert sent(minting)["spec"]["scope"] == scope


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
def test_a_scope_that_cannot_be_meant_is_a_usage_error(
    minting: CliFixture, flags: tuple[str, ...], advice: str
) -> None:
    ended = minting.type("key", "create", *flags)
    assert (ended.code, ended.out) == (2, "")
    assert advice in ended.err
    assert not minting.fake.asked("POST", KEYS)


@pytest.mark.parametrize("content", ["- a", "a: [b", "{a: 1, a: 2}", ""])
def test_a_scope_file_that_is_none_never_means_a_key_without_scope(
    minting: CliFixture, tmp_path: Path, content: str
) -> None:
    (tmp_path / "scope.yaml").write_text(content)
    ended = minting.type("key", "create", "--scope-file", str(tmp_path / "scope.yaml"))
    assert ended.code == 2
    assert "scope.yaml: " in ended.err
    assert not minting.fake.asked("POST", KEYS)


def test_a_duration_that_is_none_is_a_usage_error(minting: CliFixture) -> None:
    ended = minting.type("key", "create", "--ttl", "a while")
    assert ended.code == 2
    assert "use the format 30d, 12h, 90m, 45s" in " ".join(ended.err.replace("│", " ").split())


def test_a_refusal_is_told_with_its_reason(minting: CliFixture) -> None:
    minting.fake.on("POST", KEYS, (403, failure(403, "Forbidden", "spec.scope reaches further than your key")))
    ended = minting.type("key", "create")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("fairlead: spec.scope reaches further than your key\n")


def test_a_life_that_is_too_long_is_told_with_its_flag(minting: CliFixture) -> None:
    minting.fake.on("POST", KEYS, (403, failure(403, "Forbidden", "set spec.ttl to at most 60")))
    assert "set spec.ttl with --ttl" in minting.type("key", "create").err


def test_a_scope_that_is_refused_is_told_with_its_file(minting: CliFixture, tmp_path: Path) -> None:
    file = tmp_path / "scope.yaml"
    file.write_text("rules: [{verb: [get]}]")
    minting.fake.on("POST", KEYS, (400, failure(400, "BadRequest", 'unknown field "spec.scope.rules[0].verb"')))
    ended = minting.type("key", "create", "--scope-file", str(file))
    assert (ended.code, f"spec.scope is the content of {file}" in ended.err) == (1, True)


def test_what_the_server_warns_of_is_shown_beside_the_value(minting: CliFixture) -> None:
    minting.fake.warnings.append('299 - "spec.scope is empty"')
    ended = minting.type("key", "create")
    assert len(ended.out.splitlines()) == 1
    assert "warning: spec.scope is empty\n" in ended.err


def listing(cli: CliFixture) -> None:
    cli.fake.on("GET", KEYS, items(key("mine"), key("bobs", user="bob"), named("ops", spec={"team": "ops"})))


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), ["mine"]),
        (("--user", "bob"), ["bobs"]),
        (("--team", "ops"), ["ops"]),
        (("--all",), ["mine", "bobs", "ops"]),
    ],
)
def test_a_list_shows_whose_keys_were_asked_for(user: CliFixture, flags: tuple[str, ...], names: list[str]) -> None:
    listing(user)
    ended = user.type("key", "list", *flags)
    header, *rows = ended.out.splitlines()
    assert header.split()[:3] == ["NAME", "OWNER", "TYPE"]
    assert [line.split()[0] for line in rows] == names
    listed = json.loads(user.type("key", "list", *flags, "-o", "json").out)
    assert [each["metadata"]["name"] for each in listed["items"]] == names


def test_a_team_sees_the_keys_of_the_team(user: CliFixture) -> None:
    listing(user)
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"team": {"name": "ops"}}}))
    assert [line.split()[0] for line in user.type("key", "list").out.splitlines()[1:]] == ["ops"]


def test_no_keys_is_said_so_beside_the_output(user: CliFixture) -> None:
    user.fake.on("GET", KEYS, items())
    ended = user.type("key", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "no keys; create one with `fairlead key create`" in ended.err
    assert "no keys of team ops that you may read" in user.type("key", "list", "--team", "ops").err


def test_one_list_is_asked_for_at_a_time(user: CliFixture) -> None:
    ended = user.type("key", "list", "--team", "ops", "--all")
    assert (ended.code, "choose one" in ended.err) == (2, True)


def test_a_row_says_what_people_want_to_know() -> None:
    scope = {"projects": [{"project": "a"}, {"project": "b"}]}
    made = key("ci", ttl=86400 * 30, scope=scope, displayName="CI")
    made["status"]["lastActivity"] = "2026-01-09T22:00:00Z"
    shown = ("ci", "alice", "User", "active", "in 21d", "2h ago", "project a (+1)", "CI", "9d")
    assert table_row(made, NOW) == shown
    assert table_row(named("ops", spec={"team": "ops"}), NOW)[1:8] == (
        "team ops",
        "-",
        "active",
        "never",
        "-",
        "all",
        "-",
    )


def test_a_row_of_an_expired_key_says_since_when() -> None:
    assert table_row(key("old", ttl=86400), NOW)[3:5] == ("expired", "8d ago")


def test_a_life_counts_from_the_last_use_where_the_key_says_so() -> None:
    fixed, sliding = key("a", ttl=3600), key("b", ttl=3600, ttlAfterLastActivity=True)
    assert expiry_time(fixed) == expiry_time(sliding) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    for each in (fixed, sliding):
        each["status"]["lastActivity"] = "2026-01-09T23:30:00Z"
    assert expiry_time(sliding) == NOW + timedelta(minutes=30)
    assert (key_state(fixed, NOW), key_state(sliding, NOW)) == ("expired", "active")
    assert key_state(key("c", disabled=True, ttl=1), NOW) == "disabled"
    assert key_state(named("d", spec={}, status={"expired": "2026-01-02T00:00:00Z"}), NOW) == "expired"


def test_one_key_is_shown_without_its_value(user: CliFixture) -> None:
    user.fake.on("GET", f"{KEYS}/ci", (200, key("ci", ttl=3600, ttlAfterLastActivity=True, description="builds")))
    out = user.type("key", "show", "ci").out
    assert "2026-01-01 01:00:00 UTC, 1h after its last use" in out
    assert "builds" in out
    assert parse_yaml(user.type("key", "show", "ci", "-o", "yaml").out)["spec"]["ttl"] == 3600
    missing = user.type("key", "show", "none")
    assert missing.code == 1
    assert "not found" in missing.err


@pytest.mark.parametrize(("command", "disabled"), [("disable", True), ("enable", False)])
def test_keys_are_switched_off_and_on(user: CliFixture, command: str, disabled: bool) -> None:
    user.fake.on("PATCH", f"{KEYS}/ci", (200, key("ci")))
    assert user.type("key", command, "ci").code == 0
    assert user.fake.asked("PATCH", f"{KEYS}/ci")[0].body == {"spec": {"disabled": disabled}}


def test_enabling_an_expired_key_does_not_claim_that_it_works(user: CliFixture) -> None:
    user.fake.on("PATCH", f"{KEYS}/ci", (200, key("ci", ttl=1)))
    assert "the key ci is enabled, but has expired" in user.type("key", "enable", "ci").err


def test_rotation_prints_the_new_value_and_keeps_the_old_one_for_a_while(user: CliFixture) -> None:
    user.fake.on("POST", f"{KEYS}/ci/rotate", (201, key("ci", key="fairlead_second")))
    ended = user.type("key", "rotate", "ci", "--overlap", "1h")
    assert (ended.code, ended.out) == (0, "fairlead_second\n")
    assert "the old value stays valid for 1h" in ended.err
    assert user.fake.asked("POST", f"{KEYS}/ci/rotate")[0].body == {"spec": {"overlapSeconds": 3600}}
    assert "the old value is revoked" in user.type("key", "rotate", "ci").err
    assert user.fake.asked("POST", f"{KEYS}/ci/rotate")[1].body == {"spec": {}}
    assert user.kept().contexts["test"].key != "fairlead_second"


def test_rotating_the_key_in_use_keeps_the_login_working(user: CliFixture) -> None:
    user.fake.on("POST", f"{KEYS}/alice-key/rotate", (201, key("alice-key", key="fairlead_second")))
    ended = user.type("key", "rotate", "alice-key")
    assert ended.out == "fairlead_second\n"
    assert "the login 'test' now uses the new value" in ended.err
    assert user.kept().contexts["test"].key == "fairlead_second"


def test_revoking_takes_a_yes(user: CliFixture) -> None:
    user.fake.on("GET", f"{KEYS}/ci", (200, key("ci")))
    user.fake.on("DELETE", f"{KEYS}/ci", (200, {}))
    ended = user.type("key", "revoke", "ci")
    assert ended.code == 2
    assert "Permanently revoke the key ci of user alice? Cannot ask for confirmation" in ended.err
    user.use_terminal()
    assert user.type("key", "revoke", "ci", stdin="n\n").code == 2
    assert not user.fake.asked("DELETE", f"{KEYS}/ci")
    assert user.type("key", "revoke", "ci", stdin="y\n").code == 0
    assert user.type("key", "revoke", "ci", "--yes").code == 0
    assert len(user.fake.asked("DELETE", f"{KEYS}/ci")) == 2


@pytest.mark.parametrize("command", ["revoke", "disable"])
def test_nobody_locks_themselves_out_by_accident(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{KEYS}/alice-key", (200, key("alice-key")))
    user.use_terminal()
    ended = user.type("key", command, "alice-key", stdin="\n")
    assert ended.code == 2
    assert f"alice-key is the key that you are using now. Really {command} it?" in ended.err
    assert not [each for each in user.fake.requests if each.method in ("DELETE", "PATCH")]
