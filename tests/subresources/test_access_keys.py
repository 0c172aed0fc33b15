"""The keys of a user or team as a list of their own, and a new value for one of them."""

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
from fairlead.server.api.routing import RouteConfig, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.credentials import key_list_handlers, rotation_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import LoopClock

ROOT = f"/apis/{MANAGEMENT_GROUP}/v1"
PEPPER = Pepper(b"p" * 32)


async def unasked(asked: ActionRequest) -> bytes:
    raise AssertionError


class Api:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        rotation = KeyRotator(registry, MANAGEMENT_GROUP, PEPPER, lambda outer, inner: True)
        actions = Actions(
            registry.catalog,
            {
                **key_list_handlers(MANAGEMENT_GROUP, registry),
                **rotation_handlers(MANAGEMENT_GROUP, rotation),
                (MANAGEMENT_GROUP, "users", "profile"): unasked,
            },
        )

        def as_admin(call: Call) -> None:
            call.user = ADMIN

        async def serve(call: Call) -> Reply:
            kind = registry.catalog.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await actions(call, kind)

        self._run = Pipeline((routing_stage(RouteConfig("")), as_admin), serve)

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

    def stored(self, name: str) -> Object:
        entry = self.registry.resource(MANAGEMENT_GROUP, "ownedaccesskeys").get_cached("", name)
        assert entry is not None
        return decode(entry)


@asynccontextmanager
async def new_api() -> AsyncIterator[Api]:
    async def admit(change: Change) -> None:
        return None

    store, catalog = MemoryStore(), Catalog((USER, TEAM, OWNED_ACCESS_KEY))
    view = View(store, entry_builder(catalog))
    await view.start()
    api = Api(Registry(catalog, store, view, admit, LoopClock()))
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


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("users/ada/accesskeys", ["ada-0", "ada-1", "ada-2", "ada-3"]),
        ("users/bob/accesskeys", ["bob-0"]),
        ("users/eve/accesskeys", []),
        ("teams/ada/accesskeys", ["team-0"]),
    ],
)
async def test_each_sees_its_own_keys_and_no_others(path: str, expected: list[str]) -> None:
    async with new_api() as api:
        listed = await api(path)
    assert (listed["kind"], listed["apiVersion"]) == ("OwnedAccessKeyList", f"{MANAGEMENT_GROUP}/v1")
    assert names(listed) == expected


async def test_no_value_and_no_digest_is_listed() -> None:
    async with new_api() as api:
        listed = await api("users/ada/accesskeys")
    assert all("key" not in item["spec"] for item in listed["items"])
    assert "hmac" not in str(listed)


@pytest.mark.parametrize("path", ["users/nobody/accesskeys", "teams/bob/accesskeys"])
async def test_who_does_not_exist_is_not_found(path: str) -> None:
    async with new_api() as api:
        await api(path, code=404)


async def test_it_is_a_list_with_selectors_and_pages() -> None:
    async with new_api() as api:
        assert names(await api("users/ada/accesskeys", "labelSelector=half%3D2")) == ["ada-2"]
        assert names(await api("users/ada/accesskeys", "fieldSelector=metadata.name%3Dbob-0")) == []
        first = await api("users/ada/accesskeys", "limit=3")
        rest = await api("users/ada/accesskeys", f"limit=3&continue={first['metadata']['continue']}")
    assert (names(first), names(rest)) == (["ada-0", "ada-1", "ada-2"], ["ada-3"])


async def test_a_rotated_key_shows_its_new_value_once() -> None:
    async with new_api() as api:
        answer = await api("ownedaccesskeys/ada-0/rotate", code=201, method="POST")
        assert answer["kind"] == "OwnedAccessKey"
        assert api.stored("ada-0")["spec"]["key"] == PEPPER.digest(answer["spec"]["key"])
        assert "key" not in (await api("users/ada/accesskeys"))["items"][0]["spec"]


async def test_the_old_value_lasts_as_long_as_asked() -> None:
    async with new_api() as api:
        body = orjson.dumps({"spec": {"overlapSeconds": 60}})
        await api("ownedaccesskeys/ada-1/rotate", code=201, method="POST", body=body)
        (previous,) = api.stored("ada-1")["status"]["previous"]
    assert previous["key"] == PEPPER.digest("value-1")


async def test_a_rotation_cannot_be_rehearsed() -> None:
    async with new_api() as api:
        told = await api("ownedaccesskeys/ada-0/rotate", "dryRun=All", code=400, method="POST")
        assert told["message"].startswith("dryRun is not supported") and "omit it" in told["message"]
        assert api.stored("ada-0")["spec"]["key"] == PEPPER.digest("value-0")


async def test_a_key_that_does_not_exist_cannot_be_rotated() -> None:
    async with new_api() as api:
        await api("ownedaccesskeys/nothing/rotate", code=404, method="POST")
