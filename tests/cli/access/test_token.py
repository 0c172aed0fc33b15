"""`fairlead token create` and `rotate-keys`. Printing the login's key is in test_kubeconfig.py."""

import json

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure

TOKENS, ROTATIONS = f"{M}/directclusterendpointtokens", f"{M}/tokenkeyrotations"


@pytest.fixture
def minting(user: CliFixture) -> CliFixture:
    made = {"kind": "DirectClusterEndpointToken", "metadata": {}, "spec": {"ttl": 3600}, "status": {"token": "a.b.c"}}
    user.fake.on("POST", TOKENS, (201, made))
    return user


def test_a_token_is_alone_on_stdout(minting: CliFixture) -> None:
    ended = minting.type("token", "create")
    assert (ended.code, ended.out) == (0, "a.b.c\n")
    assert "valid for 1h; it is shown only once" in ended.err
    assert minting.fake.asked("POST", TOKENS)[-1].body == {
        "apiVersion": "management.service.sh/v1",
        "kind": "DirectClusterEndpointToken",
        "spec": {},
    }


def test_its_life_and_its_scope_are_sent(minting: CliFixture) -> None:
    scope = ("--project", "web", "--cluster", "berlin", "--allow-cli")
    assert minting.type("token", "create", "--ttl", "12h", *scope).code == 0
    assert minting.fake.asked("POST", TOKENS)[-1].body["spec"] == {
        "ttl": 12 * 3600,
        "scope": {"projects": [{"project": "web"}], "clusters": [{"cluster": "berlin"}], "allowServiceCli": True},
    }


def test_programs_get_the_whole_object(minting: CliFixture) -> None:
    assert json.loads(minting.type("token", "create", "-o", "json").out)["status"] == {"token": "a.b.c"}


def test_a_refusal_is_one_line(user: CliFixture) -> None:
    user.fake.on("POST", TOKENS, (403, failure(403, "Forbidden", "set spec.ttl to at most 60")))
    ended = user.type("token", "create", "--ttl", "1h")
    assert (ended.code, ended.out) == (1, "")
    assert "set spec.ttl to at most 60" in ended.err


def test_an_answer_without_a_token_is_a_failure(user: CliFixture) -> None:
    user.fake.on("POST", TOKENS, (201, {"metadata": {}, "spec": {}}))
    assert user.type("token", "create").code == 1


def test_a_rotation_prints_the_new_key_and_tells_about_the_one_before(user: CliFixture) -> None:
    status = {"keyID": "2026-01-02-ab", "retiredUntil": "2026-04-02T03:04:05Z"}
    user.fake.on("POST", ROTATIONS, (201, {"metadata": {}, "status": status}))
    ended = user.type("token", "rotate-keys")
    assert (ended.code, ended.out) == (0, "2026-01-02-ab\n")
    assert "published until 2026-04-02T03:04:05Z" in ended.err
    assert json.loads(user.type("token", "rotate-keys", "-o", "json").out)["status"] == status


def test_a_command_below_does_not_print_the_key_of_the_login(minting: CliFixture) -> None:
    assert "ExecCredential" not in minting.type("token", "create").out
