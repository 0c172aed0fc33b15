"""No secret leaks: not in a response, an error, the database, the log or the audit log.

Logging and auditing are as verbose as possible. Exceptions are the one response that returns a new key, and Secrets,
which authorized users may read.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.kinds.clusters.config import CONFIG, CONFIG_NAME
from fairlead.registry.kind import Kind
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server
from tests.live.canaries import (
    ALL_SECRET_KINDS,
    READABLE,
    SECRET_KINDS,
    Canaries,
    build_object_with_canaries,
    generate_invalid_bodies,
    generate_invalid_patches,
)

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
ATTEMPTS = 20
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"
ACCEPT_TYPES = (
    "application/json",
    "application/yaml",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)
MERGE = "application/merge-patch+json"
PATCHES = {
    "application/merge-patch+json": lambda obj: obj,
    "application/strategic-merge-patch+json": lambda obj: obj,
    "application/apply-patch+yaml": lambda obj: obj,
    "application/json-patch+json": lambda obj: [{"op": "add", "path": "/spec", "value": obj.get("spec", {})}],
}


@dataclass
class Recording:
    """All responses, and the files that the server left."""

    canaries: Canaries
    responses: list[tuple[str, bytes]] = field(default_factory=list)
    allowed_output: bytes = b""
    log: bytes = b""
    audit: bytes = b""
    database: bytes = b""


class RecordingClient:
    """Records every response with its headers."""

    def __init__(self, client: httpx.Client, recording: Recording) -> None:
        self._client = client
        self._recording = recording

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = self._client.request(method, path, **options)
        head = "\n".join(f"{name}: {value}" for name, value in response.headers.items()).encode()
        self._recording.responses.append((f"{method} {path} -> {response.status_code}", head + response.content))
        return response


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    folder = tmp_path_factory.mktemp("canaries")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    recording = Recording(Canaries())
    with running_server(folder / "data", log_level="debug", audit_policy=str(policy)) as server:
        recording.canaries.add(server.key, "the administrator's key")
        with server.client() as http_client:
            send_all_requests(server, RecordingClient(http_client, recording), recording)
        assert server.stop() == 0
        recording.log = server.log.read_bytes()
    recording.audit = b"".join(path.read_bytes() for path in sorted((folder / "data").glob("audit*.log")))
    recording.database = b"".join(path.read_bytes() for path in sorted((folder / "data").glob("fairlead.db*")))
    yield recording


def send_all_requests(server: Server, client: RecordingClient, recording: Recording) -> None:
    client("POST", f"{M}/users", json={"metadata": {"name": "ada"}, **build_type_meta("User")})
    for kind in SECRET_KINDS:
        if kind not in READABLE:
            use_kind(kind, client, recording)
    scoped = create_keys(client, recording)
    for kind in READABLE:
        use_readable(kind, server, scoped, client, recording)
    for kind in ALL_SECRET_KINDS:
        send_invalid_requests(kind, client, recording)
    send_invalid_settings(client, recording)
    use_password_parameters(client, recording)
    use_tokens(client, recording)
    use_password(server, client, recording)


def build_type_meta(kind: str) -> dict[str, Any]:
    return {"apiVersion": "management.service.sh/v1", "kind": kind, "spec": {}}


def build_collection_path(kind: Kind) -> str:
    root = f"{MANAGEMENT}/apis/{kind.group}/v1" if kind.group else f"{MANAGEMENT}/api/v1"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def use_kind(kind: Kind, client: RecordingClient, recording: Recording) -> None:
    """Sends all valid and many invalid requests for an object."""
    collection_path, obj = build_collection_path(kind), build_object_with_canaries(kind, "one", recording.canaries)
    applied = json.dumps(obj)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    created = client("POST", collection_path, json=obj)
    assert created.status_code == 201, created.text
    if kind.name == "OwnedAccessKey":
        recording.allowed_output += recording.responses.pop()[1]
    client("POST", collection_path, json=obj)
    client(
        "POST",
        f"{collection_path}?dryRun=All&fieldValidation=Strict",
        json={**obj, "metadata": {"name": "two"}, "odd": 1},
    )
    client("POST", collection_path, content=json.dumps(obj)[:-9])
    client("POST", collection_path, content=json.dumps(obj), headers={"Content-Type": "text/odd"})
    client("POST", collection_path, json={**obj, "metadata": {"name": "Not A Name"}})
    for accept in ACCEPT_TYPES:
        client("GET", f"{collection_path}/one", headers={"Accept": accept})
        client("GET", collection_path, headers={"Accept": accept})
    client("GET", f"{collection_path}?watch=1&timeoutSeconds=1")
    for media_type, build_patch in PATCHES.items():
        patch = build_patch(build_object_with_canaries(kind, "one", recording.canaries))
        options = {"headers": {"Content-Type": media_type}, "params": {"fieldManager": "m", "force": "true"}}
        if "apply" not in media_type:
            options["params"] = {}
        client("PATCH", f"{collection_path}/one", content=json.dumps(patch), **options)
    copy_operations = [
        {"op": "copy", "from": f"/{field_path.replace('.', '/')}", "path": "/metadata/labels"}
        for field_path in kind.sensitive
    ]
    for operation in copy_operations:
        headers = {"Content-Type": "application/json-patch+json"}
        client("PATCH", f"{collection_path}/one", content=json.dumps([operation]), headers=headers)
    update_display_name(client, f"{collection_path}/one")
    for subresource in ("status", *kind.subresources, "nothing"):
        client("GET", f"{collection_path}/one/{subresource}")
    client("DELETE", f"{collection_path}/one?dryRun=All")
    client("DELETE", f"{collection_path}/one")


def update_display_name(client: RecordingClient, path: str) -> None:
    """Retries on conflict: a controller may write in between."""
    for _ in range(ATTEMPTS):
        current = client("GET", path).json()
        current["spec"]["displayName"] = "renamed"
        response = client("PUT", path, json=current)
        if response.status_code != 409:
            break
    assert response.status_code == 200, response.text


def create_keys(client: RecordingClient, recording: Recording) -> str:
    """Creates several keys and rotates one; returns one with a narrow scope."""
    key = client(
        "POST", f"{M}/ownedaccesskeys", json={**build_type_meta("OwnedAccessKey"), "metadata": {"name": "reader"}}
    )
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(key.json()["spec"]["key"], "a new key")
    rotated = client("POST", f"{M}/ownedaccesskeys/reader/rotate", json={"spec": {"overlapSeconds": 60}})
    assert rotated.status_code == 201, rotated.text
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(rotated.json()["spec"]["key"], "a rotated key")
    scope = {"rules": [{"verbs": ["get"], "resources": [{"group": "", "resources": ["configmaps"]}]}]}
    body = {**build_type_meta("OwnedAccessKey"), "metadata": {"name": "scoped"}, "spec": {"scope": scope}}
    scoped: str = client("POST", f"{M}/ownedaccesskeys", json=body).json()["spec"]["key"]
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(scoped, "a scoped key")
    return scoped


def use_readable(kind: Kind, server: Server, scoped: str, client: RecordingClient, recording: Recording) -> None:
    """These secrets are returned to authorized users only."""
    collection_path, before = build_collection_path(kind), len(recording.responses)
    obj = build_object_with_canaries(kind, "one", recording.canaries)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(obj)}
    created = client("POST", collection_path, json=obj)
    assert created.status_code == 201, created.text
    client("GET", collection_path)
    client(
        "PATCH", f"{collection_path}/one", json={"metadata": {"labels": {"a": "b"}}}, headers={"Content-Type": MERGE}
    )
    recording.allowed_output += b"".join(body for _, body in recording.responses[before:])
    del recording.responses[before:]
    with server.client(scoped) as http_client:
        scoped_client = RecordingClient(http_client, recording)
        for path in (
            collection_path,
            f"{collection_path}/one",
            f"{collection_path}?watch=1",
            f"{M}/ownedaccesskeys",
            f"{M}/ownedaccesskeys/reader",
        ):
            for accept in ACCEPT_TYPES:
                assert scoped_client("GET", path, headers={"Accept": accept}).status_code == 403
    client("GET", f"{M}/users/admin/accesskeys")
    client("POST", f"{M}/selves", json={})
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": server.key}}
    client("POST", f"{MANAGEMENT}/apis/authentication.k8s.io/v1/tokenreviews", json=review)


def send_invalid_requests(kind: Kind, client: RecordingClient, recording: Recording) -> None:
    """Sends an object in every invalid way. Responses may repeat it to the sender; the files must not contain it."""
    path, before = build_collection_path(kind), len(recording.responses)
    name = CONFIG_NAME if kind is CONFIG else "one"
    for media_type, body in generate_invalid_bodies(build_object_with_canaries(kind, name, recording.canaries)):
        headers = {"Content-Type": media_type} if media_type else {}
        client("POST", path, content=body, headers=headers)
        client("PUT", f"{path}/{name}?fieldValidation=Strict", content=body, headers=headers)
    for media_type, body in generate_invalid_patches(build_object_with_canaries(kind, name, recording.canaries)):
        client("PATCH", f"{path}/{name}?fieldManager=m&force=true", content=body, headers={"Content-Type": media_type})
    client(
        "POST",
        f"{MANAGEMENT}/api/v1/namespaces/default/configmaps",
        json=build_object_with_canaries(kind, name, recording.canaries),
    )
    client(
        "POST",
        f"{M}/projects",
        json={**build_object_with_canaries(kind, name, recording.canaries), **build_type_meta("Project")},
    )
    del recording.responses[before:]


def use_password_parameters(client: RecordingClient, recording: Recording) -> None:
    """A template with a password parameter, and instances with a password, also one from before the template."""
    client("POST", f"{M}/projects", json={**build_type_meta("Project"), "metadata": {"name": "pw"}})
    path = f"{M}/namespaces/service-p-pw/spaceinstances"
    text = f"db.password: {recording.canaries.create('a parameter')}\nsize: 1\n"
    early = {**build_type_meta("SpaceInstance"), "metadata": {"name": "early"}, "spec": {"templateRef": {"name": "pw"}}}
    early["spec"]["parameters"] = f"db.password: {recording.canaries.create('an early parameter')}"
    created = client("POST", path, json=early)
    assert created.status_code == 201, created.text
    recording.responses.pop()  # without the template, it is not known to be a password
    objects = "kind: Secret\napiVersion: v1\nmetadata: {name: a}\nstringData: {p: {{ parameters.db.password | quote }}}"
    spec = {"template": {"objects": objects}, "parameters": [{"variable": "db.password", "type": "password"}]}
    client(
        "POST",
        f"{M}/spacetemplates",
        json={**build_type_meta("SpaceTemplate"), "metadata": {"name": "pw"}, "spec": spec},
    )
    one = {**build_type_meta("SpaceInstance"), "metadata": {"name": "one"}, "spec": {"templateRef": {"name": "pw"}}}
    one["spec"]["parameters"] = text
    one["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(one)}
    created = client("POST", path, json=one)
    assert created.status_code == 201 and "db.password: <hidden>" in created.json()["spec"]["parameters"]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not all(_is_rendered(client("GET", f"{path}/{name}").json()) for name in ("one", "early")):
        # Before it is rendered, the early one is not known to have a password.
        recording.responses.pop()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    recording.responses = [each for each in recording.responses if "spaceinstances/early" not in each[0]]
    for accept in ACCEPT_TYPES:
        client("GET", path, headers={"Accept": accept})
        client("GET", f"{path}/early", headers={"Accept": accept})
    client("GET", f"{path}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one")
    wrong = {"spec": {"parameters": f"db.password: [{recording.canaries.create('a wrong parameter')}]"}}
    client("PATCH", f"{path}/one", json=wrong, headers={"Content-Type": MERGE})
    client("PATCH", f"{path}/one", json={"metadata": {"labels": {"a": "b"}}}, headers={"Content-Type": MERGE})


def _is_rendered(instance: dict[str, Any]) -> bool:
    return "<hidden>" in instance.get("status", {}).get("space", {}).get("objects", "")


CLIENT_SECRET = "auth: {oidc: {issuerUrl: https://login.example.com, clientId: a, clientSecret: %s}}"


def send_invalid_settings(client: RecordingClient, recording: Recording) -> None:
    """Unknown settings that contain a credential."""
    path, before = f"{M}/configs/{CONFIG_NAME}", len(recording.responses)
    for raw in (CLIENT_SECRET, "auth: {password: %s}", "%s", "%s: 1", "a: *%s", "audit: {level: %s}"):
        spec = {"raw": raw % recording.canaries.create("a client secret")}
        body = {"apiVersion": "management.service.sh/v1", "kind": "Config", "metadata": {"name": CONFIG_NAME}}
        response = client("PATCH", path, json={"spec": spec}, headers={"Content-Type": MERGE})
        assert response.status_code == 422, response.text
        client("PUT", path, json={**body, "spec": spec})
        operation = {"op": "add", "path": "/spec/raw", "value": spec["raw"]}
        client("PATCH", path, json=[operation], headers={"Content-Type": "application/json-patch+json"})
        client("PATCH", path, json={"spec": {"RAW": spec["raw"], "auth": spec}}, headers={"Content-Type": MERGE})
        client("PATCH", path, json={"status": spec, "Spec": spec}, headers={"Content-Type": MERGE})
    del recording.responses[before:]


def use_tokens(client: RecordingClient, recording: Recording) -> None:
    """Credentials that are generated on request and returned once."""
    client("POST", f"{M}/runners", json={**build_type_meta("Runner"), "metadata": {"name": "one"}})
    key = client("GET", f"{M}/runners/one/accesskey")
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(key.json()["accessKey"], "the key of a runner")
    token = client("POST", f"{M}/directclusterendpointtokens", json=build_type_meta("DirectClusterEndpointToken"))
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(token.json()["status"]["token"], "a direct token")
    for name in ("signing-keys", "runner-one-key"):
        secret = client("GET", f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/{name}")
        assert secret.status_code == 200 and "data" not in secret.json(), "internal secrets must not be returned"


def use_password(server: Server, client: RecordingClient, recording: Recording) -> None:
    password = recording.canaries.create("a password")
    wrong = recording.canaries.create("a wrong password")
    body = {"apiVersion": "management.service.sh/v1", "kind": "UserProfile", "password": password}
    created = client("POST", f"{M}/users/ada/profile", json=body)
    assert created.status_code == 201, created.text
    for credentials in ({"username": "ada", "password": wrong}, {"username": wrong, "password": [password]}):
        assert client("POST", "/auth/password/login", json=credentials).status_code in (400, 401)
    login = client("POST", "/auth/password/login", json={"username": "ada", "password": password})
    assert login.status_code == 200, login.text
    recording.allowed_output += recording.responses.pop()[1]
    recording.canaries.add(login.json()["accessKey"], "the key of a login")
    client("GET", f"{M}/apps?token={password}&access_token={server.key}")
    client("GET", f"/{server.key}", headers={"Cookie": f"__Host-service_access_key={server.key}"})


def test_every_kind_of_secret_was_sent(recording: Recording) -> None:
    """Otherwise the other tests could not fail."""
    labels = set(recording.canaries.find_in(recording.allowed_output))
    assert {"secrets data", "secrets stringData", "a new key", "a rotated key", "the key of a login"} <= labels
    assert {"the key of a runner", "a direct token"} <= labels
    assert "ownedaccesskeys spec.key" in labels, "a given key is returned by its create request"


def test_t3_no_response_has_a_secret(recording: Recording) -> None:
    assert len(recording.responses) > 100
    leaks = {
        request_line: found for request_line, body in recording.responses if (found := recording.canaries.find_in(body))
    }
    assert not leaks


def test_t26_the_database_has_no_secret(recording: Recording) -> None:
    assert len(recording.database) > 10_000
    assert recording.canaries.find_in(recording.database) == []


def test_t28_the_audit_log_has_no_secret(recording: Recording) -> None:
    events = [json.loads(line) for line in recording.audit.splitlines()]
    assert any(event.get("requestObject") for event in events) and any(event.get("responseObject") for event in events)
    assert recording.canaries.find_in(recording.audit) == []


def test_t29_the_log_has_no_secret(recording: Recording) -> None:
    assert recording.canaries.find_in(recording.log) == []


def test_t30_all_credential_requests_are_audited(recording: Recording) -> None:
    events = [json.loads(line) for line in recording.audit.splitlines()]
    recorded = {
        (event["verb"], event.get("objectRef", {}).get("resource"), event.get("objectRef", {}).get("subresource", ""))
        for event in events
        if event["stage"] == "ResponseComplete"
    }
    assert {
        ("create", "ownedaccesskeys", ""),
        ("create", "ownedaccesskeys", "rotate"),
        ("list", "secrets", ""),
        ("create", "users", "profile"),
    } <= recorded
    assert any(event["requestURI"].startswith("/auth/password/login") for event in events)


def test_files_with_secrets_are_readable_by_the_owner_only(
    recording: Recording, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = next(Path(tmp_path_factory.getbasetemp()).glob("canaries*/data"))
    for name in ("audit.log", "pepper.key", "encryption.keys", "admin.kubeconfig", "fairlead.db"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
