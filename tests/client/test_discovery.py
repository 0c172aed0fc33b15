"""Resources by what people call them."""

import pytest

from fairlead.client import Client, ClientError
from fairlead.client.discovery import AGGREGATED_DISCOVERY, ApiResource, find_resource
from tests.harness.fake_server import FakeServer, failure

ROOT = "/kubernetes/management"


def described(plural: str, kind: str, scope: str = "Cluster", short: tuple[str, ...] = ()) -> dict[str, object]:
    return {
        "resource": plural,
        "singularResource": kind.lower(),
        "responseKind": {"kind": kind},
        "scope": scope,
        "shortNames": list(short),
    }


def group(name: str, *resources: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name} if name else {}
    return {"metadata": metadata, "versions": [{"version": "v1", "resources": list(resources)}]}


@pytest.fixture
def described_server(fake: FakeServer) -> FakeServer:
    core = group("", described("events", "Event", "Namespaced", ("ev",)), described("namespaces", "Namespace"))
    apis = (
        group("events.k8s.io", described("events", "Event", "Namespaced")),
        group("rbac.authorization.k8s.io", described("roles", "Role", "Namespaced")),
        group("management.service.sh", described("users", "User"), described("events", "Event")),
    )
    fake.on("GET", f"{ROOT}/api", (200, {"items": [core]}))
    fake.on("GET", f"{ROOT}/apis", (200, {"items": list(apis)}))
    return fake


@pytest.mark.parametrize(
    ("text", "found"),
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
    described_server: FakeServer, client: Client, text: str, found: str
) -> None:
    assert str(find_resource(client, text)) == found


def test_discovery_takes_two_requests(described_server: FakeServer, client: Client) -> None:
    assert find_resource(client, "roles").namespaced
    assert [each.headers["accept"] for each in described_server.requests] == [AGGREGATED_DISCOVERY] * 2


def test_a_resource_that_does_not_exist_is_no_question(described_server: FakeServer, client: Client) -> None:
    with pytest.raises(ClientError, match="the server has no resource 'pods'; list them with `kubectl api-resources`"):
        find_resource(client, "pods")


def test_who_may_not_look_around_is_taken_at_their_word(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{ROOT}/api", (403, failure(403, "Forbidden", "no")))
    assert find_resource(client, "apps") == ApiResource("management.service.sh", "apps")
    assert find_resource(client, "roles.rbac.authorization.k8s.io") == ApiResource("rbac.authorization.k8s.io", "roles")
