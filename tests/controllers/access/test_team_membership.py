"""Tests of `fairlead.controllers.access.team_membership`: the status of users and teams lists their membership."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.access.team_membership import TeamMembershipController
from fairlead.core.objects import get_path
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import ROOT, AuthFixture, open_auth
from tests.harness.controllers import running_controllers


@pytest.fixture
async def auth() -> AsyncIterator[AuthFixture]:
    async with (
        open_auth() as auth_fixture,
        running_controllers(auth_fixture.api, TeamMembershipController(auth_fixture.registry, GROUP)),
    ):
        yield auth_fixture


def teams_of_user(auth: AuthFixture, user: str) -> object:
    return get_path(auth.api.get("User", user) or {}, "status.teams")


def members_of_team(auth: AuthFixture, team: str) -> object:
    return get_path(auth.api.get("Team", team) or {}, "status.members")


async def test_users_show_their_teams_and_teams_their_members(auth: AuthFixture) -> None:
    await auth.update_spec("User", "bob", ROOT, ssoGroups=["people"])
    await auth.create_team("core", users=["bob", "ada", "ghost"])
    await auth.create_team("all", groups=["people"])
    await asyncio.sleep(1)
    assert (teams_of_user(auth, "ada"), teams_of_user(auth, "bob")) == (["core"], ["all", "core"])
    assert (members_of_team(auth, "core"), members_of_team(auth, "all")) == (["ada", "bob"], ["bob"])


async def test_a_user_who_leaves_a_team_is_removed_from_its_status(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada", "bob"])
    await asyncio.sleep(1)
    await auth.update_spec("Team", "core", ROOT, users=["bob"])
    await asyncio.sleep(1)
    assert (teams_of_user(auth, "ada"), members_of_team(auth, "core")) == ([], ["bob"])
    await auth.api.delete("User", "bob", user=ROOT)
    await asyncio.sleep(1)
    assert members_of_team(auth, "core") == []


async def test_a_deleted_team_is_removed_from_the_status_of_its_members(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"])
    await asyncio.sleep(1)
    await auth.api.delete("Team", "core", user=ROOT)
    await asyncio.sleep(1)
    assert teams_of_user(auth, "ada") == []


async def test_a_disabled_team_has_no_members(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"], disabled=True)
    await asyncio.sleep(1)
    assert (teams_of_user(auth, "ada") or [], members_of_team(auth, "core") or []) == ([], [])


async def test_the_status_is_not_written_if_nothing_changes(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"])
    await asyncio.sleep(1)
    before = len(auth.api.store.commits)
    await auth.update_spec("Team", "core", ROOT, displayName="Core")
    await asyncio.sleep(100)
    assert len(auth.api.store.commits) == before + 1
