"""The roles that are there from the beginning: what they give, to whom, and that they come back."""

from dataclasses import replace
from hashlib import sha256

import orjson
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
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.harness.registry import ADA, GADGET, NAMESPACE, RegistryFixture

GROUP = "rbac.authorization.k8s.io"
PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
SOMEBODY = User("somebody", AUTHENTICATED_GROUPS)
READ, WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")


@pytest.fixture
async def rbac(api: RegistryFixture) -> RbacAuthorizer:
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    return RbacAuthorizer.from_view(api.view)


def asked(verb: str, resource: str, group: str = "", namespace: str = NAMESPACE) -> RequestInfo:
    plural, _, subresource = resource.partition("/")
    return RequestInfo(verb, "", "management", group, "v1", plural, subresource, namespace)


def may(rbac: RbacAuthorizer, role: str, verbs: tuple[str, ...], resource: str, group: str = "") -> list[str]:
    return [verb for verb in verbs if rbac.role_allows(role, asked(verb, resource, group))]


async def test_they_are_all_there(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    roles = ["admin", "cluster-admin", "edit", "system:basic-user", "system:discovery", "system:monitoring", "view"]
    assert api.names("ClusterRole") == roles
    bindings = ["cluster-admin", "system:basic-user", "system:discovery", "system:monitoring"]
    assert api.names("ClusterRoleBinding") == bindings


async def test_what_is_missing_comes_back_and_what_was_changed_stays(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    changed = await api.patch("ClusterRole", "view", lambda obj: obj.update(rules=[]))
    taken = await api.patch("ClusterRoleBinding", "system:discovery", lambda obj: obj.pop("subjects"))
    await api.delete("ClusterRole", "edit")
    await api.delete("ClusterRoleBinding", "cluster-admin")
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert api.see("ClusterRole", "view") == changed
    assert api.see("ClusterRoleBinding", "system:discovery") == taken
    assert api.see("ClusterRole", "edit") and api.see("ClusterRoleBinding", "cluster-admin")


async def make_earlier(
    api: RegistryFixture, name: str, writing: WriteOptions, *, is_noted: bool = True
) -> list[Object]:
    """The role as an earlier version has made it. Returns its rules."""
    current = api.see("ClusterRole", name)
    assert current is not None
    rules: list[Object] = current["rules"][:1]
    digest = sha256(orjson.dumps(rules, option=orjson.OPT_SORT_KEYS)).hexdigest()
    meta = {"name": name, "annotations": {"service.sh/default-rules": digest} if is_noted else {}}
    await api.delete("ClusterRole", name)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    await api.registry.resource(GROUP, "clusterroles").create(body, "", writing)
    return rules


def rules_of(api: RegistryFixture, name: str) -> list[Object]:
    return list((api.see("ClusterRole", name) or {})["rules"])


async def test_what_nobody_has_changed_follows_the_version_of_the_server(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    new = {name: api.see("ClusterRole", name) for name in ("admin", "view")}
    await make_earlier(api, "admin", server_write_options())
    await make_earlier(api, "view", server_write_options())
    await api.patch("ClusterRole", "view", lambda obj: obj["metadata"].update(labels={"seen": "yes"}))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    for name, role in new.items():
        found = api.see("ClusterRole", name)
        assert role is not None and found is not None
        assert found["rules"] == role["rules"]
        assert found["metadata"]["annotations"] == role["metadata"]["annotations"]
    assert (api.see("ClusterRole", "view") or {})["metadata"]["labels"] == {"seen": "yes"}


@pytest.mark.parametrize("manager", ["tests", "fairlead"])
async def test_rules_that_were_changed_stay_whatever_the_client_calls_itself(
    api: RegistryFixture, rbac: RbacAuthorizer, manager: str
) -> None:
    await make_earlier(api, "view", server_write_options())
    changed: list[Object] = [{"apiGroups": [""], "resources": ["events"], "verbs": ["get"]}]
    await api.patch("ClusterRole", "view", lambda obj: obj.update(rules=changed), WriteOptions(ADA, manager))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == changed


async def test_a_role_without_the_digest_is_left_alone_unless_its_rules_are_the_default(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    earlier = await make_earlier(api, "admin", server_write_options(), is_noted=False)
    new = api.see("ClusterRole", "view") or {}
    await api.patch("ClusterRole", "view", lambda obj: obj["metadata"].pop("annotations"))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "admin") == earlier
    found = api.see("ClusterRole", "view") or {}
    assert found["metadata"]["annotations"] == new["metadata"]["annotations"]


async def test_a_start_with_everything_there_writes_nothing(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    revision = api.view.revision
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert api.view.revision == revision


async def test_two_replicas_that_start_at_once_do_not_mind_each_other(api: RegistryFixture) -> None:
    async def faster() -> None:
        await ensure_default_roles(api.registry, MANAGEMENT_GROUP)

    api.store.before = [faster]
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert len(api.names("ClusterRole")) == 7


async def test_monitoring_reads_metrics_and_every_health_check_and_nothing_else(rbac: RbacAuthorizer) -> None:
    watcher = User("prometheus", ("system:monitoring",))
    for path in ("/metrics", "/livez", "/readyz/store", "/healthz/ping"):
        assert rbac(watcher, RequestInfo("get", path, MANAGEMENT)) and rbac(watcher, RequestInfo("get", path))
    assert not rbac(watcher, RequestInfo("post", "/metrics"))
    assert not rbac(watcher, asked("get", "events"))


async def test_what_nobody_can_write_is_only_readable(rbac: RbacAuthorizer) -> None:
    for role in ("view", "edit", "admin"):
        assert may(rbac, role, (*READ, *WRITE), "services") == list(READ)


async def test_only_admins_of_a_namespace_write_service_accounts_and_ask_for_their_tokens(rbac: RbacAuthorizer) -> None:
    assert may(rbac, "admin", (*READ, *WRITE), "serviceaccounts") == [*READ, *WRITE]
    assert may(rbac, "admin", ("create",), "serviceaccounts/token") == ["create"]
    for role in ("view", "edit"):
        assert may(rbac, role, (*READ, *WRITE), "serviceaccounts") == list(READ)
        assert may(rbac, role, ("create", "get"), "serviceaccounts/token") == []


async def test_cluster_admin_may_do_everything(rbac: RbacAuthorizer) -> None:
    root = User("root", ("system:masters",))
    assert rbac(root, asked("escalate", "anything/at-all", "x.io", ""))
    assert rbac(root, RequestInfo("delete", "/anything"))


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/apis", "/apis/x/y", "/openapi/v3", "/version", "/readyz", "/livez"]
)
async def test_everybody_may_look_at_what_the_api_consists_of(rbac: RbacAuthorizer, path: str) -> None:
    assert rbac(SOMEBODY, RequestInfo("get", path, "management"))
    assert not rbac(SOMEBODY, RequestInfo("post", path, "management"))
    assert not rbac(User("stranger"), RequestInfo("get", path, "management"))


@pytest.mark.parametrize("path", ["/", "/metrics", "/apiextra", "/openapix", "/debug", "/version/x"])
async def test_nobody_may_look_elsewhere_by_that(rbac: RbacAuthorizer, path: str) -> None:
    assert not rbac(SOMEBODY, RequestInfo("get", path, "management"))


BASIC = [
    ("create", "selfsubjectaccessreviews", "authorization.k8s.io"),
    ("create", "selfsubjectrulesreviews", "authorization.k8s.io"),
    ("create", "selfsubjectreviews", "authentication.k8s.io"),
    ("create", "selves", MANAGEMENT_GROUP),
    ("create", "selfsubjectaccessreviews", MANAGEMENT_GROUP),
    ("list", "customresourcedefinitions", "apiextensions.k8s.io"),
]


@pytest.mark.parametrize(("verb", "resource", "group"), BASIC)
async def test_everybody_may_ask_about_themselves(rbac: RbacAuthorizer, verb: str, resource: str, group: str) -> None:
    assert rbac(SOMEBODY, asked(verb, resource, group, ""))


async def test_everybody_may_do_nothing_else(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    verbs = (*READ, *WRITE, "escalate", "bind", "use", "impersonate")
    allowed = [
        (verb, kind.plural, kind.group)
        for kind in api.registry.catalog.kinds
        for verb in verbs
        for namespace in ("", NAMESPACE)
        if rbac(SOMEBODY, asked(verb, kind.plural, kind.group, namespace))
    ]
    assert set(allowed) <= set(BASIC)
    for verb, resource in (("create", "subjectaccessreviews"), ("create", "tokenreviews"), ("impersonate", "users")):
        assert not rbac(SOMEBODY, asked(verb, resource, "authorization.k8s.io", ""))


async def test_the_management_group_may_have_another_name(api: RegistryFixture) -> None:
    await ensure_default_roles(api.registry, "example.com")
    found = api.see("ClusterRole", "system:basic-user") or {}
    assert [rule["resources"] for rule in found["rules"] if rule["apiGroups"] == ["example.com"]] == [
        ["selfsubjectaccessreviews", "selves"]
    ]


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
async def test_all_three_see_what_is_in_a_namespace(rbac: RbacAuthorizer, role: str) -> None:
    for resource in ("configmaps", "events", "namespaces", "namespaces/status"):
        assert may(rbac, role, READ, resource) == list(READ)
    assert may(rbac, role, READ, "leases", "coordination.k8s.io") == list(READ)
    assert may(rbac, role, READ, "devpodworkspaceinstances", MANAGEMENT_GROUP) == list(READ)
    assert may(rbac, role, READ, "devpodworkspaceinstances/status", MANAGEMENT_GROUP) == list(READ)


async def test_viewers_change_nothing_and_see_no_secrets_keys_or_roles(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    everything = {f"{kind.plural}{sub}": kind.group for kind in api.registry.catalog.kinds for sub in ("", "/status")}
    for resource, group in everything.items():
        assert may(rbac, "view", (*WRITE, "use", "bind", "escalate"), resource, group) == []
    assert may(rbac, "view", READ, "secrets") == []
    for plural in PLURALS:
        assert may(rbac, "view", READ, plural, GROUP) == []
    for plural in ("ownedaccesskeys", "projectsecrets", "sharedsecrets", "users"):
        assert may(rbac, "view", READ, plural, MANAGEMENT_GROUP) == []


@pytest.mark.parametrize("role", ["edit", "admin"])
async def test_editors_change_what_is_in_a_namespace_and_not_the_namespace(rbac: RbacAuthorizer, role: str) -> None:
    for resource in ("configmaps", "secrets", "events"):
        assert may(rbac, role, WRITE, resource) == list(WRITE)
    assert may(rbac, role, WRITE, "devpodworkspaceinstances", MANAGEMENT_GROUP) == list(WRITE)
    assert may(rbac, role, WRITE, "devpodworkspaceinstances/status", MANAGEMENT_GROUP) == []
    assert may(rbac, role, WRITE, "namespaces") == []
    for plural in ("projects", "clusters", "apps", "users", "ownedaccesskeys"):
        assert may(rbac, role, (*READ, *WRITE), plural, MANAGEMENT_GROUP) == []


async def test_roles_and_bindings_of_a_namespace_are_for_its_admins(rbac: RbacAuthorizer) -> None:
    for plural in ("roles", "rolebindings"):
        assert may(rbac, "admin", WRITE, plural, GROUP) == list(WRITE)
        assert may(rbac, "admin", ("escalate", "bind"), plural, GROUP) == []
        assert may(rbac, "edit", (*READ, *WRITE), plural, GROUP) == []
    assert may(rbac, "admin", WRITE, "clusterroles", GROUP) == []
    assert may(rbac, "admin", ("create",), "localsubjectaccessreviews", "authorization.k8s.io") == ["create"]


async def test_the_admin_of_a_namespace_can_hand_the_role_on(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    """Who has `admin` holds all that `edit` and `view` give."""
    reference: Object = {"kind": "ClusterRole", "name": "admin"}
    await api.create("RoleBinding", "b", subjects=[{"kind": "User", "name": "ada"}], roleRef=reference)
    held = rbac.rules_for(User("ada"), NAMESPACE)
    view = (api.see("ClusterRole", "view") or {})["rules"]
    for rule in view:
        for resource in rule["resources"]:
            assert any(
                resource in each["resources"]
                and each["apiGroups"] == rule["apiGroups"]
                and set(READ) <= set(each["verbs"])
                for each in held
            )


@pytest.mark.parametrize("role", ["admin", "edit", "view"])
async def test_no_role_but_that_of_administrators_reads_or_changes_the_config(rbac: RbacAuthorizer, role: str) -> None:
    assert may(rbac, role, ("get", "list", "patch", "update"), "configs", MANAGEMENT_GROUP) == []


async def test_without_a_role_people_store_nothing_but_access_keys_which_are_bounded(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    oneself, ada = (
        SelfAuthorizer(MANAGEMENT_GROUP, api.view),
        User("ada", (*AUTHENTICATED_GROUPS, "service:user:ada")),
    )
    allowed = set()
    for kind in KINDS:
        for namespace in ("", NAMESPACE):
            for verb in ("create", "update", "patch"):
                target = RequestInfo(verb, "", MANAGEMENT, kind.group, "v1", kind.plural, "", namespace, "ada")
                if rbac(ada, target) or oneself(ada, target):
                    allowed.add((kind.plural, kind.persisted))
    assert {plural for plural, is_stored in allowed if is_stored} == {"ownedaccesskeys"}


def test_a_kind_that_shows_sensitive_fields_says_so() -> None:
    """Otherwise the role `view` would include it, whatever its name is."""
    shown = {kind.name: set(kind.sensitive) - set(kind.write_only) for kind in KINDS}
    assert [kind.name for kind in KINDS if shown[kind.name] and kind.sensitivity is Sensitivity.NORMAL] == []


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
    admission = AdmissionChain(())
    registry = Registry(Catalog((*KINDS, kind)), api.store, api.view, admission, api.clock)
    admission.bind_registry(registry)
    await ensure_default_roles(registry, MANAGEMENT_GROUP)
    rbac = RbacAuthorizer.from_view(api.view)
    assert [role for role in ("admin", "edit", "view") if may(rbac, role, READ, "credentials", kind.group)] == roles
