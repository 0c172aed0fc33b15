"""server.api.routing: the dispatcher sends requests to verbs, health checks, documents and gateways."""

import threading

import orjson
import pytest

from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, Handler, Reply
from fairlead.core.errors import BadRequest, MethodNotAllowed, NotAcceptable, NotFound
from fairlead.features.clusters import find_gateways
from fairlead.registry import limits
from fairlead.server.api.routing import Dispatcher, RouteConfig, Router, routing_stage
from fairlead.server.discovery.document import Document, Variant, build_variant
from fairlead.server.discovery.documents import platform_documents
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import always_reply, call, raise_for_status

MOUNT = "/kubernetes/management"
VERBS, HEALTH = Reply(200, b"verbs"), Reply(200, b"health")
API = Document((build_variant(b'{"kind":"APIVersions"}'), build_variant(b"kind: APIVersions\n", "application/yaml")))
ROOTS = {MANAGEMENT: {"/api": API, "/": API}, "": platform_documents("1.2.3", MOUNT)}
ENDPOINTS = {
    "": {("post", "/auth/x"): always_reply(Reply(200, b"done"))},
    MANAGEMENT: {("get", "/numbers"): always_reply(Reply(200, b"42"))},
}
FROM_GATEWAY = Reply(200, b"from a cluster")
MOUNTS = dict.fromkeys((CLUSTER, SPACE, VIRTUAL_CLUSTER), always_reply(FROM_GATEWAY))
DISPATCHER = Dispatcher(always_reply(VERBS), always_reply(HEALTH), ROOTS, ENDPOINTS, MOUNTS)
ROUTES = RouteConfig(MOUNT, (find_gateways("management.service.sh", "service-p-"),))
SERVE: Handler = Pipeline([routing_stage(Router(ROUTES))], DISPATCHER)


async def send_request(path: str, method: str = "GET", **headers: str) -> Reply:
    request = call(path, method=method, headers={key.replace("_", "-"): value for key, value in headers.items()})
    reply = await SERVE(request)
    return reply if reply.content_type.startswith("text/plain") else raise_for_status(reply)


@pytest.mark.parametrize("path", ["/version", "/healthz", "/api", "/api/v1/pods", ""])
async def test_every_path_below_a_gateway_goes_to_the_gateway(path: str) -> None:
    assert await send_request(f"/kubernetes/cluster/c{path}") is FROM_GATEWAY
    assert await send_request(f"/kubernetes/project/p/space/s{path}") is FROM_GATEWAY
    assert await send_request(f"/kubernetes/project/p/virtualcluster/v{path}") is FROM_GATEWAY
    assert (await send_request(f"/kubernetes/project/p/other/v{path}")).status == 404


async def test_a_websocket_request_for_a_watch_is_rejected() -> None:
    request = call(f"{MOUNT}/api/v1/secrets", query="watch=1")
    request.is_websocket = True
    with pytest.raises(BadRequest):
        raise_for_status(await SERVE(request))


async def test_endpoints_are_found_by_verb_and_path() -> None:
    assert (await send_request("/auth/x", "POST")).body == b"done"
    assert (await send_request("/auth/x")).status == 404
    assert (await send_request(f"{MOUNT}/auth/x", "POST")).status == 404
    assert (await send_request(f"{MOUNT}/numbers")).body == b"42"
    assert (await send_request("/numbers")).status == 404


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
    assert await send_request(path, method) is VERBS


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_health_checks_are_served_below_both_roots(mount: str, path: str) -> None:
    assert await send_request(mount + path) is HEALTH


