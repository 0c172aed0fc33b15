"""`fairlead whoami`: who, with which key, for what; and what every command does without a login."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import KEY, SELF, M, failure, items, named


def test_it_tells_who_and_with_which_key(user: CliFixture) -> None:
    ended = user.type("whoami")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in ended.out.splitlines()]
    assert lines == [
        ["server", user.fake.url],
        ["user", "alice (Alice A.)"],
        ["teams", "ops"],
        ["groups", "system:authenticated, service:user:alice"],
        ["key", "alice-key (type User)"],
        ["scope", "all permissions of alice"],
    ]


def test_programs_get_the_status_itself(user: CliFixture) -> None:
    assert json.loads(user.type("whoami", "-o", "json").out) == SELF
    assert parse_yaml(user.type("whoami", "-o", "yaml").out) == SELF


def test_a_refused_key_from_the_environment_is_blamed_on_the_environment(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (401, failure(401, "Unauthorized", "invalid bearer token")))
    kept = user.type("whoami")
    assert (kept.code, kept.err) == (1, "fairlead: invalid bearer token; log in again with `fairlead login`\n")
    ended = user.type("whoami", FAIRLEAD_KEY="old")
    assert (ended.code, "does not accept the key in FAIRLEAD_KEY (invalid bearer token)" in ended.err) == (1, True)


def test_programs_are_not_told_who_manages_which_field(user: CliFixture) -> None:
    managed = named("x") | {"metadata": {"name": "x", "managedFields": [{"manager": "m"}]}}
    user.fake.on("GET", f"{M}/ownedaccesskeys/x", (200, managed))
    user.fake.on("GET", f"{M}/users", items(managed))
    for words in (("key", "show", "x"), ("user", "list")):
        assert "managedFields" not in user.type(*words, "-o", "yaml").out


@pytest.mark.parametrize(
    ("scope", "lines"),
    [
        ({}, ["only whoami"]),
        ({"projects": [{"project": "demo"}, {"project": "*"}]}, ["project demo", "project *"]),
        ({"spaces": [{"project": "a", "space": "b"}]}, ["space a/b"]),
        ({"virtualClusters": [{"project": "a", "virtualCluster": "*"}]}, ["virtual cluster a/*"]),
        (
            {"clusters": [{"cluster": "c"}], "allowServiceCli": True},
            ["cluster c", "read requests of command-line tools"],
        ),
        ({"roles": [{"role": "runner"}]}, ["the role runner"]),
        (
            {"rules": [{"verbs": ["get", "list"], "resources": [{"group": "g", "resources": ["apps"]}]}, {}]},
            ["rule: get, list on apps.g", "rule: all verbs on everything"],
        ),
        (
            {
                "rules": [
                    {
                        "verbs": ["get"],
                        "resources": [{"group": "", "resources": ["configmaps"]}],
                        "resourceNames": ["a", "b"],
                        "namespaces": ["x", ""],
                    },
                    {"requestTargets": ["Management"], "virtualClusters": [{"namespace": "p", "name": "v"}]},
                    {"resources": [{"group": "g", "resources": ["apps"], "resourceNames": ["c"]}], "cluster": "berlin"},
                ]
            },
            [
                "rule: get on configmaps named a or b in x, no namespace",
                "rule: all verbs on everything of Management through virtual cluster p/v",
                "rule: all verbs on apps.g named c through cluster berlin",
            ],
        ),
    ],
)
def test_a_scope_is_told_in_words(user: CliFixture, scope: dict[str, Any], lines: list[str]) -> None:
    user.fake.on_self(accessKeyScope=scope)
    told = user.type("whoami").out.splitlines()[5:]
    assert [line.removeprefix("scope").strip() for line in told] == lines


def test_a_team_is_told_as_one(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"team": {"name": "ops"}, "accessKey": "ops-key"}}))
    assert "team" in user.type("whoami").out
    assert "all permissions of ops" in user.type("whoami").out


def test_control_characters_from_the_server_never_reach_the_terminal(user: CliFixture) -> None:
    user.fake.on_self(user={"name": "al\x1b]0;owned\x07ice", "displayName": "[bold]A[/bold]\r\x9b31m"})
    out = user.type("whoami").out
    assert "al\\x1b]0;owned\\x07ice ([bold]A[/bold]\\r\\x9b31m)" in out
    user.fake.on("POST", f"{M}/selves", (403, failure(403, "Forbidden", "no\x1b[2J way\nfairlead: yes")))
    ended = user.type("whoami")
    assert ended.err.startswith("fairlead: no\\x1b[2J way\\nfairlead: yes\n")
    assert ended.err.count("\n") == 1


def test_without_a_login_there_is_advice(cli: CliFixture) -> None:
    ended = cli.type("whoami")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "fairlead: no login yet; log in with `fairlead login URL`, or set FAIRLEAD_URL and FAIRLEAD_KEY\n"
    )


def test_beside_a_server_of_this_machine_the_advice_is_a_command_to_paste(cli: CliFixture) -> None:
    own = cli.home / "share" / "fairlead" / "admin.kubeconfig"
    own.parent.mkdir(parents=True)
    own.touch()
    assert f"for the server on this machine: `fairlead login --kubeconfig {own}`" in cli.type("whoami").err
    elsewhere = cli.home / "data"
    elsewhere.mkdir()
    (elsewhere / "admin.kubeconfig").touch()
    assert str(elsewhere) in cli.type("whoami", FAIRLEAD_DATA=str(elsewhere)).err


def test_an_expired_key_sends_people_to_the_login(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (401, failure(401, "Unauthorized", "the key has expired")))
    ended = user.type("whoami")
    assert (ended.code, ended.err) == (1, "fairlead: the key has expired; log in again with `fairlead login`\n")


def test_another_login_can_be_named(user: CliFixture) -> None:
    user.keep("other", key="other-key")
    user.type("whoami", "--context", "test")
    user.type("whoami")
    assert [each.headers["authorization"] for each in user.fake.requests] == [f"Bearer {KEY}", "Bearer other-key"]
    ended = user.type("whoami", "--context", "third")
    assert ended.code == 1
    assert "no login named 'third' (available: other, test)" in ended.err
