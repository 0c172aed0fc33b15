"""Nobody gives rights that they do not hold, by whichever way."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.escalation import prevent_escalation
from fairlead.authz.authorizer import administrators, first_decision
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import ApiError, Forbidden, Invalid, NotFound
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

GROUP = "rbac.authorization.k8s.io"
ROOT = User("root", ("service:admins",))
EVE = User("eve", ("devs", "system:authenticated"))
READ_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
READ_SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
ALL_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ANY_PATH = {"nonResourceURLs": ["*"], "verbs": ["*"]}
TO_BOB = [{"kind": "User", "name": "bob"}]


@pytest.fixture
def guarded(api: RegistryFixture) -> RegistryFixture:
    """The same world with the rule, and nothing else, before its writes. Scopes reach as far as `in_scope` says."""
    rbac = RbacAuthorizer.from_view(api.view)

    def may(user: User, target: RequestInfo) -> Decision:
        return first_decision((in_scope, administrators, rbac), user, target)

    chain = AdmissionChain((prevent_escalation(may, rbac),))
    api.registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(api.registry)
    return api


def in_scope(user: User, target: RequestInfo) -> Decision | None:
    inside = user.scope is None or (target.namespace == NAMESPACE and NAMESPACE in user.scope.projects)
    return None if inside else Decision(False, "outside")


async def create(api: RegistryFixture, user: User, kind: str, name: str, **fields: Any) -> Object:
    return await api.submit(kind, api.body(kind, name, **fields), WriteOptions(user, "tests"))


async def change(api: RegistryFixture, user: User, kind: str, name: str, **fields: Any) -> Object:
    return await api.patch(kind, name, lambda obj: obj.update(fields), WriteOptions(user, "tests"))


async def label(api: RegistryFixture, user: User, kind: str, name: str, **labels: str) -> Object:
    return await api.patch(kind, name, lambda obj: obj["metadata"].update(labels=labels), WriteOptions(user, "tests"))


async def give(api: RegistryFixture, *rules: Object, namespace: str = "", user: User = EVE) -> None:
    """Gives rights to Eve: everywhere, or in one namespace."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    await create(api, CONTROLLER_USER, "ClusterRole", f"held-{namespace}", rules=list(rules))
    reference = {"kind": "ClusterRole", "name": f"held-{namespace}"}
    subjects = [{"kind": "User", "name": user.name}]
    await create(api, CONTROLLER_USER, kind, "held", namespace=namespace, subjects=subjects, roleRef=reference)


def bound(role: str, kind: str = "Role", subjects: Any = TO_BOB) -> Object:
    return {"subjects": subjects, "roleRef": {"kind": kind, "name": role}}


def special(verb: str, plural: str, *names: str) -> Object:
    rule = {"apiGroups": [GROUP], "resources": [plural], "verbs": [verb]}
    return {**rule, "resourceNames": list(names)} if names else rule


