"""fairlead.cli.access.whoami: the user, the key and its scope; and the errors of every command without a login."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture, describe_unknown_key, parse_yaml
from tests.harness.fake_server import KEY, SELF, M, build_object, failure_status, list_response


def test_user_groups_key_and_scope_are_shown(user: CliFixture) -> None:
    result = user.run("whoami")
    assert (result.code, result.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in result.out.splitlines()]
    assert lines == [
        ["server", user.fake.url],
        ["user", "alice (Alice A.)"],
        ["teams", "ops"],
        ["groups", "system:authenticated, service:user:alice"],
        ["key", "alice-key (type User)"],
        ["scope", "all permissions of alice"],
    ]


def test_json_and_yaml_have_the_status_of_the_self(user: CliFixture) -> None:
    assert json.loads(user.run("whoami", "-o", "json").out) == SELF
    assert parse_yaml(user.run("whoami", "-o", "yaml").out) == SELF


def test_the_error_for_a_rejected_key_names_the_environment_variable(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (401, failure_status(401, "Unauthorized", "invalid bearer token")))
    result = user.run("whoami")
    assert (result.code, result.err) == (
        1,
        describe_unknown_key(user, "fairlead login"),
    )
    result = user.run("whoami", FAIRLEAD_KEY="old")
    assert (result.code, "does not accept the key in FAIRLEAD_KEY (invalid bearer token)" in result.err) == (1, True)


def test_managed_fields_are_not_printed(user: CliFixture) -> None:
    managed = build_object("x") | {"metadata": {"name": "x", "managedFields": [{"manager": "m"}]}}
    user.fake.on("GET", f"{M}/ownedaccesskeys/x", (200, managed))
    user.fake.on("GET", f"{M}/users", list_response(managed))
    for arguments in (("key", "show", "x"), ("user", "list")):
        assert "managedFields" not in user.run(*arguments, "-o", "yaml").out


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
def test_a_scope_is_described_line_by_line(user: CliFixture, scope: dict[str, Any], lines: list[str]) -> None:
    user.fake.on_self(accessKeyScope=scope)
    output = user.run("whoami").out.splitlines()[5:]
    assert [line.removeprefix("scope").strip() for line in output] == lines


def test_a_team_key_is_shown_with_its_team(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"team": {"name": "ops"}, "accessKey": "ops-key"}}))
    assert "team" in user.run("whoami").out
    assert "all permissions of ops" in user.run("whoami").out


def test_control_characters_from_the_server_are_escaped(user: CliFixture) -> None:
    user.fake.on_self(user={"name": "al\x1b]0;owned\x07ice", "displayName": "[bold]A[/bold]\r\x9b31m"})
    out = user.run("whoami").out
    assert "al\\x1b]0;owned\\x07ice ([bold]A[/bold]\\r\\x9b31m)" in out
    user.fake.on("POST", f"{M}/selves", (403, failure_status(403, "Forbidden", "no\x1b[2J way\nfairlead: yes")))
    result = user.run("whoami")
    assert result.err == "fairlead: no\\x1b[2J way\n  fairlead: yes\n"


def test_without_a_login_the_error_has_advice(cli: CliFixture) -> None:
    result = cli.run("whoami")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "fairlead: no login yet; log in with `fairlead login URL`, or set FAIRLEAD_URL and FAIRLEAD_KEY\n"
    )


def test_with_a_server_on_this_machine_the_advice_is_its_login_command(cli: CliFixture) -> None:
    kubeconfig = cli.home / "share" / "fairlead" / "admin.kubeconfig"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.touch()
    assert f"for the server on this machine: `fairlead login --kubeconfig {kubeconfig}`" in cli.run("whoami").err
    data_folder = cli.home / "data"
    data_folder.mkdir()
    (data_folder / "admin.kubeconfig").touch()
    assert str(data_folder) in cli.run("whoami", FAIRLEAD_DATA=str(data_folder)).err


def test_the_error_for_an_expired_key_suggests_to_log_in_again(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (401, failure_status(401, "Unauthorized", "the key has expired")))
    result = user.run("whoami")
    assert (result.code, result.err) == (1, "fairlead: the key has expired; log in again with `fairlead login`\n")


def test_another_context_can_be_selected(user: CliFixture) -> None:
    user.save_login("other", key="other-key")
    user.run("whoami", "--context", "test")
    user.run("whoami")
    assert [each.headers["authorization"] for each in user.fake.requests] == [f"Bearer {KEY}", "Bearer other-key"]
    result = user.run("whoami", "--context", "third")
    assert result.code == 1
    assert "no login named 'third' (available: other, test)" in result.err
