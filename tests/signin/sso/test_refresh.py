"""signin/sso/refresh.py and sso_consumed.py: sessions follow their provider."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from fairlead.authn.credentials import COOKIE
from fairlead.core.errors import Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import server_write_options
from fairlead.signin.sso.consumed import ConsumedValueController
from fairlead.signin.sso.refresh import RefreshServices, SessionRefresher, SignOnSessionController, next_check
from fairlead.signin.sso.sessions import SessionStore
from tests.harness.controllers import running_controllers
from tests.harness.openid_provider import unreachable
from tests.harness.sign_on import (
    SYSTEM,
    SignOnFixture,
    SignOnServer,
    configure_server,
    open_server,
    open_sign_on,
    set_cookies,
)

INTERVAL, CAP = 600, 3600


class Sessions:
    """A server whose controllers run."""

    def __init__(self, sso: SignOnFixture, server: SignOnServer) -> None:
        self.sso = sso
        self.server = server
        self.provider = server.provider
        self.counters = server.handlers.counters

    async def sign_in(self, subject: str = "1") -> str:
        """Signs in, and returns the key of the session."""
        return set_cookies(await self.server.sign_in(subject))[COOKIE]

    def names(self) -> list[str]:
        return self.sso.api.list_names("OwnedAccessKey")

    def login(self) -> Object:
        (name,) = self.names()
        return self.sso.get("OwnedAccessKey", name)

    async def join_and_leave_staff(self) -> None:
        """Signs in with a group, which the provider removes."""
        self.provider.users["1"]["groups"] = ["staff"]
        rule = {"connector": "okta", "value": "staff", "groups": ["viewers"]}
        await configure_server(self.sso, [rule], allowUnmapped=True)
        await self.sign_in()
        self.provider.users["1"]["groups"] = []

    def refresh_token(self) -> str:
        """The newest refresh token of the provider."""
        return list(self.provider.refresh_tokens)[-1]

    async def set_last_check(self, moment: str) -> None:
        def edit(old: Object) -> Object:
            return {**old, "spec": {**old["spec"], "identity": {**old["spec"]["identity"], "identityRefresh": moment}}}

        (name,) = self.names()
        await self.sso.api.resource("OwnedAccessKey").modify("", name, edit, server_write_options())

    def ended(self) -> dict[tuple[str, str], int]:
        return dict(self.counters.ended_sessions)


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with open_sign_on() as sso:
        server = await open_server(sso)
        services = RefreshServices(
            settings=sso.policy.settings,
            provider=server.access,
            sessions=SessionStore(server.encryption),
            users=sso.users,
            logins=sso.logins,
            counters=server.handlers.counters,
        )
        refresher = SessionRefresher(sso.registry, GROUP, services)
        controllers = (
            SignOnSessionController(sso.registry, GROUP, refresher),
            ConsumedValueController(sso.registry, SYSTEM),
        )
        async with running_controllers(sso.api, *controllers):
            yield Sessions(sso, server)


async def test_a_session_is_checked_within_each_interval(sessions: Sessions) -> None:
    key = await sessions.sign_in()
    await asyncio.sleep(10 * INTERVAL)
    assert 10 <= sessions.provider.refreshes <= 14
    assert sessions.sso.accepts(key)
    assert sessions.counters.refreshes[("okta", "success")] == sessions.provider.refreshes


async def test_the_checks_of_many_sessions_are_spread(sessions: Sessions) -> None:
    await sessions.sign_in()
    connector = sessions.sso.policy.settings.get().connectors["okta"]
    login, start = sessions.login(), sessions.sso.clock.now()
    times = {next_check({**login, "metadata": {"name": f"login-{each}"}}, connector, start) for each in range(200)}
    offsets = sorted((each - start).total_seconds() for each in times if each is not None)
    assert len(offsets) == 200
    assert offsets[0] >= 0.74 * INTERVAL
    assert offsets[-1] <= INTERVAL
    assert offsets[-1] - offsets[0] > 0.2 * INTERVAL


async def test_a_group_that_the_user_has_left_is_gone_within_the_interval(sessions: Sessions) -> None:
    sessions.provider.users["1"]["groups"] = ["staff"]
    await configure_server(
        sessions.sso, [{"connector": "okta", "value": "staff", "groups": ["viewers"]}], allowUnmapped=True
    )
    await sessions.sign_in()
    assert "viewers" in sessions.sso.groups_of("alice")
    sessions.provider.users["1"]["groups"] = []
    await asyncio.sleep(INTERVAL)
    assert "viewers" not in sessions.sso.groups_of("alice")
    sessions.provider.users["1"]["groups"] = ["staff"]
    await asyncio.sleep(INTERVAL)
    assert "viewers" in sessions.sso.groups_of("alice")


async def test_a_write_that_fails_does_not_postpone_the_removal_of_a_group(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is repeated, with the new refresh token, which was written before."""
    await sessions.join_and_leave_staff()
    failing, update = [Unavailable("the store is busy")], sessions.sso.users.update

    async def update_later(*arguments: Any) -> Object:
        if failing:
            raise failing.pop()
        return await update(*arguments)

    monkeypatch.setattr(sessions.sso.users, "update", update_later)
    await asyncio.sleep(INTERVAL)
    assert (failing, sessions.provider.refreshes) == ([], 2)
    assert "viewers" not in sessions.sso.groups_of("alice")