async def test_rules_that_are_held_can_be_written(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    made = await create(guarded, EVE, "Role", "r", rules=[READ_MAPS])
    assert made["rules"] == [READ_MAPS]


async def test_rules_that_are_not_held_are_refused_and_named(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    with pytest.raises(Forbidden) as caught:
        await create(guarded, EVE, "Role", "r", rules=[READ_MAPS, READ_SECRETS, ALL_MAPS])
    details = caught.value.details
    assert (details.name, details.group, details.kind) == ("r", GROUP, "roles")
    assert caught.value.message == (
        f'roles.{GROUP} "r" is forbidden: user "eve" (groups=["devs" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["*"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert guarded.see("Role", "r") is None


async def test_what_is_held_in_one_namespace_cannot_be_given_in_another_or_everywhere(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "Role", "r", namespace="default", rules=[READ_MAPS])
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "ClusterRole", "r", rules=[READ_MAPS])


async def test_what_is_held_everywhere_can_be_given_anywhere(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS)
    await create(guarded, EVE, "Role", "r", rules=[READ_MAPS])
    await create(guarded, EVE, "ClusterRole", "r", rules=[READ_MAPS])
    with pytest.raises(Forbidden, match="clusterroles"):
        await create(guarded, EVE, "ClusterRole", "s", rules=[READ_MAPS, {"nonResourceURLs": ["/x"], "verbs": ["get"]}])


async def test_an_update_is_held_to_the_same(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    await create(guarded, EVE, "Role", "r", rules=[READ_MAPS])
    with pytest.raises(Forbidden, match=r'Verbs:\["\*"\]'):
        await change(guarded, EVE, "Role", "r", rules=[ALL_MAPS])
    await change(guarded, EVE, "Role", "r", rules=[])


async def test_less_is_more_only_if_all_that_is_left_is_held(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS)
    await create(guarded, ROOT, "ClusterRole", "r", rules=[READ_MAPS, READ_SECRETS, ALL_MAPS])
    with pytest.raises(Forbidden):
        await change(guarded, EVE, "ClusterRole", "r", rules=[READ_SECRETS])
    await change(guarded, EVE, "ClusterRole", "r", rules=[READ_MAPS])


async def test_a_dry_run_is_refused_like_the_write(guarded: RegistryFixture) -> None:
    body = guarded.body("Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await guarded.submit("Role", body, WriteOptions(EVE, "tests", dry_run=True))


@pytest.mark.parametrize("user", [ROOT, CONTROLLER_USER, User("x", ("system:masters",))])
async def test_admins_and_the_server_itself_may_write_everything(guarded: RegistryFixture, user: User) -> None:
    await create(guarded, user, "ClusterRole", "r", rules=[ANYTHING, ANY_PATH])
    await create(guarded, user, "ClusterRoleBinding", "b", **bound("r", "ClusterRole"))
    selectors = [{"matchLabels": {"a": "b"}}]
    await create(guarded, user, "ClusterRole", "s", aggregationRule={"clusterRoleSelectors": selectors})


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_the_right_to_escalate_stands_for_all_rules(guarded: RegistryFixture, kind: str) -> None:
    plural = f"{kind.lower()}s"
    await give(guarded, special("escalate", plural))
    await create(guarded, EVE, kind, "r", rules=[ANYTHING])
    await change(guarded, EVE, kind, "r", rules=[ANYTHING, READ_MAPS])
    other = "Role" if kind == "ClusterRole" else "ClusterRole"
    with pytest.raises(Forbidden):
        await create(guarded, EVE, other, "r", rules=[ANYTHING])


async def test_the_right_to_escalate_one_role_is_for_changing_that_one(guarded: RegistryFixture) -> None:
    await give(guarded, special("escalate", "roles", "r"))
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "Role", "r", rules=[READ_SECRETS])
    for name in ("r", "s"):
        await create(guarded, ROOT, "Role", name)
    await change(guarded, EVE, "Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await change(guarded, EVE, "Role", "s", rules=[READ_SECRETS])


async def test_the_right_to_escalate_in_a_namespace_counts_there(guarded: RegistryFixture) -> None:
    await give(guarded, special("escalate", "roles"), namespace=NAMESPACE)
    await create(guarded, EVE, "Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "Role", "r", namespace="default", rules=[READ_SECRETS])


async def test_a_role_may_be_annotated_whatever_its_rules(guarded: RegistryFixture) -> None:
    await create(guarded, ROOT, "Role", "r", rules=[ANYTHING])
    await label(guarded, EVE, "Role", "r", a="b")
    await create(guarded, ROOT, "ClusterRole", "r", rules=[ANYTHING])
    note = {"annotations": {"a": "b"}}
    await guarded.patch("ClusterRole", "r", lambda obj: obj["metadata"].update(note), WriteOptions(EVE))


async def test_a_cluster_role_with_rules_that_are_not_held_cannot_be_labelled_into_an_aggregated_one(
    guarded: RegistryFixture,
) -> None:
    await create(guarded, ROOT, "ClusterRole", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden, match="secrets"):
        await label(guarded, EVE, "ClusterRole", "r", aggregate="view")
    await give(guarded, READ_SECRETS)
    await label(guarded, EVE, "ClusterRole", "r", aggregate="view")


async def test_an_aggregation_rule_takes_all_rights(guarded: RegistryFixture) -> None:
    await give(guarded, {**ANYTHING, "verbs": ["get", "create", "update"]}, ANY_PATH)
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    with pytest.raises(Forbidden, match="must have cluster-admin privileges to use an aggregationRule"):
        await create(guarded, EVE, "ClusterRole", "r", aggregationRule=rule)
    await create(guarded, ROOT, "ClusterRole", "r", aggregationRule=rule)
    with pytest.raises(Forbidden, match="must have cluster-admin privileges"):
        await guarded.patch("ClusterRole", "r", lambda obj: obj.pop("aggregationRule"), WriteOptions(EVE))
    await change(guarded, ROOT, "ClusterRole", "held-", rules=[ANYTHING])
    await guarded.patch("ClusterRole", "r", lambda obj: obj.pop("aggregationRule"), WriteOptions(EVE))


async def test_a_role_that_is_held_can_be_bound(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    await create(guarded, ROOT, "Role", "small", rules=[READ_MAPS])
    await create(guarded, ROOT, "ClusterRole", "small", rules=[READ_MAPS])
    await create(guarded, EVE, "RoleBinding", "b", **bound("small"))
    await create(guarded, EVE, "RoleBinding", "c", **bound("small", "ClusterRole"))
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "ClusterRoleBinding", "d", **bound("small", "ClusterRole"))


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_a_role_that_is_not_held_cannot_be_bound(guarded: RegistryFixture, kind: str) -> None:
    await give(guarded, READ_MAPS, namespace=NAMESPACE)
    await create(guarded, ROOT, kind, "big", rules=[READ_MAPS, READ_SECRETS])
    with pytest.raises(Forbidden) as caught:
        await create(guarded, EVE, "RoleBinding", "b", **bound("big", kind))
    assert caught.value.details.kind == "rolebindings"
    assert caught.value.message.startswith(f'rolebindings.{GROUP} "b" is forbidden: user "eve" (groups=[')
    assert caught.value.message.endswith('not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')


async def test_nobody_adds_themselves_to_a_binding_of_more_than_they_hold(guarded: RegistryFixture) -> None:
    await create(guarded, ROOT, "ClusterRole", "all", rules=[ANYTHING])
    await create(guarded, ROOT, "ClusterRoleBinding", "b", **bound("all", "ClusterRole"))
    with pytest.raises(Forbidden):
        await change(guarded, EVE, "ClusterRoleBinding", "b", subjects=[*TO_BOB, {"kind": "User", "name": "eve"}])
    await label(guarded, EVE, "ClusterRoleBinding", "b", a="b")


async def test_an_aggregated_role_is_bound_for_what_it_has_gathered(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS)
    gathered = {"aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": [READ_MAPS]}
    await create(guarded, ROOT, "ClusterRole", "all", **gathered)
    await create(guarded, EVE, "ClusterRoleBinding", "b", **bound("all", "ClusterRole"))
    await change(guarded, CONTROLLER_USER, "ClusterRole", "all", rules=[READ_MAPS, READ_SECRETS])
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "ClusterRoleBinding", "c", **bound("all", "ClusterRole"))


async def test_a_role_that_grows_meanwhile_is_looked_at_again(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS)
    await create(guarded, ROOT, "Role", "r", rules=[READ_MAPS])
    guarded.store.before = [lambda: change(guarded, ROOT, "Role", "r", rules=[READ_SECRETS])]
    with pytest.raises(Forbidden, match="secrets"):
        await create(guarded, EVE, "RoleBinding", "b", **bound("r"))


async def test_the_right_to_bind_a_role_stands_for_its_rules(guarded: RegistryFixture) -> None:
    await give(guarded, special("bind", "roles", "big"), namespace=NAMESPACE)
    for name in ("big", "other"):
        await create(guarded, ROOT, "Role", name, rules=[READ_SECRETS])
    await create(guarded, ROOT, "ClusterRole", "big", rules=[READ_SECRETS])
    await create(guarded, EVE, "RoleBinding", "b", **bound("big"))
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "RoleBinding", "c", **bound("other"))
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "RoleBinding", "c", **bound("big", "ClusterRole"))


async def test_a_cluster_role_that_may_be_bound_in_a_namespace_cannot_be_bound_everywhere(
    guarded: RegistryFixture,
) -> None:
    await give(guarded, special("bind", "clusterroles"), namespace=NAMESPACE)
    await create(guarded, ROOT, "ClusterRole", "big", rules=[READ_SECRETS])
    await create(guarded, EVE, "RoleBinding", "b", **bound("big", "ClusterRole"))
    with pytest.raises(Forbidden):
        await create(guarded, EVE, "ClusterRoleBinding", "b", **bound("big", "ClusterRole"))


async def test_a_role_that_is_not_there_can_be_bound_by_those_who_may_bind_it(guarded: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='"none" not found'):
        await create(guarded, EVE, "RoleBinding", "b", **bound("none"))
    await give(guarded, special("bind", "roles"))
    await create(guarded, EVE, "RoleBinding", "b", **bound("none"))


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("RoleBinding", {}),
        ("RoleBinding", {"kind": "Nope", "name": "x"}),
        ("RoleBinding", {"kind": "Role"}),
        ("ClusterRoleBinding", {"kind": "Role", "name": "x"}),
    ],
)
async def test_a_reference_that_is_none_is_told_what_is_wrong_with_it(
    guarded: RegistryFixture, kind: str, reference: Object
) -> None:
    with pytest.raises(Invalid, match="roleRef"):
        await create(guarded, EVE, kind, "b", subjects=TO_BOB, roleRef=reference)


