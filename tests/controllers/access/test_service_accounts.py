"""Tokens of service accounts: whom they stand for, how long, and that nobody gets more by them than they hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fairlead.authn.service_accounts import AccountToken, ServiceAccountTokenIssuer, TokenLimits
from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.core.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import ADMIN_GROUPS, User
from fairlead.kinds.core.service_account import UID_LABEL
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.harness.auth import ADA, ROOT, AuthFixture, open_auth, projects
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually

AUDIENCE = "https://fairlead.example.com"
NAME = "system:serviceaccount:demo:robot"
HOUR = 3_600


class Accounts:
    """A realm with the service account `robot` in it, and what makes its tokens."""

    def __init__(self, auth: AuthFixture, limits: TokenLimits) -> None:
        self.auth = auth
        self.limits = limits
        self.tokens = ServiceAccountTokenIssuer(auth.registry, GROUP, AUDIENCE, lambda: self.limits)

    async def create(self, name: str = "robot") -> Object:
        return await self.auth.api.create("ServiceAccount", name)

    async def issue(self, user: User = ROOT, name: str = "robot", dry_run: bool = False, **spec: Any) -> AccountToken:
        return await self.tokens.issue(user, "demo", name, {"metadata": {}, "spec": spec}, dry_run=dry_run)

    def who(self, token: AccountToken) -> User:
        return self.auth.authenticate.authenticate_token(token.value)

    def opens(self, token: AccountToken) -> bool:
        return self.auth.opens(token.value)


@asynccontextmanager
async def with_accounts(seconds: int = 24 * HOUR, count: int = 100) -> AsyncIterator[Accounts]:
    async with open_auth() as auth:
        accounts = Accounts(auth, TokenLimits(seconds, count))
        await accounts.create()
        yield accounts


async def test_a_token_stands_for_the_account_and_its_groups_and_nothing_else() -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue()
        user = accounts.who(token)
        assert (user.name, user.uid) == (NAME, token.account["metadata"]["uid"])
        assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:demo", "system:authenticated")
        assert (user.key, user.scope, user.is_admin) == (token.key, None, False)


async def test_an_hour_is_the_default_and_the_limit_shortens_what_is_asked_for() -> None:
    async with with_accounts(seconds=2 * HOUR) as accounts:
        assert (await accounts.issue()).seconds == HOUR
        assert (await accounts.issue(expirationSeconds=900)).seconds == 900
        long = await accounts.issue(expirationSeconds=3 * HOUR)
        assert (long.seconds, long.requested_seconds) == (2 * HOUR, 3 * HOUR)


async def test_a_token_ends_by_itself() -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue(expirationSeconds=600)
        await asyncio.sleep(599)
        assert accounts.opens(token)
        await asyncio.sleep(2)
        assert not accounts.opens(token)


async def test_a_token_ends_at_once_with_its_account_and_a_namesake_does_not_revive_it() -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue()
        assert accounts.opens(token)
        await accounts.auth.api.delete("ServiceAccount", "robot")
        assert not accounts.opens(token)
        await accounts.create()
        assert not accounts.opens(token)


async def test_an_account_that_is_being_deleted_has_no_tokens() -> None:
    async with with_accounts() as accounts:
        api = accounts.auth.api
        await api.patch("ServiceAccount", "robot", lambda obj: obj["metadata"].update(finalizers=["x.io/wait"]))
        token = await accounts.issue()
        await api.delete("ServiceAccount", "robot")
        assert not accounts.opens(token)
        with pytest.raises(Conflict, match="it is being deleted"):
            await accounts.issue()


async def test_an_account_that_is_not_there_is_not_found() -> None:
    async with with_accounts() as accounts:
        with pytest.raises(NotFound, match='serviceaccounts "nobody" not found'):
            await accounts.issue(name="nobody")


async def test_groups_on_its_key_mean_nothing() -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue()
        await accounts.auth.set("OwnedAccessKey", token.key, ROOT, groups=sorted(ADMIN_GROUPS))
        assert accounts.who(token).groups == (await accounts_groups(accounts))


async def accounts_groups(accounts: Accounts) -> tuple[str, ...]:
    return accounts.who(await accounts.issue()).groups


async def test_a_scoped_key_makes_tokens_of_its_own_scope() -> None:
    async with with_accounts() as accounts:
        scoped = await accounts.auth.signed_in("ada", scope=projects("web"))
        assert accounts.who(await accounts.issue(scoped)).scope == scoped.scope == Scope.parse(projects("web"))


async def test_no_token_outlives_the_key_that_it_was_made_with() -> None:
    async with with_accounts() as accounts:
        short = await accounts.auth.signed_in("ada", ttl=1000)
        assert (await accounts.issue(short)).seconds == 1000
        await asyncio.sleep(300)
        token = await accounts.issue(short)
        assert token.seconds == 700
        again = await accounts.issue(accounts.who(token), expirationSeconds=HOUR)
        assert again.seconds <= 700, "nor does one that was made with a token"


async def test_what_counts_is_the_key_of_who_really_asks() -> None:
    async with with_accounts() as accounts:
        short = await accounts.auth.signed_in("root", ttl=1000)
        token = await accounts.issue(replace(ADA, impersonator=short))
        assert token.seconds == 1000


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"expirationSeconds": 60}, "spec.expirationSeconds: Invalid value: 60: may not specify a duration less"),
        (
            {"audiences": [AUDIENCE, "vault"]},
            r'spec.audiences\[1\]: Invalid value: "vault": the only audience of tokens',
        ),
    ],
)
async def test_what_no_token_can_be_is_refused(spec: Object, complaint: str) -> None:
    async with with_accounts() as accounts:
        with pytest.raises(Invalid, match=complaint):
            await accounts.issue(**spec)


async def test_this_server_can_be_named_as_the_audience() -> None:
    async with with_accounts() as accounts:
        assert accounts.opens(await accounts.issue(audiences=[AUDIENCE]))


async def test_a_token_is_not_bound_to_other_objects() -> None:
    async with with_accounts() as accounts:
        with pytest.raises(BadRequest, match=r"type /v1, Kind=Secret: .* leave out spec.boundObjectRef"):
            await accounts.issue(boundObjectRef={"apiVersion": "v1", "kind": "Secret", "name": "s"})


async def test_the_name_in_the_body_fits_the_path() -> None:
    async with with_accounts() as accounts:
        with pytest.raises(Invalid, match=r'"robot" is invalid: metadata.name: .* must match the service account name'):
            await accounts.tokens.issue(ROOT, "demo", "robot", {"metadata": {"name": "other"}})


async def test_a_rehearsal_makes_no_token() -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue(dry_run=True)
        assert (token.value, token.seconds) == ("", HOUR)
        assert token.key not in accounts.auth.api.names("OwnedAccessKey")


async def test_tokens_in_force_are_counted_and_bounded() -> None:
    async with with_accounts(count=2) as accounts:
        await accounts.issue(expirationSeconds=600)
        second = await accounts.issue()
        with pytest.raises(Forbidden, match=r"it has 2 active tokens, and the limit is 2; .* in 60[01] seconds"):
            await accounts.issue()
        await accounts.create("other")
        await accounts.issue(name="other")
        await asyncio.sleep(601)
        await accounts.issue()
        await accounts.auth.api.delete("OwnedAccessKey", second.key)
        await accounts.issue()


def labelled(accounts: Accounts, uid: str, **spec: Any) -> Object:
    metadata = {"labels": {UID_LABEL: uid}}
    return accounts.auth.api.body("OwnedAccessKey", "mine", metadata=metadata, spec={"ttl": 9, **spec})


@pytest.mark.parametrize("by", [ROOT, ADA])
async def test_nobody_marks_a_key_as_the_token_of_a_service_account(by: User) -> None:
    async with with_accounts() as accounts:
        token = await accounts.issue()
        api, uid = accounts.auth.api, token.account["metadata"]["uid"]
        with pytest.raises(Forbidden, match=f"the server sets the label {UID_LABEL}"):
            await api.submit("OwnedAccessKey", labelled(accounts, uid, user="ada"), WriteOptions(by, "tests"))
        await accounts.auth.key("plain", ADA)
        for key, labels in (("plain", {UID_LABEL: uid}), (token.key, {UID_LABEL: "another"}), (token.key, {})):
            with pytest.raises(Forbidden, match="leave it as it is"):
                await api.patch("OwnedAccessKey", key, partial(_set_labels, labels), WriteOptions(by))
        assert accounts.opens(token)


async def test_a_token_makes_no_further_key_of_its_account() -> None:
    async with with_accounts(count=1) as accounts:
        token = await accounts.issue()
        robot, uid = accounts.who(token), token.account["metadata"]["uid"]
        for body in (labelled(accounts, uid), accounts.auth.api.body("OwnedAccessKey", "mine", spec={"ttl": 9})):
            with pytest.raises(Forbidden, match="kubectl create token robot -n demo"):
                await accounts.auth.api.submit("OwnedAccessKey", body, WriteOptions(robot, "tests"))
        assert accounts.auth.api.names("OwnedAccessKey") == [token.key]


async def test_a_label_on_a_key_of_a_user_counts_for_nothing() -> None:
    async with with_accounts(count=1) as accounts:
        uid = (await accounts.issue(dry_run=True)).account["metadata"]["uid"]
        body = labelled(accounts, uid, user="ada")
        made = await accounts.auth.api.submit("OwnedAccessKey", body, server_write_options())
        assert accounts.auth.authenticate.authenticate_token(made["spec"]["key"]).name == "ada"
        assert accounts.opens(await accounts.issue())


@pytest.mark.parametrize("by", [ROOT, ADA])
async def test_nobody_makes_a_key_of_a_service_account_by_hand(by: User) -> None:
    async with with_accounts() as accounts:
        with pytest.raises(Forbidden, match="kubectl create token robot -n demo"):
            await accounts.auth.key("k", by, subject=NAME)


async def test_a_key_without_the_uid_of_the_account_opens_nothing() -> None:
    async with with_accounts() as accounts:
        body = accounts.auth.api.body("OwnedAccessKey", "k", spec={"subject": NAME})
        made = await accounts.auth.api.submit("OwnedAccessKey", body, server_write_options())
        assert not accounts.auth.opens(made["spec"]["key"])


@pytest.mark.parametrize("ending", ["expired", "account gone"])
async def test_what_is_left_of_a_token_is_taken_away_in_silence(ending: str) -> None:
    async with with_accounts() as accounts:
        auth = accounts.auth
        controller = AccessKeyController(auth.registry, GROUP, 24.0 * HOUR, auth.activity.last_use)
        async with running_controllers(auth.api, controller):
            token = await accounts.issue(expirationSeconds=600)
            await asyncio.sleep(1)
            assert token.key in auth.api.names("OwnedAccessKey")
            if ending == "account gone":
                await auth.api.delete("ServiceAccount", "robot")
            await eventually(lambda: token.key not in auth.api.names("OwnedAccessKey"), seconds=700)
            assert auth.api.names("Event") == []


def _set_labels(labels: dict[str, str], obj: Object) -> None:
    obj["metadata"]["labels"] = labels
