"""Tests of `fairlead.server.api.aggregation`: the API at the root, for the aggregation layer of a kube-apiserver."""

import orjson
import pytest

from fairlead.core.call import CLIENT, FRONT_PROXY, MANAGEMENT, Call, Reply, TlsPeer
from fairlead.core.errors import NotFound
from fairlead.features.clusters import find_gateways
from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog
from fairlead.server.api.aggregation import mount_at_root, serve_aggregated
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.discovery.documents import aggregated_documents
from tests.harness.calls import FakeHeaders
from tests.harness.registry import open_registry
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.api_fixture import GADGETS, ApiFixture
from tests.server.api.watch_streams import parse_events, read_all

GROUP, MOUNT = "management.service.sh", "/kubernetes/management"
ROUTE = mount_at_root(routing_stage(Router(RouteConfig(MOUNT, (find_gateways(GROUP, "service-p-"),)))), MOUNT, GROUP)
DOCUMENTS = aggregated_documents(Catalog(KINDS, GROUP), GROUP, "0.1.0")


async def dispatch(call: Call) -> Reply:
    return Reply(299)


async def no_body() -> bytes:
    return b""


def route(path: str, purpose: str = FRONT_PROXY, method: str = "GET", **headers: str) -> Call:
    peer = TlsPeer(purpose, "front-proxy", (), 0.0, "f") if purpose else None
    call = Call(method, path, {}, FakeHeaders(headers), no_body, raw_target=path, peer=peer)
    ROUTE(call)
    return call


async def get(path: str, **headers: str) -> Reply:
    return await serve_aggregated(dispatch, DOCUMENTS)(route(path, **headers))


@pytest.mark.parametrize(
    ("path", "resource", "name"),
    [
        (f"/apis/{GROUP}/v1/apps", "apps", ""),
        (f"/apis/{GROUP}/v1/apps/x", "apps", "x"),
        (f"/apis/{GROUP}/v1/namespaces/n/spaceinstances/x", "spaceinstances", "x"),
    ],
)
def test_resources_are_served_with_and_without_the_prefix(path: str, resource: str, name: str) -> None:
    for each in (path, MOUNT + path):
        call = route(each)
        assert (call.target.root, call.target.group, call.target.resource, call.target.name) == (
            *(MANAGEMENT, GROUP, resource, name),
        )
        assert call.path == call.raw_target == MOUNT + path
        assert call.hides_owners is (each == path)


@pytest.mark.parametrize("purpose", ["", CLIENT])
def test_other_connections_need_the_prefix(purpose: str) -> None:
    assert route(f"/apis/{GROUP}/v1/apps", purpose).target.root == ""


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/v1", "/api/v1/namespaces/default/secrets", "/apis/rbac.authorization.k8s.io/v1/clusterroles"],
)
def test_other_groups_are_not_served_at_the_root(path: str) -> None:
    assert route(path).target.root == ""


async def test_discovery_and_openapi_only_list_the_management_group() -> None:
    groups = orjson.loads((await get("/apis")).body)["groups"]
    assert [each["name"] for each in groups] == [GROUP]
    v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    items = orjson.loads((await get("/apis", accept=v2)).body)["items"]
    assert [each["metadata"]["name"] for each in items] == [GROUP]
    paths = orjson.loads((await get("/openapi/v3")).body)["paths"]
    assert list(paths) == [f"apis/{GROUP}/v1"]
    described = orjson.loads((await get(f"/openapi/v3/apis/{GROUP}/v1")).body)["paths"]
    assert described and all(path.startswith(f"/apis/{GROUP}/v1/") for path in described)
    listed = orjson.loads((await get(f"/apis/{GROUP}/v1")).body)
    assert listed["groupVersion"] == f"{GROUP}/v1" and listed["resources"]


async def test_openapi_v2_is_about_the_management_group_and_can_be_cached() -> None:
    reply = await get("/openapi/v2", accept="application/json")
    paths = orjson.loads(reply.body)["paths"]
    assert paths and all(path.startswith(f"/apis/{GROUP}/") for path in paths)
    tag = dict(reply.headers)["ETag"] if "ETag" in dict(reply.headers) else dict(reply.headers)["etag"]
    assert (await get("/openapi/v2", **{"accept": "application/json", "if-none-match": tag})).status == 304


async def test_an_outdated_hash_is_not_redirected() -> None:
    call = route(f"/openapi/v3/apis/{GROUP}/v1")
    call.query = {"hash": ["OUTDATED"]}
    assert (await serve_aggregated(dispatch, DOCUMENTS)(call)).status == 200


async def test_documents_of_other_groups_are_not_found() -> None:
    with pytest.raises(NotFound):
        await get("/openapi/v3/api/v1")


async def test_resources_and_other_paths_go_to_the_dispatcher() -> None:
    for path in (f"/apis/{GROUP}/v1/apps", "/version", "/livez"):
        assert (await get(path)).status == 299


@on_virtual_time
async def test_watched_metadata_has_neither_owners_nor_finalizers() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a", metadata={"finalizers": ["example.com/a"]})
        fixture = ApiFixture(api)
        fixture.hides_owners = True
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        reply = await fixture("GET", GADGETS, query="watch=1&timeoutSeconds=1", accept=accept)
        assert reply.stream is not None
        ((_, obj),) = parse_events(await read_all(reply.stream))
    assert obj["metadata"]["name"] == "a" and "finalizers" not in obj["metadata"]
