"""server.api.verbs: paths, responses, and that a rejected request writes nothing."""

import asyncio
from typing import Any

import orjson
import pytest

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import FakeGuard, call
from tests.harness.registry import open_registry
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.api_fixture import (
    CONFIGMAPS,
    GADGETS,
    GROUP,
    JSON,
    MERGE,
    WRITES,
    YAML,
    ApiFixture,
    build_configmap,
    build_gadget,
    load_body,
    open_api,
)

# --- paths


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothings",
        "/api/v2/namespaces",
        "/apis/other.example.com/v1/gadgets",
        f"{CONFIGMAPS}/a/status",
        # Cluster-scoped resources are not found in a namespace, whatever permissions the user has there.
        f"{GROUP}/namespaces/demo/gadgets",
        f"{GROUP}/namespaces/demo/gadgets/a",
        "/api/v1/namespaces/demo/namespaces",
        "/api/v1/namespaces/demo/namespaces/default",
        # Namespaced resources are not found outside of one.
        "/api/v1/configmaps/a",
        "/api/v1/namespaces/a/finalize/more",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@on_virtual_time
async def test_an_unknown_path_is_404(method: str, path: str) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        status = load_body(await api(method, path, {}), 404)
        assert status["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("subresource", ["nothing", "status/more"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@on_virtual_time
async def test_an_unknown_subresource_is_404_with_the_name_of_the_object(method: str, subresource: str) -> None:
    async with open_api() as api:
        status = load_body(await api(method, f"{GADGETS}/a/{subresource}", {}), 404)
        assert status["details"] == {"name": "a", "group": "management.service.sh", "kind": "gadgets"}


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
async def test_an_unsupported_method_is_rejected(method: str, path: str, code: int) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        revision = api.fixture.view.revision
        reply = await api(method, path, build_gadget("a"))
        assert reply.status == code, reply.body
        assert api.fixture.view.revision == revision


@on_virtual_time
async def test_a_namespaced_kind_can_be_listed_across_all_namespaces() -> None:
    async with open_api() as api:
        for namespace in ("demo", "default"):
            load_body(await api("POST", f"/api/v1/namespaces/{namespace}/configmaps", build_configmap("a")), 201)
        configmaps = load_body(await api("GET", "/api/v1/configmaps"))
        assert [item["metadata"]["namespace"] for item in configmaps["items"]] == ["default", "demo"]


# --- a rejected request writes nothing


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_a_dry_run_gets_the_same_response_and_stores_nothing(
    method: str, path: str, body: Any, content_type: str
) -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        if method == "PUT":
            body = created | {"spec": {"size": 5}}
        revision = api.fixture.view.revision
        reply = await api(method, path, body, "dryRun=All", content_type=content_type)
        assert reply.status == (201 if method == "POST" else 200), reply.body
        assert api.fixture.view.revision == revision


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_an_invalid_option_is_rejected_before_anything_is_written(
    method: str, path: str, body: Any, content_type: str
) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        revision = api.fixture.view.revision
        assert (await api(method, path, body, "dryRun=Some", content_type=content_type)).status == 422
        assert api.fixture.view.revision == revision


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@on_virtual_time
async def test_a_call_without_a_user_writes_nothing(method: str, path: str, body: Any, content_type: str) -> None:
    """In case a pipeline lacks the authentication stage."""
    async with open_api(user=None) as api:
        revision = api.fixture.view.revision
        assert (await api(method, path, body, content_type=content_type)).status == 401
        assert api.fixture.view.revision == revision


# --- single verbs


@on_virtual_time
async def test_create_returns_201_with_the_object_and_its_resource_version() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        assert created == load_body(await api("GET", f"{GADGETS}/a"))
        assert created["metadata"]["resourceVersion"] == str(api.fixture.view.revision)


@on_virtual_time
async def test_an_object_that_does_not_exist_is_404_with_its_name() -> None:
    async with open_api() as api:
        for method, body, content_type in (("GET", None, JSON), ("DELETE", None, JSON), ("PATCH", {}, MERGE)):
            status = load_body(await api(method, f"{GADGETS}/nope", body, content_type=content_type), 404)
            assert status["details"] == {"name": "nope", "group": "management.service.sh", "kind": "gadgets"}


@on_virtual_time
async def test_a_read_waits_for_a_resource_version_up_to_a_timeout() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        version = int(created["metadata"]["resourceVersion"])
        assert load_body(await api("GET", f"{GADGETS}/a", query=f"resourceVersion={version}")) == created
        for path, query in ((f"{GADGETS}/a", ""), (GADGETS, ""), (GADGETS, "&watch=1")):
            reply = await api("GET", path, query=f"resourceVersion={version + 1000}{query}")
            status = load_body(reply, 504)
            assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
            assert dict(reply.headers)["retry-after"] == "1"


@on_virtual_time
async def test_an_invalid_resource_version_is_400() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        for path in (f"{GADGETS}/a", GADGETS):
            assert (await api("GET", path, query="resourceVersion=latest")).status == 400


@on_virtual_time
async def test_update_replaces_the_object_and_a_stale_resource_version_is_409() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        updated = load_body(await api("PUT", f"{GADGETS}/a", created | {"spec": {"size": 2}}))
        assert updated["spec"]["size"] == 2
        assert load_body(await api("PUT", f"{GADGETS}/a", created | {"spec": {"size": 3}}), 409)["reason"] == "Conflict"


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
@on_virtual_time
async def test_a_body_that_is_not_an_object_is_400(method: str, body: Any) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        path = GADGETS if method == "POST" else f"{GADGETS}/a"
        assert (await api(method, path, body)).status == 400


@pytest.mark.parametrize("content_type", ["", JSON, YAML, "text/plain", "application/merge-patch"])
@on_virtual_time
async def test_a_patch_without_a_patch_media_type_is_415(content_type: str) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        status = load_body(await api("PATCH", f"{GADGETS}/a", {}, content_type=content_type), 415)
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
async def test_a_patch_changes_the_fields_that_it_names(content_type: str, body: Any) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        patched = load_body(await api("PATCH", f"{GADGETS}/a", body, content_type=content_type))
        assert patched["spec"] == {"size": 7, "mode": "plain"}


@on_virtual_time
async def test_delete_returns_a_status_with_the_uid_of_the_object() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        status = load_body(await api("DELETE", f"{GADGETS}/a"))
        assert (status["kind"], status["status"]) == ("Status", "Success")
        assert status["details"]["uid"] == created["metadata"]["uid"]
        assert (await api("GET", f"{GADGETS}/a")).status == 404


@on_virtual_time
async def test_delete_of_an_object_with_finalizers_returns_the_object() -> None:
    async with open_api() as api:
        body = build_gadget("a")
        body["metadata"]["finalizers"] = ["example.com/wait"]
        await api("POST", GADGETS, body)
        terminating = load_body(await api("DELETE", f"{GADGETS}/a"))
        assert terminating["kind"] == "Gadget" and terminating["metadata"]["deletionTimestamp"]
        assert load_body(await api("GET", f"{GADGETS}/a")) == terminating


@on_virtual_time
async def test_a_delete_with_a_failed_precondition_is_409() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        for precondition in ({"uid": "another"}, {"resourceVersion": "1"}):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": precondition}
            assert (await api("DELETE", f"{GADGETS}/a", body)).status == 409
        assert (await api("GET", f"{GADGETS}/a")).status == 200


@on_virtual_time
async def test_deletecollection_deletes_the_selected_objects() -> None:
    async with open_api() as api:
        for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
            await api("POST", GADGETS, build_gadget(name, color=color))
        deleted = load_body(await api("DELETE", GADGETS, query="labelSelector=color%3Dred"))
        assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "c"]
        remaining = load_body(await api("GET", GADGETS))
        assert [item["metadata"]["name"] for item in remaining["items"]] == ["b"]


