"""Who asks, and what none of them but the administrator may ever see.

The vault is a namespace, and an object of that name of every other kind, with a canary in each. Members of the project
`gen` have rights there and nowhere else; others have none at all. So the canary in an answer to anybody but the
administrator is a breach, and so is a write of theirs that succeeds elsewhere.
"""

import secrets
from dataclasses import dataclass
from typing import Any

import httpx

from tests.harness.gateways import RBAC, M, create, key_of, make
from tests.harness.server_process import MANAGEMENT, Server
from tests.security.api_resources import NAMESPACES, Resource, World

VAULT, PROJECT = "vault", "gen"
PROJECT_NAMESPACE = f"service-p-{PROJECT}"
EVERYTHING, IN_PROJECT, NOTHING = "everything", "in the project", "nothing"
KEY = "@@key-of-whoever-asks@@"
"""Stands for the access key in generated requests."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`rights` say how far its requests may get. An empty key is nobody's."""

    name: str
    key: str
    rights: str


@dataclass(frozen=True, slots=True)
class Cast:
    identities: tuple[Identity, ...]
    canary: str


def assemble(server: Server, admin: httpx.Client, world: World) -> Cast:
    canary = f"canary-{secrets.token_hex(16)}"
    _fill_vault(admin, world, canary)
    for name in ("gen-admin", "gen-member", "gen-nobody"):
        make(admin, "users", "User", name, username=name)
    members = [
        {"kind": "User", "name": "gen-admin", "clusterRole": "admin"},
        {"kind": "User", "name": "gen-member", "clusterRole": "user"},
    ]
    make(admin, "projects", "Project", PROJECT, members=members)
    _fill_project(admin, world)
    keys = {name: key_of(admin, name, name) for name in ("gen-admin", "gen-member", "gen-nobody")}
    scope = {"projects": [{"project": PROJECT}]}
    rules = {"rules": [{"verbs": ["get", "list", "watch"]}]}
    return Cast(
        (
            Identity("admin", server.key, EVERYTHING),
            Identity("project admin", keys["gen-admin"], IN_PROJECT),
            Identity("member", keys["gen-member"], IN_PROJECT),
            Identity("project admin, scoped", key_of(admin, "gen-admin", "gen-scoped", scope=scope), IN_PROJECT),
            Identity("project admin, read only", key_of(admin, "gen-admin", "gen-reader", scope=rules), IN_PROJECT),
            Identity("service account", _service_account(admin), IN_PROJECT),
            Identity("agent", _component(admin, "clusters", "Cluster"), NOTHING),
            Identity("runner", _component(admin, "runners", "Runner"), NOTHING),
            Identity("user without rights", keys["gen-nobody"], NOTHING),
            Identity("nobody", "", NOTHING),
        ),
        canary,
    )


def _fill_vault(admin: httpx.Client, world: World, canary: str) -> None:
    namespaces = next(each for each in world.resources if each.kind == "Namespace")
    body = namespaces.example(VAULT)
    body["metadata"]["annotations"] = {"canary": canary}
    create(admin, namespaces.collection(), body)
    for resource in world.resources:
        if resource is not namespaces and resource.stored and not resource.is_second_form:
            create(admin, resource.collection(VAULT), _private(resource, canary))


def _private(resource: Resource, canary: str) -> dict[str, Any]:
    """An object that nobody owns and nobody has access to."""
    obj = resource.example(VAULT, VAULT)
    obj["metadata"]["annotations"] = {"canary": canary}
    for field in ("owner", "access", "members"):
        obj.get("spec", {}).pop(field, None)
    if "subjects" in obj:
        obj["subjects"] = []
    return obj


def _fill_project(admin: httpx.Client, world: World) -> None:
    """Something for its members to write to, as far as a project takes it."""
    for resource in world.resources:
        if resource.namespaced and resource.stored and not resource.is_second_form:
            admin.post(resource.collection(PROJECT_NAMESPACE), json=resource.example("a", PROJECT_NAMESPACE))


def _service_account(admin: httpx.Client) -> str:
    accounts = f"{MANAGEMENT}/api/v1/namespaces/{PROJECT_NAMESPACE}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    create(admin, accounts, account)
    binding = {
        **{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "robot"}},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": PROJECT_NAMESPACE}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    }
    create(admin, f"{RBAC}/namespaces/{PROJECT_NAMESPACE}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
    token: str = create(admin, f"{accounts}/robot/token", request)["status"]["token"]
    return token


def _component(admin: httpx.Client, plural: str, kind: str) -> str:
    make(admin, plural, kind, "gen-component")
    key: str = admin.get(f"{M}/{plural}/gen-component/accesskey").json()["accessKey"]
    return key


STORM = NAMESPACES
"""Where the administrator writes, and nobody else may."""
