"""Tests of `fairlead.authn.service_accounts`: tokens of service accounts, their identity, lifetime and limits."""

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
from tests.harness.auth import ADA, ROOT, AuthFixture, open_auth, project_scope
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually

AUDIENCE = "https://fairlead.example.com"
NAME = "system:serviceaccount:demo:robot"
HOUR = 3_600


class ServiceAccountFixture:
    """The service account `robot`, and an issuer of its tokens."""

    def __init__(self, auth: AuthFixture, limits: TokenLimits) -> None:
        self.auth = auth
        self.limits = limits
        self.issuer = ServiceAccountTokenIssuer(auth.registry, GROUP, AUDIENCE, lambda: self.limits)

    async def create(self, name: str = "robot") -> Object:
        return await self.auth.api.create("ServiceAccount", name)

    async def issue(self, user: User = ROOT, name: str = "robot", dry_run: bool = False, **spec: Any) -> AccountToken:
        return await self.issuer.issue(user, "demo", name, {"metadata": {}, "spec": spec}, dry_run=dry_run)

    def authenticate(self, token: AccountToken) -> User:
        return self.auth.authenticator.authenticate_token(token.value)

    def is_valid(self, token: AccountToken) -> bool:
        return self.auth.accepts(token.value)


@asynccontextmanager
async def open_service_accounts(
    max_seconds: int = 24 * HOUR, max_tokens: int = 100
) -> AsyncIterator[ServiceAccountFixture]:
    async with open_auth() as auth:
        accounts = ServiceAccountFixture(auth, TokenLimits(max_seconds, max_tokens))
        await accounts.create()
        yield accounts


async def test_a_token_authenticates_the_account_with_its_groups_only() -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue()
        user = accounts.authenticate(token)
        assert (user.name, user.uid) == (NAME, token.account["metadata"]["uid"])
        assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:demo", "system:authenticated")
        assert (user.key, user.scope, user.is_admin) == (token.key, None, False)


async def test_the_default_lifetime_is_an_hour_and_the_limit_shortens_a_requested_one() -> None:
    async with open_service_accounts(max_seconds=2 * HOUR) as accounts:
        assert (await accounts.issue()).seconds == HOUR
        assert (await accounts.issue(expirationSeconds=900)).seconds == 900
        long_lived = await accounts.issue(expirationSeconds=3 * HOUR)
        assert (long_lived.seconds, long_lived.requested_seconds) == (2 * HOUR, 3 * HOUR)


async def test_a_token_expires() -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue(expirationSeconds=600)
        await asyncio.sleep(599)
        assert accounts.is_valid(token)
        await asyncio.sleep(2)
        assert not accounts.is_valid(token)


async def test_a_token_is_invalid_after_the_deletion_of_its_account_even_if_recreated() -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue()
        assert accounts.is_valid(token)
        await accounts.auth.api.delete("ServiceAccount", "robot")
        assert not accounts.is_valid(token)
        await accounts.create()
        assert not accounts.is_valid(token)


async def test_an_account_that_is_being_deleted_has_no_valid_tokens() -> None:
    async with open_service_accounts() as accounts:
        api = accounts.auth.api
        await api.patch("ServiceAccount", "robot", lambda obj: obj["metadata"].update(finalizers=["x.io/wait"]))
        token = await accounts.issue()
        await api.delete("ServiceAccount", "robot")
        assert not accounts.is_valid(token)
        with pytest.raises(Conflict, match="it is being deleted"):
            await accounts.issue()


async def test_a_missing_account_is_not_found() -> None:
    async with open_service_accounts() as accounts:
        with pytest.raises(NotFound, match='serviceaccounts "missing" not found'):
            await accounts.issue(name="missing")


async def test_groups_on_the_key_of_a_token_are_ignored() -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue()
        await accounts.auth.update_spec("OwnedAccessKey", token.key, ROOT, groups=sorted(ADMIN_GROUPS))
        assert accounts.authenticate(token).groups == (await issued_groups(accounts))


async def issued_groups(accounts: ServiceAccountFixture) -> tuple[str, ...]:
    return accounts.authenticate(await accounts.issue()).groups


async def test_a_token_has_the_scope_of_the_key_that_requested_it() -> None:
    async with open_service_accounts() as accounts:
        scoped_user = await accounts.auth.sign_in("ada", scope=project_scope("web"))
        assert (
            accounts.authenticate(await accounts.issue(scoped_user)).scope
            == scoped_user.scope
            == Scope.parse(project_scope("web"))
        )


async def test_a_token_does_not_outlive_the_key_that_requested_it() -> None:
    async with open_service_accounts() as accounts:
        short_lived = await accounts.auth.sign_in("ada", ttl=1000)
        assert (await accounts.issue(short_lived)).seconds == 1000
        await asyncio.sleep(300)
        token = await accounts.issue(short_lived)
        assert token.seconds == 700
        second = await accounts.issue(accounts.authenticate(token), expirationSeconds=HOUR)
        assert second.seconds <= 700, "a token that was requested with a token does not either"


async def test_the_lifetime_is_limited_by_the_key_of_the_impersonator() -> None:
    async with open_service_accounts() as accounts:
        short_lived = await accounts.auth.sign_in("root", ttl=1000)
        token = await accounts.issue(replace(ADA, impersonator=short_lived))
        assert token.seconds == 1000


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"expirationSeconds": 60}, "spec.expirationSeconds: Invalid value: 60: may not specify a duration less"),
        (
            {"audiences": [AUDIENCE, "vault"]},
            r'spec.audiences\[1\]: Invalid value: "vault": the only audience of tokens',
        ),
    ],
)
async def test_invalid_token_requests_are_rejected(spec: Object, expected: str) -> None:
    async with open_service_accounts() as accounts:
        with pytest.raises(Invalid, match=expected):
            await accounts.issue(**spec)