@on_virtual_time
async def test_deletecollection_with_an_invalid_selector_is_rejected() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        for query in ("labelSelector=%3D", "fieldSelector=spec.unheard%3Dof", "limit=x"):
            assert (await api("DELETE", GADGETS, query=query)).status == 400
        assert (await api("GET", f"{GADGETS}/a")).status == 200


@on_virtual_time
async def test_deletecollection_in_a_namespace_leaves_other_namespaces_alone() -> None:
    async with open_api() as api:
        for namespace in ("demo", "default"):
            await api("POST", f"/api/v1/namespaces/{namespace}/configmaps", build_configmap("a"))
        load_body(await api("DELETE", CONFIGMAPS))
        remaining = load_body(await api("GET", "/api/v1/configmaps"))
        assert [item["metadata"]["namespace"] for item in remaining["items"]] == ["default"]


@on_virtual_time
async def test_the_status_subresource_is_read_and_written_at_its_own_path() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        body = created | {"spec": {"size": 99}, "status": {"phase": "Ready"}}
        written = load_body(await api("PUT", f"{GADGETS}/a/status", body))
        assert (written["status"], written["spec"]["size"]) == ({"phase": "Ready"}, 1)
        assert load_body(await api("GET", f"{GADGETS}/a/status")) == written


@on_virtual_time
async def test_a_watch_is_a_stream() -> None:
    async with open_api() as api:
        reply = await api("GET", GADGETS, query="watch=1&timeoutSeconds=1")
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.stream is not None
        assert [chunk async for chunk in reply.stream] == []


@on_virtual_time
async def test_t39_watches_of_impersonated_users_count_toward_the_limit_of_the_impersonator() -> None:
    """Otherwise an impersonator could use up the limits of all the users together."""
    async with open_registry() as fixture:
        watches = WatchService(WatchLimits(1800, 100), fixture.clock, StreamLimiter(10, 1))

        async def watch(name: str, key: str) -> Reply:
            user = User("eve", impersonator=User(name, key=key))
            return await ApiFixture(fixture, user, watches)("GET", GADGETS, query="watch=1")

        first = (await watch("proxy", "one")).stream
        assert first is not None
        pending = asyncio.ensure_future(anext(first))
        await asyncio.sleep(1)
        assert [(await watch("proxy", key)).status for key in ("one", "two")] == [429, 429]
        assert (await watch("another", "one")).status == 200
        pending.cancel()


@on_virtual_time
async def test_an_apply_that_would_create_requires_permission_to_create() -> None:
    async with open_api() as api:
        verbs: list[str] = []

        def set_guard(call: Call) -> None:
            def deny(target: RequestInfo) -> None:
                verbs.append(target.verb)
                raise Forbidden("no right to create")

            call.guard = FakeGuard(on_require=deny)

        guarded = Pipeline((set_guard,), api._run)
        path = f"{GADGETS}/new"
        body = orjson.dumps({"apiVersion": "management.service.sh/v1", "kind": "Gadget", "metadata": {"name": "new"}})
        headers = {"content-type": "application/apply-patch+yaml"}
        request = call(path, "fieldManager=m", method="PATCH", headers=headers, body=body)
        assert (await guarded(request)).status == 403
        assert verbs == ["create"]
        assert api.fixture.get("Gadget", "new") is None
