"""Attacks on the codes of the command line: a thief has a single attempt, and it ends the login.

An attacker who has no code, but knows the name of a login, cannot end it.
"""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest

from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.signin.device_requests import PLURAL
from fairlead.signin.oauth import FORM, REASON_ANNOTATION
from fairlead.signin.oauth_device import DEVICE_GRANT
from tests.harness.cli_login import REDIRECT, REQUEST, VERIFIER, CliLoginFixture, open_cli_login

WRONG: dict[str, dict[str, str]] = {
    "verifier": {"code_verifier": "x" * 43},
    "challenge as verifier": {"code_verifier": REQUEST["code_challenge"]},
    "verifier of another form": {"code_verifier": "short"},
    "verifier too long": {"code_verifier": "x" * 129},
    "no verifier": {"code_verifier": ""},
    "port": {"redirect_uri": "http://127.0.0.1:40001/done"},
    "path": {"redirect_uri": "http://127.0.0.1:40000/other"},
    "redirect too long": {"redirect_uri": REDIRECT + "x" * 512},
    "no redirect": {"redirect_uri": ""},
    "client": {"client_id": "other"},
    "no client": {"client_id": ""},
}


@pytest.fixture
async def cli() -> AsyncIterator[CliLoginFixture]:
    async with open_cli_login() as fixture:
        yield fixture


async def present(cli: CliLoginFixture, code: str, **changes: str) -> tuple[int, Object]:
    fields = {"code": code, "code_verifier": VERIFIER, "redirect_uri": REDIRECT, "client_id": "fairlead-cli", **changes}
    return await cli.post_form("/auth/token", grant_type="authorization_code", **fields)


def cli_logins(cli: CliLoginFixture) -> list[str]:
    return [name for name in cli.login.key_names() if name.startswith("cli-")]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_code_that_is_presented_with_anything_wrong_is_of_no_use_any_more(
    cli: CliLoginFixture, wrong: str
) -> None:
    code = await cli.approve(await cli.browser())
    status, reply = await present(cli, code, **WRONG[wrong])
    assert status == 400 and "access_token" not in reply and not cli_logins(cli)
    status, reply = await present(cli, code)
    assert (status, reply["error"]) == (400, "invalid_grant") and "fairlead login" in reply["error_description"]


async def test_the_answer_and_the_audit_log_say_that_the_login_was_ended(cli: CliLoginFixture) -> None:
    code = await cli.approve(await cli.browser())
    _, reply = await present(cli, code, **WRONG["verifier"])
    assert "verifier" in reply["error_description"] and "was ended" in reply["error_description"]
    assert cli.calls[-1].annotations[REASON_ANNOTATION] == "code_misused"


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_code_that_is_presented_again_with_anything_wrong_ends_the_login(
    cli: CliLoginFixture, wrong: str
) -> None:
    """Two have the code: one of them is a thief."""
    code = await cli.approve(await cli.browser())
    _, tokens = await present(cli, code)
    assert (await present(cli, code, **WRONG[wrong]))[0] == 400
    with pytest.raises(Unauthorized):
        cli.login.keys.authenticate_token(tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 400


@pytest.mark.parametrize("wrong", ["verifier", "port", "client", "no verifier"])
async def test_an_attacker_who_knows_the_name_of_a_login_but_not_its_code_cannot_end_it(
    cli: CliLoginFixture, wrong: str
) -> None:
    code = await cli.approve(await cli.browser())
    name, _, secret = code.partition(".")
    other = (await cli.approve(await cli.browser())).partition(".")[2]
    for invented in ("a" * 43, secret[:-1] + ("A" if secret[-1] != "A" else "B"), other):
        assert (await present(cli, f"{name}.{invented}", **WRONG[wrong]))[0] == 400
        assert (await present(cli, f"{name}.{invented}"))[0] == 400
    assert (await present(cli, code))[0] == 200


@pytest.mark.parametrize("attempts", [["verifier", ""], ["", "verifier"], ["client", "", "port", ""], ["", ""]])
async def test_of_parallel_attempts_with_one_code_none_keeps_a_login(cli: CliLoginFixture, attempts: list[str]) -> None:
    """The order does not matter: not all of them have the code from the user."""
    code = await cli.approve(await cli.browser())
    answers = await asyncio.gather(*(present(cli, code, **WRONG.get(each, {})) for each in attempts))
    for status, reply in answers:
        if status == 200:
            with pytest.raises(Unauthorized):
                cli.login.keys.authenticate_token(reply["access_token"])
    assert not cli_logins(cli)


async def test_a_code_of_one_grant_type_is_of_no_use_for_another(cli: CliLoginFixture) -> None:
    code = await cli.approve(await cli.browser())
    _, device = await cli.post_form("/auth/device", client_id="fairlead-cli", machine="build-7")
    body = {"userCode": device["user_code"], "approve": True}
    await cli.post_json("/auth/device/decision", body, await cli.browser())
    (login,) = set(cli_logins(cli)) - {code.partition(".")[0]}
    assert (await cli.poll(code))[0] == 400
    assert (await present(cli, device["device_code"]))[0] == 400
    assert (await present(cli, f"{login}.{device['device_code'].partition('.')[2]}"))[0] == 400
    assert (await cli.refresh(code))[0] == 400
    cli.clock.tick(5)
    assert (await present(cli, code))[0] == 200 and (await cli.poll(device["device_code"]))[0] == 200


@pytest.mark.parametrize("client", ["other", ""])
@pytest.mark.parametrize("is_approved", [False, True])
async def test_a_device_code_that_another_client_presents_is_of_no_use_any_more(
    cli: CliLoginFixture, client: str, is_approved: bool
) -> None:
    _, device = await cli.post_form("/auth/device", client_id="fairlead-cli", machine="build-7")
    if is_approved:
        body = {"userCode": device["user_code"], "approve": True}
        assert (await cli.post_json("/auth/device/decision", body, await cli.browser()))[0] == 200
    fields = {"grant_type": DEVICE_GRANT, "device_code": device["device_code"], "client_id": client}
    assert (await cli.post_form("/auth/token", **fields))[1]["error"] == "invalid_client"
    assert not cli_logins(cli) and not cli.login.registry.view.entries(GROUP, PLURAL)
    cli.clock.tick(60)
    assert (await cli.poll(device["device_code"]))[1]["error"] == "expired_token"


async def test_an_invented_device_code_of_another_client_ends_nothing(cli: CliLoginFixture) -> None:
    _, device = await cli.post_form("/auth/device", client_id="fairlead-cli", machine="build-7")
    name = device["device_code"].partition(".")[0]
    fields = {"grant_type": DEVICE_GRANT, "device_code": f"{name}.{'a' * 43}", "client_id": "other"}
    assert (await cli.post_form("/auth/token", **fields))[1]["error"] == "invalid_client"
    assert cli.login.registry.view.entries(GROUP, PLURAL)


async def test_a_request_with_two_codes_redeems_neither(cli: CliLoginFixture) -> None:
    codes = [await cli.approve(await cli.browser()) for _ in range(2)]
    fields = [("grant_type", "authorization_code"), ("client_id", "fairlead-cli"), ("redirect_uri", REDIRECT)]
    fields += [("code_verifier", VERIFIER), *(("code", each) for each in codes)]
    reply = await cli.send("POST", "/auth/token", body=urlencode(fields).encode(), headers={"content-type": FORM})
    assert reply.status == 400
