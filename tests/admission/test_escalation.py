"""Privilege escalation: roles and bindings grant only permissions that their writer holds."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission.escalation import prevent_escalation
from fairlead.authz.authorizer import administrators, first_decision
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import ApiError, Forbidden, Invalid, NotFound
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

GROUP = "rbac.authorization.k8s.io"
ROOT = User("root", ("service:admins",))
EVE = User("eve", ("devs", "system:authenticated"))
READ_CONFIGMAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
READ_SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
ALL_CONFIGMAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
ALL_RESOURCES = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ALL_PATHS = {"nonResourceURLs": ["*"], "verbs": ["*"]}
BOB_SUBJECT = [{"kind": "User", "name": "bob"}]


@pytest.fixture
def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    """The registry with this admission rule only. `check_scope` decides what a scope allows."""
    rbac = RbacAuthorizer.from_view(api.view)

    def authorize(user: User, target: RequestInfo) -> Decision:
        return first_decision((check_scope, administrators, rbac), user, target)

    api.registry = api.with_rules(prevent_escalation(authorize, rbac)).registry
    return api


def check_scope(user: User, target: RequestInfo) -> Decision | None:
    is_in_scope = user.scope is None or (target.namespace == NAMESPACE and NAMESPACE in user.scope.projects)
    return None if is_in_scope else Decision(False, "outside of the scope")


async def create_object(api: RegistryFixture, user: User, kind: str, name: str, **fields: Any) -> Object:
    return await api.submit(kind, api.build_object(kind, name, **fields), WriteOptions(user, "tests"))


async def update_object(api: RegistryFixture, user: User, kind: str, name: str, **fields: Any) -> Object:
    return await api.patch(kind, name, lambda obj: obj.update(fields), WriteOptions(user, "tests"))


async def set_labels(api: RegistryFixture, user: User, kind: str, name: str, **labels: str) -> Object:
    return await api.patch(kind, name, lambda obj: obj["metadata"].update(labels=labels), WriteOptions(user, "tests"))


async def grant_rules(api: RegistryFixture, *rules: Object, namespace: str = "", user: User = EVE) -> None:
    """Grants rules to a user: in the whole cluster, or in one namespace."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    await create_object(api, CONTROLLER_USER, "ClusterRole", f"held-{namespace}", rules=list(rules))
    reference = {"kind": "ClusterRole", "name": f"held-{namespace}"}
    subjects = [{"kind": "User", "name": user.name}]
    await create_object(api, CONTROLLER_USER, kind, "held", namespace=namespace, subjects=subjects, roleRef=reference)


def binding_fields(role: str, kind: str = "Role", subjects: Any = BOB_SUBJECT) -> Object:
    return {"subjects": subjects, "roleRef": {"kind": kind, "name": role}}


def rbac_rule(verb: str, plural: str, *names: str) -> Object:
    rule = {"apiGroups": [GROUP], "resources": [plural], "verbs": [verb]}
    return {**rule, "resourceNames": list(names)} if names else rule


async def test_a_role_with_held_rules_can_be_created(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    created = await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_CONFIGMAPS])
    assert created["rules"] == [READ_CONFIGMAPS]


async def test_rules_that_are_not_held_are_rejected_and_listed(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    with pytest.raises(Forbidden) as error:
        await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_CONFIGMAPS, READ_SECRETS, ALL_CONFIGMAPS])
    details = error.value.details
    assert (details.name, details.group, details.kind) == ("r", GROUP, "roles")
    assert error.value.message == (
        f'roles.{GROUP} "r" is forbidden: user "eve" (groups=["devs" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["*"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert api_with_rule.get("Role", "r") is None


async def test_rules_held_in_one_namespace_cannot_be_granted_elsewhere(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "Role", "r", namespace="default", rules=[READ_CONFIGMAPS])
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "ClusterRole", "r", rules=[READ_CONFIGMAPS])


async def test_rules_held_in_the_cluster_can_be_granted_in_any_namespace(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS)
    await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_CONFIGMAPS])
    await create_object(api_with_rule, EVE, "ClusterRole", "r", rules=[READ_CONFIGMAPS])
    with pytest.raises(Forbidden, match="clusterroles"):
        await create_object(
            api_with_rule,
            EVE,
            "ClusterRole",
            "s",
            rules=[READ_CONFIGMAPS, {"nonResourceURLs": ["/x"], "verbs": ["get"]}],
        )


async def test_an_update_is_checked_too(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_CONFIGMAPS])
    with pytest.raises(Forbidden, match=r'Verbs:\["\*"\]'):
        await update_object(api_with_rule, EVE, "Role", "r", rules=[ALL_CONFIGMAPS])
    await update_object(api_with_rule, EVE, "Role", "r", rules=[])


