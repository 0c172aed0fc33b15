"""Roles and bindings allow what they say, for whom they say it, as long as they say it."""

import pytest

from fairlead.authz import rbac as module
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import ADMIN_GROUPS, User
from tests.authz.roles import asked, binding, fixed, path, paths, role, rule, subject
from tests.harness.registry import RegistryFixture

BOB = User("bob", ("devs", "system:authenticated"))
TO_BOB = binding(subject("User", "bob"))


@pytest.mark.parametrize(
    ("given_rule", "target", "allowed"),
    [
        (rule("get", "apps"), asked("get", "apps", "a"), True),
        (rule("get", "apps"), asked("get", "apps"), True),
        (rule("get", "apps"), asked("list", "apps"), False),
        (rule("get", "apps"), asked("get", "clusters"), False),
        (rule("get", "apps"), asked("get", "apps", group="h"), False),
        (rule("get", "apps"), asked("get", "apps", group=""), False),
        (rule("get", "apps", groups="."), asked("get", "apps", group=""), True),
        (rule("get", "apps", groups="."), asked("get", "apps"), False),
        (rule("get list", "apps clusters", groups="g h"), asked("list", "clusters", group="h"), True),
        (rule("*", "apps"), asked("deletecollection", "apps"), True),
        (rule("*", "apps"), asked("escalate", "apps"), True),
        (rule("get", "*"), asked("get", "anything/at-all"), True),
        (rule("get", "apps", groups="*"), asked("get", "apps", group=""), True),
        (rule("ge*", "apps"), asked("get", "apps"), False),
        (rule("get", "app*"), asked("get", "apps"), False),
        # A subresource is a resource of its own, both ways.
        (rule("get", "apps"), asked("get", "apps/status", "a"), False),
        (rule("get", "apps/status"), asked("get", "apps/status", "a"), True),
        (rule("get", "apps/status"), asked("get", "apps", "a"), False),
        (rule("get", "apps/status"), asked("get", "clusters/status", "a"), False),
        (rule("get", "*/status"), asked("get", "clusters/status", "a"), True),
        (rule("get", "*/status"), asked("get", "clusters", "a"), False),
        (rule("get", "*/status"), asked("get", "clusters/scale", "a"), False),
        (rule("get", "apps/*"), asked("get", "apps/status", "a"), False),
        # Names.
        (rule("get list", "apps", names="a b"), asked("get", "apps", "b"), True),
        (rule("get list", "apps", names="a b"), asked("get", "apps", "c"), False),
        (rule("get list", "apps", names="a b"), asked("list", "apps"), False),
        (rule("get", "apps", names="*"), asked("get", "apps", "a"), False),
        (rule("get", "apps", names="a"), asked("get", "apps", "A"), False),
        # Paths.
        (paths("get", "/x /y/*"), path("get", "/x"), True),
        (paths("get", "/x /y/*"), path("get", "/x/z"), False),
        (paths("get", "/x /y/*"), path("put", "/x"), False),
        (paths("get", "/x /y/*"), path("get", "/y"), False),
        (paths("get", "/x /y/*"), path("get", "/y/"), True),
        (paths("get", "/x /y/*"), path("get", "/y/a/b"), True),
        (paths("get", "/y*"), path("get", "/yes"), True),
        (paths("*", "*"), path("delete", "/"), True),
        (paths("get", "/*/z"), path("get", "/a/z"), False),
        # The two have nothing to do with each other.
        (paths("*", "*"), asked("get", "apps"), False),
        (rule("*", "*", groups="*"), path("get", "/x"), False),
    ],
)
def test_what_a_rule_allows(given_rule: Object, target: RequestInfo, allowed: bool) -> None:
    rbac = fixed(cluster_roles=[role(given_rule)], cluster_role_bindings=[TO_BOB])
    decision = rbac(BOB, target)
    assert (decision is not None and decision.allowed) == allowed
    assert decision is None or allowed, "without a right there is no opinion"
    assert rbac.role_allows("r", target) == allowed


