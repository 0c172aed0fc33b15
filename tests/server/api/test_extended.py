"""`extended=true`: what the asker may do with each object, and that nobody else is told."""

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
from fairlead.server.api.routing import RouteConfig, routing_stage
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
    """Ada uses what is called `used` and changes what is called `changed`."""
    return Decision((target.verb, target.name) in {("use", "used"), ("update", "changed")})


@asynccontextmanager
async def spaces() -> AsyncIterator[tuple[RegistryFixture, Any]]:
    def as_ada(call: Call) -> None:
        call.user = ADA

    async with open_registry() as api:
        watches = WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(10, 10))
        verbs = Verbs(api.registry, watches, Actions(Catalog(()), {}), decide)
        run = Pipeline((routing_stage(RouteConfig("")), as_ada), verbs)
        for name in ("changed", "used"):
            await api.create("SpaceInstance", name, spec={})

        async def ask(path: str, query: str = "", accept: str = "") -> Object:
            reply = raise_for_status(await run(call(path, query, headers={"accept": accept} if accept else {})))
            found: Object = orjson.loads(reply.body)
            return found

        yield api, ask


def rights(obj: Object) -> tuple[Any, Any]:
    status = obj.get("status") or {}
    return status.get("canUse"), status.get("canUpdate")


@on_virtual_time
async def test_one_object_says_what_the_asker_may_do_with_it() -> None:
    async with spaces() as (_, ask):
        assert rights(await ask(f"{SPACES}/used", "extended=true")) == (True, False)
        assert rights(await ask(f"{SPACES}/changed", "extended=true")) == (False, True)


@on_virtual_time
async def test_each_object_of_a_list_does() -> None:
    async with spaces() as (_, ask):
        listed = await ask(SPACES, "extended=true")
        assert [rights(each) for each in listed["items"]] == [(False, True), (True, False)]


@on_virtual_time
async def test_so_does_what_a_table_carries() -> None:
    async with spaces() as (_, ask):
        table = await ask(SPACES, "extended=true&includeObject=Object", TABLE)
        assert [rights(row["object"]) for row in table["rows"]] == [(False, True), (True, False)]


@pytest.mark.parametrize("query", ["", "extended=false", "extended=0"])
@on_virtual_time
async def test_who_does_not_ask_is_not_told(query: str) -> None:
    async with spaces() as (_, ask):
        assert rights(await ask(f"{SPACES}/used", query)) == (None, None)
        assert [rights(each) for each in (await ask(SPACES, query))["items"]] == [(None, None)] * 2


@on_virtual_time
async def test_kinds_without_a_place_for_it_answer_as_ever() -> None:
    async with spaces() as (api, ask):
        await api.create("ConfigMap", "used")
        path = "/api/v1/namespaces/demo/configmaps/used"
        assert await ask(path, "extended=true") == await ask(path)


@on_virtual_time
async def test_nothing_of_it_is_kept() -> None:
    async with spaces() as (_, ask):
        await ask(SPACES, "extended=true")
        assert rights(await ask(f"{SPACES}/used")) == (None, None)


def test_the_question_is_about_the_object_and_keeps_its_status() -> None:
    asked: list[RequestInfo] = []

    def note(user: User, target: RequestInfo) -> Decision:
        asked.append(target)
        return Decision(True)

    obj = {"metadata": {"namespace": "demo", "name": "one"}, "status": {"phase": "Ready"}}
    target = RequestInfo("list", "/x", "management", "g", "v1", "spaceinstances", namespace="")
    assert add_permissions(obj, target, ADA, note)["status"] == {"phase": "Ready", "canUse": True, "canUpdate": True}
    assert asked == [
        RequestInfo(verb, "", "management", "g", "v1", "spaceinstances", "", "demo", "one")
        for verb in ("use", "update")
    ]
