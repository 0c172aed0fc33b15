"""RbacAuthorizer: what rules allow, whom bindings name, and changes of roles and bindings."""

import pytest

from fairlead.authz import rbac as rbac_module
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import ADMIN_GROUPS, User
from tests.authz.roles import (
    binding,
    build_rbac,
    path_request,
    path_rule,
    resource_request,
    resource_rule,
    role,
    subject,
)
from tests.harness.registry import RegistryFixture

BOB = User("bob", ("devs", "system:authenticated"))
BOB_BINDING = binding(subject("User", "bob"))


@pytest.mark.parametrize(
    ("rule", "target", "allowed"),
    [
        (resource_rule("get", "apps"), resource_request("get", "apps", "a"), True),
        (resource_rule("get", "apps"), resource_request("get", "apps"), True),
        (resource_rule("get", "apps"), resource_request("list", "apps"), False),
        (resource_rule("get", "apps"), resource_request("get", "clusters"), False),
        (resource_rule("get", "apps"), resource_request("get", "apps", group="h"), False),
        (resource_rule("get", "apps"), resource_request("get", "apps", group=""), False),
        (resource_rule("get", "apps", groups="."), resource_request("get", "apps", group=""), True),
        (resource_rule("get", "apps", groups="."), resource_request("get", "apps"), False),
        (
            resource_rule("get list", "apps clusters", groups="g h"),
            resource_request("list", "clusters", group="h"),
            True,
        ),
        (resource_rule("*", "apps"), resource_request("deletecollection", "apps"), True),
        (resource_rule("*", "apps"), resource_request("escalate", "apps"), True),
        (resource_rule("get", "*"), resource_request("get", "anything/at-all"), True),
        (resource_rule("get", "apps", groups="*"), resource_request("get", "apps", group=""), True),
        (resource_rule("ge*", "apps"), resource_request("get", "apps"), False),
        (resource_rule("get", "app*"), resource_request("get", "apps"), False),
        # A subresource and its resource are separate.
        (resource_rule("get", "apps"), resource_request("get", "apps/status", "a"), False),
        (resource_rule("get", "apps/status"), resource_request("get", "apps/status", "a"), True),
        (resource_rule("get", "apps/status"), resource_request("get", "apps", "a"), False),
        (resource_rule("get", "apps/status"), resource_request("get", "clusters/status", "a"), False),
        (resource_rule("get", "*/status"), resource_request("get", "clusters/status", "a"), True),
        (resource_rule("get", "*/status"), resource_request("get", "clusters", "a"), False),
        (resource_rule("get", "*/status"), resource_request("get", "clusters/scale", "a"), False),
        (resource_rule("get", "apps/*"), resource_request("get", "apps/status", "a"), False),
        # Names.
        (resource_rule("get list", "apps", names="a b"), resource_request("get", "apps", "b"), True),
        (resource_rule("get list", "apps", names="a b"), resource_request("get", "apps", "c"), False),
        (resource_rule("get list", "apps", names="a b"), resource_request("list", "apps"), False),
        (resource_rule("get", "apps", names="*"), resource_request("get", "apps", "a"), False),
        (resource_rule("get", "apps", names="a"), resource_request("get", "apps", "A"), False),
        # Paths.
        (path_rule("get", "/x /y/*"), path_request("get", "/x"), True),
        (path_rule("get", "/x /y/*"), path_request("get", "/x/z"), False),
        (path_rule("get", "/x /y/*"), path_request("put", "/x"), False),
        (path_rule("get", "/x /y/*"), path_request("get", "/y"), False),
        (path_rule("get", "/x /y/*"), path_request("get", "/y/"), True),
        (path_rule("get", "/x /y/*"), path_request("get", "/y/a/b"), True),
        (path_rule("get", "/y*"), path_request("get", "/yes"), True),
        (path_rule("*", "*"), path_request("delete", "/"), True),
        (path_rule("get", "/*/z"), path_request("get", "/a/z"), False),
        # Resource rules allow no paths, and path rules allow no resources.
        (path_rule("*", "*"), resource_request("get", "apps"), False),
        (resource_rule("*", "*", groups="*"), path_request("get", "/x"), False),
    ],
)
def test_a_rule_allows_exactly_the_requests_that_it_matches(rule: Object, target: RequestInfo, allowed: bool) -> None:
    rbac = build_rbac(cluster_roles=[role(rule)], cluster_role_bindings=[BOB_BINDING])
    decision = rbac(BOB, target)
    assert (decision is not None and decision.allowed) == allowed
    assert decision is None or allowed, "a request that is not allowed gets no decision"
    assert rbac.role_allows("r", target) == allowed


