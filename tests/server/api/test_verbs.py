"""The verbs as a client sees them: which paths there are, what each answers, and that a refusal leaves no trace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Catalog
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, routing_stage
from fairlead.server.api.verbs import Verbs
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, FakeGuard, call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

GROUP = "/apis/management.service.sh/v1"
GADGETS = f"{GROUP}/gadgets"
CONFIGMAPS = "/api/v1/namespaces/demo/configmaps"
JSON, YAML = "application/json", "application/yaml"
MERGE = "application/merge-patch+json"
NOTHING_ASKED = Actions(Catalog(()), {})


class Api:
    """Requests to the verbs of a world, made by one user."""

    def __init__(
        self, fixture: RegistryFixture, user: User | None = ADMIN, watches: WatchService | None = None
    ) -> None:
        def as_user(call: Call) -> None:
            call.user = user

        self.fixture = fixture
        watches = watches or WatchService(WatchLimits(1800, 100), fixture.clock, StreamLimiter(10, 10))
        verbs = Verbs(fixture.registry, watches, NOTHING_ASKED)
        self._run = Pipeline((routing_stage(RouteConfig("")), as_user), verbs)

    async def __call__(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Reply:
        sent = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._run(call(path, query, method=method, headers=named, body=sent))


@asynccontextmanager
async def new_api(user: User | None = ADMIN) -> AsyncIterator[Api]:
    async with open_registry() as fixture:
        yield Api(fixture, user)


def gadget(name: str, **labels: str) -> Object:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": "management.service.sh/v1", "kind": "Gadget", "metadata": metadata, "spec": {"size": 1}}


def configmap(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


def loaded(reply: Reply, status: int = 200) -> Any:
    assert reply.status == status, reply.body
    return orjson.loads(reply.body)


# --- which paths there are


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothings",
        "/api/v2/namespaces",
        "/apis/other.example.com/v1/gadgets",
        f"{GADGETS}/a/nothing",
        f"{GADGETS}/a/status/more",
        f"{CONFIGMAPS}/a/status",
        # What lives in no namespace is not found in one, whoever asks and whatever they may do there.
        f"{GROUP}/namespaces/demo/gadgets",
        f"{GROUP}/namespaces/demo/gadgets/a",
        "/api/v1/namespaces/demo/namespaces",
        "/api/v1/namespaces/demo/namespaces/default",
        # And what lives in one is not found outside.
        "/api/v1/configmaps/a",
        "/api/v1/namespaces/a/finalize/more",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@on_virtual_time
async def test_a_path_that_names_nothing_is_404(method: str, path: str) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        status = loaded(await api(method, path, {}), 404)
        assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", f"{GADGETS}/a", 405),
        ("OPTIONS", GADGETS, 405),
        ("get", GADGETS, 405),
        ("get", f"{GADGETS}/a", 405),
        ("TRACE", f"{GADGETS}/a", 405),
        ("PUT", GADGETS, 400),
        ("PATCH", GADGETS, 400),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", "/api/v1/namespaces//configmaps", 404),
        ("DELETE", "/api/v1/namespaces//configmaps", 404),
        ("DELETE", f"{GADGETS}/a/status", 405),
        ("POST", f"{GADGETS}/a/status", 405),
        ("PUT", "/api/v1/namespaces//finalize", 404),
        ("GET", "/api/v1/namespaces//finalize", 404),
    ],
)
@on_virtual_time
async def test_a_method_that_makes_no_sense_there_is_refused(method: str, path: str, code: int) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        before = api.fixture.view.revision
        reply = await api(method, path, gadget("a"))
        assert reply.status == code, reply.body
        assert api.fixture.view.revision == before


@on_virtual_time
async def test_a_namespaced_kind_can_be_listed_across_all_namespaces() -> None:
    async with new_api() as api:
        for namespace in ("demo", "default"):
            loaded(await api("POST", f"/api/v1/namespaces/{namespace}/configmaps", configmap("a")), 201)
        listed = loaded(await api("GET", "/api/v1/configmaps"))
        assert [item["metadata"]["namespace"] for item in listed["items"]] == ["default", "demo"]


# --- a refusal leaves no trace

WRITES = [
    ("POST", GADGETS, gadget("new"), JSON),
    ("PUT", f"{GADGETS}/a", gadget("a"), JSON),
    ("PATCH", f"{GADGETS}/a", {"spec": {"size": 9}}, MERGE),
    ("DELETE", f"{GADGETS}/a", None, JSON),
    ("DELETE", GADGETS, None, JSON),
]


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_a_dry_run_answers_as_if_and_stores_nothing(method: str, path: str, body: Any, content_type: str) -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        if method == "PUT":
            body = made | {"spec": {"size": 5}}
        before = api.fixture.view.revision
        reply = await api(method, path, body, "dryRun=All", content_type=content_type)
        assert reply.status == (201 if method == "POST" else 200), reply.body
        assert api.fixture.view.revision == before


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_an_option_that_is_none_is_refused_before_anything_is_done(
    method: str, path: str, body: Any, content_type: str
) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        before = api.fixture.view.revision
        assert (await api(method, path, body, "dryRun=Some", content_type=content_type)).status == 422
        assert api.fixture.view.revision == before


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_a_call_that_nobody_made_writes_nothing(method: str, path: str, body: Any, content_type: str) -> None:
    """Should a pipeline ever lack the stage that authenticates."""
    async with new_api(user=None) as api:
        before = api.fixture.view.revision
        assert (await api(method, path, body, content_type=content_type)).status == 401
        assert api.fixture.view.revision == before


# --- single verbs


@on_virtual_time
async def test_create_answers_201_with_the_object_and_its_version() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        assert made == loaded(await api("GET", f"{GADGETS}/a"))
        assert made["metadata"]["resourceVersion"] == str(api.fixture.view.revision)


@on_virtual_time
async def test_what_is_not_there_is_404_with_its_name() -> None:
    async with new_api() as api:
        for method, body, kind in (("GET", None, JSON), ("DELETE", None, JSON), ("PATCH", {}, MERGE)):
            status = loaded(await api(method, f"{GADGETS}/nope", body, content_type=kind), 404)
            assert status["details"] == {"name": "nope", "group": "management.service.sh", "kind": "gadgets"}


@on_virtual_time
async def test_a_read_can_wait_for_a_version_but_not_for_ever() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        version = int(made["metadata"]["resourceVersion"])
        assert loaded(await api("GET", f"{GADGETS}/a", query=f"resourceVersion={version}")) == made
        for path, query in ((f"{GADGETS}/a", ""), (GADGETS, ""), (GADGETS, "&watch=1")):
            reply = await api("GET", path, query=f"resourceVersion={version + 1000}{query}")
            status = loaded(reply, 504)
            assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
            assert dict(reply.headers)["retry-after"] == "1"


@on_virtual_time
async def test_a_version_that_is_not_ours_is_400() -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        for path in (f"{GADGETS}/a", GADGETS):
            assert (await api("GET", path, query="resourceVersion=latest")).status == 400


@on_virtual_time
async def test_update_replaces_and_a_stale_version_is_409() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        newer = loaded(await api("PUT", f"{GADGETS}/a", made | {"spec": {"size": 2}}))
        assert newer["spec"]["size"] == 2
        assert loaded(await api("PUT", f"{GADGETS}/a", made | {"spec": {"size": 3}}), 409)["reason"] == "Conflict"


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
@on_virtual_time
async def test_a_body_that_is_no_object_is_400(method: str, body: Any) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        path = GADGETS if method == "POST" else f"{GADGETS}/a"
        assert (await api(method, path, body)).status == 400


@pytest.mark.parametrize("content_type", ["", JSON, YAML, "text/plain", "application/merge-patch"])
@on_virtual_time
async def test_a_patch_must_say_which_sort_it_is(content_type: str) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        status = loaded(await api("PATCH", f"{GADGETS}/a", {}, content_type=content_type), 415)
        assert "application/merge-patch+json" in status["message"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MERGE, {"spec": {"size": 7}}),
        ("application/merge-patch+json; charset=utf-8", {"spec": {"size": 7}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/size", "value": 7}]),
    ],
)
@on_virtual_time
async def test_a_patch_changes_what_it_names(content_type: str, body: Any) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        patched = loaded(await api("PATCH", f"{GADGETS}/a", body, content_type=content_type))
        assert patched["spec"] == {"size": 7, "mode": "plain"}


@on_virtual_time
async def test_delete_says_what_it_took_away() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        status = loaded(await api("DELETE", f"{GADGETS}/a"))
        assert (status["kind"], status["status"]) == ("Status", "Success")
        assert status["details"]["uid"] == made["metadata"]["uid"]
        assert (await api("GET", f"{GADGETS}/a")).status == 404


@on_virtual_time
async def test_delete_of_what_is_held_answers_with_the_object() -> None:
    async with new_api() as api:
        body = gadget("a")
        body["metadata"]["finalizers"] = ["example.com/wait"]
        await api("POST", GADGETS, body)
        held = loaded(await api("DELETE", f"{GADGETS}/a"))
        assert held["kind"] == "Gadget" and held["metadata"]["deletionTimestamp"]
        assert loaded(await api("GET", f"{GADGETS}/a")) == held


@on_virtual_time
async def test_a_delete_with_a_precondition_that_does_not_hold_is_409() -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        for precondition in ({"uid": "another"}, {"resourceVersion": "1"}):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": precondition}
            assert (await api("DELETE", f"{GADGETS}/a", body)).status == 409
        assert (await api("GET", f"{GADGETS}/a")).status == 200


@on_virtual_time
async def test_a_collection_is_deleted_as_far_as_it_is_selected() -> None:
    async with new_api() as api:
        for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
            await api("POST", GADGETS, gadget(name, color=color))
        taken = loaded(await api("DELETE", GADGETS, query="labelSelector=color%3Dred"))
        assert [item["metadata"]["name"] for item in taken["items"]] == ["a", "c"]
        left = loaded(await api("GET", GADGETS))
        assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


@on_virtual_time
async def test_a_collection_is_not_deleted_by_a_selector_that_cannot_be_read() -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        for query in ("labelSelector=%3D", "fieldSelector=spec.unheard%3Dof", "limit=x"):
            assert (await api("DELETE", GADGETS, query=query)).status == 400
        assert (await api("GET", f"{GADGETS}/a")).status == 200


@on_virtual_time
async def test_a_collection_of_one_namespace_leaves_the_others_alone() -> None:
    async with new_api() as api:
        for namespace in ("demo", "default"):
            await api("POST", f"/api/v1/namespaces/{namespace}/configmaps", configmap("a"))
        loaded(await api("DELETE", CONFIGMAPS))
        left = loaded(await api("GET", "/api/v1/configmaps"))
        assert [item["metadata"]["namespace"] for item in left["items"]] == ["default"]


@on_virtual_time
async def test_a_status_is_read_and_written_at_its_own_path() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        body = made | {"spec": {"size": 99}, "status": {"phase": "Ready"}}
        written = loaded(await api("PUT", f"{GADGETS}/a/status", body))
        assert (written["status"], written["spec"]["size"]) == ({"phase": "Ready"}, 1)
        assert loaded(await api("GET", f"{GADGETS}/a/status")) == written


@on_virtual_time
async def test_a_watch_is_a_stream() -> None:
    async with new_api() as api:
        reply = await api("GET", GADGETS, query="watch=1&timeoutSeconds=1")
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.stream is not None
        assert [chunk async for chunk in reply.stream] == []


@on_virtual_time
async def test_t39_the_watches_of_those_who_act_as_others_count_for_who_they_are() -> None:
    """Or somebody who acts as others could use up what all of those have together."""
    async with open_registry() as fixture:
        watches = WatchService(WatchLimits(1800, 100), fixture.clock, StreamLimiter(10, 1))

        async def watch(name: str, key: str) -> Reply:
            asker = User("eve", impersonator=User(name, key=key))
            return await Api(fixture, asker, watches)("GET", GADGETS, query="watch=1")

        first = (await watch("proxy", "one")).stream
        assert first is not None
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(1)
        assert [(await watch("proxy", key)).status for key in ("one", "two")] == [429, 429]
        assert (await watch("another", "one")).status == 200
        waiting.cancel()


@on_virtual_time
async def test_an_apply_that_would_create_asks_for_that_right_first() -> None:
    async with new_api() as ask:
        asked: list[str] = []

        def watchful(call: Call) -> None:
            def refuse(target: RequestInfo) -> None:
                asked.append(target.verb)
                raise Forbidden("no right to create")

            call.guard = FakeGuard(require_says=refuse)

        guarded = Pipeline((watchful,), ask._run)
        path = f"{GADGETS}/new"
        body = orjson.dumps({"apiVersion": "management.service.sh/v1", "kind": "Gadget", "metadata": {"name": "new"}})
        headers = {"content-type": "application/apply-patch+yaml"}
        made = call(path, "fieldManager=m", method="PATCH", headers=headers, body=body)
        assert (await guarded(made)).status == 403
        assert asked == ["create"]
        assert ask.fixture.see("Gadget", "new") is None
