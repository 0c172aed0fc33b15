"""The subresource `health` of clusters over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.server_process import MANAGEMENT, Server, running_server

M = f"{MANAGEMENT}/apis/{MANAGEMENT_GROUP}/v1"
HEALTH = f"{M}/clusters/berlin/health"
STATUS = {
    "online": True,
    "version": "v1.35.0",
    "latencyMilliseconds": 14,
    "probeHistory": "1763337600/12 5/!TimedOut 3/14",
    "probeDay": "1763336700/180/2520/52 900/3!1~1/26/14 900/2!2~2/0/0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str | None]]]:
    """A server with the cluster `berlin`, which bob may get and eve may not."""
    with running_server(tmp_path_factory.mktemp("health") / "data") as server, server.client() as client:

        def create(plural: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
            body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            response = client.post(f"{M}/{plural}", json=body)
            assert response.status_code == 201, response.text
            created: dict[str, Any] = response.json()
            return created

        keys: dict[str, str | None] = {"admin": server.key, "anonymous": None}
        for user in ("bob", "eve"):
            create("users", "User", user, username=user)
            keys[user] = create("ownedaccesskeys", "OwnedAccessKey", user, user=user)["spec"]["key"]
        scope = {"projects": [{"project": "web"}]}
        keys["scoped"] = create("ownedaccesskeys", "OwnedAccessKey", "scoped", user="bob", scope=scope)["spec"]["key"]
        create("clusters", "Cluster", "berlin", access=[{"users": ["bob"], "verbs": ["get"]}])
        create("clusters", "Cluster", "new")
        headers = {"Content-Type": "application/merge-patch+json"}
        written = client.patch(f"{M}/clusters/berlin/status", json={"status": STATUS}, headers=headers)
        assert written.status_code == 200, written.text
        yield server, keys


def get(server: tuple[Server, dict[str, str | None]], who: str, path: str = HEALTH) -> httpx.Response:
    with server[0].client(server[1][who]) as client:
        return client.get(path)


@pytest.mark.parametrize("who", ["admin", "bob"])
def test_users_who_may_get_a_cluster_read_its_recent_probes(
    server: tuple[Server, dict[str, str | None]], who: str
) -> None:
    assert get(server, who).json() == {
        "apiVersion": f"{MANAGEMENT_GROUP}/v1",
        "kind": "ClusterHealth",
        "metadata": {"name": "berlin"},
        "online": True,
        "version": "v1.35.0",
        "latencyMilliseconds": 14,
        "samples": [
            {"time": "2025-11-17T00:00:00Z", "latencyMilliseconds": 12, "ok": True},
            {"time": "2025-11-17T00:00:05Z", "ok": False, "reason": "TimedOut"},
            {"time": "2025-11-17T00:00:08Z", "latencyMilliseconds": 14, "ok": True},
        ],
        "day": [
            {
                "time": "2025-11-16T23:45:00Z",
                "probes": 180,
                "failed": 0,
                "latencyMilliseconds": 14,
                "maxLatencyMilliseconds": 52,
            },
            {
                "time": "2025-11-17T00:00:00Z",
                "probes": 3,
                "failed": 1,
                "latencyMilliseconds": 13,
                "maxLatencyMilliseconds": 14,
            },
            {"time": "2025-11-17T00:15:00Z", "probes": 2, "failed": 2},
        ],
    }


@pytest.mark.parametrize(("who", "code"), [("eve", 403), ("scoped", 403), ("anonymous", 401)])
def test_other_users_may_not(server: tuple[Server, dict[str, str | None]], who: str, code: int) -> None:
    assert get(server, who).status_code == code


def test_a_cluster_without_probes_has_no_samples(server: tuple[Server, dict[str, str | None]]) -> None:
    assert get(server, "admin", f"{M}/clusters/new/health").json()["samples"] == []
    assert get(server, "admin", f"{M}/clusters/new/health").json()["day"] == []
    assert get(server, "admin", f"{M}/clusters/gone/health").status_code == 404