async def test_removing_rules_requires_holding_the_remaining_rules(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS)
    await create_object(api_with_rule, ROOT, "ClusterRole", "r", rules=[READ_CONFIGMAPS, READ_SECRETS, ALL_CONFIGMAPS])
    with pytest.raises(Forbidden):
        await update_object(api_with_rule, EVE, "ClusterRole", "r", rules=[READ_SECRETS])
    await update_object(api_with_rule, EVE, "ClusterRole", "r", rules=[READ_CONFIGMAPS])


async def test_a_dry_run_is_rejected_like_the_write(api_with_rule: RegistryFixture) -> None:
    body = api_with_rule.build_object("Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await api_with_rule.submit("Role", body, WriteOptions(EVE, "tests", dry_run=True))


@pytest.mark.parametrize("user", [ROOT, CONTROLLER_USER, User("x", ("system:masters",))])
async def test_administrators_and_the_server_may_grant_everything(api_with_rule: RegistryFixture, user: User) -> None:
    await create_object(api_with_rule, user, "ClusterRole", "r", rules=[ALL_RESOURCES, ALL_PATHS])
    await create_object(api_with_rule, user, "ClusterRoleBinding", "b", **binding_fields("r", "ClusterRole"))
    selectors = [{"matchLabels": {"a": "b"}}]
    await create_object(api_with_rule, user, "ClusterRole", "s", aggregationRule={"clusterRoleSelectors": selectors})


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_the_verb_escalate_allows_all_rules(api_with_rule: RegistryFixture, kind: str) -> None:
    plural = f"{kind.lower()}s"
    await grant_rules(api_with_rule, rbac_rule("escalate", plural))
    await create_object(api_with_rule, EVE, kind, "r", rules=[ALL_RESOURCES])
    await update_object(api_with_rule, EVE, kind, "r", rules=[ALL_RESOURCES, READ_CONFIGMAPS])
    other = "Role" if kind == "ClusterRole" else "ClusterRole"
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, other, "r", rules=[ALL_RESOURCES])


async def test_the_verb_escalate_on_one_role_allows_updates_of_that_role_only(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, rbac_rule("escalate", "roles", "r"))
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_SECRETS])
    for name in ("r", "s"):
        await create_object(api_with_rule, ROOT, "Role", name)
    await update_object(api_with_rule, EVE, "Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await update_object(api_with_rule, EVE, "Role", "s", rules=[READ_SECRETS])


async def test_the_verb_escalate_in_a_namespace_applies_there_only(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, rbac_rule("escalate", "roles"), namespace=NAMESPACE)
    await create_object(api_with_rule, EVE, "Role", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "Role", "r", namespace="default", rules=[READ_SECRETS])


async def test_metadata_of_a_role_can_change_without_holding_its_rules(api_with_rule: RegistryFixture) -> None:
    await create_object(api_with_rule, ROOT, "Role", "r", rules=[ALL_RESOURCES])
    await set_labels(api_with_rule, EVE, "Role", "r", a="b")
    await create_object(api_with_rule, ROOT, "ClusterRole", "r", rules=[ALL_RESOURCES])
    metadata = {"annotations": {"a": "b"}}
    await api_with_rule.patch("ClusterRole", "r", lambda obj: obj["metadata"].update(metadata), WriteOptions(EVE))


async def test_labelling_a_cluster_role_for_aggregation_requires_holding_its_rules(
    api_with_rule: RegistryFixture,
) -> None:
    await create_object(api_with_rule, ROOT, "ClusterRole", "r", rules=[READ_SECRETS])
    with pytest.raises(Forbidden, match="secrets"):
        await set_labels(api_with_rule, EVE, "ClusterRole", "r", aggregate="view")
    await grant_rules(api_with_rule, READ_SECRETS)
    await set_labels(api_with_rule, EVE, "ClusterRole", "r", aggregate="view")


async def test_an_aggregation_rule_requires_all_permissions(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, {**ALL_RESOURCES, "verbs": ["get", "create", "update"]}, ALL_PATHS)
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    with pytest.raises(Forbidden, match="must have cluster-admin privileges to use an aggregationRule"):
        await create_object(api_with_rule, EVE, "ClusterRole", "r", aggregationRule=rule)
    await create_object(api_with_rule, ROOT, "ClusterRole", "r", aggregationRule=rule)
    with pytest.raises(Forbidden, match="must have cluster-admin privileges"):
        await api_with_rule.patch("ClusterRole", "r", lambda obj: obj.pop("aggregationRule"), WriteOptions(EVE))
    await update_object(api_with_rule, ROOT, "ClusterRole", "held-", rules=[ALL_RESOURCES])
    await api_with_rule.patch("ClusterRole", "r", lambda obj: obj.pop("aggregationRule"), WriteOptions(EVE))


async def test_a_role_that_is_held_can_be_bound(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    await create_object(api_with_rule, ROOT, "Role", "small", rules=[READ_CONFIGMAPS])
    await create_object(api_with_rule, ROOT, "ClusterRole", "small", rules=[READ_CONFIGMAPS])
    await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("small"))
    await create_object(api_with_rule, EVE, "RoleBinding", "c", **binding_fields("small", "ClusterRole"))
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "ClusterRoleBinding", "d", **binding_fields("small", "ClusterRole"))


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_a_role_that_is_not_held_cannot_be_bound(api_with_rule: RegistryFixture, kind: str) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS, namespace=NAMESPACE)
    await create_object(api_with_rule, ROOT, kind, "big", rules=[READ_CONFIGMAPS, READ_SECRETS])
    with pytest.raises(Forbidden) as error:
        await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("big", kind))
    assert error.value.details.kind == "rolebindings"
    assert error.value.message.startswith(f'rolebindings.{GROUP} "b" is forbidden: user "eve" (groups=[')
    assert error.value.message.endswith('not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')


