"""Audit events through the API of a real server: who sees what, pages, watches, and what reading them records."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.log_lines import read_lines
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

M = f"{MANAGEMENT}/apis/{MANAGEMENT_GROUP}/v1"
EVENTS = f"{M}/auditevents"
MERGE_PATCH = "application/merge-patch+json"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  resources: [{group: management.service.sh, resources: [auditevents]}]
- level: RequestResponse
"""
RESOURCE = {"group": MANAGEMENT_GROUP, "resources": ["auditevents"]}
SCOPES: dict[str, Any] = {
    "scoped": {"projects": [{"project": "demo"}]},
    "cli": {"allowServiceCli": True},
    "ruled": {"rules": [{"verbs": ["*"], "resources": [RESOURCE]}]},
    "named": {"rules": [{"verbs": ["*"], "resources": [{**RESOURCE, "resourceNames": ["some-id"]}]}]},
}
"""Keys of ada with a scope."""


@dataclass(frozen=True, slots=True)
class Fixture:
    server: Server
    keys: dict[str, str]
    data: Path

    @contextmanager
    def client(self, name: str) -> Iterator[httpx.Client]:
        with self.server.client(self.keys[name]) as client:
            yield client

    def send(self, name: str, path: str) -> str:
        """Sends a request; returns its audit id."""
        with self.client(name) as client:
            return client.get(path).headers["audit-id"]

    def list(self, name: str, **query: Any) -> list[dict[str, Any]]:
        with self.client(name) as client:
            response = client.get(EVENTS, params=query)
            assert response.status_code == 200, response.text
            return list(response.json()["items"])

    def wait_for(self, name: str, audit_id: str) -> dict[str, Any]:
        """Waits until the event is written, which takes a moment."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            with self.client(name) as client:
                response = client.get(f"{EVENTS}/{audit_id}")
            if response.status_code == 200:
                return dict(response.json())
            time.sleep(0.02)
        raise AssertionError(f"{name} does not see the event {audit_id}: {response.text}")


def create(client: httpx.Client, plural: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    response = client.post(f"{M}/{plural}", json=body)
    assert response.status_code == 201, response.text
    return dict(response.json())


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory, workers: None) -> Iterator[Fixture]:
    folder = tmp_path_factory.mktemp("audit-events")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    with running_server(folder / "data", audit_policy=str(policy)) as server, server.client() as client:
        keys = {"admin": server.key}
        for user in ("ada", "bob", "auditor"):
            create(client, "users", "User", user, {})
            keys[user] = create(client, "ownedaccesskeys", "OwnedAccessKey", user, {"user": user})["spec"]["key"]
        create(client, "projects", "Project", "demo", {"owner": {"user": "ada"}})
        for name, scope in SCOPES.items():
            spec = {"user": "ada", "scope": scope}
            keys[name] = create(client, "ownedaccesskeys", "OwnedAccessKey", name, spec)["spec"]["key"]
        subject = {"kind": "User", "name": "auditor", "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": "system:auditor", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "auditor"}, "subjects": [subject], "roleRef": reference}
        assert client.post(f"{RBAC}/clusterrolebindings", json=binding).status_code == 201
        yield Fixture(server, keys, folder / "data")


def test_administrators_and_auditors_see_the_requests_of_all_users(fixture: Fixture) -> None:
    audit_id = fixture.send("bob", f"{CONFIGMAPS}/of-bob")
    for name in ("admin", "auditor"):
        event = fixture.wait_for(name, audit_id)
        assert (event["user"]["username"], event["verb"], event["responseStatus"]["code"]) == ("bob", "get", 403)
        assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
        assert audit_id in [each["auditID"] for each in fixture.list(name)]
        assert {each["user"]["username"] for each in fixture.list(name, fieldSelector="decision=forbid")} >= {"bob"}


SPACE: dict[str, Any] = {
    "apiVersion": f"{MANAGEMENT_GROUP}/v1",
    "kind": "SpaceInstance",
    "metadata": {"name": "s"},
    "spec": {"template": {}, "clusterRef": {"cluster": "elsewhere"}},
}
PASSWORD = "correct horse battery staple"
NEW_PASSWORD = {"password": f"another {PASSWORD}", "currentPassword": "wrong"}
IMPERSONATE = {"headers": {"Impersonate-User": "bob"}}
REFUSED: tuple[tuple[str, str, str, dict[str, Any], str], ...] = (
    ("nobody", "GET", f"{CONFIGMAPS}/x", {}, "authentication"),
    ("bob", "GET", f"{CONFIGMAPS}/x", {}, "authorization"),
    ("ada", "GET", f"{CONFIGMAPS}/x", IMPERSONATE, "authorization"),
    ("scoped", "GET", f"{M}/users/ada", {}, "scope"),
    ("scoped", "GET", f"{CONFIGMAPS}/x", IMPERSONATE, "scope"),
    ("ada", "POST", f"{M}/namespaces/service-p-demo/spaceinstances", {"json": SPACE}, "admission/enforce-allow-lists"),
    ("ada", "POST", f"{M}/namespaces/service-p-full/spaceinstances", {"json": SPACE}, "quota"),
    (
        "ada",
        "POST",
        f"{M}/users/ada/profile",
        {"json": NEW_PASSWORD},
        "endpoint",
    ),
)
"""The key, method, path and further arguments of requests that are refused, and what refuses them."""


def test_the_events_of_a_project_are_about_it_what_is_in_it_and_its_spaces(fixture: Fixture) -> None:
    spaces = "/kubernetes/project/{}/space/real/api/v1/pods"
    inside = f"{MANAGEMENT}/api/v1/namespaces/service-p-{{}}/configmaps/x"
    about = [fixture.send("admin", path.format("demo")) for path in (spaces, inside, f"{M}/projects/{{}}")]
    others = [fixture.send("admin", path.format("demo2")) for path in (spaces, inside, f"{M}/projects/{{}}")]
    others += [fixture.send("admin", f"{CONFIGMAPS}/service-p-demo"), fixture.send("admin", f"{M}/teams/demo")]
    for each in (*about, *others):
        fixture.wait_for("admin", each)
    found = {each["auditID"] for each in fixture.list("admin", fieldSelector="project=demo")}
    assert found >= set(about)
    assert not found & set(others)


def test_every_refused_request_says_what_refused_it(fixture: Fixture) -> None:
    with fixture.client("admin") as admin:
        everything = {"owner": {"user": "ada"}, "requireTemplate": {"disabled": True}}
        full = {"allowedClusters": [{"name": "elsewhere"}], "quotas": {"project": {"spaceinstances": "0"}}}
        create(admin, "projects", "Project", "full", {**everything, **full})
        demo = admin.patch(f"{M}/projects/demo", json={"spec": everything}, headers={"content-type": MERGE_PATCH})
        assert demo.status_code == 200, demo.text
        assert admin.post(f"{M}/users/ada/profile", json={"password": PASSWORD}).status_code < 300
    expected: dict[str, str] = {}
    for key, method, path, options, refused_by in REFUSED:
        with fixture.server.client(fixture.keys.get(key, "unknown")) as client:
            response = client.request(method, path, **options)
        assert response.status_code in (401, 403), response.text
        expected[response.headers["audit-id"]] = refused_by
    for audit_id, refused_by in expected.items():
        event = fixture.wait_for("admin", audit_id)
        assert event["annotations"].get("service.sh/refused-by") == refused_by, event
    listed = fixture.list("admin", fieldSelector="refusedBy!=")
    assert expected.keys() <= {each["auditID"] for each in listed}
    assert {each["responseStatus"]["code"] for each in listed} == {401, 403}
    allowed = fixture.list("admin", fieldSelector="refusedBy!=,decision=allow")
    assert {"admission/enforce-allow-lists", "quota"} <= {expected.get(each["auditID"]) for each in allowed}


WRONG_LOGIN = {"username": "mallory", "password": "wrong"}
UNKNOWN_CODE = {
    "data": {
        "grant_type": "authorization_code",
        "client_id": "fairlead-cli",
        "code": "unknown",
        "code_verifier": "v" * 43,
        "redirect_uri": "http://127.0.0.1:1/callback",
    }
}
MAX_ATTEMPTS = 20
"""On a slow machine, a failed attempt takes as long as the first delays."""
REFUSED_LOGINS: tuple[tuple[str, str, dict[str, Any], int, str], ...] = (
    ("GET", "/auth/absent/login", {}, 303, "sign-on/unknown_connector"),
    ("GET", "/auth/absent/callback", {}, 303, "sign-on/state_missing"),
    ("POST", "/auth/token", UNKNOWN_CODE, 400, "login/code_unknown"),
)
"""Method, path and further arguments of logins that are refused, the status, and what refuses them."""


def test_every_refused_login_is_listed_with_what_refused_it(fixture: Fixture) -> None:
    expected: dict[str, str] = {}
    with fixture.server.client(None) as client:
        for _ in range(MAX_ATTEMPTS):
            response = client.post("/auth/password/login", json=WRONG_LOGIN)
            is_throttled = response.status_code == 429
            expected[response.headers["audit-id"]] = "login/too_many_attempts" if is_throttled else "authentication"
            if is_throttled:
                break
        assert sorted(set(expected.values())) == ["authentication", "login/too_many_attempts"]
        for method, path, options, status, refused_by in REFUSED_LOGINS:
            response = client.request(method, path, **options)
            assert response.status_code == status, response.text
            expected[response.headers["audit-id"]] = refused_by
    for audit_id in expected:
        fixture.wait_for("admin", audit_id)
    listed = fixture.list("admin", fieldSelector="refusedBy!=")
    noted = {each["auditID"]: each["annotations"].get("service.sh/refused-by") for each in listed}
    assert {audit_id: noted.get(audit_id) for audit_id in expected} == expected


def test_a_member_sees_only_the_own_requests(fixture: Fixture) -> None:
    of_bob, of_ada = fixture.send("bob", f"{CONFIGMAPS}/x"), fixture.send("ada", f"{CONFIGMAPS}/y")
    fixture.wait_for("admin", of_bob)
    fixture.wait_for("ada", of_ada)
    listed = fixture.list("ada")
    assert of_ada in [each["auditID"] for each in listed]
    assert {each["user"]["username"] for each in listed} == {"ada"}
    assert fixture.list("ada", fieldSelector="user.username=bob") == []
    assert fixture.list("ada", fieldSelector=f"metadata.name={of_bob}") == []
    assert fixture.list("ada", fieldSelector="log=unauthenticated") == []
    with fixture.client("ada") as client:
        other, missing = client.get(f"{EVENTS}/{of_bob}"), client.get(f"{EVENTS}/no-such-id")
    assert other.status_code == missing.status_code == 404
    assert other.text.replace(of_bob, "ID") == missing.text.replace("no-such-id", "ID")


@pytest.mark.parametrize("key", ["scoped", "cli"])
def test_a_key_whose_scope_does_not_name_audit_events_sees_none(fixture: Fixture, key: str) -> None:
    audit_id = fixture.send("ada", f"{CONFIGMAPS}/y")
    with fixture.client(key) as client:
        for path, query in ((EVENTS, {}), (EVENTS, {"watch": "1"}), (f"{EVENTS}/{audit_id}", {})):
            response = client.get(path, params=query)
            assert (response.status_code, response.json()["reason"]) == (403, "Forbidden")


def test_a_key_whose_scope_has_a_rule_for_audit_events_sees_those_of_its_user(fixture: Fixture) -> None:
    audit_id = fixture.send("ada", f"{CONFIGMAPS}/y")
    fixture.wait_for("ruled", audit_id)
    assert {each["user"]["username"] for each in fixture.list("ruled")} == {"ada"}


def test_a_key_whose_scope_names_one_event_cannot_list_others(fixture: Fixture) -> None:
    with fixture.client("named") as client:
        assert client.get(EVENTS).status_code == 403
        assert client.get(EVENTS, params={"fieldSelector": "metadata.name=other-id"}).status_code == 403
        named = client.get(EVENTS, params={"fieldSelector": "metadata.name=some-id"})
        assert (named.status_code, named.json()["items"]) == (200, [])


def test_unauthenticated_requests_cannot_read_audit_events_and_only_administrators_see_them(fixture: Fixture) -> None:
    with fixture.server.client(None) as anonymous:
        response = anonymous.get(EVENTS)
    assert response.status_code == 401
    event = fixture.wait_for("admin", response.headers["audit-id"])
    assert (event["user"], event["responseStatus"]["code"]) == ({}, 401)
    assert response.headers["audit-id"] not in [each["auditID"] for each in fixture.list("ada")]


def test_audit_events_cannot_be_written(fixture: Fixture) -> None:
    audit_id = fixture.send("admin", f"{CONFIGMAPS}/z")
    with fixture.client("admin") as client:
        assert client.post(EVENTS, json={}).status_code == 405
        assert client.put(f"{EVENTS}/{audit_id}", json={}).status_code == 405
        assert client.delete(f"{EVENTS}/{audit_id}").status_code == client.delete(EVENTS).status_code == 405


def test_reading_audit_events_is_recorded_without_the_events_whatever_the_policy_says(fixture: Fixture) -> None:
    audit_id = fixture.send("admin", EVENTS)
    event = fixture.wait_for("admin", audit_id)
    assert (event["level"], event["objectRef"]["resource"]) == ("Metadata", "auditevents")
    line = next(line for line in read_lines(fixture.data / "audit.log") if audit_id in line)
    assert "responseObject" not in json.loads(line)


def test_events_have_no_bodies_even_if_the_log_has_them(fixture: Fixture) -> None:
    with fixture.client("admin") as client:
        body = {"metadata": {"name": "plain"}, "data": {"text": "visible-in-the-log"}}
        audit_id = client.post(CONFIGMAPS, json=body).headers["audit-id"]
    event = fixture.wait_for("admin", audit_id)
    assert "visible-in-the-log" not in json.dumps(event)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "visible-in-the-log" not in (fixture.data / "audit.log").read_text():  # the stage with the bodies comes last
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_pages_have_one_resource_version_and_no_event_twice(fixture: Fixture) -> None:
    for number in range(5):
        audit_id = fixture.send("admin", f"{CONFIGMAPS}/page-{number}")
    fixture.wait_for("admin", audit_id)
    found: list[str] = []
    versions: set[str] = set()
    query = {"limit": "2", "fieldSelector": "objectRef.resource=configmaps,user.username=admin"}
    with fixture.client("admin") as client:
        while True:
            page = client.get(EVENTS, params=query).json()
            found += [each["auditID"] for each in page["items"]]
            versions.add(page["metadata"]["resourceVersion"])
            assert len(page["items"]) <= 2
            if "continue" not in page["metadata"]:
                break
            query["continue"] = page["metadata"]["continue"]
    assert len(found) == len(set(found)) >= 5
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"fieldSelector": "spec.x=1"}, "field label not supported"),
        ({"fieldSelector": "since=yesterday"}, "since must be a time"),
        ({"fieldSelector": "project=a,project=b"}, "project can be given once, with ="),
        ({"fieldSelector": "project!=a"}, "project can be given once, with ="),
        ({"fieldSelector": "project="}, "project can be given once, with ="),
        ({"continue": "x"}, "invalid continue token"),
        ({"limit": "x"}, "limit must be a whole number"),
        ({"watch": "1", "resourceVersion": "12"}, "invalid resource version"),
    ],
)
def test_invalid_options_are_rejected(fixture: Fixture, query: dict[str, str], message: str) -> None:
    with fixture.client("admin") as client:
        response = client.get(EVENTS, params=query)
    assert (response.status_code, message in response.text) == (400, True), response.text


def test_a_watch_continues_after_a_list_and_sends_only_what_the_user_may_see(fixture: Fixture) -> None:
    with fixture.client("ada") as client:
        version = client.get(EVENTS).json()["metadata"]["resourceVersion"]
        of_bob, before = fixture.send("bob", f"{CONFIGMAPS}/b"), fixture.send("ada", f"{CONFIGMAPS}/before")
        query = {"watch": "1", "resourceVersion": version, "fieldSelector": "objectRef.resource=configmaps"}
        with client.stream("GET", EVENTS, params=query) as response:
            events = map(json.loads, response.iter_lines())
            first = next(events)
            assert (first["type"], first["object"]["auditID"]) == ("ADDED", before)
            fixture.send("bob", f"{CONFIGMAPS}/c")
            after = fixture.send("ada", f"{CONFIGMAPS}/after")
            assert next(events)["object"]["auditID"] == after
        assert of_bob != before


def test_a_watch_records_one_start_and_one_end_however_many_events_it_sends(fixture: Fixture) -> None:
    with fixture.client("admin") as client:
        response = client.get(EVENTS, params={"watch": "1", "timeoutSeconds": "1"})
        audit_id = response.headers["audit-id"]
    assert fixture.wait_for("admin", audit_id)["verb"] == "watch"
    deadline = time.monotonic() + TIMEOUT_SECONDS
    stages: list[str] = []
    while len(stages) < 2 and time.monotonic() < deadline:
        lines = read_lines(fixture.data / "audit.log")
        stages = [json.loads(line)["stage"] for line in lines if f'"auditID":"{audit_id}"' in line]
    assert stages == ["ResponseStarted", "ResponseComplete"]


def test_a_watch_ends_when_the_permission_is_revoked(fixture: Fixture) -> None:
    with fixture.client("admin") as admin:
        create(admin, "users", "User", "leaving", {})
        key = create(admin, "ownedaccesskeys", "OwnedAccessKey", "leaving", {"user": "leaving"})["spec"]["key"]
        with (
            fixture.server.client(key) as client,
            client.stream("GET", EVENTS, params={"watch": "1", "timeoutSeconds": "60"}) as response,
        ):
            assert admin.delete(f"{M}/ownedaccesskeys/leaving").is_success
            lines = [json.loads(line) for line in response.iter_lines()]
    assert (lines[-1]["type"], lines[-1]["object"]["code"]) == ("ERROR", 401)


def test_a_server_without_log_files_says_so(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", audit_path="off") as server, server.client() as client:
        response = client.get(EVENTS)
        assert (response.status_code, "audit_path" in response.text) == (405, True)
