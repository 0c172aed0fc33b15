"""No secret is ever seen again: not in an answer, an error, the database, the log or the audit log.

Everything is logged and audited that can be. The exceptions are the one answer that shows a new key, and Secrets, which
are there to be read by those who may.
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
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running
from tests.live.canaries import (
    ALL_SECRET_KINDS,
    READABLE,
    SECRET_KINDS,
    Canaries,
    planted,
    wrong_patches,
    wrongly_sent,
)

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
ATTEMPTS = 20
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"
FORMS = (
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
class Aftermath:
    """What was answered, and what is left on the disk."""

    canaries: Canaries
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    shown: bytes = b""
    log: bytes = b""
    audit: bytes = b""
    database: bytes = b""


class Client:
    """Keeps every answer, with its headers."""

    def __init__(self, client: httpx.Client, after: Aftermath) -> None:
        self._client = client
        self._after = after

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._client.request(method, path, **options)
        head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items()).encode()
        self._after.answers.append((f"{method} {path} -> {answer.status_code}", head + answer.content))
        return answer


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("canaries")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    after = Aftermath(Canaries())
    with running(folder / "data", log_level="debug", audit_policy=str(policy)) as server:
        after.canaries.add(server.key, "the administrator's key")
        with server.client() as client:
            use_everything(server, Client(client, after), after)
        assert server.stop() == 0
        after.log = server.log.read_bytes()
    after.audit = b"".join(path.read_bytes() for path in sorted((folder / "data").glob("audit*.log")))
    after.database = b"".join(path.read_bytes() for path in sorted((folder / "data").glob("fairlead.db*")))
    yield after


def use_everything(server: Server, ask: Client, after: Aftermath) -> None:
    ask("POST", f"{M}/users", json={"metadata": {"name": "ada"}, **_typed("User")})
    for kind in SECRET_KINDS:
        if kind not in READABLE:
            use(kind, ask, after)
    scoped = make_keys(ask, after)
    for kind in READABLE:
        use_readable(kind, server, scoped, ask, after)
    for kind in ALL_SECRET_KINDS:
        misuse(kind, ask, after)
    refuse_settings(ask, after)
    use_password_parameters(ask, after)
    use_tokens(ask, after)
    use_password(server, ask, after)


def _typed(kind: str) -> dict[str, Any]:
    return {"apiVersion": "management.service.sh/v1", "kind": kind, "spec": {}}


def collection(kind: Kind) -> str:
    root = f"{MANAGEMENT}/apis/{kind.group}/v1" if kind.group else f"{MANAGEMENT}/api/v1"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def use(kind: Kind, ask: Client, after: Aftermath) -> None:
    """Everything that can be done with an object, rightly and wrongly."""
    place, obj = collection(kind), planted(kind, "one", after.canaries)
    applied = json.dumps(obj)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    created = ask("POST", place, json=obj)
    assert created.status_code == 201, created.text
    if kind.name == "OwnedAccessKey":
        after.shown += after.answers.pop()[1]
    ask("POST", place, json=obj)
    ask("POST", f"{place}?dryRun=All&fieldValidation=Strict", json={**obj, "metadata": {"name": "two"}, "odd": 1})
    ask("POST", place, content=json.dumps(obj)[:-9])
    ask("POST", place, content=json.dumps(obj), headers={"Content-Type": "text/odd"})
    ask("POST", place, json={**obj, "metadata": {"name": "Not A Name"}})
    for form in FORMS:
        ask("GET", f"{place}/one", headers={"Accept": form})
        ask("GET", place, headers={"Accept": form})
    ask("GET", f"{place}?watch=1&timeoutSeconds=1")
    for media_type, made in PATCHES.items():
        patch = made(planted(kind, "one", after.canaries))
        options = {"headers": {"Content-Type": media_type}, "params": {"fieldManager": "m", "force": "true"}}
        if "apply" not in media_type:
            options["params"] = {}
        ask("PATCH", f"{place}/one", content=json.dumps(patch), **options)
    copying = [
        {"op": "copy", "from": f"/{path.replace('.', '/')}", "path": "/metadata/labels"} for path in kind.sensitive
    ]
    for operation in copying:
        headers = {"Content-Type": "application/json-patch+json"}
        ask("PATCH", f"{place}/one", content=json.dumps([operation]), headers=headers)
    rename(ask, f"{place}/one")
    for below in ("status", *kind.subresources, "nothing"):
        ask("GET", f"{place}/one/{below}")
    ask("DELETE", f"{place}/one?dryRun=All")
    ask("DELETE", f"{place}/one")


def rename(ask: Client, path: str) -> None:
    """On top of what is there. A controller may write something in between, and then one reads again."""
    for _ in range(ATTEMPTS):
        now = ask("GET", path).json()
        now["spec"]["displayName"] = "renamed"
        answer = ask("PUT", path, json=now)
        if answer.status_code != 409:
            break
    assert answer.status_code == 200, answer.text


def make_keys(ask: Client, after: Aftermath) -> str:
    """Keys of several sorts, one of them rotated; returns one that may do next to nothing."""
    key = ask("POST", f"{M}/ownedaccesskeys", json={**_typed("OwnedAccessKey"), "metadata": {"name": "reader"}})
    after.shown += after.answers.pop()[1]
    after.canaries.add(key.json()["spec"]["key"], "a new key")
    rotated = ask("POST", f"{M}/ownedaccesskeys/reader/rotate", json={"spec": {"overlapSeconds": 60}})
    assert rotated.status_code == 201, rotated.text
    after.shown += after.answers.pop()[1]
    after.canaries.add(rotated.json()["spec"]["key"], "a rotated key")
    scope = {"rules": [{"verbs": ["get"], "resources": [{"group": "", "resources": ["configmaps"]}]}]}
    body = {**_typed("OwnedAccessKey"), "metadata": {"name": "scoped"}, "spec": {"scope": scope}}
    scoped: str = ask("POST", f"{M}/ownedaccesskeys", json=body).json()["spec"]["key"]
    after.shown += after.answers.pop()[1]
    after.canaries.add(scoped, "a scoped key")
    return scoped


def use_readable(kind: Kind, server: Server, scoped: str, ask: Client, after: Aftermath) -> None:
    """Such secrets come back to those who may read them, and to nobody else."""
    place, before = collection(kind), len(after.answers)
    obj = planted(kind, "one", after.canaries)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(obj)}
    created = ask("POST", place, json=obj)
    assert created.status_code == 201, created.text
    ask("GET", place)
    ask("PATCH", f"{place}/one", json={"metadata": {"labels": {"a": "b"}}}, headers={"Content-Type": MERGE})
    after.shown += b"".join(body for _, body in after.answers[before:])
    del after.answers[before:]
    with server.client(scoped) as client:
        limited = Client(client, after)
        for path in (place, f"{place}/one", f"{place}?watch=1", f"{M}/ownedaccesskeys", f"{M}/ownedaccesskeys/reader"):
            for form in FORMS:
                assert limited("GET", path, headers={"Accept": form}).status_code == 403
    ask("GET", f"{M}/users/admin/accesskeys")
    ask("POST", f"{M}/selves", json={})
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": server.key}}
    ask("POST", f"{MANAGEMENT}/apis/authentication.k8s.io/v1/tokenreviews", json=review)


def misuse(kind: Kind, ask: Client, after: Aftermath) -> None:
    """Every wrong way to send an object. What is answered goes to whoever sent it; what stays on the disk counts."""
    place, before = collection(kind), len(after.answers)
    name = CONFIG_NAME if kind is CONFIG else "one"
    for media_type, body in wrongly_sent(planted(kind, name, after.canaries)):
        headers = {"Content-Type": media_type} if media_type else {}
        ask("POST", place, content=body, headers=headers)
        ask("PUT", f"{place}/{name}?fieldValidation=Strict", content=body, headers=headers)
    for media_type, body in wrong_patches(planted(kind, name, after.canaries)):
        ask("PATCH", f"{place}/{name}?fieldManager=m&force=true", content=body, headers={"Content-Type": media_type})
    ask("POST", f"{MANAGEMENT}/api/v1/namespaces/default/configmaps", json=planted(kind, name, after.canaries))
    ask("POST", f"{M}/projects", json={**planted(kind, name, after.canaries), **_typed("Project")})
    del after.answers[before:]


def use_password_parameters(ask: Client, after: Aftermath) -> None:
    """A template that asks for a password, and instances that give one: at once, and before the template is there."""
    ask("POST", f"{M}/projects", json={**_typed("Project"), "metadata": {"name": "pw"}})
    place = f"{M}/namespaces/service-p-pw/spaceinstances"
    text = f"db.password: {after.canaries.plant('a parameter')}\nsize: 1\n"
    early = {**_typed("SpaceInstance"), "metadata": {"name": "early"}, "spec": {"templateRef": {"name": "pw"}}}
    early["spec"]["parameters"] = f"db.password: {after.canaries.plant('an early parameter')}"
    created = ask("POST", place, json=early)
    assert created.status_code == 201, created.text
    after.answers.pop()  # nobody knows yet that this is a password
    objects = "kind: Secret\napiVersion: v1\nmetadata: {name: a}\nstringData: {p: {{ parameters.db.password | quote }}}"
    spec = {"template": {"objects": objects}, "parameters": [{"variable": "db.password", "type": "password"}]}
    ask("POST", f"{M}/spacetemplates", json={**_typed("SpaceTemplate"), "metadata": {"name": "pw"}, "spec": spec})
    one = {**_typed("SpaceInstance"), "metadata": {"name": "one"}, "spec": {"templateRef": {"name": "pw"}}}
    one["spec"]["parameters"] = text
    one["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(one)}
    created = ask("POST", place, json=one)
    assert created.status_code == 201 and "db.password: <hidden>" in created.json()["spec"]["parameters"]
    waiting = time.monotonic() + TIMEOUT_SECONDS
    while not all(_is_rendered(ask("GET", f"{place}/{name}").json()) for name in ("one", "early")):
        # What was seen of the early one before is what nobody could know better.
        after.answers.pop()
        assert time.monotonic() < waiting
        time.sleep(0.1)
    after.answers = [each for each in after.answers if "spaceinstances/early" not in each[0]]
    for form in FORMS:
        ask("GET", place, headers={"Accept": form})
        ask("GET", f"{place}/early", headers={"Accept": form})
    ask("GET", f"{place}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one")
    wrong = {"spec": {"parameters": f"db.password: [{after.canaries.plant('a wrong parameter')}]"}}
    ask("PATCH", f"{place}/one", json=wrong, headers={"Content-Type": MERGE})
    ask("PATCH", f"{place}/one", json={"metadata": {"labels": {"a": "b"}}}, headers={"Content-Type": MERGE})


def _is_rendered(instance: dict[str, Any]) -> bool:
    return "<hidden>" in instance.get("status", {}).get("space", {}).get("objects", "")


CLIENT_SECRET = "auth: {oidc: {issuerUrl: https://login.example.com, clientId: a, clientSecret: %s}}"


def refuse_settings(ask: Client, after: Aftermath) -> None:
    """Settings that there are not, with a credential in them."""
    path, before = f"{M}/configs/{CONFIG_NAME}", len(after.answers)
    for raw in (CLIENT_SECRET, "auth: {password: %s}", "%s", "%s: 1", "a: *%s", "audit: {level: %s}"):
        spec = {"raw": raw % after.canaries.plant("a client secret")}
        body = {"apiVersion": "management.service.sh/v1", "kind": "Config", "metadata": {"name": CONFIG_NAME}}
        answer = ask("PATCH", path, json={"spec": spec}, headers={"Content-Type": MERGE})
        assert answer.status_code == 422, answer.text
        ask("PUT", path, json={**body, "spec": spec})
        operation = {"op": "add", "path": "/spec/raw", "value": spec["raw"]}
        ask("PATCH", path, json=[operation], headers={"Content-Type": "application/json-patch+json"})
        ask("PATCH", path, json={"spec": {"RAW": spec["raw"], "auth": spec}}, headers={"Content-Type": MERGE})
        ask("PATCH", path, json={"status": spec, "Spec": spec}, headers={"Content-Type": MERGE})
    del after.answers[before:]


def use_tokens(ask: Client, after: Aftermath) -> None:
    """Credentials that are made on request, and shown to whoever asked."""
    ask("POST", f"{M}/runners", json={**_typed("Runner"), "metadata": {"name": "one"}})
    key = ask("GET", f"{M}/runners/one/accesskey")
    after.shown += after.answers.pop()[1]
    after.canaries.add(key.json()["accessKey"], "the key of a runner")
    token = ask("POST", f"{M}/directclusterendpointtokens", json=_typed("DirectClusterEndpointToken"))
    after.shown += after.answers.pop()[1]
    after.canaries.add(token.json()["status"]["token"], "a direct token")
    for name in ("signing-keys", "runner-one-key"):
        kept = ask("GET", f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/{name}")
        assert kept.status_code == 200 and "data" not in kept.json(), "what the server keeps for itself is in no answer"


def use_password(server: Server, ask: Client, after: Aftermath) -> None:
    password = after.canaries.plant("a password")
    wrong = after.canaries.plant("a wrong password")
    body = {"apiVersion": "management.service.sh/v1", "kind": "UserProfile", "password": password}
    set_one = ask("POST", f"{M}/users/ada/profile", json=body)
    assert set_one.status_code == 201, set_one.text
    for sent in ({"username": "ada", "password": wrong}, {"username": wrong, "password": [password]}):
        assert ask("POST", "/auth/password/login", json=sent).status_code in (400, 401)
    login = ask("POST", "/auth/password/login", json={"username": "ada", "password": password})
    assert login.status_code == 200, login.text
    after.shown += after.answers.pop()[1]
    after.canaries.add(login.json()["accessKey"], "the key of a login")
    ask("GET", f"{M}/apps?token={password}&access_token={server.key}")
    ask("GET", f"/{server.key}", headers={"Cookie": f"__Host-service_access_key={server.key}"})


def test_every_kind_of_secret_was_planted(after: Aftermath) -> None:
    """Otherwise the other tests would look for nothing."""
    places = set(after.canaries.found_in(after.shown))
    assert {"secrets data", "secrets stringData", "a new key", "a rotated key", "the key of a login"} <= places
    assert {"the key of a runner", "a direct token"} <= places
    assert "ownedaccesskeys spec.key" in places, "a chosen key is shown in the answer to its create"


def test_t3_no_answer_has_a_secret(after: Aftermath) -> None:
    assert len(after.answers) > 100
    leaks = {what: found for what, body in after.answers if (found := after.canaries.found_in(body))}
    assert not leaks


def test_t26_the_database_has_no_secret(after: Aftermath) -> None:
    assert len(after.database) > 10_000
    assert after.canaries.found_in(after.database) == []


def test_t28_the_audit_log_has_no_secret(after: Aftermath) -> None:
    events = [json.loads(line) for line in after.audit.splitlines()]
    assert any(event.get("requestObject") for event in events) and any(event.get("responseObject") for event in events)
    assert after.canaries.found_in(after.audit) == []


def test_t29_the_log_has_no_secret(after: Aftermath) -> None:
    assert after.canaries.found_in(after.log) == []


def test_t30_everything_about_credentials_is_recorded(after: Aftermath) -> None:
    events = [json.loads(line) for line in after.audit.splitlines()]
    seen = {
        (event["verb"], event.get("objectRef", {}).get("resource"), event.get("objectRef", {}).get("subresource", ""))
        for event in events
        if event["stage"] == "ResponseComplete"
    }
    assert {
        ("create", "ownedaccesskeys", ""),
        ("create", "ownedaccesskeys", "rotate"),
        ("list", "secrets", ""),
        ("create", "users", "profile"),
    } <= seen
    assert any(event["requestURI"].startswith("/auth/password/login") for event in events)


def test_files_with_secrets_are_the_owners_alone(after: Aftermath, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = next(Path(tmp_path_factory.getbasetemp()).glob("canaries*/data"))
    for name in ("audit.log", "pepper.key", "encryption.keys", "admin.kubeconfig", "fairlead.db"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