async def test_this_server_is_a_valid_audience() -> None:
    async with open_service_accounts() as accounts:
        assert accounts.is_valid(await accounts.issue(audiences=[AUDIENCE]))


async def test_bound_object_references_are_rejected() -> None:
    async with open_service_accounts() as accounts:
        with pytest.raises(BadRequest, match=r"type /v1, Kind=Secret: .* leave out spec.boundObjectRef"):
            await accounts.issue(boundObjectRef={"apiVersion": "v1", "kind": "Secret", "name": "s"})


async def test_the_name_in_the_body_must_match_the_path() -> None:
    async with open_service_accounts() as accounts:
        with pytest.raises(Invalid, match=r'"robot" is invalid: metadata.name: .* must match the service account name'):
            await accounts.issuer.issue(ROOT, "demo", "robot", {"metadata": {"name": "other"}})


async def test_a_dry_run_issues_no_token() -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue(dry_run=True)
        assert (token.value, token.seconds) == ("", HOUR)
        assert token.key not in accounts.auth.api.list_names("OwnedAccessKey")


async def test_the_number_of_active_tokens_is_limited() -> None:
    async with open_service_accounts(max_tokens=2) as accounts:
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


def build_labelled_key(accounts: ServiceAccountFixture, uid: str, **spec: Any) -> Object:
    metadata = {"labels": {UID_LABEL: uid}}
    return accounts.auth.api.build_object("OwnedAccessKey", "mine", metadata=metadata, spec={"ttl": 9, **spec})


@pytest.mark.parametrize("user", [ROOT, ADA])
async def test_users_cannot_label_a_key_as_the_token_of_a_service_account(user: User) -> None:
    async with open_service_accounts() as accounts:
        token = await accounts.issue()
        api, uid = accounts.auth.api, token.account["metadata"]["uid"]
        with pytest.raises(Forbidden, match=f"the server sets the label {UID_LABEL}"):
            await api.submit(
                "OwnedAccessKey", build_labelled_key(accounts, uid, user="ada"), WriteOptions(user, "tests")
            )
        await accounts.auth.create_key("plain", ADA)
        for key, labels in (("plain", {UID_LABEL: uid}), (token.key, {UID_LABEL: "another"}), (token.key, {})):
            with pytest.raises(Forbidden, match="leave it as it is"):
                await api.patch("OwnedAccessKey", key, partial(_set_labels, labels), WriteOptions(user))
        assert accounts.is_valid(token)


async def test_a_token_cannot_create_keys_of_its_account() -> None:
    async with open_service_accounts(max_tokens=1) as accounts:
        token = await accounts.issue()
        robot, uid = accounts.authenticate(token), token.account["metadata"]["uid"]
        for body in (
            build_labelled_key(accounts, uid),
            accounts.auth.api.build_object("OwnedAccessKey", "mine", spec={"ttl": 9}),
        ):
            with pytest.raises(Forbidden, match="kubectl create token robot -n demo"):
                await accounts.auth.api.submit("OwnedAccessKey", body, WriteOptions(robot, "tests"))
        assert accounts.auth.api.list_names("OwnedAccessKey") == [token.key]


async def test_the_label_on_a_key_of_a_user_has_no_effect() -> None:
    async with open_service_accounts(max_tokens=1) as accounts:
        uid = (await accounts.issue(dry_run=True)).account["metadata"]["uid"]
        body = build_labelled_key(accounts, uid, user="ada")
        created = await accounts.auth.api.submit("OwnedAccessKey", body, server_write_options())
        assert accounts.auth.authenticator.authenticate_token(created["spec"]["key"]).name == "ada"
        assert accounts.is_valid(await accounts.issue())


@pytest.mark.parametrize("user", [ROOT, ADA])
async def test_users_cannot_create_a_key_of_a_service_account(user: User) -> None:
    async with open_service_accounts() as accounts:
        with pytest.raises(Forbidden, match="kubectl create token robot -n demo"):
            await accounts.auth.create_key("k", user, subject=NAME)


async def test_a_key_without_the_uid_of_the_account_is_invalid() -> None:
    async with open_service_accounts() as accounts:
        body = accounts.auth.api.build_object("OwnedAccessKey", "k", spec={"subject": NAME})
        created = await accounts.auth.api.submit("OwnedAccessKey", body, server_write_options())
        assert not accounts.auth.accepts(created["spec"]["key"])


@pytest.mark.parametrize("cause", ["expired", "account gone"])
async def test_the_key_of_an_invalid_token_is_removed_without_an_event(cause: str) -> None:
    async with open_service_accounts() as accounts:
        auth = accounts.auth
        controller = AccessKeyController(auth.registry, GROUP, 24.0 * HOUR, auth.last_used.last_use)
        async with running_controllers(auth.api, controller):
            token = await accounts.issue(expirationSeconds=600)
            await asyncio.sleep(1)
            assert token.key in auth.api.list_names("OwnedAccessKey")
            if cause == "account gone":
                await auth.api.delete("ServiceAccount", "robot")
            await eventually(lambda: token.key not in auth.api.list_names("OwnedAccessKey"), seconds=700)
            assert auth.api.list_names("Event") == []


def _set_labels(labels: dict[str, str], obj: Object) -> None:
    obj["metadata"]["labels"] = labels
