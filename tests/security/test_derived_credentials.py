"""What a credential was used to obtain ends with it: logins of the command line, by code and by device code.

The attacker has stolen a key for a moment, and has allowed a login with it. The owner deletes, disables, rotates or
narrows the key: the login must not go on, neither its keys nor its refresh token nor a code that was not used yet.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authz.scope.subset import is_superset
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.calls import call
from tests.harness.cli_login import CliLoginFixture, open_cli_login
from tests.harness.login import PASSWORD, TTL

AS_SERVER = WriteOptions(CONTROLLER_USER, "tests")


@pytest.fixture
async def cli() -> AsyncIterator[CliLoginFixture]:
    async with open_cli_login() as fixture:
        yield fixture


def is_accepted(cli: CliLoginFixture, key: str) -> bool:
    try:
        return cli.login.keys.authenticate_token(key).name == "alice"
    except Unauthorized:
        return False


def name_of_key(cli: CliLoginFixture, value: str) -> str:
    return cli.login.keys.authenticate_token(value).key


async def delete(cli: CliLoginFixture, name: str) -> None:
    await cli.login.registry.resource(GROUP, ACCESS_KEYS).delete("", name, DeleteOptions(), AS_SERVER)


async def edit(cli: CliLoginFixture, name: str, **spec: object) -> None:
    def change(old: Object) -> Object:
        new = deep_copy(old)
        new["spec"].update(spec)
        return new

    await cli.login.registry.resource(GROUP, ACCESS_KEYS).modify("", name, change, AS_SERVER)


async def disable(cli: CliLoginFixture, name: str) -> None:
    await edit(cli, name, disabled=True)


async def narrow(cli: CliLoginFixture, name: str) -> None:
    await edit(cli, name, scope={"allowServiceCli": True})


async def shorten(cli: CliLoginFixture, name: str) -> None:
    await edit(cli, name, ttl=60)
    cli.clock.tick(61)


async def rotate(cli: CliLoginFixture, name: str, overlap: int = 0) -> None:
    rotator = KeyRotator(cli.login.registry, GROUP, cli.login.pepper, is_superset)
    await rotator.rotate(CONTROLLER_USER, name, {"spec": {"overlapSeconds": overlap}})


async def replace(cli: CliLoginFixture, name: str) -> None:
    """A later key of the same name and user."""
    await delete(cli, name)
    cli.clock.tick(1)
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey"}
    body = {**kind, "metadata": {"name": name}, "spec": {"user": "alice"}}
    await cli.login.registry.resource(GROUP, ACCESS_KEYS).create(body, "", AS_SERVER)


ENDS: dict[str, Callable[[CliLoginFixture, str], Awaitable[None]]] = {
    "deleted": delete,
    "disabled": disable,
    "narrowed": narrow,
    "expired": shorten,
    "rotated": rotate,
    "replaced": replace,
}


async def log_in(cli: CliLoginFixture, headers: dict[str, str]) -> Object:
    status, tokens = await cli.redeem(await cli.approve(headers))
    assert status == 200
    return tokens


async def allow_device(cli: CliLoginFixture, headers: dict[str, str]) -> str:
    _, device = await cli.post_form("/auth/device", client_id="fairlead-cli", machine="build-7")
    body = {"userCode": device["user_code"], "approve": True}
    assert (await cli.post_json("/auth/device/decision", body, headers))[0] == 200
    return str(device["device_code"])


@pytest.mark.parametrize("way", ENDS)
async def test_a_login_ends_with_the_access_key_with_which_it_was_allowed(cli: CliLoginFixture, way: str) -> None:
    value = await cli.login.add_key("alice")
    headers, name = {"authorization": f"Bearer {value}"}, name_of_key(cli, value)
    by_code = await log_in(cli, headers)
    _, by_device = await cli.poll(await allow_device(cli, headers))
    stream = call("/", headers={"authorization": f"Bearer {by_code['access_token']}"})
    stream.user = cli.login.keys(stream)
    cli.clock.tick(1)
    await ENDS[way](cli, name)
    for tokens in (by_code, by_device):
        assert not is_accepted(cli, tokens["access_token"])
    with pytest.raises(Unauthorized):
        cli.login.keys(stream)  # an open watch or terminal is checked again
    for tokens in (by_code, by_device):
        status, reply = await cli.refresh(tokens["refresh_token"])
        assert (status, reply["error"]) == (400, "invalid_grant")
        assert "the login has ended" in reply["error_description"]


@pytest.mark.parametrize("way", ENDS)
async def test_a_code_that_was_not_used_yet_ends_with_that_key(cli: CliLoginFixture, way: str) -> None:
    value = await cli.login.add_key("alice")
    headers, name = {"authorization": f"Bearer {value}"}, name_of_key(cli, value)
    device, code = await allow_device(cli, headers), await cli.approve(headers)
    cli.clock.tick(1)
    await ENDS[way](cli, name)
    assert (await cli.redeem(code))[0] == 400
    assert (await cli.poll(device))[0] == 400


@pytest.mark.parametrize("way", ["deleted", "narrowed", "expired", "rotated"])
async def test_a_login_ends_with_the_login_in_the_browser(cli: CliLoginFixture, way: str) -> None:
    """The cookie was stolen, and the login in the browser is ended as a key. Signing out there is another matter."""
    browser = await cli.browser()
    (name,) = cli.login.key_names()
    tokens = await log_in(cli, browser)
    cli.clock.tick(1)
    await ENDS[way](cli, name)
    assert not is_accepted(cli, tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 400


async def test_signing_out_of_the_browser_does_not_end_what_was_allowed_there(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    (name,) = cli.login.key_names()
    tokens = await log_in(cli, browser)
    await cli.login.logins.revoke(name)
    status, _ = await cli.post_json("/auth/authorize", {"approve": False, "request": {}}, browser)
    assert status == 401 and is_accepted(cli, tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 200


async def test_a_new_password_set_with_a_login_keeps_that_login_and_signs_the_browser_out(
    cli: CliLoginFixture,
) -> None:
    browser = await cli.browser()
    tokens = await log_in(cli, browser)
    user = cli.login.keys.authenticate_token(tokens["access_token"])
    await cli.login.passwords.set_password("alice", PASSWORD + "!", user)
    assert is_accepted(cli, tokens["access_token"])
    assert (await cli.post_json("/auth/authorize", {"approve": False, "request": {}}, browser))[0] == 401


async def test_the_oldest_logins_make_room_but_not_the_one_with_which_a_login_is_allowed(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    for _ in range(60):
        cli.clock.tick(1)
        tokens = await log_in(cli, browser)
    assert is_accepted(cli, tokens["access_token"])


async def test_while_a_former_value_of_a_key_is_accepted_no_login_outlives_it(cli: CliLoginFixture) -> None:
    """The former value was stolen, and is used in the time in which both values work."""
    value = await cli.login.add_key("alice")
    await rotate(cli, name_of_key(cli, value), overlap=600)
    cli.clock.tick(60)
    tokens = await log_in(cli, {"authorization": f"Bearer {value}"})
    assert is_accepted(cli, tokens["access_token"])
    cli.clock.tick(541)
    assert not is_accepted(cli, value) and not is_accepted(cli, tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 400


async def test_a_sliding_key_supports_its_logins_while_it_is_used(cli: CliLoginFixture) -> None:
    value = await cli.login.add_key("alice", ttl=120, ttlAfterLastActivity=True)
    tokens = await log_in(cli, {"authorization": f"Bearer {value}"})
    cli.clock.tick(119)
    assert is_accepted(cli, tokens["access_token"])
    cli.clock.tick(2)
    assert not is_accepted(cli, tokens["access_token"])


async def test_a_login_of_an_earlier_version_without_a_parent_goes_on(cli: CliLoginFixture) -> None:
    tokens = await log_in(cli, {"authorization": f"Bearer {await cli.login.add_key('alice')}"})
    user: User = cli.login.keys.authenticate_token(tokens["access_token"])
    stored = decode(await cli.login.registry.resource(GROUP, ACCESS_KEYS).get("", user.key))
    assert get_path(stored, "spec.parent") and get_path(stored, "spec.ttl") == TTL
    await edit(cli, user.key, parent="")
    assert is_accepted(cli, tokens["access_token"])
