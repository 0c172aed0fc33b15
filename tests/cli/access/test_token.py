"""`fairlead token create` and `rotate-keys`. test_kubeconfig.py tests `fairlead token` without a subcommand."""

import json

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure_status

TOKENS, ROTATIONS = f"{M}/directclusterendpointtokens", f"{M}/tokenkeyrotations"


@pytest.fixture
def token_cli(user: CliFixture) -> CliFixture:
    token = {"kind": "DirectClusterEndpointToken", "metadata": {}, "spec": {"ttl": 3600}, "status": {"token": "a.b.c"}}
    user.fake.on("POST", TOKENS, (201, token))
    return user


def test_the_token_is_the_only_output_on_stdout(token_cli: CliFixture) -> None:
    result = token_cli.run("token", "create")
    assert (result.code, result.out) == (0, "a.b.c\n")
    assert "valid for 1h; it is shown only once" in result.err
    assert token_cli.fake.requests_to("POST", TOKENS)[-1].body == {
        "apiVersion": "management.service.sh/v1",
        "kind": "DirectClusterEndpointToken",
        "spec": {},
    }


def test_ttl_and_scope_are_sent(token_cli: CliFixture) -> None:
    scope = ("--project", "web", "--cluster", "berlin", "--allow-cli")
    assert token_cli.run("token", "create", "--ttl", "12h", *scope).code == 0
    assert token_cli.fake.requests_to("POST", TOKENS)[-1].body["spec"] == {
        "ttl": 12 * 3600,
        "scope": {"projects": [{"project": "web"}], "clusters": [{"cluster": "berlin"}], "allowServiceCli": True},
    }


def test_json_has_the_whole_object(token_cli: CliFixture) -> None:
    assert json.loads(token_cli.run("token", "create", "-o", "json").out)["status"] == {"token": "a.b.c"}


def test_a_forbidden_request_is_reported_with_its_message(user: CliFixture) -> None:
    user.fake.on("POST", TOKENS, (403, failure_status(403, "Forbidden", "set spec.ttl to at most 60")))
    result = user.run("token", "create", "--ttl", "1h")
    assert (result.code, result.out) == (1, "")
    assert "set --ttl to at most 60" in result.err


def test_a_response_without_a_token_is_an_error(user: CliFixture) -> None:
    user.fake.on("POST", TOKENS, (201, {"metadata": {}, "spec": {}}))
    assert user.run("token", "create").code == 1


def test_rotate_keys_prints_the_new_key_id_and_how_long_the_old_key_is_published(user: CliFixture) -> None:
    status = {"keyID": "2026-01-02-ab", "retiredUntil": "2026-04-02T03:04:05Z"}
    user.fake.on("POST", ROTATIONS, (201, {"metadata": {}, "status": status}))
    result = user.run("token", "rotate-keys")
    assert (result.code, result.out) == (0, "2026-01-02-ab\n")
    assert "published until 2026-04-02T03:04:05Z" in result.err
    assert json.loads(user.run("token", "rotate-keys", "-o", "json").out)["status"] == status


def test_a_subcommand_does_not_print_the_key_of_the_login(token_cli: CliFixture) -> None:
    assert "ExecCredential" not in token_cli.run("token", "create").out
