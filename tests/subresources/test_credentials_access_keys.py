"""The subresource `accesskeys` of users and teams, and the rotation of access keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.authn.access_keys import Pepper
from fairlead.authn.key_rotation import KeyRotator
from fairlead.core.call import Call, Reply
from fairlead.core.objects import Object
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import TEAM, USER
from fairlead.registry.codec import decode, entry_builder
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog, Change
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.actions import ActionRequest, Actions
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.credentials import key_list_handlers, rotation_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import LoopClock

ROOT = f"/apis/{MANAGEMENT_GROUP}/v1"
PEPPER = Pepper(b"p" * 32)


async def fail_if_called(request: ActionRequest) -> bytes:
    raise AssertionError


class KeyApi:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        rotator = KeyRotator(registry, MANAGEMENT_GROUP, PEPPER, lambda outer, inner: True)
        actions = Actions(
            registry.catalog,
            {
                **key_list_handlers(MANAGEMENT_GROUP, registry),
                **rotation_handlers(MANAGEMENT_GROUP, rotator),
                (MANAGEMENT_GROUP, "users", "profile"): fail_if_called,
            },
        )

        def set_admin_user(call: Call) -> None:
            call.user = ADMIN

        async def serve(call: Call) -> Reply:
            kind = registry.catalog.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await actions(call, kind)

        self._run = Pipeline((routing_stage(Router(RouteConfig(""))), set_admin_user), serve)

    async def __call__(
        self, path: str, query: str = "", code: int = 200, method: str = "GET", body: bytes = b""
    ) -> Any:
        reply = await self._run(call(f"{ROOT}/{path}", query, method=method, body=body))
        assert reply.status == code, reply.body
        return orjson.loads(reply.body)

    async def create(self, kind: str, name: str, spec: Object) -> None:
        resource = next(self.registry.resource_for(each) for each in self.registry.catalog.kinds if each.name == kind)
        labels = {"half": name[-1]}
        body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": kind, "metadata": {"name": name, "labels": labels}}
        await resource.create({**body, "spec": spec}, "", WriteOptions(ADMIN))

    def stored_key(self, name: str) -> Object:
        entry = self.registry.resource(MANAGEMENT_GROUP, "ownedaccesskeys").get_cached("", name)
        assert entry is not None
        return decode(entry)


@asynccontextmanager
async def open_key_api() -> AsyncIterator[KeyApi]:
    async def admit_all(change: Change) -> None:
        return None

    store, catalog = MemoryStore(), Catalog((USER, TEAM, OWNED_ACCESS_KEY))
    view = View(store, entry_builder(catalog))
    await view.start()
    api = KeyApi(Registry(catalog, store, view, admit_all, LoopClock()))
    for name in ("ada", "bob", "eve"):
        await api.create("User", name, {})
    await api.create("Team", "ada", {})
    for number in range(4):
        await api.create("OwnedAccessKey", f"ada-{number}", {"user": "ada", "key": PEPPER.digest(f"value-{number}")})
    await api.create("OwnedAccessKey", "bob-0", {"user": "bob", "key": PEPPER.digest("b")})
    await api.create("OwnedAccessKey", "team-0", {"team": "ada", "key": PEPPER.digest("t")})
    try:
        yield api
    finally:
        await view.stop()
        await store.close()


def item_names(key_list: Any) -> list[str]:
    return [item["metadata"]["name"] for item in key_list["items"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("users/ada/accesskeys", ["ada-0", "ada-1", "ada-2", "ada-3"]),
        ("users/bob/accesskeys", ["bob-0"]),
        ("users/eve/accesskeys", []),
        ("teams/ada/accesskeys", ["team-0"]),
    ],
)
async def test_the_list_has_only_the_keys_of_the_user_or_team(path: str, expected: list[str]) -> None:
    async with open_key_api() as api:
        key_list = await api(path)
    assert (key_list["kind"], key_list["apiVersion"]) == ("OwnedAccessKeyList", f"{MANAGEMENT_GROUP}/v1")
    assert item_names(key_list) == expected


async def test_the_list_has_no_value_and_no_digest() -> None:
    async with open_key_api() as api:
        key_list = await api("users/ada/accesskeys")
    assert all("key" not in item["spec"] for item in key_list["items"])
    assert "hmac" not in str(key_list)


@pytest.mark.parametrize("path", ["users/nobody/accesskeys", "teams/bob/accesskeys"])
async def test_the_list_of_an_unknown_user_or_team_is_not_found(path: str) -> None:
    async with open_key_api() as api:
        await api(path, code=404)


async def test_the_list_supports_selectors_and_pages() -> None:
    async with open_key_api() as api:
        assert item_names(await api("users/ada/accesskeys", "labelSelector=half%3D2")) == ["ada-2"]
        assert item_names(await api("users/ada/accesskeys", "fieldSelector=metadata.name%3Dbob-0")) == []
        first = await api("users/ada/accesskeys", "limit=3")
        second = await api("users/ada/accesskeys", f"limit=3&continue={first['metadata']['continue']}")
    assert (item_names(first), item_names(second)) == (["ada-0", "ada-1", "ada-2"], ["ada-3"])


async def test_a_rotation_returns_the_new_value_once() -> None:
    async with open_key_api() as api:
        reply = await api("ownedaccesskeys/ada-0/rotate", code=201, method="POST")
        assert reply["kind"] == "OwnedAccessKey"
        assert api.stored_key("ada-0")["spec"]["key"] == PEPPER.digest(reply["spec"]["key"])
        assert "key" not in (await api("users/ada/accesskeys"))["items"][0]["spec"]


async def test_a_rotation_with_overlap_keeps_the_old_value() -> None:
    async with open_key_api() as api:
        body = orjson.dumps({"spec": {"overlapSeconds": 60}})
        await api("ownedaccesskeys/ada-1/rotate", code=201, method="POST", body=body)
        (previous,) = api.stored_key("ada-1")["status"]["previous"]
    assert previous["key"] == PEPPER.digest("value-1")


async def test_a_rotation_supports_no_dry_run() -> None:
    async with open_key_api() as api:
        error = await api("ownedaccesskeys/ada-0/rotate", "dryRun=All", code=400, method="POST")
        assert error["message"].startswith("dryRun is not supported") and "omit it" in error["message"]
        assert api.stored_key("ada-0")["spec"]["key"] == PEPPER.digest("value-0")


async def test_a_missing_key_cannot_be_rotated() -> None:
    async with open_key_api() as api:
        await api("ownedaccesskeys/nothing/rotate", code=404, method="POST")
