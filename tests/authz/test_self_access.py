"""What everybody may do with what is their own: their user, their teams and their keys."""

import orjson
import pytest

from fairlead.authz.self_access import SelfAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.storage.contract import Write
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB, MACHINE, RED_KEY


def target(verb: str, resource: str, name: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "", "management", MANAGEMENT_GROUP, "v1", resource, subresource, "", name)


@pytest.fixture
async def oneself(api: RegistryFixture) -> SelfAuthorizer:
    """Alice has the key `a`, the red team the key `r`."""
    for name, spec in (("a", {"user": "alice"}), ("r", {"team": "red"})):
        value = {"apiVersion": "x", "kind": "OwnedAccessKey", "metadata": {"name": name, "uid": name}, "spec": spec}
        key = (MANAGEMENT_GROUP, "ownedaccesskeys", "", name)
        await api.view.wait_for(await api.store.commit([Write(key, orjson.dumps(value), 0)]))
    return SelfAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_everybody_reads_their_own_user_and_teams(oneself: SelfAuthorizer) -> None:
    for asked in (
        target("get", "users", "alice"),
        target("get", "users", "alice", "accesskeys"),
        target("create", "users", "alice", "profile"),
        target("get", "teams", "red"),
    ):
        assert oneself(ALICE, asked)
        assert oneself(BOB, asked) is None


async def test_nobody_writes_their_own_user_by_this(oneself: SelfAuthorizer) -> None:
    for verb in ("update", "patch", "delete"):
        assert oneself(ALICE, target(verb, "users", "alice")) is None
        assert oneself(ALICE, target(verb, "teams", "red")) is None


@pytest.mark.parametrize("verb", ["get", "update", "patch", "delete"])
async def test_everybody_looks_after_their_own_keys(oneself: SelfAuthorizer, verb: str) -> None:
    assert oneself(ALICE, target(verb, "ownedaccesskeys", "a"))
    assert oneself(ALICE, target("create", "ownedaccesskeys", "a", "rotate"))
    assert oneself(BOB, target(verb, "ownedaccesskeys", "a")) is None
    assert oneself(ALICE, target(verb, "ownedaccesskeys", "r")) is None
    assert oneself(ALICE, target(verb, "ownedaccesskeys", "a", "status")) is None
    assert oneself(ALICE, target(verb, "ownedaccesskeys", "missing")) is None


async def test_machines_and_teams_have_nothing_of_their_own(oneself: SelfAuthorizer) -> None:
    for user in (MACHINE, RED_KEY):
        assert oneself(user, target("create", "ownedaccesskeys")) is None
        assert oneself(user, target("get", "ownedaccesskeys", "a")) is None
        assert oneself(user, target("get", "users", "alice")) is None


async def test_nobody_may_list_or_delete_all(oneself: SelfAuthorizer) -> None:
    for verb in ("list", "watch", "deletecollection"):
        assert oneself(ALICE, target(verb, "ownedaccesskeys")) is None
    assert oneself.may_see_some(ALICE, target("list", "ownedaccesskeys"))
    assert not oneself.may_see_some(ALICE, target("list", "apps"))


async def test_everybody_may_sign_out(oneself: SelfAuthorizer) -> None:
    for user in (ALICE, MACHINE, RED_KEY):
        assert oneself(user, RequestInfo("post", "/auth/logout"))
        assert oneself(user, RequestInfo("post", "/auth/logout", "management")) is None
        assert oneself(user, RequestInfo("get", "/auth/logout")) is None
