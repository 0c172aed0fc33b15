"""fairlead.client.discovery: resources found by their plural, kind or short name."""

import pytest

from fairlead.client import Client, ClientError
from fairlead.client.discovery import AGGREGATED_DISCOVERY, ApiResource, find_resource
from tests.harness.fake_server import FakeServer, failure_status

ROOT = "/kubernetes/management"


def build_resource(plural: str, kind: str, scope: str = "Cluster", short: tuple[str, ...] = ()) -> dict[str, object]:
    return {
        "resource": plural,
        "singularResource": kind.lower(),
        "responseKind": {"kind": kind},
        "scope": scope,
        "shortNames": list(short),
    }


def build_group(name: str, *resources: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name} if name else {}
    return {"metadata": metadata, "versions": [{"version": "v1", "resources": list(resources)}]}


@pytest.fixture
def discovery_server(fake: FakeServer) -> FakeServer:
    core = build_group(
        "", build_resource("events", "Event", "Namespaced", ("ev",)), build_resource("namespaces", "Namespace")
    )
    apis = (
        build_group("events.k8s.io", build_resource("events", "Event", "Namespaced")),
        build_group("rbac.authorization.k8s.io", build_resource("roles", "Role", "Namespaced")),
        build_group("management.service.sh", build_resource("users", "User"), build_resource("events", "Event")),
    )
    fake.on("GET", f"{ROOT}/api", (200, {"items": [core]}))
    fake.on("GET", f"{ROOT}/apis", (200, {"items": list(apis)}))
    return fake


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("users", "users.management.service.sh"),
        ("User", "users.management.service.sh"),
        ("user/profile", "users.management.service.sh/profile"),
        ("events", "events.management.service.sh"),
        ("events.events.k8s.io", "events.events.k8s.io"),
        ("ev", "events"),
        ("namespaces/status", "namespaces/status"),
        ("roles", "roles.rbac.authorization.k8s.io"),
        ("*", "*.*"),
        ("*.apps/status", "*.apps/status"),
    ],
)
def test_a_resource_is_found_by_any_of_its_names(
    discovery_server: FakeServer, client: Client, text: str, expected: str
) -> None:
    assert str(find_resource(client, text)) == expected


def test_discovery_takes_two_requests(discovery_server: FakeServer, client: Client) -> None:
    assert find_resource(client, "roles").namespaced
    assert [each.headers["accept"] for each in discovery_server.requests] == [AGGREGATED_DISCOVERY] * 2


def test_an_unknown_resource_is_an_error(discovery_server: FakeServer, client: Client) -> None:
    with pytest.raises(ClientError, match="the server has no resource 'pods'; `fairlead get` lists the resources"):
        find_resource(client, "pods")


def test_without_permission_for_discovery_the_name_is_used_as_typed(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{ROOT}/api", (403, failure_status(403, "Forbidden", "no")))
    assert find_resource(client, "apps") == ApiResource("management.service.sh", "apps")
    assert find_resource(client, "roles.rbac.authorization.k8s.io") == ApiResource("rbac.authorization.k8s.io", "roles")
