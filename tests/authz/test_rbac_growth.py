"""Roles with very many rules, and identities with very many roles: a request costs the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.authz import binding_index
from fairlead.authz import rbac as module
from fairlead.authz.rbac import DECISION_CACHE_SIZE, RULE_CACHE_SIZE, RbacAuthorizer, RoleRules, resource_patterns
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.authz.roles import asked, binding, fixed, path, role, rule, subject
from tests.harness.growth import work
from tests.harness.registry import RegistryFixture

BOB = User("bob", ("devs",))

RULES: dict[str, Callable[[int], list[Object]]] = {
    "a rule for each name": lambda n: [rule("get", "apps", names=f"n{i}") for i in range(n)],
    "a rule for each verb": lambda n: [rule(f"v{i}", "apps", names="x") for i in range(n)],
    "a rule for each group": lambda n: [rule("get", "apps", groups=f"g{i}") for i in range(n)],
    "all names in one rule": lambda n: [rule("get", "apps", names=" ".join(f"n{i}" for i in range(n)))],
    "paths": lambda n: [{"verbs": ["get"], "nonResourceURLs": [f"/p{i}/*" for i in range(n)]}],
    "a rule for each path": lambda n: [{"verbs": ["get"], "nonResourceURLs": [f"/p{i}*"]} for i in range(n)],
}
ASKED = [
    asked("get", "apps", "n7"),
    asked("get", "apps", "other"),
    asked("get", "apps/status", "n7"),
    asked("v7", "apps", "x"),
    asked("list", "apps"),
    path("get", "/p7/x"),
    path("get", "/other"),
]


# Paths are asked of each role: nothing that is listed has one.
CASES = [(name, spread) for name in RULES for spread in (False, True) if not (spread and "path" in name)]


@pytest.mark.parametrize(("name", "spread"), CASES)
def test_a_request_costs_the_same_however_many_rules_there_are(name: str, spread: bool) -> None:
    def prepared(size: int) -> Callable[[], object]:
        rules = RULES[name](size)
        roles = [role(each, name=f"r{i}") for i, each in enumerate(rules)] if spread else [role(*rules, name="r0")]
        bindings = [
            binding(subject("User", "bob"), name=each["metadata"]["name"], to=each["metadata"]["name"])
            for each in roles
        ]
        rbac = fixed(cluster_roles=roles, cluster_role_bindings=bindings)

        def ask() -> None:
            for target in ASKED[:5] if spread else ASKED:
                rbac(BOB, target)

        ask()
        return ask

    assert work(prepared(800)) <= 2 * work(prepared(50))


def test_the_first_of_many_roles_that_allows_something_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the index, whatever is asked."""
    rules = [rule("get", "apps", names="a b"), rule("get list", "apps"), rule("get", "apps", names="a c")]
    roles = [role(each, name=f"r{i}") for i, each in enumerate(rules)]
    bindings = [binding(subject("Group", "devs"), name=f"b{i}", to=f"r{i}") for i in (2, 0, 1)]
    targets = [asked(verb, "apps", name) for verb in ("get", "list", "watch") for name in ("", "a", "b", "c", "d")]
    plain = [fixed(cluster_roles=roles, cluster_role_bindings=bindings)(BOB, target) for target in targets]
    monkeypatch.setattr(module, "MAX_UNCACHED_ROLES", 0)
    assert [fixed(cluster_roles=roles, cluster_role_bindings=bindings)(BOB, target) for target in targets] == plain
    assert len({each.reason for each in plain if each}) == 2


def test_what_is_kept_of_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNCACHED_ROLES", 0)
    rights = RoleRules([rule("*", "*", names="a"), {"verbs": ["*"], "nonResourceURLs": ["/x"]}])
    rbac = fixed([], [role(rule("*", "*", names="a"))], [], [binding(subject("User", "bob"))])
    for index in range(3 * RULE_CACHE_SIZE):
        target = asked("get", f"r{index}", "a")
        assert rights.allows(target, resource_patterns(target)) and rbac(BOB, target)
        assert rights.allows(RequestInfo(f"v{index}", "/x"), ())
    assert len(rights._allowed_names) <= RULE_CACHE_SIZE and len(rights._paths_by_verb) <= RULE_CACHE_SIZE
    [grants] = rbac._snapshot.get().grants_of(BOB)._grants.values()
    assert len(grants._decisions) <= DECISION_CACHE_SIZE


async def test_a_binding_that_changes_costs_as_much_among_many_as_alone(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a binding is followed by somebody's request, which must not go through all the others."""
    looked_at: list[str] = []
    read = binding_index._subject_keys

    def counted(namespace: str, each: Object) -> Iterator[tuple[int, binding_index.SubjectKey]]:
        looked_at.append(each["metadata"]["name"])
        return read(namespace, each)

    monkeypatch.setattr(binding_index, "_subject_keys", counted)
    rbac = RbacAuthorizer.from_view(api.view)
    await api.create("ClusterRole", "r", rules=[rule("get", "apps")])
    given: dict[str, Any] = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject("Group", "devs")]}
    for number in range(30):
        await api.create("ClusterRoleBinding", f"b{number}", **given)
    assert rbac(BOB, asked("get", "apps")) and len(looked_at) == 30
    looked_at.clear()
    await api.create("ClusterRoleBinding", "a", **given)
    decision = rbac(BOB, asked("get", "apps"))
    assert decision is not None and 'ClusterRoleBinding "a"' in decision.reason
    await api.patch("ClusterRoleBinding", "a", lambda each: each.update(subjects=[subject("User", "eve")]))
    decision = rbac(BOB, asked("get", "apps"))
    assert decision is not None and 'ClusterRoleBinding "b0"' in decision.reason
    assert set(looked_at) == {"a"} and len(looked_at) == 3


def test_many_bindings_to_one_role_are_one_grant() -> None:
    """Bindings come by the thousand; what they all give is looked at once, and put into words for the first."""
    bindings = [binding(subject("Group", "devs"), name=f"b{number:03}", namespace="n") for number in range(200)]
    rbac = fixed([], [role(rule("get", "apps"))], bindings, [])
    decision = rbac(BOB, asked("get", "apps", namespace="n"))
    assert decision is not None and 'RoleBinding "b000/n"' in decision.reason
    assert len(rbac._snapshot.get().grants_of(BOB).grants_in("n").grants) == 1
    assert rbac(BOB, asked("get", "apps", namespace="m")) is None
    assert rbac(BOB, asked("get", "apps")) is None
    assert list(rbac._snapshot.get().grants_of(BOB)._grants) == ["n"]
