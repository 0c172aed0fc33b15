"""The end of the pipeline: resources to the verbs, health to its checks, documents from the shelf, nothing else."""

import threading

import orjson
import pytest

from fairlead.core.call import MANAGEMENT, Handler, Reply
from fairlead.core.errors import BadRequest, MethodNotAllowed, NotAcceptable
from fairlead.registry import limits
from fairlead.server.api.routing import Dispatcher, RouteConfig, routing_stage
from fairlead.server.discovery.document import Document, Variant, build_variant
from fairlead.server.discovery.documents import platform_documents
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import always_reply, call, raise_for_status

MOUNT = "/kubernetes/management"
VERBS, HEALTH = Reply(200, b"verbs"), Reply(200, b"health")
API = Document((build_variant(b'{"kind":"APIVersions"}'), build_variant(b"kind: APIVersions\n", "application/yaml")))
LIKE_A_RESOURCE = "/apis/other.example/v1/things"
ROOTS = {MANAGEMENT: {"/api": API, "/": API, LIKE_A_RESOURCE: API}, "": platform_documents("1.2.3", MOUNT)}
ENDPOINTS = {
    "": {("post", "/auth/x"): always_reply(Reply(200, b"done"))},
    MANAGEMENT: {("get", "/numbers"): always_reply(Reply(200, b"42"))},
}
THROUGH = Reply(200, b"from a cluster")
END = Dispatcher(always_reply(VERBS), always_reply(HEALTH), ROOTS, ENDPOINTS, always_reply(THROUGH))
SERVE: Handler = Pipeline([routing_stage(RouteConfig(MOUNT, "management.service.sh", "service-p-"))], END)


async def ask(path: str, method: str = "GET", **headers: str) -> Reply:
    request = call(path, method=method, headers={key.replace("_", "-"): each for key, each in headers.items()})
    reply = await SERVE(request)
    return reply if reply.content_type.startswith("text/plain") else raise_for_status(reply)


@pytest.mark.parametrize("path", ["/version", "/healthz", "/api", "/api/v1/pods", ""])
async def test_what_is_behind_a_gateway_is_for_the_gateways_alone(path: str) -> None:
    assert await ask(f"/kubernetes/cluster/c{path}") is THROUGH
    assert await ask(f"/kubernetes/project/p/space/s{path}") is THROUGH
    assert await ask(f"/kubernetes/project/p/virtualcluster/v{path}") is THROUGH
    assert (await ask(f"/kubernetes/project/p/other/v{path}")).status == 404


async def test_a_watch_is_no_websocket() -> None:
    asked = call(f"{MOUNT}/api/v1/secrets", query="watch=1")
    asked.is_websocket = True
    with pytest.raises(BadRequest):
        raise_for_status(await SERVE(asked))


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_document_that_looks_like_a_resource_is_still_a_document(end: str) -> None:
    assert (await ask(f"{MOUNT}{LIKE_A_RESOURCE}{end}")).body == b'{"kind":"APIVersions"}'
    assert (await ask(f"{MOUNT}{LIKE_A_RESOURCE}/one")) is VERBS


async def test_what_the_platform_does_is_found_by_verb_and_path() -> None:
    assert (await ask("/auth/x", "POST")).body == b"done"
    assert (await ask("/auth/x")).status == 404
    assert (await ask(f"{MOUNT}/auth/x", "POST")).status == 404
    assert (await ask(f"{MOUNT}/numbers")).body == b"42"
    assert (await ask("/numbers")).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{MOUNT}/api/v1/namespaces"),
        ("DELETE", f"{MOUNT}/api/v1/namespaces/x"),
        ("OPTIONS", f"{MOUNT}/apis/g/v1/apps"),
        ("GET", f"{MOUNT}/api/v1/healthz"),
    ],
)
async def test_resources_go_to_the_verbs_whatever_the_method(method: str, path: str) -> None:
    assert await ask(path, method) is VERBS


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_health_is_asked_below_both_roots(mount: str, path: str) -> None:
    assert await ask(mount + path) is HEALTH


@pytest.mark.parametrize("path", [MOUNT, f"{MOUNT}/", f"{MOUNT}/api", f"{MOUNT}/api/", "/", "/version", "/version/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_documents_are_read_with_or_without_a_slash_at_the_end(method: str, path: str) -> None:
    assert (await ask(path, method)).status == 200


async def test_the_two_roots_have_documents_of_their_own() -> None:
    assert orjson.loads((await ask("/version")).body) == {"version": "v1.2.3", "major": "1", "minor": "2"}
    assert (await ask("/api")).status == 404
    assert (await ask(f"{MOUNT}/version")).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"])
@pytest.mark.parametrize("path", ["/version", f"{MOUNT}/api"])
async def test_documents_can_only_be_read(method: str, path: str) -> None:
    with pytest.raises(MethodNotAllowed, match="it is read-only"):
        await ask(path, method)


@pytest.mark.parametrize(
    "path", ["/nowhere", f"{MOUNT}/nowhere", f"{MOUNT}x", "//version", "/version//", "/..", "/\x00"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_everything_else_is_not_found(method: str, path: str) -> None:
    reply = await ask(path, method)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


async def test_documents_come_in_the_form_that_is_asked_for() -> None:
    assert (await ask(f"{MOUNT}/api", accept="application/yaml")).body == b"kind: APIVersions\n"
    with pytest.raises(NotAcceptable):
        await ask(f"{MOUNT}/api", accept="text/html")


async def test_a_document_that_takes_long_is_made_once_and_not_on_the_event_loop() -> None:
    threads: list[int] = []

    def made() -> tuple[Variant, ...]:
        threads.append(threading.get_ident())
        return (build_variant(b"{}"),)

    roots = {MANAGEMENT: {"/openapi/v2": Document(made)}, "": platform_documents("1.2.3", MOUNT)}
    end = Dispatcher(always_reply(VERBS), always_reply(HEALTH), roots, ENDPOINTS, always_reply(THROUGH))
    serve = Pipeline([routing_stage(RouteConfig(MOUNT, "management.service.sh", "service-p-"))], end)
    for _ in range(3):
        assert (await serve(call(f"{MOUNT}/openapi/v2"))).body == b"{}"
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_who_has_a_document_already_is_not_sent_it_again() -> None:
    headers = dict((await ask(f"{MOUNT}/api")).headers)
    again = await ask(f"{MOUNT}/api", if_none_match=headers["ETag"])
    assert (again.status, again.body) == (304, b"")


async def test_a_trick_in_a_name_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(BadRequest):
        await ask(f"{MOUNT}/apis/g/v1/apps/..")


async def test_a_query_has_a_number_of_parameters_except_behind_a_gateway() -> None:
    most = "&".join(["a="] * limits.QUERY_PARAMETERS)
    path = f"{MOUNT}/api/v1/configmaps"
    assert await SERVE(call(path, most)) == VERBS
    for place in (path, "/version"):
        with pytest.raises(BadRequest, match="the query has too many parameters; 100 is the limit"):
            raise_for_status(await SERVE(call(place, f"{most}&b=")))
    words = "&".join(["command=x"] * 1_000)
    assert await SERVE(call("/kubernetes/cluster/c/api/v1/namespaces/n/pods/p/exec", words, method="POST")) == THROUGH