async def test_roles_and_bindings_can_be_deleted_by_those_who_do_not_hold_them(guarded: RegistryFixture) -> None:
    await create(guarded, ROOT, "Role", "r", rules=[ANYTHING])
    await create(guarded, ROOT, "RoleBinding", "b", **bound("r"))
    await guarded.delete("RoleBinding", "b", user=EVE)
    await guarded.delete("Role", "r", user=EVE)
    assert guarded.names("Role") == guarded.names("RoleBinding") == []


async def test_other_kinds_are_nobodys_concern(guarded: RegistryFixture) -> None:
    await create(guarded, EVE, "ConfigMap", "c", data={"rules": "x"})


async def test_rules_without_end_are_refused_with_advice(guarded: RegistryFixture) -> None:
    many = [f"x{number}" for number in range(1_000)]
    with pytest.raises(Forbidden, match="split the role into smaller ones"):
        await create(guarded, EVE, "Role", "r", rules=[{"verbs": many, "apiGroups": many, "resources": many}])


async def test_no_more_is_told_than_anybody_would_read(guarded: RegistryFixture) -> None:
    many = [f"x{number}" for number in range(1_000)]
    with pytest.raises(Forbidden) as caught:
        await create(guarded, EVE, "Role", "r", rules=[{"verbs": ["get"], "apiGroups": ["g"], "resources": many}])
    lines = caught.value.message.splitlines()
    assert len(lines) == 102 and lines[-1] == "and 900 more"


