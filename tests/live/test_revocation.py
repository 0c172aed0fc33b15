"""What is taken away is gone: with the next request at once, and from open watches within ten seconds (T-15, T-16)."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
WATCH_SECONDS = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("revocation") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def make(client: httpx.Client, plural: str, kind: str, name: str, root: str = M, **fields: Any) -> dict[str, Any]:
    version = root.rpartition("/apis/")[2]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
    answer = client.post(f"{root}/{plural}", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def merge(client: httpx.Client, path: str, patch: dict[str, Any]) -> None:
    answer = client.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status_code == 200, answer.text


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    key: str

    @property
    def key_path(self) -> str:
        return f"{M}/ownedaccesskeys/{self.name}"


@pytest.fixture
def person(admin: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Somebody new with a key of the same name, who may read apps by a role of their own."""
    name = f"p{abs(hash(request.node.name)) % 10**8}"
    make(admin, "users", "User", name, spec={})
    rules = [{"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["get", "list", "watch"]}]
    make(admin, "clusterroles", "ClusterRole", name, RBAC, rules=rules)
    subjects = [{"kind": "User", "name": name}]
    make(
        admin, "clusterrolebindings", "ClusterRoleBinding", name, RBAC,
        subjects=subjects, roleRef={"kind": "ClusterRole", "name": name},
    )  # fmt: skip
    key = make(admin, "ownedaccesskeys", "OwnedAccessKey", name, spec={"user": name})["spec"]["key"]
    yield Person(name, key)


def disable_key(admin: httpx.Client, person: Person) -> None:
    merge(admin, person.key_path, {"spec": {"disabled": True}})


def delete_key(admin: httpx.Client, person: Person) -> None:
    assert admin.delete(person.key_path).status_code == 200


def let_key_expire(admin: httpx.Client, person: Person) -> None:
    merge(admin, person.key_path, {"spec": {"ttl": 1}})
    time.sleep(1.1)  # the clock of another process: nothing but waiting makes it go on


def disable_user(admin: httpx.Client, person: Person) -> None:
    merge(admin, f"{M}/users/{person.name}", {"spec": {"disabled": True}})


def delete_user(admin: httpx.Client, person: Person) -> None:
    assert admin.delete(f"{M}/users/{person.name}").status_code == 200


def take_role_away(admin: httpx.Client, person: Person) -> None:
    assert admin.delete(f"{RBAC}/clusterrolebindings/{person.name}").status_code == 200


def empty_role(admin: httpx.Client, person: Person) -> None:
    merge(admin, f"{RBAC}/clusterroles/{person.name}", {"rules": []})


Revoke = Callable[[httpx.Client, Person], None]
WAYS: list[tuple[Revoke, int]] = [
    (disable_key, 401),
    (delete_key, 401),
    (let_key_expire, 401),
    (disable_user, 401),
    (delete_user, 401),
    (take_role_away, 403),
    (empty_role, 403),
]


@pytest.mark.parametrize(("revoke", "code"), WAYS, ids=[revoke.__name__ for revoke, _ in WAYS])
def test_t15_what_is_taken_away_is_gone_at_once_and_from_open_watches_soon(
    server: Server, admin: httpx.Client, person: Person, revoke: Revoke, code: int
) -> None:
    with server.client(person.key) as client:
        watching = {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS), "allowWatchBookmarks": "true"}
        with client.stream("GET", f"{M}/apps", params=watching, timeout=httpx.Timeout(TIMEOUT_SECONDS)) as stream:
            assert stream.status_code == 200
            assert client.get(f"{M}/apps").status_code == 200
            revoke(admin, person)
            assert client.get(f"{M}/apps").status_code == code
            taken = time.monotonic()
            lines = list(stream.iter_lines())
            # Not a measurement of speed: the promise itself is a time.
            assert time.monotonic() - taken <= 10
    last = json.loads(lines[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", code)


def test_a_deleted_users_keys_do_not_come_back_with_another_user_of_that_name(
    server: Server, admin: httpx.Client, person: Person
) -> None:
    delete_user(admin, person)
    make(admin, "users", "User", person.name, spec={})
    with server.client(person.key) as client:
        assert client.get(f"{M}/apps").status_code == 401


def test_a_watch_of_shared_objects_loses_what_is_no_longer_shared(
    server: Server, admin: httpx.Client, person: Person
) -> None:
    take_role_away(admin, person)
    access = [{"users": [person.name], "verbs": ["get"]}]
    for name in ("first", "second"):
        make(admin, "apps", "App", f"{person.name}-{name}", spec={"access": access})
    with server.client(person.key) as client:
        names = [item["metadata"]["name"] for item in client.get(f"{M}/apps").json()["items"]]
        assert names == [f"{person.name}-first", f"{person.name}-second"]
        watching = {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        with client.stream("GET", f"{M}/apps", params=watching, timeout=httpx.Timeout(TIMEOUT_SECONDS)) as stream:
            events = (json.loads(line) for line in stream.iter_lines())
            told = (f"{event['type']} {event['object']['metadata']['name'].rpartition('-')[2]}" for event in events)
            assert [next(told), next(told)] == ["ADDED first", "ADDED second"]
            merge(admin, f"{M}/apps/{person.name}-second", {"spec": {"access": []}})
            merge(admin, f"{M}/apps/{person.name}-second", {"spec": {"displayName": "unseen"}})
            merge(admin, f"{M}/apps/{person.name}-first", {"spec": {"displayName": "seen"}})
            assert [next(told), next(told)] == ["DELETED second", "MODIFIED first"]
