"""signin.cli_logins: codes that work once, refresh tokens that rotate, and what ends a login of the command line."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.authn.access_keys import ACCESS_KEYS, USERS, Pepper
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, deep_copy
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.signin.cli_logins import (
    CODE_SECONDS,
    GRACE_SECONDS,
    KEY_SECONDS,
    Approval,
    CliLogins,
    GrantRejected,
    IssuedTokens,
    Lifetimes,
)
from fairlead.signin.cli_tokens import Binding, NamedSecret, challenge_of, new_secret, parse_refresh_token
from tests.harness.calls import call
from tests.harness.login import PASSWORD, TTL, LoginFixture, open_login

REDIRECT = "http://127.0.0.1:40000/done"
VERIFIER = "v" * 43
AS_SERVER = WriteOptions(CONTROLLER_USER, "tests")
PEPPER = Pepper(bytes(range(32)))


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice")
        yield fixture


@pytest.fixture
def grants(login: LoginFixture) -> CliLogins:
    return CliLogins(login.registry, login.logins, PEPPER, Lifetimes(lambda: TTL), login.keys.user_of_key, GROUP)


async def start(grants: CliLogins, binding: Binding = Binding(ttl=TTL), user: str = "alice") -> NamedSecret:  # noqa: B008
    """Starts a login, and returns its code."""
    secret = new_secret()
    digest = grants.values.code_digest(secret, challenge_of(VERIFIER), REDIRECT, binding)
    name = await grants.start(Approval(user, "laptop", binding), digest, CODE_SECONDS)
    return NamedSecret(name, secret)


async def redeem(grants: CliLogins, code: NamedSecret, verifier: str = VERIFIER, uri: str = REDIRECT) -> IssuedTokens:
    return await grants.redeem(
        code, lambda binding: grants.values.code_digest(code.secret, challenge_of(verifier), uri, binding)
    )


async def refresh(grants: CliLogins, tokens: IssuedTokens) -> IssuedTokens:
    token = parse_refresh_token(tokens.refresh_token)
    assert token is not None
    return await grants.refresh(token)


async def edit_key(login: LoginFixture, name: str, **spec: object) -> None:
    def edit(old: Object) -> Object:
        new = deep_copy(old)
        new["spec"].update(spec)
        return new

    await login.registry.resource(GROUP, ACCESS_KEYS).modify("", name, edit, AS_SERVER)


def is_accepted(login: LoginFixture, key: str) -> bool:
    try:
        return login.keys.authenticate_token(key).name == "alice"
    except Unauthorized:
        return False


async def test_a_code_is_exchanged_for_a_key_and_a_refresh_token(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    assert tokens.expires_in == KEY_SECONDS and is_accepted(login, tokens.access_key)
    user = login.keys.authenticate_token(tokens.access_key)
    assert (user.name, user.key, user.scope) == ("alice", code.name, None)


async def test_a_login_is_one_key_object_with_the_lifetime_of_logins(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    await redeem(grants, code)
    spec = decode(await login.registry.resource(GROUP, ACCESS_KEYS).get("", code.name))["spec"]
    assert (spec["type"], spec["user"], spec["ttl"]) == ("Login", "alice", TTL)
    assert spec["displayName"] == "Command line on laptop" and spec["oidcProvider"] == {"clientId": "fairlead-cli"}
    assert login.key_names() == [code.name]


async def test_neither_codes_nor_refresh_tokens_authenticate_requests(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    assert not is_accepted(login, code.text) and not is_accepted(login, code.secret)
    tokens = await redeem(grants, code)
    assert not is_accepted(login, tokens.refresh_token)
    assert not is_accepted(login, tokens.refresh_token.split(".")[1])


async def test_the_store_has_none_of_the_values(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    stored = login.stored_bytes()
    for value in (code.secret, tokens.access_key, tokens.refresh_token.split(".")[1]):
        assert value.encode() not in stored


@pytest.mark.parametrize(
    ("verifier", "uri"),
    [("w" * 43, REDIRECT), (VERIFIER, "http://127.0.0.1:40001/done"), (challenge_of(VERIFIER), REDIRECT)],
)
async def test_a_stolen_code_is_of_no_use_without_the_verifier(grants: CliLogins, verifier: str, uri: str) -> None:
    code = await start(grants)
    with pytest.raises(GrantRejected):
        await redeem(grants, code, verifier, uri)


async def test_a_code_that_is_used_twice_ends_the_login(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    with pytest.raises(GrantRejected, match="code_reused"):
        await redeem(grants, code)
    assert not is_accepted(login, tokens.access_key) and not login.key_names()
    with pytest.raises(GrantRejected, match="login_ended"):
        await redeem(grants, code)


async def test_a_code_that_is_used_again_at_the_end_of_its_life_ends_the_login(
    login: LoginFixture, grants: CliLogins
) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    login.clock.tick(CODE_SECONDS - 1)
    with pytest.raises(GrantRejected, match="code_reused"):
        await redeem(grants, code)
    assert not is_accepted(login, tokens.access_key) and not login.key_names()


async def test_of_a_code_used_in_parallel_at_most_one_use_succeeds(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    results = await asyncio.gather(*(redeem(grants, code) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(each, IssuedTokens) for each in results) <= 1
    assert all(isinstance(each, IssuedTokens | GrantRejected) for each in results)
    assert not login.key_names()  # the other uses have ended the login


async def test_a_code_expires_after_a_minute(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    login.clock.tick(CODE_SECONDS)
    with pytest.raises(GrantRejected, match="code_expired"):
        await redeem(grants, code)


async def test_a_key_expires_and_its_refresh_returns_the_next_one(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    for _ in range(20):
        login.clock.tick(KEY_SECONDS / 10)
        previous, tokens = tokens, await refresh(grants, tokens)
        assert is_accepted(login, tokens.access_key) and is_accepted(login, previous.access_key)
        assert tokens.refresh_token != previous.refresh_token and tokens.access_key != previous.access_key
    login.clock.tick(KEY_SECONDS)
    assert not is_accepted(login, tokens.access_key)
    assert is_accepted(login, (await refresh(grants, tokens)).access_key)


async def test_a_login_ends_when_its_lifetime_is_over_however_often_it_is_refreshed(
    login: LoginFixture, grants: CliLogins
) -> None:
    tokens = await redeem(grants, await start(grants))
    for _ in range(TTL // KEY_SECONDS - 1):
        login.clock.tick(KEY_SECONDS)
        tokens = await refresh(grants, tokens)
    login.clock.tick(KEY_SECONDS)
    assert not is_accepted(login, tokens.access_key)
    with pytest.raises(GrantRejected, match="login_ended"):
        await refresh(grants, tokens)


async def test_parallel_refreshes_get_the_same_answer(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    answers = await asyncio.gather(*(refresh(grants, tokens) for _ in range(20)))
    assert len({(each.access_key, each.refresh_token) for each in answers}) == 1
    assert is_accepted(login, answers[0].access_key)
    await refresh(grants, answers[0])


async def test_a_lost_answer_can_be_requested_again_for_a_short_time(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    first = await refresh(grants, tokens)
    login.clock.tick(GRACE_SECONDS - 1)
    again = await refresh(grants, tokens)
    assert (again.access_key, again.refresh_token) == (first.access_key, first.refresh_token)
    assert again.expires_in == KEY_SECONDS - GRACE_SECONDS + 1


async def test_a_refresh_token_that_is_used_again_later_ends_the_login(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    following = await refresh(grants, tokens)
    login.clock.tick(GRACE_SECONDS + 1)
    with pytest.raises(GrantRejected, match="token_reused"):
        await refresh(grants, tokens)
    assert not is_accepted(login, following.access_key)
    with pytest.raises(GrantRejected, match="login_ended"):
        await refresh(grants, following)


async def test_an_invented_token_does_not_end_a_login(login: LoginFixture, grants: CliLogins) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    for tag in ("A" * 22, tokens.refresh_token[-22:]):
        with pytest.raises(GrantRejected, match="token_unknown"):
            await grants.refresh(NamedSecret(code.name, "B" * 43, tag))
        await grants.revoke(NamedSecret(code.name, "B" * 43, tag))
    assert is_accepted(login, tokens.access_key)


async def test_a_token_of_one_login_is_of_no_use_for_another(login: LoginFixture, grants: CliLogins) -> None:
    first, second = await start(grants), await start(grants)
    tokens = parse_refresh_token((await redeem(grants, first)).refresh_token)
    await redeem(grants, second)
    assert tokens is not None
    with pytest.raises(GrantRejected, match="token_unknown"):
        await grants.refresh(NamedSecret(second.name, tokens.secret, tokens.tag))


async def test_revocation_ends_the_login_also_with_an_old_token(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    following = await refresh(grants, tokens)
    token = parse_refresh_token(tokens.refresh_token)
    assert token is not None
    await grants.revoke(token)
    await grants.revoke(token)  # again, which is no error
    assert not is_accepted(login, following.access_key) and not login.key_names()


async def test_a_disabled_user_cannot_refresh(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    users = login.registry.resource(GROUP, USERS)
    await users.modify("", "alice", lambda old: {**old, "spec": {**old["spec"], "disabled": True}}, AS_SERVER)
    assert not is_accepted(login, tokens.access_key)
    with pytest.raises(GrantRejected, match="login_ended"):
        await refresh(grants, tokens)
    assert not login.key_names()


async def test_a_new_user_of_the_same_name_does_not_inherit_a_login(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    await login.registry.resource(GROUP, USERS).delete("", "alice", DeleteOptions(), AS_SERVER)
    login.clock.tick(2)
    await login.add_user("alice", password=None)
    assert not is_accepted(login, tokens.access_key)
    with pytest.raises(GrantRejected, match="login_ended"):
        await refresh(grants, tokens)


async def test_a_new_password_and_logging_out_everywhere_end_it(login: LoginFixture, grants: CliLogins) -> None:
    first = await redeem(grants, await start(grants))
    await login.passwords.set_password("alice", PASSWORD + "2", CONTROLLER_USER)
    assert not is_accepted(login, first.access_key)
    second = await redeem(grants, await start(grants))
    assert await login.logins.revoke_all("alice") == 1
    assert not is_accepted(login, second.access_key)


async def test_a_password_that_is_changed_with_the_login_keeps_it(login: LoginFixture, grants: CliLogins) -> None:
    tokens = await redeem(grants, await start(grants))
    await login.passwords.set_password("alice", PASSWORD + "2", login.keys.authenticate_token(tokens.access_key))
    assert is_accepted(login, (await refresh(grants, tokens)).access_key)


async def add_parent(login: LoginFixture) -> str:
    await login.add_connector("corp")
    await login.add_key("alice", type="Login", identity={"connector": "corp", "userId": "7"}, ttl=TTL)
    (name,) = login.key_names()
    return name


async def parent_binding(login: LoginFixture, grants: CliLogins) -> Binding:
    parent = await add_parent(login)
    user = login.keys.user_of_key(parent)
    assert user is not None
    binding = grants.binding_for(user, TTL)
    assert binding.parent == parent and binding.parent_identity
    return binding


async def test_a_login_ends_with_the_single_sign_on_that_it_was_made_in(login: LoginFixture, grants: CliLogins) -> None:
    binding = await parent_binding(login, grants)
    tokens = await redeem(grants, await start(grants, binding))
    assert is_accepted(login, tokens.access_key)
    await edit_key(login, binding.parent, disabled=True)  # signed out of the browser
    tokens = await refresh(grants, tokens)
    assert is_accepted(login, tokens.access_key)
    await login.registry.resource(GROUP, ACCESS_KEYS).delete("", binding.parent, DeleteOptions(), AS_SERVER)
    assert not is_accepted(login, tokens.access_key)
    with pytest.raises(GrantRejected, match="login_ended"):
        await refresh(grants, tokens)


async def test_a_login_ends_when_the_single_sign_on_expires(login: LoginFixture, grants: CliLogins) -> None:
    binding = await parent_binding(login, grants)
    login.clock.tick(TTL - 60)
    tokens = await redeem(grants, await start(grants, binding))
    assert is_accepted(login, tokens.access_key)
    login.clock.tick(61)
    assert not is_accepted(login, tokens.access_key)


@pytest.mark.parametrize("change", [{"parent": ""}, {"parent": "other"}, {"ttl": 0}, {"ttl": TTL * 100}])
async def test_editing_what_a_login_depends_on_makes_its_token_useless(
    login: LoginFixture, grants: CliLogins, change: Object
) -> None:
    code = await start(grants, await parent_binding(login, grants))
    tokens = await redeem(grants, code)
    await edit_key(login, code.name, **change)
    with pytest.raises(GrantRejected):
        await refresh(grants, tokens)


async def test_editing_the_lifetime_of_a_login_before_its_code_is_used_makes_the_code_useless(
    login: LoginFixture, grants: CliLogins
) -> None:
    code = await start(grants)

    def edit(old: Object) -> Object:
        new = deep_copy(old)
        new["metadata"]["annotations"] = {"service.sh/login-ttl": "0"}
        return new

    await login.registry.resource(GROUP, ACCESS_KEYS).modify("", code.name, edit, AS_SERVER)
    with pytest.raises(GrantRejected, match="code_unknown"):
        await redeem(grants, code)


async def test_a_stream_outlives_the_key_that_opened_it_but_not_the_login(
    login: LoginFixture, grants: CliLogins
) -> None:
    code = await start(grants)
    tokens = await redeem(grants, code)
    stream = call("/", headers={"authorization": f"Bearer {tokens.access_key}"})
    stream.user = login.keys(stream)
    login.clock.tick(KEY_SECONDS + 1)
    assert login.keys(stream) == stream.user  # checked again while the stream is open
    fresh = call("/", headers={"authorization": f"Bearer {tokens.access_key}"})
    with pytest.raises(Unauthorized):
        login.keys(fresh)
    await grants.end(code.name)
    with pytest.raises(Unauthorized):
        login.keys(stream)


async def test_an_ordinary_key_of_the_same_client_opens_no_stream_that_outlives_its_value(login: LoginFixture) -> None:
    value = await login.add_key("alice", oidcProvider={"clientId": "fairlead-cli"})
    stream = call("/", headers={"authorization": f"Bearer {value}"})
    stream.user = login.keys(stream)
    assert stream.user is not None
    await edit_key(login, stream.user.key, key=PEPPER.digest("another-value"))
    with pytest.raises(Unauthorized):
        login.keys(stream)


async def test_the_lifetime_is_that_of_logins_but_not_longer_than_that_of_another_key(
    login: LoginFixture, grants: CliLogins
) -> None:
    values = [await login.add_key("alice", **spec) for spec in ({"ttl": 60}, {}, {"ttl": 60, "type": "Login"})]
    short, permanent, ending_login = (login.keys.authenticate_token(value) for value in values)
    assert grants.allowed_ttl(short) == 60 and grants.allowed_ttl(permanent) == TTL
    assert grants.allowed_ttl(ending_login) == 60
