"""Who is in which team, written down where people look."""

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
    async with open_auth() as made, running_controllers(made.api, TeamMembershipController(made.registry, GROUP)):
        yield made


def teams(auth: AuthFixture, user: str) -> object:
    return get_path(auth.api.see("User", user) or {}, "status.teams")


def members(auth: AuthFixture, team: str) -> object:
    return get_path(auth.api.see("Team", team) or {}, "status.members")


async def test_users_show_their_teams_and_teams_their_members(auth: AuthFixture) -> None:
    await auth.set("User", "bob", ROOT, ssoGroups=["people"])
    await auth.team("core", users=["bob", "ada", "ghost"])
    await auth.team("all", groups=["people"])
    await asyncio.sleep(1)
    assert (teams(auth, "ada"), teams(auth, "bob")) == (["core"], ["all", "core"])
    assert (members(auth, "core"), members(auth, "all")) == (["ada", "bob"], ["bob"])


async def test_who_leaves_is_taken_off(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada", "bob"])
    await asyncio.sleep(1)
    await auth.set("Team", "core", ROOT, users=["bob"])
    await asyncio.sleep(1)
    assert (teams(auth, "ada"), members(auth, "core")) == ([], ["bob"])
    await auth.api.delete("User", "bob", user=ROOT)
    await asyncio.sleep(1)
    assert members(auth, "core") == []


async def test_a_team_that_goes_is_taken_off_its_members(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"])
    await asyncio.sleep(1)
    await auth.api.delete("Team", "core", user=ROOT)
    await asyncio.sleep(1)
    assert teams(auth, "ada") == []


async def test_a_disabled_team_has_no_members(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"], disabled=True)
    await asyncio.sleep(1)
    assert (teams(auth, "ada") or [], members(auth, "core") or []) == ([], [])


async def test_nothing_is_written_when_nothing_differs(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"])
    await asyncio.sleep(1)
    before = len(auth.api.store.commits)
    await auth.set("Team", "core", ROOT, displayName="Core")
    await asyncio.sleep(100)
    assert len(auth.api.store.commits) == before + 1
