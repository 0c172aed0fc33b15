"""Who is in which team, written down where people look."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.access.team_membership import TeamMembershipController
from fairlead.core.objects import get_path
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import ROOT, Realm, new_realm
from tests.harness.controllers import at_work


@pytest.fixture
async def realm() -> AsyncIterator[Realm]:
    async with new_realm() as made, at_work(made.world, TeamMembershipController(made.registry, GROUP)):
        yield made


def teams(realm: Realm, user: str) -> object:
    return get_path(realm.world.see("User", user) or {}, "status.teams")


def members(realm: Realm, team: str) -> object:
    return get_path(realm.world.see("Team", team) or {}, "status.members")


async def test_users_show_their_teams_and_teams_their_members(realm: Realm) -> None:
    await realm.set("User", "bob", ROOT, ssoGroups=["people"])
    await realm.team("core", users=["bob", "ada", "ghost"])
    await realm.team("all", groups=["people"])
    await asyncio.sleep(1)
    assert (teams(realm, "ada"), teams(realm, "bob")) == (["core"], ["all", "core"])
    assert (members(realm, "core"), members(realm, "all")) == (["ada", "bob"], ["bob"])


async def test_who_leaves_is_taken_off(realm: Realm) -> None:
    await realm.team("core", users=["ada", "bob"])
    await asyncio.sleep(1)
    await realm.set("Team", "core", ROOT, users=["bob"])
    await asyncio.sleep(1)
    assert (teams(realm, "ada"), members(realm, "core")) == ([], ["bob"])
    await realm.world.delete("User", "bob", user=ROOT)
    await asyncio.sleep(1)
    assert members(realm, "core") == []


async def test_a_team_that_goes_is_taken_off_its_members(realm: Realm) -> None:
    await realm.team("core", users=["ada"])
    await asyncio.sleep(1)
    await realm.world.delete("Team", "core", user=ROOT)
    await asyncio.sleep(1)
    assert teams(realm, "ada") == []


async def test_a_disabled_team_has_no_members(realm: Realm) -> None:
    await realm.team("core", users=["ada"], disabled=True)
    await asyncio.sleep(1)
    assert (teams(realm, "ada") or [], members(realm, "core") or []) == ([], [])


async def test_nothing_is_written_when_nothing_differs(realm: Realm) -> None:
    await realm.team("core", users=["ada"])
    await asyncio.sleep(1)
    before = len(realm.world.store.commits)
    await realm.set("Team", "core", ROOT, displayName="Core")
    await asyncio.sleep(100)
    assert len(realm.world.store.commits) == before + 1