SCOPED = replace(EVE, key="k", scope=Scope(projects=(NAMESPACE,)))
ELSEWHERE = replace(EVE, key="k", scope=Scope(projects=("default",)))


async def outcomes(api: RegistryFixture, user: User) -> list[str]:
    """What becomes of writing a role and a binding in the namespace."""
    found = []
    for kind, fields in (("Role", {"rules": [READ_MAPS]}), ("RoleBinding", bound("small"))):
        try:
            await create(api, user, kind, "x", **fields)
            found.append("made")
        except ApiError as error:
            found.append(error.reason)
    return found


async def test_a_key_with_a_scope_does_not_give_what_its_user_holds(guarded: RegistryFixture) -> None:
    await give(guarded, READ_MAPS)
    await create(guarded, ROOT, "Role", "small", rules=[READ_MAPS])
    assert await outcomes(guarded, SCOPED) == ["Forbidden", "Forbidden"]
    with pytest.raises(Forbidden, match='needs the verb "escalate" within that scope'):
        await create(guarded, SCOPED, "Role", "x", rules=[READ_MAPS])
    assert await outcomes(guarded, EVE) == ["made", "made"]


@pytest.mark.parametrize(("user", "expected"), [(SCOPED, ["made", "made"]), (ELSEWHERE, ["Forbidden", "Forbidden"])])
async def test_a_key_with_a_scope_gives_what_it_may_escalate_and_bind_within_it(
    guarded: RegistryFixture, user: User, expected: list[str]
) -> None:
    await give(guarded, special("escalate", "roles"), special("bind", "roles"))
    await create(guarded, ROOT, "Role", "small", rules=[READ_SECRETS])
    assert await outcomes(guarded, user) == expected


async def test_an_admins_key_with_a_scope_gives_nothing_beyond_it(guarded: RegistryFixture) -> None:
    admin = replace(SCOPED, groups=("system:masters",))
    await create(guarded, ROOT, "Role", "small", rules=[ANYTHING])
    await create(guarded, ROOT, "ClusterRole", "all", rules=[ANYTHING])
    assert await outcomes(guarded, admin) == ["made", "made"]
    for kind, fields in (("ClusterRole", {"rules": [READ_MAPS]}), ("ClusterRoleBinding", bound("all", "ClusterRole"))):
        with pytest.raises(Forbidden, match="a key with a scope"):
            await create(guarded, admin, kind, "x", **fields)
    assert await outcomes(guarded, replace(admin, scope=Scope())) == ["Forbidden", "Forbidden"]
