"""The default roles: what they allow, whom they are bound to, and how they are restored and updated."""

from dataclasses import replace

import pytest

from fairlead.admission import AdmissionChain
from fairlead.authz.default_roles import ensure_default_roles
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.authz.self_access import SelfAuthorizer
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog, Sensitivity
from fairlead.registry.registry import Registry
from tests.harness.registry import GADGET, NAMESPACE, RegistryFixture

GROUP = "rbac.authorization.k8s.io"
PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
AUTHENTICATED = User("user", AUTHENTICATED_GROUPS)
READ, WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")


@pytest.fixture
async def rbac(api: RegistryFixture) -> RbacAuthorizer:
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    return RbacAuthorizer.from_view(api.view)


def build_request(verb: str, resource: str, group: str = "", namespace: str = NAMESPACE) -> RequestInfo:
    plural, _, subresource = resource.partition("/")
    return RequestInfo(verb, "", "management", group, "v1", plural, subresource, namespace)


def allowed_verbs(rbac: RbacAuthorizer, role: str, verbs: tuple[str, ...], resource: str, group: str = "") -> list[str]:
    return [verb for verb in verbs if rbac.role_allows(role, build_request(verb, resource, group))]


async def test_all_default_roles_and_bindings_exist(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    system = [f"system:{name}" for name in ("auditor", "auth-delegator", "basic-user", "discovery", "monitoring")]
    roles = ["admin", "cluster-admin", "edit", *system, "view"]
    assert api.list_names("ClusterRole") == roles
    bindings = ["cluster-admin", "system:basic-user", "system:discovery", "system:monitoring"]
    assert api.list_names("ClusterRoleBinding") == bindings


async def test_missing_roles_are_restored_and_changed_roles_stay(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    changed = await api.patch("ClusterRole", "view", lambda obj: obj.update(rules=[]))
    emptied = await api.patch("ClusterRoleBinding", "system:discovery", lambda obj: obj.pop("subjects"))
    await api.delete("ClusterRole", "edit")
    await api.delete("ClusterRoleBinding", "cluster-admin")
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert api.get("ClusterRole", "view") == changed
    assert api.get("ClusterRoleBinding", "system:discovery") == emptied
    assert api.get("ClusterRole", "edit") and api.get("ClusterRoleBinding", "cluster-admin")


async def test_a_start_with_all_roles_present_writes_nothing(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    revision = api.view.revision
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert api.view.revision == revision


async def test_two_replicas_can_start_concurrently(api: RegistryFixture) -> None:
    async def create_first() -> None:
        await ensure_default_roles(api.registry, MANAGEMENT_GROUP)

    api.store.before = [create_first]
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert len(api.list_names("ClusterRole")) == 9


async def test_monitoring_reads_metrics_and_health_checks_only(rbac: RbacAuthorizer) -> None:
    monitor = User("prometheus", ("system:monitoring",))
    for path in ("/metrics", "/livez", "/readyz/store", "/healthz/ping"):
        assert rbac(monitor, RequestInfo("get", path, MANAGEMENT)) and rbac(monitor, RequestInfo("get", path))
    assert not rbac(monitor, RequestInfo("post", "/metrics"))
    assert not rbac(monitor, build_request("get", "events"))


async def test_read_only_kinds_can_only_be_read(rbac: RbacAuthorizer) -> None:
    for role in ("view", "edit", "admin"):
        assert allowed_verbs(rbac, role, (*READ, *WRITE), "services") == list(READ)


async def test_only_admin_writes_service_accounts_and_requests_their_tokens(rbac: RbacAuthorizer) -> None:
    assert allowed_verbs(rbac, "admin", (*READ, *WRITE), "serviceaccounts") == [*READ, *WRITE]
    assert allowed_verbs(rbac, "admin", ("create",), "serviceaccounts/token") == ["create"]
    for role in ("view", "edit"):
        assert allowed_verbs(rbac, role, (*READ, *WRITE), "serviceaccounts") == list(READ)
        assert allowed_verbs(rbac, role, ("create", "get"), "serviceaccounts/token") == []


async def test_cluster_admin_may_do_everything(rbac: RbacAuthorizer) -> None:
    root = User("root", ("system:masters",))
    assert rbac(root, build_request("escalate", "anything/at-all", "x.io", ""))
    assert rbac(root, RequestInfo("delete", "/anything"))


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/apis", "/apis/x/y", "/openapi/v3", "/version", "/readyz", "/livez"]
)
async def test_authenticated_users_may_read_the_discovery_paths(rbac: RbacAuthorizer, path: str) -> None:
    assert rbac(AUTHENTICATED, RequestInfo("get", path, "management"))
    assert not rbac(AUTHENTICATED, RequestInfo("post", path, "management"))
    assert not rbac(User("anonymous"), RequestInfo("get", path, "management"))


@pytest.mark.parametrize("path", ["/", "/metrics", "/apiextra", "/openapix", "/debug", "/version/x"])
async def test_authenticated_users_may_read_no_other_paths(rbac: RbacAuthorizer, path: str) -> None:
    assert not rbac(AUTHENTICATED, RequestInfo("get", path, "management"))


BASIC_USER = [
    ("create", "selfsubjectaccessreviews", "authorization.k8s.io"),
    ("create", "selfsubjectrulesreviews", "authorization.k8s.io"),
    ("create", "selfsubjectreviews", "authentication.k8s.io"),
    ("create", "selves", MANAGEMENT_GROUP),
    ("create", "selfsubjectaccessreviews", MANAGEMENT_GROUP),
    ("create", "selfsubjectaccessreviewbatches", MANAGEMENT_GROUP),
    ("list", "resourcecounts", MANAGEMENT_GROUP),
    *((verb, "customresourcedefinitions", "apiextensions.k8s.io") for verb in READ),
]


@pytest.mark.parametrize(("verb", "resource", "group"), BASIC_USER)
async def test_authenticated_users_may_create_self_reviews(
    rbac: RbacAuthorizer, verb: str, resource: str, group: str
) -> None:
    assert rbac(AUTHENTICATED, build_request(verb, resource, group, ""))


async def test_authenticated_users_may_do_nothing_else(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    verbs = (*READ, *WRITE, "escalate", "bind", "use", "impersonate")
    allowed = [
        (verb, kind.plural, kind.group)
        for kind in api.registry.catalog.kinds
        for verb in verbs
        for namespace in ("", NAMESPACE)
        if rbac(AUTHENTICATED, build_request(verb, kind.plural, kind.group, namespace))
    ]
    assert set(allowed) <= set(BASIC_USER)
    for verb, resource in (("create", "subjectaccessreviews"), ("create", "tokenreviews"), ("impersonate", "users")):
        assert not rbac(AUTHENTICATED, build_request(verb, resource, "authorization.k8s.io", ""))


async def test_services_may_delegate_authentication_and_authorization(rbac: RbacAuthorizer) -> None:
    role, review = "system:auth-delegator", ("create",)
    assert allowed_verbs(rbac, role, review, "tokenreviews", "authentication.k8s.io") == ["create"]
    assert allowed_verbs(rbac, role, review, "subjectaccessreviews", "authorization.k8s.io") == ["create"]
    assert allowed_verbs(rbac, role, review, "configmaps") == []


async def test_the_management_group_may_have_another_name(api: RegistryFixture) -> None:
    await ensure_default_roles(api.registry, "example.com")
    role = api.get("ClusterRole", "system:basic-user") or {}
    assert [rule["resources"] for rule in role["rules"] if rule["apiGroups"] == ["example.com"]] == [
        ["selfsubjectaccessreviewbatches", "selfsubjectaccessreviews", "selves"],
        ["resourcecounts"],
    ]


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
async def test_view_edit_and_admin_read_the_objects_of_a_namespace(rbac: RbacAuthorizer, role: str) -> None:
    for resource in ("configmaps", "events", "namespaces", "namespaces/status"):
        assert allowed_verbs(rbac, role, READ, resource) == list(READ)
    assert allowed_verbs(rbac, role, READ, "leases", "coordination.k8s.io") == list(READ)
    assert allowed_verbs(rbac, role, READ, "devpodworkspaceinstances", MANAGEMENT_GROUP) == list(READ)
    assert allowed_verbs(rbac, role, READ, "devpodworkspaceinstances/status", MANAGEMENT_GROUP) == list(READ)


async def test_view_writes_nothing_and_reads_no_secrets_keys_or_roles(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    groups_by_resource = {
        f"{kind.plural}{subresource}": kind.group
        for kind in api.registry.catalog.kinds
        for subresource in ("", "/status")
    }
    for resource, group in groups_by_resource.items():
        assert allowed_verbs(rbac, "view", (*WRITE, "use", "bind", "escalate"), resource, group) == []
    assert allowed_verbs(rbac, "view", READ, "secrets") == []
    for plural in PLURALS:
        assert allowed_verbs(rbac, "view", READ, plural, GROUP) == []
    for plural in ("ownedaccesskeys", "projectsecrets", "sharedsecrets", "users"):
        assert allowed_verbs(rbac, "view", READ, plural, MANAGEMENT_GROUP) == []


@pytest.mark.parametrize("role", ["edit", "admin"])
async def test_edit_writes_the_objects_of_a_namespace_but_not_the_namespace(rbac: RbacAuthorizer, role: str) -> None:
    for resource in ("configmaps", "secrets", "events"):
        assert allowed_verbs(rbac, role, WRITE, resource) == list(WRITE)
    assert allowed_verbs(rbac, role, WRITE, "devpodworkspaceinstances", MANAGEMENT_GROUP) == list(WRITE)
    assert allowed_verbs(rbac, role, WRITE, "devpodworkspaceinstances/status", MANAGEMENT_GROUP) == []
    assert allowed_verbs(rbac, role, WRITE, "namespaces") == []
    for plural in ("projects", "clusters", "apps", "users", "ownedaccesskeys"):
        assert allowed_verbs(rbac, role, (*READ, *WRITE), plural, MANAGEMENT_GROUP) == []


async def test_only_admin_writes_roles_and_bindings_of_a_namespace(rbac: RbacAuthorizer) -> None:
    for plural in ("roles", "rolebindings"):
        assert allowed_verbs(rbac, "admin", WRITE, plural, GROUP) == list(WRITE)
        assert allowed_verbs(rbac, "admin", ("escalate", "bind"), plural, GROUP) == []
        assert allowed_verbs(rbac, "edit", (*READ, *WRITE), plural, GROUP) == []
    assert allowed_verbs(rbac, "admin", WRITE, "clusterroles", GROUP) == []
    assert allowed_verbs(rbac, "admin", ("create",), "localsubjectaccessreviews", "authorization.k8s.io") == ["create"]
    for role, verbs in (("admin", ["create"]), ("edit", []), ("view", [])):
        assert allowed_verbs(rbac, role, ("create",), "resourceaccessreviews", MANAGEMENT_GROUP) == verbs


async def test_admin_holds_every_rule_of_view_and_can_grant_it(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    """`admin` includes all permissions of `edit` and `view`."""
    reference: Object = {"kind": "ClusterRole", "name": "admin"}
    await api.create("RoleBinding", "b", subjects=[{"kind": "User", "name": "ada"}], roleRef=reference)
    held = rbac.rules_for(User("ada"), NAMESPACE)
    view = (api.get("ClusterRole", "view") or {})["rules"]
    for rule in view:
        for resource in rule["resources"]:
            assert any(
                resource in each["resources"]
                and each["apiGroups"] == rule["apiGroups"]
                and set(READ) <= set(each["verbs"])
                for each in held
            )


@pytest.mark.parametrize("role", ["admin", "edit", "view"])
async def test_no_namespace_role_reads_or_changes_the_config(rbac: RbacAuthorizer, role: str) -> None:
    assert allowed_verbs(rbac, role, ("get", "list", "patch", "update"), "configs", MANAGEMENT_GROUP) == []


async def test_without_a_role_users_can_store_only_access_keys_which_are_limited(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    self_authorizer, ada = (
        SelfAuthorizer(MANAGEMENT_GROUP, api.view),
        User("ada", (*AUTHENTICATED_GROUPS, "service:user:ada")),
    )
    allowed = set()
    for kind in KINDS:
        for namespace in ("", NAMESPACE):
            for verb in ("create", "update", "patch"):
                target = RequestInfo(verb, "", MANAGEMENT, kind.group, "v1", kind.plural, "", namespace, "ada")
                if rbac(ada, target) or self_authorizer(ada, target):
                    allowed.add((kind.plural, kind.persisted))
    assert {plural for plural, is_persisted in allowed if is_persisted} == {"ownedaccesskeys"}


def test_a_kind_with_readable_sensitive_fields_declares_its_sensitivity() -> None:
    """Otherwise the role `view` would include it, whatever its name is."""
    readable = {kind.name: set(kind.sensitive) - set(kind.write_only) for kind in KINDS}
    assert [kind.name for kind in KINDS if readable[kind.name] and kind.sensitivity is Sensitivity.NORMAL] == []


@pytest.mark.parametrize(
    ("sensitivity", "roles"),
    [
        (Sensitivity.NORMAL, ["admin", "edit", "view"]),
        (Sensitivity.SECRET, ["admin", "edit"]),
        (Sensitivity.CREDENTIAL, []),
    ],
)
async def test_the_sensitivity_of_a_kind_decides_which_roles_read_it(
    api: RegistryFixture, sensitivity: Sensitivity, roles: list[str]
) -> None:
    kind = replace(GADGET, name="Credential", plural="credentials", namespaced=True, sensitivity=sensitivity)
    admission = AdmissionChain()
    registry = Registry(Catalog((*KINDS, kind)), api.store, api.view, admission, api.clock)
    admission.bind(registry, ())
    await ensure_default_roles(registry, MANAGEMENT_GROUP)
    rbac = RbacAuthorizer.from_view(api.view)
    assert [
        role for role in ("admin", "edit", "view") if allowed_verbs(rbac, role, READ, "credentials", kind.group)
    ] == roles


async def test_auditors_may_only_read_audit_events(rbac: RbacAuthorizer) -> None:
    verbs = ("get", "list", "watch", "create", "delete")
    assert allowed_verbs(rbac, "system:auditor", verbs, "auditevents", MANAGEMENT_GROUP) == ["get", "list", "watch"]
    assert allowed_verbs(rbac, "system:auditor", verbs, "configmaps") == []
    for role in ("admin", "edit", "view"):
        assert allowed_verbs(rbac, role, verbs, "auditevents", MANAGEMENT_GROUP) == []
