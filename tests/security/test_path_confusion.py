"""No path reaches an object outside its group, version or namespace (T-8, T-9)."""

from functools import partial

import pytest

from tests.harness.server_process import MANAGEMENT, Server
from tests.requests import api_resources
from tests.requests.api_resources import PROTECTED, ApiCatalog, Resource
from tests.requests.headers import build_bearer_header
from tests.requests.paths import ODD_SEGMENTS
from tests.requests.raw_http import RawRequest, send_requests

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="session")
def catalog(shared_server: Server) -> ApiCatalog:
    with shared_server.client() as client:
        discovered = api_resources.discover_api(client, shared_server.key)
        api_resources.create_objects(client, discovered)
        return discovered


def send_every_method(server: Server, path: str) -> dict[str, int]:
    """The status of each method, as a dry run."""
    merge = {"Content-Type": "application/merge-patch+json"}
    with server.client() as client:
        return {
            method: client.request(
                method,
                f"{path}?dryRun=All",
                json={} if method in ("POST", "PUT", "PATCH") else None,
                headers=merge if method == "PATCH" else {},
            ).status_code
            for method in METHODS
        }


def list_cluster_scoped(catalog: ApiCatalog) -> list[Resource]:
    return [each for each in catalog.resources if not each.namespaced]


@pytest.mark.parametrize("namespace", ["fuzz-0", PROTECTED, "no-such-namespace"])
def test_t8_cluster_scoped_resources_are_not_served_in_namespaces(
    server: Server, catalog: ApiCatalog, namespace: str
) -> None:
    for resource in list_cluster_scoped(catalog):
        for rest in ("", f"/{PROTECTED}", f"/{PROTECTED}/status"):
            path = f"{resource.root}/namespaces/{namespace}/{resource.plural}{rest}"
            assert send_every_method(server, path) == dict.fromkeys(METHODS, 404), path


def test_t8_namespaced_objects_are_not_served_without_a_namespace(server: Server, catalog: ApiCatalog) -> None:
    for resource in (each for each in catalog.resources if each.namespaced):
        for rest in (f"/{PROTECTED}", f"/{PROTECTED}/status"):
            path = f"{resource.root}/{resource.plural}{rest}"
            assert send_every_method(server, path) == dict.fromkeys(METHODS, 404), path


def test_t8_namespaced_resources_are_listed_across_namespaces_but_not_written(
    server: Server, catalog: ApiCatalog
) -> None:
    for resource in (each for each in catalog.resources if each.namespaced and each.is_stored):
        send_requests = send_every_method(server, f"{resource.root}/{resource.plural}")
        assert (send_requests.pop("GET"), send_requests.pop("HEAD")) == (200, 200)
        assert set(send_requests.values()) == {405}, resource.plural


def test_t8_an_empty_namespace_is_rejected(server: Server, catalog: ApiCatalog) -> None:
    for resource in (each for each in catalog.resources if each.namespaced):
        path = f"{resource.root}/namespaces//{resource.plural}"
        assert set(send_every_method(server, path).values()) <= {400, 404}, path


def test_t8_a_resource_is_not_served_in_other_groups_or_versions(server: Server, catalog: ApiCatalog) -> None:
    served = {(each.root, each.plural) for each in catalog.resources}
    for resource in catalog.resources:
        for other in (
            "api/v1",
            "api/v2",
            "apis/management.service.sh/v2",
            "apis/example.com/v1",
            "apis/coordination.k8s.io/v1",
        ):
            root = f"{MANAGEMENT}/{other}"
            if (root, resource.plural) not in served:
                assert send_every_method(server, f"{root}/{resource.plural}") == dict.fromkeys(METHODS, 404)


@pytest.mark.parametrize("segment", ODD_SEGMENTS, ids=lambda segment: repr(segment[:30]))
def test_t9_no_odd_path_segment_reaches_another_object(server: Server, catalog: ApiCatalog, segment: str) -> None:
    build_request = partial(RawRequest, headers=(build_bearer_header(server.key),))
    secrets = next(each for each in catalog.resources if each.kind == "Secret")
    protected = f"{secrets.collection_path(PROTECTED)}/{PROTECTED}"
    uid = send_requests(server, build_request("GET", protected))[0].body.partition(b'"uid":"')[2][:36]
    assert len(uid) == 36
    object_path = f"{secrets.collection_path('fuzz-0')}/{segment}"
    namespace_path = f"{secrets.root}/namespaces/fuzz-0%2f{segment}/secrets/{PROTECTED}"
    responses = send_requests(
        server, *(build_request(method, path) for path in (object_path, namespace_path) for method in ("GET", "DELETE"))
    )
    assert all(each.status < 500 and uid not in each.body for each in responses)
    assert uid in send_requests(server, build_request("GET", protected))[0].body