@pytest.mark.parametrize(
    ("bound_subject", "user", "allowed"),
    [
        (subject("User", "bob"), User("bob"), True),
        (subject("User", "bob"), User("Bob"), False),
        (subject("User", "bob"), User("eve", ("bob",)), False),
        (subject("Group", "devs"), User("eve", ("other", "devs")), True),
        (subject("Group", "devs"), User("devs"), False),
        (subject("Group", "system:authenticated"), BOB, True),
        (subject("User", "*"), BOB, False),
        (subject("Group", "*"), BOB, False),
        (subject("ServiceAccount", "sa", "n"), User("system:serviceaccount:n:sa"), True),
        (subject("ServiceAccount", "sa", "n"), User("system:serviceaccount:m:sa"), False),
        (subject("ServiceAccount", "sa", "n"), User("sa"), False),
        (subject("User", "system:serviceaccount:n:sa"), User("system:serviceaccount:n:sa"), True),
    ],
)
def test_a_subject_matches_users_groups_and_service_accounts(bound_subject: Object, user: User, allowed: bool) -> None:
    bindings = [binding(subject("User", "another user"), bound_subject)]
    rbac = build_rbac(cluster_roles=[role(resource_rule("get", "apps"))], cluster_role_bindings=bindings)
    assert (rbac(user, resource_request("get", "apps")) is not None) == allowed


def test_a_role_binding_applies_in_its_namespace_only() -> None:
    rules = resource_rule("get", "apps"), path_rule("get", "/x")
    rbac = build_rbac(cluster_roles=[role(*rules)], role_bindings=[binding(subject("User", "bob"), namespace="n")])
    assert rbac(BOB, resource_request("get", "apps", namespace="n"))
    assert not rbac(BOB, resource_request("get", "apps", namespace="m"))
    assert not rbac(BOB, resource_request("get", "apps"))
    assert not rbac(BOB, path_request("get", "/x"))


def test_a_role_binding_refers_to_a_role_in_its_own_namespace() -> None:
    roles = [role(resource_rule("get", "apps"), namespace="n"), role(resource_rule("list", "apps"), namespace="m")]
    bindings = [binding(subject("User", "bob"), namespace=each, kind="Role") for each in ("n", "m", "o")]
    rbac = build_rbac(roles, [role(resource_rule("delete", "apps"))], bindings)
    allowed_verbs = {
        namespace: [
            verb for verb in ("get", "list", "delete") if rbac(BOB, resource_request(verb, "apps", namespace=namespace))
        ]
        for namespace in ("n", "m", "o", "")
    }
    assert allowed_verbs == {"n": ["get"], "m": ["list"], "o": [], "": []}


def test_a_service_account_subject_defaults_to_the_namespace_of_the_binding() -> None:
    bindings = [binding(subject("ServiceAccount", "sa"), namespace="n")]
    rbac = build_rbac(cluster_roles=[role(resource_rule("get", "apps"))], role_bindings=bindings)
    assert rbac(User("system:serviceaccount:n:sa"), resource_request("get", "apps", namespace="n"))
    assert not rbac(User("system:serviceaccount::sa"), resource_request("get", "apps", namespace="n"))


@pytest.mark.parametrize(
    ("bound_subject", "namespace", "user", "reason"),
    [
        (subject("User", "bob"), "", BOB, 'ClusterRoleBinding "b" of ClusterRole "r" to User "bob"'),
        (subject("Group", "devs"), "", BOB, 'ClusterRoleBinding "b" of ClusterRole "r" to Group "devs"'),
        (subject("User", "bob"), "n", BOB, 'RoleBinding "b/n" of ClusterRole "r" to User "bob"'),
        (
            subject("ServiceAccount", "sa"),
            "n",
            User("system:serviceaccount:n:sa"),
            'RoleBinding "b/n" of ClusterRole "r" to ServiceAccount "sa/n"',
        ),
    ],
)
def test_the_reason_names_the_binding(bound_subject: Object, namespace: str, user: User, reason: str) -> None:
    bindings = {
        "role_bindings" if namespace else "cluster_role_bindings": [binding(bound_subject, namespace=namespace)]
    }
    rbac = build_rbac(cluster_roles=[role(resource_rule("get", "apps"))], **bindings)
    assert rbac(user, resource_request("get", "apps", namespace="n")) == Decision(True, f"RBAC: allowed by {reason}")


def test_bindings_to_missing_roles_allow_nothing() -> None:
    rbac = build_rbac(
        cluster_role_bindings=[BOB_BINDING], role_bindings=[binding(subject("User", "bob"), namespace="n", kind="Role")]
    )
    assert rbac(BOB, resource_request("get", "apps", namespace="n")) is None
    assert rbac.rules_for(BOB, "n") == []
    assert not rbac.role_allows("r", resource_request("get", "apps"))