@pytest.mark.parametrize(
    ("whom", "user", "allowed"),
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
def test_whom_a_subject_names(whom: Object, user: User, allowed: bool) -> None:
    bindings = [binding(subject("User", "somebody else"), whom)]
    rbac = fixed(cluster_roles=[role(rule("get", "apps"))], cluster_role_bindings=bindings)
    assert (rbac(user, asked("get", "apps")) is not None) == allowed


def test_a_role_binding_counts_in_its_namespace_only() -> None:
    rules = rule("get", "apps"), paths("get", "/x")
    rbac = fixed(cluster_roles=[role(*rules)], role_bindings=[binding(subject("User", "bob"), namespace="n")])
    assert rbac(BOB, asked("get", "apps", namespace="n"))
    assert not rbac(BOB, asked("get", "apps", namespace="m"))
    assert not rbac(BOB, asked("get", "apps"))
    assert not rbac(BOB, path("get", "/x"))


def test_a_role_is_that_of_the_bindings_namespace() -> None:
    roles = [role(rule("get", "apps"), namespace="n"), role(rule("list", "apps"), namespace="m")]
    bindings = [binding(subject("User", "bob"), namespace=each, kind="Role") for each in ("n", "m", "o")]
    rbac = fixed(roles, [role(rule("delete", "apps"))], bindings)
    may = {
        namespace: [verb for verb in ("get", "list", "delete") if rbac(BOB, asked(verb, "apps", namespace=namespace))]
        for namespace in ("n", "m", "o", "")
    }
    assert may == {"n": ["get"], "m": ["list"], "o": [], "": []}


def test_a_service_account_without_namespace_is_that_of_the_binding() -> None:
    bindings = [binding(subject("ServiceAccount", "sa"), namespace="n")]
    rbac = fixed(cluster_roles=[role(rule("get", "apps"))], role_bindings=bindings)
    assert rbac(User("system:serviceaccount:n:sa"), asked("get", "apps", namespace="n"))
    assert not rbac(User("system:serviceaccount::sa"), asked("get", "apps", namespace="n"))


@pytest.mark.parametrize(
    ("bound", "namespace", "user", "reason"),
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
def test_the_reason_names_the_binding(bound: Object, namespace: str, user: User, reason: str) -> None:
    sorts = {"role_bindings" if namespace else "cluster_role_bindings": [binding(bound, namespace=namespace)]}
    rbac = fixed(cluster_roles=[role(rule("get", "apps"))], **sorts)
    assert rbac(user, asked("get", "apps", namespace="n")) == Decision(True, f"RBAC: allowed by {reason}")


def test_bindings_to_roles_that_are_not_there_give_nothing() -> None:
    rbac = fixed(
        cluster_role_bindings=[TO_BOB], role_bindings=[binding(subject("User", "bob"), namespace="n", kind="Role")]
    )
    assert rbac(BOB, asked("get", "apps", namespace="n")) is None
    assert rbac.rules_for(BOB, "n") == []
    assert not rbac.role_allows("r", asked("get", "apps"))


def test_roles_and_bindings_with_nothing_in_them_give_nothing() -> None:
    empty = {"metadata": {"name": "c"}, "roleRef": {"kind": "ClusterRole", "name": "r"}}
    rbac = fixed(cluster_roles=[role()], cluster_role_bindings=[TO_BOB, empty])
    assert rbac(BOB, asked("get", "apps")) is None


def test_rules_are_told_for_everywhere_and_for_the_namespace_each_once() -> None:
    everywhere, here, twice = rule("get", "apps"), rule("list", "apps"), paths("get", "/x")
    rbac = fixed(
        [role(here, twice, namespace="n")],
        [role(everywhere, twice)],
        [binding(subject("Group", "devs"), namespace="n", kind="Role")],
        [TO_BOB],
    )
    assert rbac.rules_for(BOB, "n") == [everywhere, twice, here]
    assert rbac.rules_for(BOB, "m") == rbac.rules_for(BOB, "") == [everywhere, twice]
    assert rbac.rules_for(User("eve"), "n") == []


def test_rules_are_the_askers_to_change() -> None:
    rbac = fixed(cluster_roles=[role(rule("get", "apps"))], cluster_role_bindings=[TO_BOB])
    rbac.rules_for(BOB, "")[0]["verbs"].append("delete")
    assert rbac.rules_for(BOB, "") == [rule("get", "apps")]


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
def test_the_built_in_admins_have_the_rules_for_everything(group: str) -> None:
    rules = fixed().rules_for(User("root", (group,)), "n")
    assert rules == [rule("*", "*", groups="*"), paths("*", "*")]


def test_no_more_identities_are_kept_than_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBJECT_CACHE_SIZE", 3)
    rbac = fixed(cluster_roles=[role(rule("get", "apps"))], cluster_role_bindings=[TO_BOB])
    for number in range(10):
        assert rbac(User("bob", (f"g{number}",)), asked("get", "apps"))
        assert not rbac(User(f"eve{number}"), asked("get", "apps"))
        assert len(rbac._snapshot.get()._grants_by_subject) <= 3


async def test_rights_follow_the_objects(api: RegistryFixture) -> None:
    rbac, target = RbacAuthorizer.from_view(api.view), asked("get", "apps")
    assert not rbac(BOB, target)
    await api.create("ClusterRole", "r", rules=[rule("get", "apps")])
    await api.create("ClusterRoleBinding", "b", **{key: TO_BOB[key] for key in ("subjects", "roleRef")})
    assert rbac(BOB, target)
    await api.patch("ClusterRole", "r", lambda each: each.update(rules=[rule("list", "apps")]))
    assert not rbac(BOB, target) and rbac(BOB, asked("list", "apps"))
    await api.delete("ClusterRole", "r")
    assert not rbac(BOB, asked("list", "apps"))
    await api.create("ClusterRole", "r", rules=[rule("get", "apps")])
    assert rbac(BOB, target)
    await api.patch("ClusterRoleBinding", "b", lambda each: each.update(subjects=[subject("User", "eve")]))
    assert not rbac(BOB, target) and rbac(User("eve"), target)
    await api.delete("ClusterRoleBinding", "b")
    assert not rbac(User("eve"), target)


async def test_the_generation_moves_with_every_role_and_binding_and_with_nothing_else(api: RegistryFixture) -> None:
    rbac = RbacAuthorizer.from_view(api.view)
    seen = [rbac.generation()]
    await api.create("ConfigMap", "c")
    assert rbac.generation() == seen[0]
    for kind in ("Role", "ClusterRole"):
        await api.create(kind, "r")
        seen.append(rbac.generation())
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        await api.create(kind, "b", roleRef={"kind": "ClusterRole", "name": "r"})
        seen.append(rbac.generation())
    assert len(set(seen)) == 5