@pytest.mark.parametrize("path", [MOUNT, f"{MOUNT}/", f"{MOUNT}/api", f"{MOUNT}/api/", "/", "/version", "/version/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_documents_are_served_with_or_without_a_trailing_slash(method: str, path: str) -> None:
    assert (await send_request(path, method)).status == 200


async def test_each_root_has_its_own_documents() -> None:
    assert orjson.loads((await send_request("/version")).body) == {"version": "v1.2.3", "major": "1", "minor": "2"}
    assert (await send_request(f"{MOUNT}/version")).status == 404


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis", "/apis/apps/v1/deployments", "/openapi/v3"])
async def test_a_client_without_the_path_of_the_api_gets_it(path: str) -> None:
    request, advice = call(path), f"add {MOUNT} to the URL of the server"
    with pytest.raises(NotFound, match=f'there is no API at "{path}"; {advice}'):
        raise_for_status(await SERVE(request))
    assert request.warnings == [advice]


@pytest.mark.parametrize("wrong", ["/kubernetes", "/kubernetes/managment"])
@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/apps/v1/deployments"])
async def test_a_client_with_a_wrong_path_gets_that_of_the_api(wrong: str, path: str) -> None:
    request, advice = call(wrong + path), f'replace "{wrong}" by {MOUNT} in the URL of the server'
    with pytest.raises(NotFound, match=advice):
        raise_for_status(await SERVE(request))
    assert request.warnings == [advice]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"])
@pytest.mark.parametrize("path", ["/version", f"{MOUNT}/api"])
async def test_documents_are_read_only(method: str, path: str) -> None:
    with pytest.raises(MethodNotAllowed, match="it is read-only"):
        await send_request(path, method)


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/apix", "/openapis", f"{MOUNT}/nowhere", f"{MOUNT}x", "//version", "/version//", "/..", "/\x00"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_other_paths_get_404(method: str, path: str) -> None:
    reply = await send_request(path, method)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


async def test_documents_are_served_in_the_accepted_media_type() -> None:
    assert (await send_request(f"{MOUNT}/api", accept="application/yaml")).body == b"kind: APIVersions\n"
    with pytest.raises(NotAcceptable):
        await send_request(f"{MOUNT}/api", accept="text/html")


async def test_a_slow_document_is_built_once_and_in_another_thread() -> None:
    threads: list[int] = []

    def build_variants() -> tuple[Variant, ...]:
        threads.append(threading.get_ident())
        return (build_variant(b"{}"),)

    roots = {MANAGEMENT: {"/openapi/v2": Document(build_variants)}, "": platform_documents("1.2.3", MOUNT)}
    dispatcher = Dispatcher(always_reply(VERBS), always_reply(HEALTH), roots, ENDPOINTS, MOUNTS)
    serve = Pipeline([routing_stage(Router(ROUTES))], dispatcher)
    for _ in range(3):
        assert (await serve(call(f"{MOUNT}/openapi/v2"))).body == b"{}"
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_a_matching_if_none_match_gets_304() -> None:
    headers = dict((await send_request(f"{MOUNT}/api")).headers)
    second = await send_request(f"{MOUNT}/api", if_none_match=headers["ETag"])
    assert (second.status, second.body) == (304, b"")


async def test_an_invalid_name_in_the_path_gets_400() -> None:
    with pytest.raises(BadRequest):
        await send_request(f"{MOUNT}/apis/g/v1/apps/..")


async def test_the_number_of_query_parameters_is_limited_except_for_gateways() -> None:
    max_query = "&".join(["a="] * limits.QUERY_PARAMETERS)
    path = f"{MOUNT}/api/v1/configmaps"
    assert await SERVE(call(path, max_query)) == VERBS
    for other_path in (path, "/version"):
        with pytest.raises(BadRequest, match="the query has too many parameters; 100 is the limit"):
            raise_for_status(await SERVE(call(other_path, f"{max_query}&b=")))
    long_query = "&".join(["command=x"] * 1_000)
    assert (
        await SERVE(call("/kubernetes/cluster/c/api/v1/namespaces/n/pods/p/exec", long_query, method="POST"))
        == FROM_GATEWAY
    )


@pytest.mark.parametrize("text", ["30s", "1h2m", "1.5m", ".5s", "0", "-1s", ""])
async def test_a_timeout_is_a_duration(text: str) -> None:
    assert await SERVE(call(f"{MOUNT}/api/v1/configmaps", f"timeout={text}")) == VERBS


@pytest.mark.parametrize("text", ["10", "x", "1d", "s", "1s ", "1", "1s2"])
async def test_any_other_timeout_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest, match="invalid timeout specified in the request URL"):
        raise_for_status(await SERVE(call(f"{MOUNT}/api/v1/configmaps", f"timeout={text}")))
