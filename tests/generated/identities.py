"""The identities that send generated requests, and objects that only the administrator may see.

The vault is a namespace and an object of that name of every other kind, with a canary in each. Members of the project
`gen` have permissions only there; other users have none. So the canary in a response to any identity but the
administrator is a breach, and so is a successful write elsewhere.
"""

import secrets
from dataclasses import dataclass
from typing import Any

import httpx

from tests.harness.gateways import RBAC, M, create_key, create_resource, post_object
from tests.harness.server_process import MANAGEMENT, Server
from tests.requests.api_resources import NAMESPACES, ApiCatalog, Resource

VAULT, PROJECT = "vault", "gen"
PROJECT_NAMESPACE = f"service-p-{PROJECT}"
EVERYTHING, IN_PROJECT, NOTHING = "everything", "in the project", "nothing"
KEY = "@@key-of-the-identity@@"
"""Stands for the access key in generated requests."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`permissions` say where its writes may succeed. An empty key means anonymous."""

    name: str
    key: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Identities:
    identities: tuple[Identity, ...]
    canary: str


def create_identities(server: Server, admin: httpx.Client, catalog: ApiCatalog) -> Identities:
    canary = f"canary-{secrets.token_hex(16)}"
    _fill_vault(admin, catalog, canary)
    for name in ("gen-admin", "gen-member", "gen-unprivileged"):
        create_resource(admin, "users", "User", name, username=name)
    members = [
        {"kind": "User", "name": "gen-admin", "clusterRole": "admin"},
        {"kind": "User", "name": "gen-member", "clusterRole": "user"},
    ]
    create_resource(admin, "projects", "Project", PROJECT, members=members)
    _fill_project(admin, catalog)
    keys = {name: create_key(admin, name, name) for name in ("gen-admin", "gen-member", "gen-unprivileged")}
    scope = {"projects": [{"project": PROJECT}]}
    rules = {"rules": [{"verbs": ["get", "list", "watch"]}]}
    return Identities(
        (
            Identity("admin", server.key, EVERYTHING),
            Identity("project admin", keys["gen-admin"], IN_PROJECT),
            Identity("member", keys["gen-member"], IN_PROJECT),
            Identity("project admin, scoped", create_key(admin, "gen-admin", "gen-scoped", scope=scope), IN_PROJECT),
            Identity("project admin, read only", create_key(admin, "gen-admin", "gen-reader", scope=rules), IN_PROJECT),
            Identity("service account", _create_service_account(admin), IN_PROJECT),
            Identity("agent", _create_component(admin, "clusters", "Cluster"), NOTHING),
            Identity("runner", _create_component(admin, "runners", "Runner"), NOTHING),
            Identity("user without permissions", keys["gen-unprivileged"], NOTHING),
            Identity("anonymous", "", NOTHING),
        ),
        canary,
    )


def _fill_vault(admin: httpx.Client, catalog: ApiCatalog, canary: str) -> None:
    namespaces = next(each for each in catalog.resources if each.kind == "Namespace")
    body = namespaces.build_example(VAULT)
    body["metadata"]["annotations"] = {"canary": canary}
    post_object(admin, namespaces.collection_path(), body)
    for resource in catalog.resources:
        if resource is not namespaces and resource.is_stored and not resource.is_alternate_version:
            post_object(admin, resource.collection_path(VAULT), _build_vault_object(resource, canary))


def _build_vault_object(resource: Resource, canary: str) -> dict[str, Any]:
    """An object without owner and without access rules."""
    obj = resource.build_example(VAULT, VAULT)
    obj["metadata"]["annotations"] = {"canary": canary}
    for field in ("owner", "access", "members"):
        obj.get("spec", {}).pop(field, None)
    if "subjects" in obj:
        obj["subjects"] = []
    return obj


def _fill_project(admin: httpx.Client, catalog: ApiCatalog) -> None:
    """Creates objects for the members to write to, of the kinds that a project accepts."""
    for resource in catalog.resources:
        if resource.namespaced and resource.is_stored and not resource.is_alternate_version:
            admin.post(resource.collection_path(PROJECT_NAMESPACE), json=resource.build_example("a", PROJECT_NAMESPACE))


def _create_service_account(admin: httpx.Client) -> str:
    accounts = f"{MANAGEMENT}/api/v1/namespaces/{PROJECT_NAMESPACE}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    post_object(admin, accounts, account)
    binding = {
        **{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "robot"}},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": PROJECT_NAMESPACE}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    }
    post_object(admin, f"{RBAC}/namespaces/{PROJECT_NAMESPACE}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
    token: str = post_object(admin, f"{accounts}/robot/token", request)["status"]["token"]
    return token


def _create_component(admin: httpx.Client, plural: str, kind: str) -> str:
    create_resource(admin, plural, kind, "gen-component")
    key: str = admin.get(f"{M}/{plural}/gen-component/accesskey").json()["accessKey"]
    return key


ADMIN_NAMESPACES = NAMESPACES
"""Namespaces that only the administrator may write."""