async def test_adding_a_subject_to_a_binding_requires_holding_its_role(api_with_rule: RegistryFixture) -> None:
    await create_object(api_with_rule, ROOT, "ClusterRole", "all", rules=[ALL_RESOURCES])
    await create_object(api_with_rule, ROOT, "ClusterRoleBinding", "b", **binding_fields("all", "ClusterRole"))
    with pytest.raises(Forbidden):
        await update_object(
            api_with_rule, EVE, "ClusterRoleBinding", "b", subjects=[*BOB_SUBJECT, {"kind": "User", "name": "eve"}]
        )
    await set_labels(api_with_rule, EVE, "ClusterRoleBinding", "b", a="b")


async def test_binding_an_aggregated_role_requires_holding_its_aggregated_rules(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS)
    aggregated = {"aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": [READ_CONFIGMAPS]}
    await create_object(api_with_rule, ROOT, "ClusterRole", "all", **aggregated)
    await create_object(api_with_rule, EVE, "ClusterRoleBinding", "b", **binding_fields("all", "ClusterRole"))
    await update_object(api_with_rule, CONTROLLER_USER, "ClusterRole", "all", rules=[READ_CONFIGMAPS, READ_SECRETS])
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "ClusterRoleBinding", "c", **binding_fields("all", "ClusterRole"))


async def test_a_role_that_changes_concurrently_is_checked_again(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS)
    await create_object(api_with_rule, ROOT, "Role", "r", rules=[READ_CONFIGMAPS])
    api_with_rule.store.before = [lambda: update_object(api_with_rule, ROOT, "Role", "r", rules=[READ_SECRETS])]
    with pytest.raises(Forbidden, match="secrets"):
        await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("r"))


async def test_the_verb_bind_on_a_role_allows_binding_it(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, rbac_rule("bind", "roles", "big"), namespace=NAMESPACE)
    for name in ("big", "other"):
        await create_object(api_with_rule, ROOT, "Role", name, rules=[READ_SECRETS])
    await create_object(api_with_rule, ROOT, "ClusterRole", "big", rules=[READ_SECRETS])
    await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("big"))
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "RoleBinding", "c", **binding_fields("other"))
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "RoleBinding", "c", **binding_fields("big", "ClusterRole"))


async def test_the_verb_bind_in_a_namespace_does_not_allow_cluster_role_bindings(
    api_with_rule: RegistryFixture,
) -> None:
    await grant_rules(api_with_rule, rbac_rule("bind", "clusterroles"), namespace=NAMESPACE)
    await create_object(api_with_rule, ROOT, "ClusterRole", "big", rules=[READ_SECRETS])
    await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("big", "ClusterRole"))
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, EVE, "ClusterRoleBinding", "b", **binding_fields("big", "ClusterRole"))


async def test_a_missing_role_can_be_bound_with_the_verb_bind(api_with_rule: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='"none" not found'):
        await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("none"))
    await grant_rules(api_with_rule, rbac_rule("bind", "roles"))
    await create_object(api_with_rule, EVE, "RoleBinding", "b", **binding_fields("none"))


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("RoleBinding", {}),
        ("RoleBinding", {"kind": "Nope", "name": "x"}),
        ("RoleBinding", {"kind": "Role"}),
        ("ClusterRoleBinding", {"kind": "Role", "name": "x"}),
    ],
)
async def test_an_invalid_role_reference_is_reported(
    api_with_rule: RegistryFixture, kind: str, reference: Object
) -> None:
    with pytest.raises(Invalid, match="roleRef"):
        await create_object(api_with_rule, EVE, kind, "b", subjects=BOB_SUBJECT, roleRef=reference)