def test_empty_roles_and_bindings_allow_nothing() -> None:
    empty = {"metadata": {"name": "c"}, "roleRef": {"kind": "ClusterRole", "name": "r"}}
    rbac = build_rbac(cluster_roles=[role()], cluster_role_bindings=[BOB_BINDING, empty])
    assert rbac(BOB, resource_request("get", "apps")) is None


def test_rules_for_a_user_are_cluster_wide_and_of_the_namespace_without_duplicates() -> None:
    cluster_wide, in_namespace, in_both = (
        resource_rule("get", "apps"),
        resource_rule("list", "apps"),
        path_rule("get", "/x"),
    )
    rbac = build_rbac(
        [role(in_namespace, in_both, namespace="n")],
        [role(cluster_wide, in_both)],
        [binding(subject("Group", "devs"), namespace="n", kind="Role")],
        [BOB_BINDING],
    )
    assert rbac.rules_for(BOB, "n") == [cluster_wide, in_both, in_namespace]
    assert rbac.rules_for(BOB, "m") == rbac.rules_for(BOB, "") == [cluster_wide, in_both]
    assert rbac.rules_for(User("eve"), "n") == []


def test_callers_may_modify_the_returned_rules() -> None:
    rbac = build_rbac(cluster_roles=[role(resource_rule("get", "apps"))], cluster_role_bindings=[BOB_BINDING])
    rbac.rules_for(BOB, "")[0]["verbs"].append("delete")
    assert rbac.rules_for(BOB, "") == [resource_rule("get", "apps")]


def test_a_list_of_rules_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [resource_rule("get", f"r{number}") for number in range(100)]
    rbac = build_rbac(cluster_roles=[role(*rules)], cluster_role_bindings=[BOB_BINDING])
    assert rbac.list_rules(BOB, "n") == (rules, True)
    monkeypatch.setattr("fairlead.authz.rbac.MAX_LISTED_BYTES", 1_000)
    listed, is_complete = rbac.list_rules(BOB, "n")
    assert not is_complete and 0 < len(listed) < 100 and listed == rules[: len(listed)]
    assert rbac.rules_for(BOB, "n") == rules


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
def test_administrators_have_rules_for_everything(group: str) -> None:
    rules = build_rbac().rules_for(User("root", (group,)), "n")
    assert rules == [resource_rule("*", "*", groups="*"), path_rule("*", "*")]


def test_the_subject_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac_module, "SUBJECT_CACHE_SIZE", 3)
    rbac = build_rbac(cluster_roles=[role(resource_rule("get", "apps"))], cluster_role_bindings=[BOB_BINDING])
    for number in range(10):
        assert rbac(User("bob", (f"g{number}",)), resource_request("get", "apps"))
        assert not rbac(User(f"eve{number}"), resource_request("get", "apps"))
        assert len(rbac._snapshot.get()._grants_by_subject) <= 3


async def test_permissions_follow_changes_of_roles_and_bindings(api: RegistryFixture) -> None:
    rbac, target = RbacAuthorizer.from_view(api.view), resource_request("get", "apps")
    assert not rbac(BOB, target)
    await api.create("ClusterRole", "r", rules=[resource_rule("get", "apps")])
    await api.create("ClusterRoleBinding", "b", **{key: BOB_BINDING[key] for key in ("subjects", "roleRef")})
    assert rbac(BOB, target)
    await api.patch("ClusterRole", "r", lambda each: each.update(rules=[resource_rule("list", "apps")]))
    assert not rbac(BOB, target) and rbac(BOB, resource_request("list", "apps"))
    await api.delete("ClusterRole", "r")
    assert not rbac(BOB, resource_request("list", "apps"))
    await api.create("ClusterRole", "r", rules=[resource_rule("get", "apps")])
    assert rbac(BOB, target)
    await api.patch("ClusterRoleBinding", "b", lambda each: each.update(subjects=[subject("User", "eve")]))
    assert not rbac(BOB, target) and rbac(User("eve"), target)
    await api.delete("ClusterRoleBinding", "b")
    assert not rbac(User("eve"), target)


async def test_the_generation_changes_with_roles_and_bindings_only(api: RegistryFixture) -> None:
    rbac = RbacAuthorizer.from_view(api.view)
    generations = [rbac.generation()]
    await api.create("ConfigMap", "c")
    assert rbac.generation() == generations[0]
    for kind in ("Role", "ClusterRole"):
        await api.create(kind, "r")
        generations.append(rbac.generation())
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        await api.create(kind, "b", roleRef={"kind": "ClusterRole", "name": "r"})
        generations.append(rbac.generation())
    assert len(set(generations)) == 5
