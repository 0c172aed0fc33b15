"""Shares of ports: with which user they are, if there is another one of the same name later."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from fairlead.admission.port_shares import check_port_shares
from fairlead.authz.port_access import PortAccess
from fairlead.core.call import Decision
from fairlead.core.clock import Clock
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object, metadata
from fairlead.core.user import USER_GROUP_PREFIX, User
from fairlead.domain.port_shares import SHARES_ANNOTATION
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.virtual_time import LoopClock

WORKSPACE = "DevPodWorkspaceInstance"
SHARER = User("ada", (f"{USER_GROUP_PREFIX}ada",), "uid-of-ada")
BY = {"by": "ada", "byUID": "uid-of-ada"}


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    rule = check_port_shares(lambda user, target: Decision(True), LoopClock(), GROUP)
    async with open_registry(rules=(rule,)) as api:
        await api.create(WORKSPACE, "desk", spec={})
        await api.create("User", "bob", spec={"username": "bob"})
        yield api


def in_an_hour(clock: Clock) -> int:
    now: datetime = clock.now()
    return int(now.timestamp()) + 3600


async def share(api: RegistryFixture, *shares: Object, user: User = SHARER) -> list[Any]:
    """What is stored then."""

    def annotate(workspace: Object) -> None:
        metadata(workspace)["annotations"] = {SHARES_ANNOTATION: json.dumps(shares)}

    stored = await api.patch(WORKSPACE, "desk", annotate, WriteOptions(user, "tests"))
    found: list[Any] = json.loads(metadata(stored)["annotations"][SHARES_ANNOTATION])
    return found


def may_open(api: RegistryFixture, user: User, sharers: tuple[str, ...] = ("ada",)) -> bool:
    """`sharers` may use the workspace."""
    access = PortAccess(
        GROUP,
        api.view,
        api.clock,
        lambda sharer, target: Decision(sharer.name in sharers, "no"),
        lambda user, namespace: False,
        lambda name: next((each for each in (SHARER, user) if each.name == name), None),
    )
    return access.may_open(user, NAMESPACE, "desk", 80).allowed


def read_user(api: RegistryFixture) -> User:
    stored = api.get("User", "bob")
    assert stored is not None
    return User("bob", (f"{USER_GROUP_PREFIX}bob",), metadata(stored)["uid"])


async def test_a_share_is_with_one_user_and_not_with_a_later_one_of_the_same_name(api: RegistryFixture) -> None:
    until = in_an_hour(api.clock)
    wanted = {"port": 80, "user": "bob", "until": until}
    former = read_user(api)
    assert await share(api, wanted) == [{**wanted, "uid": former.uid, **BY}]
    assert may_open(api, former)
    await api.delete("User", "bob")
    await api.create("User", "bob", spec={"username": "bob"})
    later = read_user(api)
    assert later.uid != former.uid
    assert not may_open(api, later)
    # To write the same list again, as a tool does that keeps a manifest applied, shares nothing with another user.
    assert await share(api, wanted) == [{**wanted, "uid": former.uid, **BY}]
    assert not may_open(api, later)
    await share(api, {**wanted, "until": until - 60})
    assert may_open(api, later)


async def test_a_share_with_an_unknown_user_or_with_a_uid_of_the_client_is_refused(api: RegistryFixture) -> None:
    until = in_an_hour(api.clock)
    with pytest.raises(Invalid, match='there is no user "eve" to share port 80 with'):
        await share(api, {"port": 80, "user": "eve", "until": until})
    with pytest.raises(Invalid, match="has a uid or by, which only the server sets"):
        await share(api, {"port": 80, "user": "bob", "uid": "another", "until": until})
    for forged in ({"by": "root"}, {"byUID": "another"}):
        with pytest.raises(Invalid, match="which only the server sets"):
            await share(api, {"port": 80, "project": True, "until": until, **forged})
    with pytest.raises(Invalid, match="must be with a user or with the project"):
        await share(api, {"port": 80, "project": True, "uid": "another", "until": until})


async def test_a_list_that_was_read_can_be_written_again_with_another_share(api: RegistryFixture) -> None:
    until = in_an_hour(api.clock)
    first = await share(api, {"port": 80, "user": "bob", "until": until})
    assert await share(api, *first, {"port": 81, "project": True, "until": until}) == [
        *first,
        {"port": 81, "project": True, "until": until, **BY},
    ]


async def test_a_share_counts_as_long_as_who_shares_may_use_the_workspace(api: RegistryFixture) -> None:
    """Else who leaves the project would keep a port, such as that of an editor, by a share with themselves."""
    guest = read_user(api)
    stored = await share(api, {"port": 80, "user": "bob", "until": in_an_hour(api.clock)})
    assert may_open(api, guest)
    assert not may_open(api, guest, sharers=())
    # To write the list again does not make it a share of somebody else.
    assert await share(api, *stored, user=User("dave", (), "uid-of-dave")) == stored
    assert not may_open(api, guest, sharers=("dave",))


async def test_a_later_user_with_the_name_of_who_shares_stands_for_nothing(api: RegistryFixture) -> None:
    former = User("ada", SHARER.groups, "uid-of-a-former-ada")
    await share(api, {"port": 80, "user": "bob", "until": in_an_hour(api.clock)}, user=former)
    assert not may_open(api, read_user(api))


async def test_an_administrator_who_is_no_user_shares_for_the_time_of_the_share(api: RegistryFixture) -> None:
    certificate = User("root", ("system:masters",))
    stored = await share(api, {"port": 80, "user": "bob", "until": in_an_hour(api.clock)}, user=certificate)
    assert stored[0]["by"] == "system:masters"
    assert may_open(api, read_user(api), sharers=())