async def test_deleting_roles_and_bindings_does_not_require_holding_them(api_with_rule: RegistryFixture) -> None:
    await create_object(api_with_rule, ROOT, "Role", "r", rules=[ALL_RESOURCES])
    await create_object(api_with_rule, ROOT, "RoleBinding", "b", **binding_fields("r"))
    await api_with_rule.delete("RoleBinding", "b", user=EVE)
    await api_with_rule.delete("Role", "r", user=EVE)
    assert api_with_rule.list_names("Role") == api_with_rule.list_names("RoleBinding") == []


async def test_other_kinds_are_not_checked(api_with_rule: RegistryFixture) -> None:
    await create_object(api_with_rule, EVE, "ConfigMap", "c", data={"rules": "x"})


async def test_too_many_rule_combinations_are_rejected_with_advice(api_with_rule: RegistryFixture) -> None:
    many = [f"x{number}" for number in range(1_000)]
    with pytest.raises(Forbidden, match="split the role into smaller ones"):
        await create_object(
            api_with_rule, EVE, "Role", "r", rules=[{"verbs": many, "apiGroups": many, "resources": many}]
        )


async def test_the_message_lists_a_limited_number_of_rules(api_with_rule: RegistryFixture) -> None:
    many = [f"x{number}" for number in range(1_000)]
    with pytest.raises(Forbidden) as error:
        await create_object(
            api_with_rule, EVE, "Role", "r", rules=[{"verbs": ["get"], "apiGroups": ["g"], "resources": many}]
        )
    lines = error.value.message.splitlines()
    assert len(lines) == 102 and lines[-1] == "and 900 more"


SCOPED = replace(EVE, key="k", scope=Scope(projects=(NAMESPACE,)))
SCOPED_ELSEWHERE = replace(EVE, key="k", scope=Scope(projects=("default",)))


async def create_role_and_binding(api: RegistryFixture, user: User) -> list[str]:
    """Creates a role and a binding in the namespace. Returns "created" or the reason of the error for each."""
    results = []
    for kind, fields in (("Role", {"rules": [READ_CONFIGMAPS]}), ("RoleBinding", binding_fields("small"))):
        try:
            await create_object(api, user, kind, "x", **fields)
            results.append("created")
        except ApiError as error:
            results.append(error.reason)
    return results


async def test_a_scoped_key_cannot_grant_what_its_user_holds(api_with_rule: RegistryFixture) -> None:
    await grant_rules(api_with_rule, READ_CONFIGMAPS)
    await create_object(api_with_rule, ROOT, "Role", "small", rules=[READ_CONFIGMAPS])
    assert await create_role_and_binding(api_with_rule, SCOPED) == ["Forbidden", "Forbidden"]
    with pytest.raises(Forbidden, match='needs the verb "escalate" within that scope'):
        await create_object(api_with_rule, SCOPED, "Role", "x", rules=[READ_CONFIGMAPS])
    assert await create_role_and_binding(api_with_rule, EVE) == ["created", "created"]


@pytest.mark.parametrize(
    ("user", "expected"), [(SCOPED, ["created", "created"]), (SCOPED_ELSEWHERE, ["Forbidden", "Forbidden"])]
)
async def test_a_scoped_key_grants_with_escalate_and_bind_within_its_scope(
    api_with_rule: RegistryFixture, user: User, expected: list[str]
) -> None:
    await grant_rules(api_with_rule, rbac_rule("escalate", "roles"), rbac_rule("bind", "roles"))
    await create_object(api_with_rule, ROOT, "Role", "small", rules=[READ_SECRETS])
    assert await create_role_and_binding(api_with_rule, user) == expected


async def test_a_scoped_key_of_an_administrator_grants_nothing_beyond_its_scope(api_with_rule: RegistryFixture) -> None:
    admin = replace(SCOPED, groups=("system:masters",))
    await create_object(api_with_rule, ROOT, "Role", "small", rules=[ALL_RESOURCES])
    await create_object(api_with_rule, ROOT, "ClusterRole", "all", rules=[ALL_RESOURCES])
    assert await create_role_and_binding(api_with_rule, admin) == ["created", "created"]
    for kind, fields in (
        ("ClusterRole", {"rules": [READ_CONFIGMAPS]}),
        ("ClusterRoleBinding", binding_fields("all", "ClusterRole")),
    ):
        with pytest.raises(Forbidden, match="a key with a scope"):
            await create_object(api_with_rule, admin, kind, "x", **fields)
    assert await create_role_and_binding(api_with_rule, replace(admin, scope=Scope())) == ["Forbidden", "Forbidden"]
