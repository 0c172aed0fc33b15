"""Revoked permissions: the next request fails at once, and open watches end within ten seconds (T-15, T-16)."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.harness.eventually import BUSY_SECONDS
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
WATCH_SECONDS = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("revocation") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def create_object(
    client: httpx.Client, plural: str, kind: str, name: str, root: str = M, **fields: Any
) -> dict[str, Any]:
    version = root.rpartition("/apis/")[2]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
    response = client.post(f"{root}/{plural}", json=body)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def send_merge_patch(client: httpx.Client, path: str, patch: dict[str, Any]) -> None:
    response = client.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
    assert response.status_code == 200, response.text


@dataclass(frozen=True, slots=True)
class RevocableUser:
    name: str
    key: str

    @property
    def key_path(self) -> str:
        return f"{M}/ownedaccesskeys/{self.name}"


@pytest.fixture
def user(admin: httpx.Client, request: pytest.FixtureRequest) -> Iterator[RevocableUser]:
    """A new user with a key of the same name, and a role that allows reading apps."""
    name = f"p{abs(hash(request.node.name)) % 10**8}"
    create_object(admin, "users", "User", name, spec={})
    rules = [{"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["get", "list", "watch"]}]
    create_object(admin, "clusterroles", "ClusterRole", name, RBAC, rules=rules)
    subjects = [{"kind": "User", "name": name}]
    create_object(
        admin, "clusterrolebindings", "ClusterRoleBinding", name, RBAC,
        subjects=subjects, roleRef={"kind": "ClusterRole", "name": name},
    )  # fmt: skip
    key = create_object(admin, "ownedaccesskeys", "OwnedAccessKey", name, spec={"user": name})["spec"]["key"]
    yield RevocableUser(name, key)


def disable_key(admin: httpx.Client, user: RevocableUser) -> None:
    send_merge_patch(admin, user.key_path, {"spec": {"disabled": True}})


def delete_key(admin: httpx.Client, user: RevocableUser) -> None:
    assert admin.delete(user.key_path).status_code == 200


def expire_key(admin: httpx.Client, user: RevocableUser) -> None:
    send_merge_patch(admin, user.key_path, {"spec": {"ttl": 1}})
    time.sleep(1.1)  # the server is another process, whose clock cannot be changed


def disable_user(admin: httpx.Client, user: RevocableUser) -> None:
    send_merge_patch(admin, f"{M}/users/{user.name}", {"spec": {"disabled": True}})


def delete_user(admin: httpx.Client, user: RevocableUser) -> None:
    assert admin.delete(f"{M}/users/{user.name}").status_code == 200


def delete_role_binding(admin: httpx.Client, user: RevocableUser) -> None:
    assert admin.delete(f"{RBAC}/clusterrolebindings/{user.name}").status_code == 200


def remove_role_rules(admin: httpx.Client, user: RevocableUser) -> None:
    send_merge_patch(admin, f"{RBAC}/clusterroles/{user.name}", {"rules": []})


Revoke = Callable[[httpx.Client, RevocableUser], None]
REVOCATIONS: list[tuple[Revoke, int]] = [
    (disable_key, 401),
    (delete_key, 401),
    (expire_key, 401),
    (disable_user, 401),
    (delete_user, 401),
    (delete_role_binding, 403),
    (remove_role_rules, 403),
]


@pytest.mark.parametrize(("revoke", "code"), REVOCATIONS, ids=[revoke.__name__ for revoke, _ in REVOCATIONS])
def test_t15_a_revocation_affects_the_next_request_and_ends_open_watches(
    server: Server, admin: httpx.Client, user: RevocableUser, revoke: Revoke, code: int
) -> None:
    with server.client(user.key) as client:
        params = {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS), "allowWatchBookmarks": "true"}
        with client.stream("GET", f"{M}/apps", params=params, timeout=httpx.Timeout(TIMEOUT_SECONDS)) as stream:
            assert stream.status_code == 200
            assert client.get(f"{M}/apps").status_code == 200
            revoke(admin, user)
            assert client.get(f"{M}/apps").status_code == code
            revoked_at = time.monotonic()
            lines = list(stream.iter_lines())
            # Not a performance test: the time itself is guaranteed.
            assert time.monotonic() - revoked_at <= 10 + BUSY_SECONDS
    last = json.loads(lines[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", code)


def test_keys_of_a_deleted_user_are_not_valid_for_a_new_user_of_the_same_name(
    server: Server, admin: httpx.Client, user: RevocableUser
) -> None:
    delete_user(admin, user)
    create_object(admin, "users", "User", user.name, spec={})
    with server.client(user.key) as client:
        assert client.get(f"{M}/apps").status_code == 401


def test_a_watch_sends_deleted_for_an_object_that_is_no_longer_shared(
    server: Server, admin: httpx.Client, user: RevocableUser
) -> None:
    delete_role_binding(admin, user)
    access = [{"users": [user.name], "verbs": ["get"]}]
    for name in ("first", "second"):
        create_object(admin, "apps", "App", f"{user.name}-{name}", spec={"access": access})
    with server.client(user.key) as client:
        names = [item["metadata"]["name"] for item in client.get(f"{M}/apps").json()["items"]]
        assert names == [f"{user.name}-first", f"{user.name}-second"]
        params = {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        with client.stream("GET", f"{M}/apps", params=params, timeout=httpx.Timeout(TIMEOUT_SECONDS)) as stream:
            events = (json.loads(line) for line in stream.iter_lines())
            summaries = (
                f"{event['type']} {event['object']['metadata']['name'].rpartition('-')[2]}" for event in events
            )
            assert [next(summaries), next(summaries)] == ["ADDED first", "ADDED second"]
            send_merge_patch(admin, f"{M}/apps/{user.name}-second", {"spec": {"access": []}})
            send_merge_patch(admin, f"{M}/apps/{user.name}-second", {"spec": {"displayName": "unseen"}})
            send_merge_patch(admin, f"{M}/apps/{user.name}-first", {"spec": {"displayName": "seen"}})
            assert [next(summaries), next(summaries)] == ["DELETED second", "MODIFIED first"]
