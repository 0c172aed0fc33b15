"""SelfAuthorizer: what users may do with their own user, teams and access keys."""

import orjson
import pytest

from fairlead.authz.self_access import SelfAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.storage.contract import Write
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB, MACHINE, RED_KEY


def build_request(verb: str, resource: str, name: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "", "management", MANAGEMENT_GROUP, "v1", resource, subresource, "", name)


@pytest.fixture
async def authorizer(api: RegistryFixture) -> SelfAuthorizer:
    """Alice owns the key `a`; the red team owns the key `r`."""
    for name, spec in (("a", {"user": "alice"}), ("r", {"team": "red"})):
        value = {"apiVersion": "x", "kind": "OwnedAccessKey", "metadata": {"name": name, "uid": name}, "spec": spec}
        key = (MANAGEMENT_GROUP, "ownedaccesskeys", "", name)
        await api.view.wait_for(await api.store.commit([Write(key, orjson.dumps(value), 0)]))
    return SelfAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_users_read_their_own_user_and_teams(authorizer: SelfAuthorizer) -> None:
    for request in (
        build_request("get", "users", "alice"),
        build_request("get", "users", "alice", "accesskeys"),
        build_request("create", "users", "alice", "profile"),
        build_request("get", "teams", "red"),
    ):
        assert authorizer(ALICE, request)
        assert authorizer(BOB, request) is None


async def test_users_may_not_write_their_own_user(authorizer: SelfAuthorizer) -> None:
    for verb in ("update", "patch", "delete"):
        assert authorizer(ALICE, build_request(verb, "users", "alice")) is None
        assert authorizer(ALICE, build_request(verb, "teams", "red")) is None


@pytest.mark.parametrize("verb", ["get", "update", "patch", "delete"])
async def test_users_manage_their_own_keys(authorizer: SelfAuthorizer, verb: str) -> None:
    assert authorizer(ALICE, build_request(verb, "ownedaccesskeys", "a"))
    assert authorizer(ALICE, build_request("create", "ownedaccesskeys", "a", "rotate"))
    assert authorizer(BOB, build_request(verb, "ownedaccesskeys", "a")) is None
    assert authorizer(ALICE, build_request(verb, "ownedaccesskeys", "r")) is None
    assert authorizer(ALICE, build_request(verb, "ownedaccesskeys", "a", "status")) is None
    assert authorizer(ALICE, build_request(verb, "ownedaccesskeys", "missing")) is None


async def test_machines_and_team_keys_get_no_access(authorizer: SelfAuthorizer) -> None:
    for user in (MACHINE, RED_KEY):
        assert authorizer(user, build_request("create", "ownedaccesskeys")) is None
        assert authorizer(user, build_request("get", "ownedaccesskeys", "a")) is None
        assert authorizer(user, build_request("get", "users", "alice")) is None


async def test_lists_are_filtered_and_collections_cannot_be_deleted(authorizer: SelfAuthorizer) -> None:
    for verb in ("list", "watch", "deletecollection"):
        assert authorizer(ALICE, build_request(verb, "ownedaccesskeys")) is None
    assert authorizer.may_see_some(ALICE, build_request("list", "ownedaccesskeys"))
    assert not authorizer.may_see_some(ALICE, build_request("list", "apps"))


async def test_every_user_may_sign_out(authorizer: SelfAuthorizer) -> None:
    for user in (ALICE, MACHINE, RED_KEY):
        assert authorizer(user, RequestInfo("post", "/auth/logout"))
        assert authorizer(user, RequestInfo("post", "/auth/logout", "management")) is None
        assert authorizer(user, RequestInfo("get", "/auth/logout")) is None
