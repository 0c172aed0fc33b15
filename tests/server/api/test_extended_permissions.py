"""server.api.verbs: `extended=true` adds the permissions of the user to each object."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.core.call import Call, Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Catalog
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.api.verbs import Verbs, add_permissions
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import call, raise_for_status
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

ADA = User("ada")
SPACES = "/apis/management.service.sh/v1/namespaces/demo/spaceinstances"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def decide(user: User, target: RequestInfo) -> Decision:
    """Ada may use the object `used` and update the object `changed`."""
    return Decision((target.verb, target.name) in {("use", "used"), ("update", "changed")})


@asynccontextmanager
async def open_spaces() -> AsyncIterator[tuple[RegistryFixture, Any]]:
    def as_ada(call: Call) -> None:
        call.user = ADA

    async with open_registry() as api:
        watches = WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(10, 10))
        verbs = Verbs(api.registry, watches, Actions(Catalog(()), {}), decide)
        pipeline = Pipeline((routing_stage(Router(RouteConfig(""))), as_ada), verbs)
        for name in ("changed", "used"):
            await api.create("SpaceInstance", name, spec={})

        async def get_object(path: str, query: str = "", accept: str = "") -> Object:
            reply = raise_for_status(await pipeline(call(path, query, headers={"accept": accept} if accept else {})))
            content: Object = orjson.loads(reply.body)
            return content

        yield api, get_object


def read_permissions(obj: Object) -> tuple[Any, Any]:
    status = obj.get("status") or {}
    return status.get("canUse"), status.get("canUpdate")


@on_virtual_time
async def test_an_object_has_the_permissions_of_the_user() -> None:
    async with open_spaces() as (_, get_object):
        assert read_permissions(await get_object(f"{SPACES}/used", "extended=true")) == (True, False)
        assert read_permissions(await get_object(f"{SPACES}/changed", "extended=true")) == (False, True)


@on_virtual_time
async def test_each_object_of_a_list_has_the_permissions_of_the_user() -> None:
    async with open_spaces() as (_, get_object):
        space_list = await get_object(SPACES, "extended=true")
        assert [read_permissions(item) for item in space_list["items"]] == [(False, True), (True, False)]


@on_virtual_time
async def test_the_objects_of_a_table_have_the_permissions_of_the_user() -> None:
    async with open_spaces() as (_, get_object):
        table = await get_object(SPACES, "extended=true&includeObject=Object", TABLE)
        assert [read_permissions(row["object"]) for row in table["rows"]] == [(False, True), (True, False)]


@pytest.mark.parametrize("query", ["", "extended=false", "extended=0"])
@on_virtual_time
async def test_permissions_are_not_added_unless_requested(query: str) -> None:
    async with open_spaces() as (_, get_object):
        assert read_permissions(await get_object(f"{SPACES}/used", query)) == (None, None)
        assert [read_permissions(item) for item in (await get_object(SPACES, query))["items"]] == [(None, None)] * 2


@on_virtual_time
async def test_kinds_without_permission_fields_are_unchanged() -> None:
    async with open_spaces() as (api, get_object):
        await api.create("ConfigMap", "used")
        path = "/api/v1/namespaces/demo/configmaps/used"
        assert await get_object(path, "extended=true") == await get_object(path)


@on_virtual_time
async def test_permissions_are_not_stored() -> None:
    async with open_spaces() as (_, get_object):
        await get_object(SPACES, "extended=true")
        assert read_permissions(await get_object(f"{SPACES}/used")) == (None, None)


def test_permissions_are_checked_per_object_and_the_status_is_kept() -> None:
    targets: list[RequestInfo] = []

    def record_target(user: User, target: RequestInfo) -> Decision:
        targets.append(target)
        return Decision(True)

    obj = {"metadata": {"namespace": "demo", "name": "one"}, "status": {"phase": "Ready"}}
    target = RequestInfo("list", "/x", "management", "g", "v1", "spaceinstances", namespace="")
    assert add_permissions(obj, target, ADA, record_target)["status"] == {
        "phase": "Ready",
        "canUse": True,
        "canUpdate": True,
    }
    assert targets == [
        RequestInfo(verb, "", "management", "g", "v1", "spaceinstances", "", "demo", "one")
        for verb in ("use", "update")
    ]
