"""Keys of the server: with all permissions on Secrets in the system namespace, no one plants or removes one (T-45)."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import SigningKeys
from fairlead.kinds.core.server_objects import SERVER_SECRETS, SIGNING_KEYS
from tests.harness.server_process import MANAGEMENT, Server
from tests.harness.signing_keys import signing_key

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = f"{MANAGEMENT}/apis/{RBAC_GROUP}/v1/namespaces/service-system"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"
TYPES = ("Opaque", "", "kubernetes.io/basic-auth", "service.sh/password", "example.com/x")
JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
REFUSED = {403, 404, 405, 409, 422}


def plant(name: str, type: str) -> dict[str, Any]:
    """A Secret with a signing key of the attacker."""
    content = b64encode(signing.encode(SigningKeys(signing_key(0)))).decode()
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"keys.json": content}}
    return {**body, "type": type} if type else body


def create(admin: httpx.Client, path: str, kind: str, **fields: Any) -> Any:
    api_version = f"{RBAC_GROUP}/v1" if path.startswith(RBAC) else "management.service.sh/v1"
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "t45"}, **fields}
    response = admin.post(path, json=body)
    assert response.status_code == 201, response.text
    return response.json()


@pytest.fixture(scope="module")
def mallory(shared_server: Server) -> Iterator[httpx.Client]:
    """A user with every permission on Secrets in the system namespace."""
    with shared_server.client() as admin:
        create(admin, f"{M}/users", "User", spec={"username": "t45"})
        value = create(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", spec={"user": "t45"})["spec"]["key"]
        rules = [{"apiGroups": [""], "resources": ["secrets", "secrets/*"], "verbs": ["*"]}]
        create(admin, f"{RBAC}/roles", "Role", rules=rules)
        reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "t45"}
        subjects = [{"apiGroup": RBAC_GROUP, "kind": "User", "name": "t45"}]
        create(admin, f"{RBAC}/rolebindings", "RoleBinding", roleRef=reference, subjects=subjects)
    with shared_server.client(value) as client:
        mine = client.post(SECRETS, json=plant("t45-mine", "Opaque"))
        assert mine.status_code == 201, mine.text
        yield client


def attack(client: httpx.Client, name: str, type: str) -> Iterator[tuple[str, httpx.Response]]:
    """Every verb on a Secret of that name."""
    body, path = plant(name, type), f"{SECRETS}/{name}"
    yield "create", client.post(SECRETS, json=body)
    yield "create, as a dry run", client.post(SECRETS, json=body, params={"dryRun": "All"})
    yield "update", client.put(path, json=body)
    operations = [{"op": "add", "path": "/data", "value": body["data"]}]
    yield "JSON patch", client.patch(path, json=operations, headers={"Content-Type": JSON_PATCH})
    for patch in (MERGE, STRATEGIC):
        yield patch, client.patch(path, json=body, headers={"Content-Type": patch})
    options = {"fieldManager": "t45", "force": "true"}
    yield "apply", client.patch(path, json=body, params=options, headers={"Content-Type": APPLY})
    finalizers = {"metadata": {"finalizers": ["example.com/x"]}}
    yield "finalizers", client.patch(path, json=finalizers, headers={"Content-Type": MERGE})
    for subresource in ("status", "finalize", "finalizers"):
        yield subresource, client.put(f"{path}/{subresource}", json=body)
        yield subresource, client.patch(f"{path}/{subresource}", json=body, headers={"Content-Type": MERGE})
    yield "delete", client.delete(path)
    yield "delete, orphaning", client.request("DELETE", path, json={"propagationPolicy": "Orphan"})
    named = {"fieldSelector": f"metadata.name={name}"}
    yield "deletecollection", client.delete(SECRETS, params=named)


def versions(client: httpx.Client) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in client.get(SECRETS).json()["items"]
    }


@pytest.mark.parametrize("secret", SERVER_SECRETS, ids=[each.name for each in SERVER_SECRETS])
def test_t45_no_verb_plants_or_removes_a_key_of_the_server(server: Server, mallory: httpx.Client, secret: Any) -> None:
    with server.client() as admin:
        assert admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).status_code == 201
        published = admin.get("/openid/v1/jwks").json()
        before = versions(admin)
        assert SIGNING_KEYS.name in before
        for type in (*TYPES, secret.type, *(f"service.sh/{each}" for each in ("runner-key", "agent-key", "x"))):
            for verb, response in attack(mallory, secret.name, type):
                is_empty = verb == "deletecollection" and secret.name not in before
                assert response.status_code in ({200} if is_empty else REFUSED), f"{verb} {type}: {response.text}"
        assert versions(admin) == before
        assert admin.get("/openid/v1/jwks").json() == published


def test_t45_a_key_is_not_planted_between_its_deletion_and_the_next_token(
    server: Server, mallory: httpx.Client
) -> None:
    with server.client() as admin:
        assert admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).status_code == 201
        assert admin.delete(f"{SECRETS}/{SIGNING_KEYS.name}").status_code == 200
        for type in (*TYPES, SIGNING_KEYS.type):
            for verb, response in attack(mallory, SIGNING_KEYS.name, type):
                assert response.status_code in REFUSED or verb == "deletecollection", f"{verb} {type}: {response.text}"
        assert admin.get("/openid/v1/jwks").json() == {"keys": []}
        assert admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).status_code == 201
        assert [each["kid"] for each in admin.get("/openid/v1/jwks").json()["keys"]] != [signing_key(0).id]


def test_t45_a_reserved_type_has_no_other_name_and_generated_names_are_checked(
    server: Server, mallory: httpx.Client
) -> None:
    body = plant("", SIGNING_KEYS.type)
    for meta in ({"name": "t45-other"}, {"generateName": "t45-"}, {"generateName": "runner-"}):
        response = mallory.post(SECRETS, json={**body, "metadata": meta})
        assert response.status_code == 403, response.text
    retyped = {"type": SIGNING_KEYS.type}
    response = mallory.patch(f"{SECRETS}/t45-mine", json=retyped, headers={"Content-Type": MERGE})
    assert response.status_code in (403, 422), response.text


def test_t45_deleting_all_secrets_deletes_no_key_of_the_server(server: Server, mallory: httpx.Client) -> None:
    with server.client() as admin:
        assert admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).status_code == 201
        before = versions(admin)
        assert mallory.delete(SECRETS).status_code == 403
        after = versions(admin)
        assert after[SIGNING_KEYS.name] == before[SIGNING_KEYS.name]