async def test_a_group_is_removed_even_if_the_session_cannot_be_written(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions.join_and_leave_staff()
    modify, attempts = Resource.modify, []

    async def fail_for_keys(self: Resource, *arguments: Any) -> Any:
        if self.kind.plural == "ownedaccesskeys":
            attempts.append(sessions.sso.groups_of("alice"))
            raise Unavailable("the store is busy")
        return await modify(self, *arguments)

    monkeypatch.setattr(Resource, "modify", fail_for_keys)
    await asyncio.sleep(0.999 * INTERVAL)
    before, after, *_ = attempts  # the rotated token, then that the session was checked
    assert ("viewers" in before, "viewers" in after) == (True, False)


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_a_session_is_written_once_if_its_refresh_token_stays(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, is_rotated: bool
) -> None:
    await sessions.sign_in()
    token = sessions.refresh_token()
    if not is_rotated:
        sessions.provider.rotates_refresh_tokens = False
    modify, written = Resource.modify, []

    async def record(self: Resource, *arguments: Any) -> Any:
        written.append(self.kind.plural)
        return await modify(self, *arguments)

    monkeypatch.setattr(Resource, "modify", record)
    await asyncio.sleep(INTERVAL)
    assert written == ["ownedaccesskeys"] * (2 if is_rotated else 1)
    assert sessions.provider.refreshes == 1
    assert (sessions.refresh_token() != token) == is_rotated


@pytest.mark.parametrize("recorded", ["9999-12-31T23:59:59Z", "2099-01-01T00:00:00Z"])
async def test_a_session_that_was_recorded_with_a_wrong_clock_is_checked(sessions: Sessions, recorded: str) -> None:
    key = await sessions.sign_in()
    await sessions.set_last_check(recorded)
    assert sessions.sso.accepts(key)
    await asyncio.sleep(1)
    assert sessions.provider.refreshes == 1
    assert get_path(sessions.login(), "spec.identity.identityRefresh") < "2099"
    await sessions.set_last_check(recorded)
    sessions.provider.failure = unreachable()
    await asyncio.sleep(1)
    assert sessions.ended() == {("okta", "stale_too_long"): 1}


async def test_the_session_of_a_user_who_leaves_the_last_allowed_group_ends(sessions: Sessions) -> None:
    sessions.provider.users["1"]["groups"] = ["staff"]
    await configure_server(sessions.sso, allowedGroups=["staff"])
    await sessions.sign_in()
    sessions.provider.users["1"]["groups"] = ["other"]
    await asyncio.sleep(INTERVAL)
    assert sessions.names() == []
    assert sessions.ended() == {("okta", "not_allowed"): 1}


async def test_the_session_of_a_user_who_is_gone_ends_with_its_keys(sessions: Sessions) -> None:
    key = await sessions.sign_in()
    parent = sessions.names()[0]
    await sessions.sso.create("OwnedAccessKey", "cli", user="alice", type="Login", parent=parent)
    sessions.provider.revoke_tokens("1")
    await asyncio.sleep(INTERVAL)
    assert sessions.names() == []
    assert not sessions.sso.accepts(key)
    assert sessions.ended() == {("okta", "grant_revoked"): 1}
    events = [sessions.sso.registry.resource("", "events").get_cached("default", name) for name in _events(sessions)]
    assert any(b"the identity provider ended the session" in each.body for each in events if each is not None)


async def test_a_session_whose_user_signed_out_of_the_browser_is_checked_for_its_keys(sessions: Sessions) -> None:
    await sessions.sign_in()
    parent = sessions.names()[0]
    created = await sessions.sso.create("OwnedAccessKey", "cli", user="alice", type="Login", parent=parent)
    await sessions.sso.logins.revoke(parent)
    await asyncio.sleep(3 * INTERVAL)
    assert sessions.sso.accepts(created["spec"]["key"])
    sessions.provider.revoke_tokens("1")
    await asyncio.sleep(INTERVAL)
    assert not sessions.sso.accepts(created["spec"]["key"])


async def test_a_session_goes_on_as_stale_while_its_provider_is_down(sessions: Sessions) -> None:
    key = await sessions.sign_in()
    sessions.provider.failure = unreachable()
    await asyncio.sleep(INTERVAL + 60)
    state = get_path(sessions.login(), "status.identity")
    assert (state["stale"], state["reason"]) == (True, "provider_unreachable")
    assert sessions.sso.accepts(key)
    sessions.provider.failure = None
    await asyncio.sleep(180)
    assert get_path(sessions.login(), "status.identity") is None
    assert sessions.sso.accepts(key)


async def test_a_stale_session_ends_at_the_cap(sessions: Sessions) -> None:
    key = await sessions.sign_in()
    sessions.provider.failure = unreachable()
    await asyncio.sleep(CAP + INTERVAL - 120)
    assert sessions.sso.accepts(key)
    await asyncio.sleep(240)
    assert sessions.names() == []
    assert sessions.ended() == {("okta", "stale_too_long"): 1}


async def test_a_provider_that_is_down_gets_few_requests(sessions: Sessions) -> None:
    for subject in map(str, range(30)):
        sessions.provider.users[subject] = {"preferred_username": f"user{subject}", "name": "U", "groups": []}
        await sessions.sign_in(subject)
    before = len(sessions.provider.requests)
    attempts = 0

    def count(_: Any) -> Any:
        nonlocal attempts
        attempts += 1
        raise unreachable()

    sessions.provider.respond = count  # type: ignore[method-assign, assignment]
    await asyncio.sleep(INTERVAL + 60)
    assert len(sessions.provider.requests) == before
    assert attempts < 40
    logins = [sessions.sso.get("OwnedAccessKey", name) for name in sessions.names()]
    assert len(logins) == 30
    assert all(get_path(each, "status.identity.stale") for each in logins)


async def test_an_id_token_of_another_subject_ends_the_session(sessions: Sessions) -> None:
    await sessions.sign_in()
    sessions.provider.change_token = lambda claims: {**claims, "sub": "2"}
    await asyncio.sleep(INTERVAL)
    assert sessions.ended() == {("okta", "identity_changed"): 1}


@pytest.mark.parametrize("change", [{"iss": "https://evil.example"}, {"aud": "another"}, {"groups": {"a": 1}}])
async def test_an_id_token_that_is_not_acceptable_ends_the_session(sessions: Sessions, change: dict[str, Any]) -> None:
    await sessions.sign_in()
    sessions.provider.change_token = lambda claims: {**claims, **change}
    await asyncio.sleep(INTERVAL)
    assert sessions.ended() == {("okta", "identity_changed"): 1}


async def test_userinfo_is_read_if_a_refresh_has_no_id_token(sessions: Sessions) -> None:
    await sessions.sign_in()
    sessions.provider.issues_id_tokens_on_refresh = False
    sessions.provider.users["1"]["groups"] = ["late"]
    await asyncio.sleep(INTERVAL)
    assert get_path(sessions.sso.get("User", "alice"), "spec.ssoGroups") == ["okta:late"]


async def test_a_session_without_a_refresh_token_is_not_checked(sessions: Sessions) -> None:
    sessions.provider.issues_refresh_tokens = False
    await sessions.sign_in()
    await asyncio.sleep(CAP - 10)
    assert sessions.provider.refreshes == 0
    assert len(sessions.names()) == 1


async def test_the_sessions_of_a_removed_connector_are_deleted(sessions: Sessions) -> None:
    await sessions.sign_in()
    await sessions.sso.configure()
    await asyncio.sleep(1)
    assert sessions.names() == []
    assert sessions.ended() == {("okta", "connector_removed"): 1}


async def test_the_sessions_of_users_that_are_no_longer_allowed_are_deleted(sessions: Sessions) -> None:
    await sessions.sign_in()
    await configure_server(sessions.sso, allowedGroups=["staff"])
    await asyncio.sleep(1)
    assert sessions.ended() == {("okta", "not_allowed"): 1}


@pytest.mark.parametrize(
    ("change", "reason"), [({"disabled": True}, "user_removed"), ({"subject": "other"}, "identity_changed")]
)
async def test_the_session_of_a_disabled_or_relinked_user_ends(
    sessions: Sessions, change: dict[str, Any], reason: str
) -> None:
    await sessions.sign_in()
    await sessions.sso.update_spec("User", "alice", **change)
    await asyncio.sleep(INTERVAL)
    assert sessions.ended() == {("okta", reason): 1}


async def test_a_session_whose_token_was_copied_from_another_ends(sessions: Sessions) -> None:
    await sessions.sign_in()
    await sessions.sign_in()
    one, two = sessions.names()
    data = get_path(sessions.sso.get("OwnedAccessKey", one), "spec.identity.connectorData")

    def swap(old: Object) -> Object:
        return {**old, "spec": {**old["spec"], "identity": {**old["spec"]["identity"], "connectorData": data}}}

    await sessions.sso.api.resource("OwnedAccessKey").modify("", two, swap, server_write_options())
    await asyncio.sleep(INTERVAL)
    assert sessions.names() == [one]
    assert sessions.ended() == {("okta", "token_unreadable"): 1}


async def test_records_of_consumed_values_are_deleted_after_a_while(sessions: Sessions) -> None:
    await sessions.sign_in()
    leases = sessions.sso.registry.resource("coordination.k8s.io", "leases")
    assert [each.key[2] for each in sessions.sso.api.view.entries("coordination.k8s.io", "leases")] == [SYSTEM]
    await asyncio.sleep(timedelta(minutes=13).total_seconds())
    assert list(sessions.sso.api.view.entries("coordination.k8s.io", "leases")) == []
    assert leases.get_cached(SYSTEM, "gone") is None


async def test_other_keys_and_leases_are_left_alone(sessions: Sessions) -> None:
    await sessions.sso.create("User", "bob")
    await sessions.sso.create("OwnedAccessKey", "login-bob", user="bob", type="Login")
    await sessions.sso.api.create("Lease", "mine", SYSTEM, spec={"holderIdentity": "a", "leaseDurationSeconds": 1})
    await asyncio.sleep(2 * INTERVAL)
    assert sessions.names() == ["login-bob"]
    assert len(list(sessions.sso.api.view.entries("coordination.k8s.io", "leases"))) == 1


def _events(sessions: Sessions) -> list[str]:
    return sessions.sso.api.list_names("Event")
